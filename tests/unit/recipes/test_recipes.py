"""The recipes of docs/extending.md that need nothing special are carried out; bad recipes are found out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.recipes import Recipe, RecipeError, carry_out, copy_project, read_recipes, recipes_of
from weir_base.paths import PROJECT


@pytest.mark.timeout(600)
@pytest.mark.parametrize("recipe", recipes_of("unit"), ids=lambda recipe: recipe.title)
def test_the_recipe_works_in_a_copy_of_the_project(recipe: Recipe, tmp_path: Path) -> None:
    carry_out(recipe, copy_project(tmp_path))


def hunks(diff: str) -> list[tuple[str, str]]:
    """The file of each hunk of a diff, and the text that the hunk replaces there."""
    found = []
    for of_file in re.split(r"^--- a/", diff, flags=re.MULTILINE)[1:]:
        name, _, rest = of_file.partition("\n")
        for hunk in re.split(r"^@@ .*\n", rest, flags=re.MULTILINE)[1:]:
            kept = [line for line in hunk.splitlines(keepends=True) if not line.startswith("+")]
            found.append((name, "".join(line if line == "\n" else line[1:] for line in kept)))
    return found


DIFFS = [
    pytest.param(diff.text, id=f"{recipe.title} {number}")
    for recipe in read_recipes()
    for number, diff in enumerate((block for block in recipe.blocks if block.language == "diff"), 1)
]


@pytest.mark.parametrize("diff", DIFFS)
def test_each_hunk_has_one_place_only(diff: str) -> None:
    """`git apply` takes the nearest of several equal places, which need not be the one that is meant."""
    places = [(name, (PROJECT / name).read_text().count(replaced)) for name, replaced in hunks(diff)]
    assert [(name, count) for name, count in places if count != 1] == []


def test_every_recipe_is_written() -> None:
    unwritten = [recipe.title for recipe in read_recipes() if not (recipe.written and recipe.blocks)]
    assert unwritten == []


def recipe_of(page: Path, text: str) -> Recipe:
    page.write_text(f"# Page\n\n{text}")
    (recipe,) = read_recipes(page)
    return recipe


GOOD = """## A recipe

<!-- tier: bpf -->

```python title="new/file.py"
## not a heading
x = 1
```

```diff
--- a/new/file.py
+++ b/new/file.py
@@ -1,2 +1,2 @@
 ## not a heading
-x = 1
+x = 2
```

```sh
grep -q 'x = 2' new/file.py
```
"""


def test_a_recipe_writes_files_applies_diffs_and_runs_commands(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path / "page.md", GOOD)
    assert (recipe.title, recipe.tier, recipe.written) == ("A recipe", "bpf", True)
    carry_out(recipe, tmp_path)
    assert (tmp_path / "new" / "file.py").read_text() == "## not a heading\nx = 2\n"


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ("```sh\nfalse\ntrue\n```\n", "exit status 1"),
        ("```sh\necho what went wrong; exit 3\n```\n", "what went wrong"),
        ("```diff\n--- a/absent\n+++ b/absent\n@@ -1 +1 @@\n-x\n+y\n```\n", "absent"),
        ('```text title="page.md"\n```\n', "exists already"),
        ('```text title="../page.md"\n```\n', "outside the project"),
    ],
)
def test_a_recipe_that_does_not_work_is_found_out(block: str, complaint: str, tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path / "page.md", f"## Bad\n\n{block}")
    with pytest.raises(RecipeError, match=complaint):
        carry_out(recipe, tmp_path)


def test_an_unknown_tier_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="unknown tier lunar"):
        recipe_of(tmp_path / "page.md", "## Bad\n\n<!-- tier: lunar -->\n")


def test_a_section_that_still_has_to_be_written_is_recognised(tmp_path: Path) -> None:
    assert not recipe_of(tmp_path / "page.md", "## Later\n\nTo be written.\n").written


@pytest.mark.timeout(300)
def test_a_copy_of_the_project_runs_and_installs_its_own_packages(tmp_path: Path) -> None:
    folder = copy_project(tmp_path)
    text = "## Probe\n\n```sh\n" + "\n".join(
        [
            "make setup",
            ".venv/bin/python -c 'import weir; print(weir.__file__)' | grep -q \"^$PWD\"",
            ".venv/bin/weir --help >/dev/null",
            ".venv/bin/pytest -q tests/unit/weir_base",
        ]
    )
    carry_out(recipe_of(tmp_path / "page.md", f"{text}\n```\n"), folder)
