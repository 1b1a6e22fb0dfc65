"""Let Ryu 4.34 build with a current setuptools.

`ryu/hooks.py` replaces `setuptools.command.easy_install.get_script_args`, a name
that setuptools no longer has; the build asks for it and never calls it. `tools/venv.sh`
puts this folder on PYTHONPATH for that one build.
"""

from setuptools.command import easy_install

if not hasattr(easy_install, "get_script_args"):
    easy_install.get_script_args = lambda *_args, **_kwargs: []
