"""An experiment from its parameters to its folder: run, summarise, plot, report."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mininet_topos.cpus import give_to_switch, hosts_apart
from mininet_topos.errors import BadExperiment, LabError
from mininet_topos.experiment import Case, Experiment
from mininet_topos.net import network
from mininet_topos.node import run
from mininet_topos.ovs_buffers import vswitchd_pid
from mininet_topos.probe import QueueProbe
from mininet_topos.programs import Running, require_free, running
from mininet_topos.run import Runner
from mininet_topos.schemes import SCHEMES

MOST_ATTEMPTS = 3
PROJECT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Progress:
    """How an experiment tells how far it is: `say` what it does, `done` a step, `warn` of a repeat."""

    say: Callable[[str], None]
    done: Callable[[], None]
    warn: Callable[[str], None]


def steps(experiment: Experiment) -> int:
    """How many times `Progress.done` will be called."""
    return 1 + len(experiment.schemes) * (1 + len(experiment.cases))


def run_experiment(experiment: Experiment, folder: Path, progress: Progress, port: int | None = None) -> None:
    """Run an experiment and write its raw records and metadata to the new folder `folder`.

    Raises BadExperiment, Unable, ProgramFailed, RunFailed; nothing of the network is left then either.
    """
    repeat_until = time.monotonic() + experiment.repeat_until_s
    require_free(port)
    make_folder(folder)
    meta = metadata(experiment)
    write_json(folder / "metadata.json", meta)
    progress.say(f"building {experiment.network}")
    with (
        hosts_apart() as switch_cpu,
        QueueProbe() as probe,
        network(experiment.layout) as net,
    ):
        give_to_switch(switch_cpu, vswitchd_pid(), net.state)
        progress.done()
        runner = Runner(experiment, net, probe)
        for name in experiment.schemes:
            scheme = SCHEMES[name]
            progress.say(
                f"{name}: starting {' '.join(scheme.apps)}" + (" and the agent" if scheme.extended else "")
            )
            with running(experiment.settled(scheme), net, folder / "raw" / name, port) as now:
                progress.done()
                for case in experiment.cases:
                    run_case(runner, case, now, folder / "raw", progress, repeat_until)
                    progress.done()
    meta["ended"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    meta["load_at_end"] = os.getloadavg()
    write_json(folder / "metadata.json", meta)


def run_case(
    runner: Runner, case: Case, scheme: Running, raw: Path, progress: Progress, repeat_until: float
) -> None:
    """Run a case; repeat a void run while there is time. The last attempt stands, void or not."""
    for attempt in range(1, MOST_ATTEMPTS + 1):
        name = scheme.scheme.name

        def on_query(done: int, name: str = name) -> None:
            progress.say(f"{name}: case {case.name}, {case.title}: query {done}/{case.queries}")

        on_query(0)
        record = runner.run(case, scheme, raw / f"{case.name}-{name}-{attempt}", attempt, on_query)
        if record["valid"]:
            return
        again = attempt < MOST_ATTEMPTS and time.monotonic() < repeat_until
        reasons = "; ".join(record["reasons"])
        what = "repeating" if again else "its row says valid=false"
        progress.warn(f"{name}, case {case.name}, attempt {attempt} is void: {reasons}; {what}")
        if not again:
            return


def make_folder(folder: Path) -> None:
    """Make the result folder. Raises BadExperiment where it exists already."""
    try:
        folder.mkdir(parents=True)
        (folder / "raw").mkdir()
    except FileExistsError:
        raise BadExperiment(f"{folder} exists already: give another --out") from None
    except OSError as error:
        raise LabError(f"cannot make {folder}: {error.strerror}") from error


def write_json(path: Path, values: Any) -> None:
    """Write values, replacing the file as a whole."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(values, indent=1) + "\n")
    partial.replace(path)


def _output(*argv: str) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=PROJECT).stdout.strip()
    except OSError:
        return ""


def metadata(experiment: Experiment) -> dict[str, Any]:
    """All that pins an experiment down."""
    sysctls = ("tcp_rmem", "tcp_wmem", "tcp_available_congestion_control", "tcp_slow_start_after_idle")
    return {
        "experiment": experiment.to_json(),
        "arguments": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "git": {
            "commit": _output("git", "rev-parse", "HEAD"),
            "changed": _output("git", "status", "--porcelain").splitlines(),
        },
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "ovs": run("ovs-vswitchd", "--version").splitlines()[0],
        "datapath": "netdev (userspace)",
        "congestion_control": experiment.congestion_control,
        "sysctl": {name: Path(f"/proc/sys/net/ipv4/{name}").read_text().split() for name in sysctls},
        "wmem_default": int(Path("/proc/sys/net/core/wmem_default").read_text()),
        "load_at_start": os.getloadavg(),
    }
