"""The run of an experiment, from its description to the raw records and the metadata in its folder."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mininet_topos.errors import ProgramFailed, RunFailed
from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.experiments.schemes import scheme_of
from mininet_topos.measurement.queue_probe import QueueProbe
from mininet_topos.network.emulation import means_of
from mininet_topos.network.lab_network import network_apart
from mininet_topos.records.result_folder import (
    MOST_ATTEMPTS,
    attempts,
    held_alone,
    is_begun,
    is_done,
    make_folder,
    note_failure,
    read_metadata,
    run_name,
    write_json,
)
from mininet_topos.running.case_runner import CaseRunner
from mininet_topos.running.host_transports import require_transports
from mininet_topos.running.metadata import metadata
from mininet_topos.running.order import blocks
from mininet_topos.running.scheme_programs import RunningScheme, require_free, running

MOST_VOID_IN_A_ROW = 4

Pending = Mapping[tuple[int, str], list[Case]]
"""The cases that are not finished, by the number of the repeat and the scheme, in the order of the runs."""


@dataclass(slots=True)
class VoidRuns:
    """How often void runs are repeated: until a time (`time.monotonic()`), and while runs may still be valid.

    `in_a_row`: the number of void runs since the last valid one. After MOST_VOID_IN_A_ROW of them no run is
    repeated until one is valid, because the machine has too much other work.
    """

    until: float
    in_a_row: int = 0

    def may_repeat(self, attempt: int) -> bool:
        """Whether the run of an attempt that was void is worth another attempt."""
        in_time = attempt < MOST_ATTEMPTS and time.monotonic() < self.until
        return in_time and self.in_a_row < MOST_VOID_IN_A_ROW


@dataclass(frozen=True, slots=True)
class Progress:
    """How the runner reports: `say` what it does, `done` with a step, `warn` of a void run."""

    say: Callable[[str], None]
    done: Callable[[], None]
    warn: Callable[[str], None]


def steps(experiment: Experiment) -> int:
    """Return how many times the runner will call `Progress.done`."""
    each = len(experiment.parts_by_network) + len(experiment.cases)
    return 1 + len(experiment.schemes) * experiment.repeats * each


def run_experiment(
    experiment: Experiment,
    folder: Path,
    progress: Progress,
    port: int | None = None,
    about: Mapping[str, Any] | None = None,
    resume: bool = False,
) -> None:
    """Run an experiment and write its raw records and metadata to `folder`.

    The folder is created. With `resume`, it may be a folder of the same experiment, whose finished runs are
    kept. `about` is added to the metadata, for the report. Raises BadExperiment, Unable, ProgramFailed,
    RunFailed; the network is removed in any case.
    """
    void_runs = VoidRuns(time.monotonic() + experiment.repeat_until_s)
    require_free(port)
    for name in experiment.schemes:
        require_transports(scheme_of(name), experiment.congestion_control)
    means = means_of(experiment.impairment)
    begun = resume and is_begun(folder, experiment)
    if not begun:
        make_folder(folder)
    with held_alone(folder):
        earlier = read_metadata(folder) if begun else None
        more = {"links_by": means} | dict(about or {})
        _carry_out(experiment, folder, progress, port, void_runs, more, earlier)


def _carry_out(
    experiment: Experiment,
    folder: Path,
    progress: Progress,
    port: int | None,
    void_runs: VoidRuns,
    about: Mapping[str, Any],
    earlier: Mapping[str, Any] | None,
) -> None:
    """Carry out the runs that are not finished. `earlier`: the metadata of an interrupted experiment."""
    order = [{"repeat": repeat, "schemes": names} for repeat, names in blocks(experiment)]
    meta = metadata(experiment) | {"order": order, "resumed": resumed(earlier)} | dict(about)
    write_json(folder / "metadata.json", meta)
    raw = folder / "raw"
    for part in experiment.parts_by_network:
        pending = _pending(part, raw)
        for _ in range(steps(part) - 1 - sum(1 + len(cases) for cases in pending.values())):
            progress.done()
        if pending:
            _run_schemes(part, pending, raw, progress, port, void_runs)
    progress.done()
    meta["ended"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    meta["load_at_end"] = os.getloadavg()
    write_json(folder / "metadata.json", meta)


def resumed(earlier: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return what the metadata of an interrupted experiment says of each start before this one."""
    if earlier is None:
        return []
    names = ("started", "arguments", "git", "kernel", "load_at_start")
    return [*earlier.get("resumed", []), {name: earlier[name] for name in names if name in earlier}]


def _pending(experiment: Experiment, raw: Path) -> Pending:
    """Return the runs that are not finished, in their order."""
    found = {}
    for repeat, names in blocks(experiment):
        for name in names:
            cases = [case for case in experiment.cases if not is_done(raw, run_name(case, name, repeat))]
            if cases:
                found[repeat, name] = cases
    return found


def _run_schemes(
    experiment: Experiment,
    pending: Pending,
    raw: Path,
    progress: Progress,
    port: int | None,
    void_runs: VoidRuns,
) -> None:
    """Build the network, and carry out the pending runs of each repeat and scheme on it."""
    progress.say(f"building {experiment.network}")
    with QueueProbe() as probe, network_apart(experiment.layout, experiment.pinned) as net:
        runner = CaseRunner(experiment, net, probe)
        for (repeat, name), cases in pending.items():
            scheme = experiment.configured(scheme_of(name))
            of_repeat = f", repeat {repeat} of {experiment.repeats}" if experiment.repeats > 1 else ""
            what = f"{name}{of_repeat}: starting {' '.join(scheme.apps)}"
            progress.say(f"{what} and the agent" if scheme.extended else what)
            home = raw / programs_folder(experiment, name, repeat)
            shutil.rmtree(home, ignore_errors=True)  # of an interrupted run
            plans = map(experiment.plan, experiment.cases)
            roots = {incast.root for case in experiment.cases for incast in experiment.incasts(case)}
            receivers = sorted({flow.dst for plan in plans for flow in plan} | roots)
            with running(scheme, net, home, port, experiment.congestion_control, receivers) as now:
                progress.done()
                for case in cases:
                    run_case(runner, case, now, raw / run_name(case, name, repeat), progress, void_runs)
                    progress.done()


def programs_folder(experiment: Experiment, scheme: str, repeat: int) -> str:
    """Return the name of the folder of a scheme's programs: configuration, logs and database."""
    size = f"-{experiment.workers}+{experiment.senders}" if experiment.fitted else ""
    return f"{scheme}{size}" + (f"-r{repeat}" if repeat > 1 else "")


def run_case(
    runner: CaseRunner,
    case: Case,
    scheme: RunningScheme,
    stem: Path,
    progress: Progress,
    void_runs: VoidRuns,
) -> None:
    """Run a case, and repeat a void run as `void_runs` allows. The last attempt counts, even if it is void.

    `stem` is the path of the attempts' folders without the number of the attempt. Raises ProgramFailed and
    RunFailed. Then the attempt is recorded as one that failed, and another start of the experiment begins
    the next attempt.
    """
    name = scheme.scheme.name
    for attempt in range(1 + len(attempts(stem.parent, stem.name)), MOST_ATTEMPTS + 1):

        def on_query(done: int) -> None:
            count = f": query {done}/{case.all_queries}" if case.queries else ""
            progress.say(f"{name}: case {case.name}, {case.title}{count}")

        on_query(0)
        folder = stem.with_name(f"{stem.name}-{attempt}")
        shutil.rmtree(folder, ignore_errors=True)  # of an interrupted attempt
        try:
            record = runner.run(case, scheme, folder, attempt, on_query)
        except (ProgramFailed, RunFailed) as error:
            note_failure(folder, attempt, str(error))
            raise
        void_runs.in_a_row = 0 if record["valid"] else void_runs.in_a_row + 1
        if record["valid"]:
            return
        again = void_runs.may_repeat(attempt)
        reasons = "; ".join(record["reasons"])
        what = "repeating it" if again else "its row has valid=false"
        progress.warn(f"{name}, case {case.name}, attempt {attempt} is void: {reasons}; {what}")
        if not again:
            return
