"""Commands, settings, paths and links in the documentation exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.doc_checks import PAGES, PROJECT, problems
from weir.config import installed_models

LINK = re.compile(r"\]\(([^)#\s]+?)(?:#[^)]*)?\)")
READMES = sorted(
    path for path in PROJECT.glob("*/**/README.md") if not set(path.parts) & {".venv", "build", "site"}
)
FILE = re.compile(r"(?:[\w.-]+/)*[\w.-]+\.(?:py|c|h|sh|md|js|css|html|service)")
# `make docs` writes these pages.
GENERATED = {PROJECT / "docs" / "reference" / name for name in ("settings.md", "commands.md")}


def name_of(page: Path) -> str:
    return str(page.relative_to(PROJECT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_everything_that_a_page_names_exists(page: Path) -> None:
    assert problems(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page_lead_to_files(page: Path) -> None:
    targets = {
        link: (page.parent / link).resolve() for link in LINK.findall(page.read_text()) if "://" not in link
    }
    assert [link for link, file in targets.items() if not (file.exists() or file in GENERATED)] == []


@pytest.mark.parametrize("page", [page for page in READMES if page not in PAGES], ids=name_of)
def test_files_that_a_readme_names_exist(page: Path) -> None:
    """A file is named from the README's folder, from a folder above or by its end. NAME stands for a name."""
    below = [path.relative_to(page.parent).as_posix() for path in page.parent.rglob("*") if path.is_file()]
    above = [folder for folder in page.parents if folder.is_relative_to(PROJECT)]
    missing = [
        name
        for name in re.findall(r"`([^`\n]+)`", page.read_text())
        if FILE.fullmatch(name) and "NAME" not in name
        if not any(path == name or path.endswith(f"/{name}") for path in below)
        if not any((folder / name).exists() for folder in above)
    ]
    assert missing == []


@pytest.mark.parametrize("page", [page for page in READMES if page not in PAGES], ids=name_of)
def test_a_readme_names_each_module_of_its_folder(page: Path) -> None:
    """By its file or, as in bench, by its name."""
    named = {Path(name).stem for name in re.findall(r"`([^`\n]+)`", page.read_text())}
    modules = {path.stem for path in page.parent.glob("*.py") if not path.stem.startswith("__")}
    assert modules - named == set()


@pytest.mark.parametrize("page", [page for page in READMES if page not in PAGES], ids=name_of)
def test_links_of_a_readme_lead_to_files(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_each_decision_record_has_its_own_number_and_a_line_in_the_index() -> None:
    records = sorted(path.name for path in (PROJECT / "docs" / "decisions").glob("[0-9]*.md"))
    index = (PROJECT / "docs" / "decisions" / "README.md").read_text()
    numbers = [name.partition("-")[0] for name in records]
    assert numbers == sorted(set(numbers))
    assert [name for name in records if f"]({name})" not in index] == []
    for name, number in zip(records, numbers, strict=True):
        heading = (PROJECT / "docs" / "decisions" / name).read_text().partition("\n")[0]
        assert heading.startswith(f"# {number}. "), name


def test_architecture_has_at_most_2000_words() -> None:
    assert len((PROJECT / "docs" / "architecture.md").read_text().split()) <= 2000


@pytest.mark.parametrize("name", sorted(installed_models()))
def test_every_setting_is_described(name: str) -> None:
    fields = installed_models()[name].model_fields
    assert [key for key, field in fields.items() if not field.description] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```sh\nmake nonsense\n```", "no target nonsense"),
        ("```sh\nweir nonsense\n```", "no command nonsense"),
        ("```sh\nsudo weir doctor --nonsense\n```", "no option --nonsense"),
        ("```sh\nnonsense\n```", "nonsense is unknown"),
        ("```sh\n.venv/bin/ryu-manager fabric_app.nonsense\n```", "no module fabric_app.nonsense"),
        ("Run `weir lab nonsense FILE`.", "no command nonsense"),
        ("Run `make nonsense`.", "no target nonsense"),
        ("Run `python -m bench.nonsense`.", "no module bench.nonsense"),
        ("```toml\n[sdtcp]\nnonsense = 1\n```", r"\[sdtcp\] nonsense"),
        ("```toml\n[nonsense]\n```", r"no section \[nonsense\]"),
        ("```toml\n[sdtcp]\nk_pkts = 0\n```", r"\[sdtcp\] k_pkts"),
        ("Set `[sdtcp] nonsense`.", "has no setting nonsense"),
        ("See `docs/nonsense.md`.", "docs/nonsense.md: no such file"),
    ],
)
def test_what_does_not_exist_is_found_out(text: str, problem: str) -> None:
    (found,) = problems(text)
    assert re.search(problem, found)


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nWEIR_DEBUG=1 .venv/bin/weir doctor --json && make check | tc\n```",
        "Run `weir db prune --flows-days 7` or `weir why`.",
        "```toml\n[sdtcp]\nk_pkts = 30\n```",
        '```toml title="experiment.toml"\n[nonsense]\n```',
        "`[sdtcp] mode`, `docs/`, `build/nothing`, `tests/unit/project/test_docs.py::test_x`, `ssl:HOST/x`",
    ],
)
def test_what_exists_is_no_problem(text: str) -> None:
    assert problems(text) == []
