"""Write the lists of Python packages, with the hashes of their files, from what .venv has installed.

    python -m tools.lock

To update packages: make an environment without the lists, run the tests in it, then run this in it. The
command ``uv`` must be on the path. It reads the hashes of all files of a version, for every platform, from
the package index.
"""

from __future__ import annotations

import re
import subprocess
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER = Path(__file__).parent
BUILD = ("pip", "setuptools", "wheel", "pbr")
LISTS = {
    "build": "what installs and builds the other packages",
    "run": "what Weir needs to run",
    "dev": "what only the tests, the checks, the documentation and the lab need",
}


def closure(wanted: list[Requirement]) -> set[str]:
    """The names of the installed packages that requirements need, directly or not."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        for extra in requirement.extras | {""}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            found.add(name)
            needed = [Requirement(line) for line in metadata.requires(name) or ()]
            wanted += [one for one in needed if one.marker is None or one.marker.evaluate({"extra": extra})]
    return found


def names_of_lists() -> dict[str, set[str]]:
    """The packages of each list. A package is in the first list that needs it."""
    build = closure([Requirement(name) for name in BUILD])
    run = closure([Requirement("weir")]) - {"weir"} - build
    dev = closure([Requirement("weir[dev,lab]")]) - {"weir"} - build - run
    return {"build": build, "run": run, "dev": dev}


def write(kind: str, names: set[str]) -> None:
    """Write a list. ``uv`` resolves nothing: every version is given."""
    pins = "\n".join(f"{name}=={metadata.version(name)}" for name in sorted(names))
    command = ["uv", "pip", "compile", "--quiet", "--no-deps", "--generate-hashes", "--no-header"]
    command += ["--no-annotate", "--no-emit-find-links", "--no-emit-index-url", "-"]
    done = subprocess.run(command, input=pins, capture_output=True, text=True, check=True)
    head = f"# Python packages: {LISTS[kind]}. tools/lock.py writes this file.\n"
    (FOLDER / f"requirements-{kind}.txt").write_text(head + done.stdout)


def pinned(kind: str) -> dict[str, str]:
    """The packages of a list and their versions."""
    text = (FOLDER / f"requirements-{kind}.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))


if __name__ == "__main__":
    for kind, names in names_of_lists().items():
        write(kind, names)
