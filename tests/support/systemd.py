"""A real systemd that runs Weir's units, in namespaces of its own.

It is process 1 of a PID namespace. It has its own cgroup, /run, /tmp, /var and /opt, and a copy of /etc. It
shares the network namespace of the test. It knows only the units that it is given, and it cannot write to
/proc/sys: the units of the machine would clean the machine's /tmp and set its sysctls. The project is at
/opt/weir, where the units expect it. Mounts are shared within its namespaces, as systemd expects of a
container's manager: a unit's credentials are a mount.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.support.agent.network_apart import OWN_SYSFS
from tests.support.waiting import DEADLINE_S, wait_until
from weir_base.paths import PROJECT

PACKAGING = PROJECT / "packaging"
SCRIPT = "/opt/weir/.venv/bin/weir"
WEIR = "/opt/weir/.venv/bin/python -m weir"
_TARGETS = ("sysinit", "basic", "shutdown", "multi-user")
"""Targets that units with default dependencies need. Here they need nothing themselves."""
_LAUNCH = """
mkdir "$1"; echo $$ > "$1/cgroup.procs"; shift
exec setpriv --pdeathsig KILL unshare --mount --uts --ipc --pid --cgroup --fork --kill-child --mount-proc "$@"
"""
_BOOT = """
stage=$1 project=$2
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind "$project" "$stage/opt/weir"
if [ "$3" ]; then mount --bind "$3" "$stage/run/openvswitch"; fi
for place in etc opt var run tmp; do mount --rbind "$stage/$place" /$place; done
mount --make-rshared /
systemd-sysusers /opt/weir/packaging/weir-sysusers.conf
export container=weir SYSTEMD_UNIT_PATH=/run/units SYSTEMD_GENERATOR_PATH=/run/none
export SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/run/none
exec /lib/systemd/systemd --system --unit=multi-user.target --log-target=null
"""


def service(unit: Path) -> dict[str, list[str]]:
    """The values of each setting of a unit's [Service] section, in their order."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in unit.read_text().splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


class Systemd:
    """A running systemd. ``stage`` holds its folders; ``pid`` is its process, as the test sees it."""

    def __init__(self, stage: Path, pid: int) -> None:
        self.stage = stage
        self.pid = pid

    def inside(self, *argv: str) -> str:
        """Run a command in systemd's namespaces; returns its output. Raises AssertionError if it fails."""
        command = ["nsenter", "--target", str(self.pid), "--mount", "--pid", *argv]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr or done.stdout}\n{self.log()}"
        return done.stdout

    def weir(self, *argv: str) -> str:
        """Run ``weir`` with the settings of the services."""
        settings = "WEIR_CONFIG=/etc/weir/weir.toml"
        return self.inside("env", "PYTHONPATH=/opt/weir", settings, *WEIR.split(), *argv)

    def start(self, unit: str) -> None:
        """Start a unit, and wait until it is active: with Type=notify until it has said that it is ready."""
        self.inside("systemctl", "start", f"weir-{unit}")
        assert self.shown(unit, "ActiveState") == "active", self.log()

    def stop(self, unit: str) -> None:
        """Stop a unit. Raises AssertionError if systemd does not call its end a success."""
        self.inside("systemctl", "stop", f"weir-{unit}")
        assert (self.shown(unit, "ActiveState"), self.shown(unit, "Result")) == ("inactive", "success"), (
            self.log()
        )

    def shown(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.inside("systemctl", "show", "--value", f"--property={name}", f"weir-{unit}").strip()

    def kill(self, unit: str, signal: str) -> None:
        """Send a signal to a unit's main process."""
        self.inside("systemctl", "kill", f"--signal={signal}", "--kill-whom=main", f"weir-{unit}")

    def restarted(self, unit: str, times: int) -> None:
        """Wait until systemd has restarted a unit so often, and the unit is active."""
        names = ("NRestarts", "ActiveState")
        wait_until(
            lambda: [self.shown(unit, name) for name in names],
            f"systemd starts {unit} again",
            lambda seen: seen == [str(times), "active"],
        )

    def status(self, unit: str) -> dict[str, str]:
        """/proc/PID/status of a unit's main process."""
        lines = self.inside("cat", f"/proc/{self.shown(unit, 'MainPID')}/status").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def log(self) -> str:
        """What the units have written."""
        return (self.stage / "run/log").read_text()


def _install(unit: Path, stage: Path, settings: Sequence[str]) -> None:
    """Install a unit. The scripts of a venv name its first place, so the unit starts the interpreter."""
    text = unit.read_text()
    assert SCRIPT in text
    (stage / "run/units" / unit.name).write_text(text.replace(SCRIPT, WEIR))
    lines = ["[Service]", "Environment=PYTHONPATH=/opt/weir PYTHONDONTWRITEBYTECODE=1"]
    lines += ["StandardOutput=append:/run/log", "StandardError=inherit"]
    extension = stage / "run/units" / f"{unit.name}.d"
    extension.mkdir()
    (extension / "test.conf").write_text("\n".join([*lines, *settings]) + "\n")


def _staged(stage: Path, toml: str, units: Mapping[str, Sequence[str]]) -> None:
    """Fill the folders of a systemd."""
    for place in ("etc", "opt/weir", "var/lib", "var/log", "var/tmp", "run/openvswitch", "run/units", "tmp"):
        (stage / place).mkdir(parents=True)
    (stage / "tmp").chmod(0o1777)
    (stage / "var/run").symlink_to("/run")
    (stage / "run/log").touch()
    subprocess.run(["cp", "-a", "/etc/.", str(stage / "etc")], check=True)
    (stage / "etc/weir").mkdir(exist_ok=True)
    (stage / "etc/weir/weir.toml").write_text(toml)
    for name in _TARGETS:
        text = "[Unit]\nDefaultDependencies=no\n"
        (stage / "run/units" / f"{name}.target").write_text(text)
    for name, settings in units.items():
        _install(PACKAGING / f"weir-{name}.service", stage, settings)


def _own_cgroup() -> Path:
    """A name for a cgroup below that of this process, in the hierarchy of version 2."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    root = next(Path(mount[1]) for mount in mounts if mount[2] == "cgroup2")
    match = re.search(r"^0::/(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    assert match is not None
    return root / match[1] / f"weir-test-{os.getpid()}"


def _remove(cgroup: Path) -> None:
    """Remove a cgroup and those below it, as soon as their last processes are gone."""
    for folder, _, _ in os.walk(cgroup, topdown=False):
        wait_until(lambda folder=folder: _removed(folder), f"{folder} is empty")  # type: ignore[misc]


def _removed(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def systemd(
    toml: str, units: Mapping[str, Sequence[str]], ovs_rundir: Path | None = None
) -> Iterator[Systemd]:
    """A systemd with these units of ``packaging/``, by the names of their programs, none started.

    ``toml`` is /etc/weir/weir.toml. ``units`` has further lines for each unit's [Service] section.
    ``ovs_rundir`` is the run directory of an Open vSwitch, which the units see at /run/openvswitch.
    """
    stage, cgroup = Path(tempfile.mkdtemp(prefix="weir-systemd-")), _own_cgroup()
    process = None
    try:
        _staged(stage, toml, units)
        boot = [*OWN_SYSFS, "sh", "-ec", _BOOT, "sh", str(stage), str(PROJECT), str(ovs_rundir or "")]
        process = subprocess.Popen(["sh", "-ec", _LAUNCH, "sh", str(cgroup), *boot], stdin=subprocess.DEVNULL)
        launched = process

        def first() -> int:
            assert launched.poll() is None, "systemd did not start"
            children = Path(f"/proc/{launched.pid}/task/{launched.pid}/children").read_text().split()
            return int(children[0]) if children and (stage / "run/systemd/private").exists() else 0

        running = Systemd(stage, wait_until(first, "systemd runs"))
        try:
            yield running
        finally:
            print("the units said:", running.log())
    finally:
        if process is not None:
            process.kill()
            process.wait()
            _remove(cgroup)
        shutil.rmtree(stage)
