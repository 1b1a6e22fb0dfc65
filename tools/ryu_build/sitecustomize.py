"""Let Ryu 4.34 build with a current setuptools.

`ryu/hooks.py` replaces `setuptools.command.easy_install.get_script_args`, which setuptools no longer has. The
build reads the name but never calls it. `tools/venv.sh` puts this folder on PYTHONPATH for Ryu's build only.
"""

from setuptools.command import easy_install

if not hasattr(easy_install, "get_script_args"):
    easy_install.get_script_args = lambda *_args, **_kwargs: []
