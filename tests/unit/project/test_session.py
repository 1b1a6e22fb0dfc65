"""A session of tests: its order on several workers, tiers that are not run, and void lab runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from weir_base.paths import PROJECT

WORKERS = ("-n", "2")
VERDICTS = """
import pytest

from tests.support.lab.void_runs import shown, valid

VOID = {"valid": False, "reasons": ["starved of CPU"]}


@pytest.mark.parametrize("row", [VOID] * VOID_RUNS + [{"valid": True}] * VALID_RUNS)
def test_one_run(row):
    shown(row)
    shown({"valid": True})


def test_several_runs_of_which_one_is_valid():
    assert valid([VOID, {"valid": True}]) == [{"valid": True}]


def test_that_judges_no_run():
    pass
"""
RECORDED = """
import json
import os
import time

import pytest


@pytest.fixture{scope}
def shared():
    return time.monotonic()


@pytest.mark.parametrize("number", range(6))
def test_recorded(number, shared):
    start = time.monotonic()
    time.sleep(0.02)
    line = [{kind!r}, os.environ["PYTEST_XDIST_WORKER"], shared, start, time.monotonic()]
    with open({log!r}, "a") as log:
        log.write(json.dumps(line) + "\\n")
"""


def run(
    folder: Path, *arguments: str, cwd: Path = PROJECT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest as a session of its own, with its temporary files below a folder."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "WEIR_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        env=inherited | {"PYTHONPATH": str(PROJECT), "PYTEST_DEBUG_TEMPROOT": str(folder)} | variables,
        cwd=cwd, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


def run_alone(
    folder: Path, plugin: str, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder with one of the project's plugins."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    plugins = ("-p", "xdist", "-p", f"tests.support.session.{plugin}")
    return run(folder, *plugins, *arguments, cwd=folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", **variables)


def run_recorded(
    folder: Path, kinds: dict[str, str], workers: int = 2
) -> dict[str, list[tuple[str, float, float, float]]]:
    """Run six tests of each kind, a folder and a scope of its fixture.

    A kind whose name ends with a mark has a marked file. Returns for each test its worker, the time at which
    its fixture was made, its start and its end.
    """
    log = folder / "log"
    for kind, scope in kinds.items():
        file = folder / "tests" / kind / f"test_{kind.replace('/', '_')}.py"
        file.parent.mkdir(parents=True)
        name = kind.rpartition("/")[2]
        mark = f"pytestmark = pytest.mark.{name}\n" if name.endswith("beside_others") else ""
        file.write_text(RECORDED.format(scope=scope, kind=kind, log=str(log)) + mark)
    done = run_alone(folder, "workers", "-n", str(workers))
    assert done.returncode == 0, done.stdout
    found: dict[str, list[tuple[str, float, float, float]]] = {kind: [] for kind in kinds}
    for kind, *times in map(json.loads, log.read_text().splitlines()):
        found[kind].append(tuple(times))
    assert {kind: len(tests) for kind, tests in found.items()} == dict.fromkeys(kinds, 6)
    return found


@pytest.mark.parametrize("workers", [2, 3])
def test_one_worker_runs_the_tests_that_use_the_machine_after_the_unit_tests(
    workers: int, tmp_path: Path
) -> None:
    found = run_recorded(tmp_path, {"bpf": "", "unit": "", "web": ""}, workers)
    machine = sorted(found["bpf"] + found["web"], key=lambda test: test[2])
    of_units, of_machine = ({worker for worker, *_ in tests} for tests in (found["unit"], machine))
    assert (len(of_units), len(of_machine)) == (2, 1)
    assert workers == 2 or not of_units & of_machine, "a worker without unit tests"
    assert max(end for *_, end in found["unit"]) < machine[0][2]
    assert machine == sorted(found["bpf"]) + sorted(found["web"])


def test_marked_files_of_other_tiers_run_with_the_unit_tests(tmp_path: Path) -> None:
    found = run_recorded(tmp_path, {"bpf": "", "unit": "", "web/beside_others": ""}, workers=3)
    marked = found["web/beside_others"]
    assert len({worker for worker, *_ in marked}) == 1, "a file stays whole"
    assert max(end for *_, end in marked) < min(start for *_, start, _ in found["bpf"])
    assert not {worker for worker, *_ in found["unit"]} & {worker for worker, *_ in found["bpf"]}


def test_marked_files_of_labs_run_one_after_another_before_the_rest(tmp_path: Path) -> None:
    labs = ("abuse/lab_beside_others", "web/lab_beside_others")
    found = run_recorded(tmp_path, {"bpf": "", "unit": "", **dict.fromkeys(labs, "")}, workers=3)
    tests = found[labs[0]] + found[labs[1]]
    assert {worker for worker, *_ in tests} == {worker for worker, *_ in found["bpf"]}
    assert max(end for *_, end in tests) < min(start for *_, start, _ in found["bpf"])


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_kind_of_file_is_run_with_any_number_of_workers(workers: int, tmp_path: Path) -> None:
    kinds = ("bpf", "unit", "web/beside_others", "web/lab_beside_others")
    found = run_recorded(tmp_path, dict.fromkeys(kinds, ""), workers)
    alone = sorted(found["bpf"], key=lambda test: test[2])
    assert max(end for *_, end in found["unit"]) < alone[0][2]


@pytest.mark.parametrize("kind", ["unit", "bpf"])
def test_one_kind_alone_uses_as_many_workers_as_it_may(kind: str, tmp_path: Path) -> None:
    found = run_recorded(tmp_path, {kind: ""}, workers=3)
    assert len({worker for worker, *_ in found[kind]}) == (3 if kind == "unit" else 1)


def test_a_fixture_of_a_module_is_made_once(tmp_path: Path) -> None:
    found = run_recorded(tmp_path, {"unit/alone": "", "unit/shared": '(scope="module")'})
    assert len({made for _, made, *_ in found["unit/shared"]}) == 1
    assert len({worker for worker, *_ in found["unit/alone"]}) == 2


@pytest.mark.parametrize("workers", [(), WORKERS], ids=["one process", "workers"])
def test_a_tier_that_is_not_run_is_named_and_fails_ci(workers: tuple[str, ...], tmp_path: Path) -> None:
    tests = ("tests/unit/weir_base/test_tables.py", "tests/web/test_documentation_site.py")
    done = run(tmp_path, *workers, *tests, PATH=str(tmp_path), WEIR_CI="1")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "tests), because chromium not found" in done.stdout
    assert "a tier that is not run is a failure" in done.stdout
    assert " failed" not in done.stdout


@pytest.mark.parametrize(
    ("void", "valid", "ci", "workers", "status"),
    [
        pytest.param(20, 1, "1", (), 1, id="too many"),
        pytest.param(20, 1, "1", WORKERS, 1, id="too many on workers"),
        pytest.param(20, 1, "", (), 0, id="too many but not in CI"),
        pytest.param(8, 15, "1", (), 0, id="a third"),
        pytest.param(9, 15, "1", (), 1, id="more than a third"),
        pytest.param(6, 0, "1", (), 0, id="few"),
    ],
)
def test_void_lab_runs_are_counted_and_bounded_in_ci(
    void: int, valid: int, ci: str, workers: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    counts = f"VOID_RUNS, VALID_RUNS = {void}, {valid}\n"
    (tmp_path / "test_verdicts.py").write_text(counts + VERDICTS)
    done = run_alone(tmp_path, "void_bound", *workers, WEIR_CI=ci)
    assert done.returncode == status, done.stdout
    assert f"lab runs judged: {void + valid + 1}, of which {void} void\n" in done.stdout
    assert ("more than 33% of the lab runs were void" in done.stdout) == bool(status)
    assert done.stdout.splitlines()[-1].strip("= ").startswith(f"{valid + 2} passed, {void} xfailed in ")
