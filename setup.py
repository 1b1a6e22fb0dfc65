"""Nothing is declared here: see pyproject.toml. The file is for tools that still ask for it."""

from setuptools import setup

setup()
