"""An experiment from its parameters to its folder: run, summarise, plot, report."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mininet_topos.experiment import Case, Experiment
from mininet_topos.net import network_apart
from mininet_topos.netem import require_netem
from mininet_topos.node import run
from mininet_topos.probe import QueueProbe
from mininet_topos.programs import Running, require_free, running
from mininet_topos.results.folder import (
    MOST_ATTEMPTS,
    attempts,
    is_begun,
    is_done,
    make_folder,
    run_name,
    write_json,
)
from mininet_topos.run import Runner
from mininet_topos.schemes import SCHEMES

Wanted = tuple[Case, int]
"""A case, and the number of its repeat."""

PROJECT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Progress:
    """How an experiment tells how far it is: `say` what it does, `done` a step, `warn` of a repeat."""

    say: Callable[[str], None]
    done: Callable[[], None]
    warn: Callable[[str], None]


def steps(experiment: Experiment) -> int:
    """How many times `Progress.done` will be called."""
    runs = experiment.repeats * len(experiment.cases)
    return 1 + len(experiment.schemes) * (len(experiment.parts) + runs)


def run_experiment(
    experiment: Experiment,
    folder: Path,
    progress: Progress,
    port: int | None = None,
    about: Mapping[str, Any] | None = None,
    resume: bool = False,
) -> None:
    """Run an experiment and write its raw records and metadata to `folder`.

    The folder is new; or, to `resume`, one of the same experiment, in which what is done is left as it is.
    `about`: what goes into its metadata for the report. Raises BadExperiment, Unable, ProgramFailed,
    RunFailed; nothing of the network is left then either.
    """
    repeat_until = time.monotonic() + experiment.repeat_until_s
    require_free(port)
    if experiment.impairment:
        require_netem()
    if not (resume and is_begun(folder, experiment)):
        make_folder(folder)
    meta = metadata(experiment) | dict(about or {})
    write_json(folder / "metadata.json", meta)
    raw = folder / "raw"
    for part in experiment.parts:
        wanted = {name: _wanted(part, name, raw) for name in part.schemes}
        for _ in range(steps(part) - 1 - sum(1 + len(some) for some in wanted.values() if some)):
            progress.done()
        if any(wanted.values()):
            _run_schemes(part, wanted, raw, progress, port, repeat_until)
    progress.done()
    meta["ended"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    meta["load_at_end"] = os.getloadavg()
    write_json(folder / "metadata.json", meta)


def _wanted(experiment: Experiment, scheme: str, raw: Path) -> list[Wanted]:
    """What is still to be run under a scheme."""
    return [
        (case, repeat)
        for case in experiment.cases
        for repeat in range(1, experiment.repeats + 1)
        if not is_done(raw, run_name(case, scheme, repeat))
    ]


def _run_schemes(
    experiment: Experiment,
    wanted: Mapping[str, list[Wanted]],
    raw: Path,
    progress: Progress,
    port: int | None,
    repeat_until: float,
) -> None:
    """Build the network and run, under each scheme, what is wanted of it."""
    progress.say(f"building {experiment.network}")
    with QueueProbe() as probe, network_apart(experiment.layout) as net:
        runner = Runner(experiment, net, probe)
        for name, some in wanted.items():
            if not some:
                continue
            scheme = experiment.settled(SCHEMES[name])
            what = f"{name}: starting {' '.join(scheme.apps)}"
            progress.say(f"{what} and the agent" if scheme.extended else what)
            home = raw / (f"{name}-{experiment.workers}+{experiment.senders}" if experiment.fitted else name)
            shutil.rmtree(home, ignore_errors=True)  # of a run that was broken off
            with running(scheme, net, home, port, experiment.congestion_control) as now:
                progress.done()
                for case, repeat in some:
                    run_case(runner, case, now, raw / run_name(case, name, repeat), progress, repeat_until)
                    progress.done()


def run_case(
    runner: Runner, case: Case, scheme: Running, stem: Path, progress: Progress, repeat_until: float
) -> None:
    """Run a case; repeat a void run while there is time. The last attempt stands, void or not.

    `stem`: the attempts' folder but for their number.
    """
    name = scheme.scheme.name
    for attempt in range(1 + len(attempts(stem.parent, stem.name)), MOST_ATTEMPTS + 1):

        def on_query(done: int) -> None:
            share = f": query {done}/{case.queries}" if case.queries else ""
            progress.say(f"{name}: case {case.name}, {case.title}{share}")

        on_query(0)
        folder = stem.with_name(f"{stem.name}-{attempt}")
        shutil.rmtree(folder, ignore_errors=True)  # of an attempt that was broken off
        record = runner.run(case, scheme, folder, attempt, on_query)
        if record["valid"]:
            return
        again = attempt < MOST_ATTEMPTS and time.monotonic() < repeat_until
        reasons = "; ".join(record["reasons"])
        what = "repeating" if again else "its row says valid=false"
        progress.warn(f"{name}, case {case.name}, attempt {attempt} is void: {reasons}; {what}")
        if not again:
            return


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
