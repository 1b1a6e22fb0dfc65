"""The recipes of docs/extending.md that need the integration tier are carried out.

Nothing runs beside them: the recipe of an experiment fails if a completion time exceeds its bound.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recipes import Recipe, carry_out, copy_project, recipes_of


@pytest.mark.timeout(600)
@pytest.mark.parametrize("recipe", recipes_of("integration"), ids=lambda recipe: recipe.title)
def test_the_recipe_works_in_a_copy_of_the_project(recipe: Recipe, tmp_path: Path) -> None:
    carry_out(recipe, copy_project(tmp_path))
