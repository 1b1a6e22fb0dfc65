"""Fuzz one part with seeded inputs, and go on where an earlier run has stopped.

    python -m bench.fuzz TARGET --inputs N [--seed S] [--record FILE] [--block B] [--json]

The targets:

    codec     the extension's codec: bytes and values
    proxy     a session of the agent: messages of the controller and of Open vSwitch
    ryu       Ryu's parsers of messages of a switch, behind the length check, OpenFlow 1.3 and 1.5
    os_ken    the same of os-ken
    packets   the BPF programs by BPF_PROG_TEST_RUN: frames with hostile headers (root)
    keep_alives  the same of the program at a port's exit: segments behind which a keep-alive is due (root)
    api       the dashboard's JSON API with a database: addresses, parameters, bodies
    requests  the same requests to the application without a database
    parameters  the same requests to what reads their addresses, parameters and bodies, alone

Inputs come in blocks of 1,000, which depend on the seed and their number. With --record the progress is in a
file: the same command with more inputs continues. --block runs one block again, to repeat a failure. A crash
is any exception, or an answer that breaks a rule of the target (tests/support/fuzzing). A hang is an input
that takes more than 2 s of CPU time. "growth KB" is the memory that the process has gained since its first
four blocks, and "late KB" since the middle of its blocks. "accepted" is the part of the inputs that the
target took for right. The exit status is 1 after a crash or a hang.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import click

from bench.figures import present
from tests.support.fuzzing.api import ApiTarget, ParametersTarget, RequestsTarget
from tests.support.fuzzing.codec import CodecTarget
from tests.support.fuzzing.engines import EnginesTarget
from tests.support.fuzzing.keep_alives import KeepAlivesTarget
from tests.support.fuzzing.packets import PacketsTarget
from tests.support.fuzzing.proxy import ProxyTarget
from tests.support.fuzzing.runner import Progress, Target, run, run_block

TARGETS: dict[str, Callable[[], Target]] = {
    "codec": CodecTarget,
    "proxy": ProxyTarget,
    "ryu": lambda: EnginesTarget(("ryu",)),
    "os_ken": lambda: EnginesTarget(("os_ken",)),
    "packets": PacketsTarget,
    "keep_alives": KeepAlivesTarget,
    "api": ApiTarget,
    "requests": RequestsTarget,
    "parameters": ParametersTarget,
}
COLUMNS = ("target", "seed", "inputs", "accepted", "inputs/s", "crashes", "hangs", "growth KB", "late KB")


def begun(target: str, seed: int, record: Path | None) -> Progress:
    """The progress in a record; a new one without it. Raises ClickException if it is of another fuzz."""
    if record is None or not record.exists():
        return Progress(target, seed)
    progress = Progress(**json.loads(record.read_text()))
    if (progress.target, progress.seed) != (target, seed):
        told = f"{record} is a record of {progress.target} with seed {progress.seed}"
        raise click.ClickException(f"{told}: name another file with --record")
    return progress


def keep(progress: Progress, record: Path | None) -> None:
    """Replace the record, so that a killed fuzz leaves the old one or the new one."""
    if record is not None:
        new = record.with_suffix(".new")
        new.write_text(json.dumps(asdict(progress)))
        new.replace(record)


@click.command(help=__doc__)
@click.argument("target", type=click.Choice(tuple(TARGETS)))
@click.option(
    "--inputs", default=100_000, show_default=True, help="Inputs in total, with those in the record."
)
@click.option("--seed", default=1, show_default=True)
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--block", type=int, help="Run only this block, and record nothing.")
@click.option("--json", "as_json", is_flag=True)
def main(target: str, inputs: int, seed: int, record: Path | None, block: int | None, as_json: bool) -> None:
    logging.disable(logging.CRITICAL)
    progress = begun(target, seed, record) if block is None else Progress(target, seed, blocks=block)
    fuzzed = TARGETS[target]()
    try:
        if block is None:
            run(fuzzed, progress, inputs, lambda now: keep(now, record))
        else:
            run_block(fuzzed, progress)
            progress = replace(progress, blocks=1)
    finally:
        fuzzed.close()
    row = asdict(progress) | {
        "inputs": progress.inputs,
        "accepted": f"{progress.accepted / progress.inputs:.2f}" if progress.inputs else "",
        "inputs/s": round(progress.inputs / progress.seconds) if progress.seconds else "",
        "growth KB": progress.growth_kb,
        "late KB": progress.late_kb,
    }
    present("fuzz", COLUMNS, [row], as_json)
    for failure in progress.failures:
        click.echo(f"block {failure['block']}, input {failure['input']}: {failure['error']}", err=True)
    sys.exit(bool(progress.crashes or progress.hangs))


if __name__ == "__main__":
    main()
