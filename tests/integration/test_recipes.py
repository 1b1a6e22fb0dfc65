"""The recipes of docs/extending.md that need the integration tier are carried out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recipes import Recipe, carry_out, copy_project, recipes_of

pytestmark = pytest.mark.lab_beside_others


@pytest.mark.timeout(600)
@pytest.mark.parametrize("recipe", recipes_of("integration"), ids=lambda recipe: recipe.title)
def test_the_recipe_works_in_a_copy_of_the_project(recipe: Recipe, tmp_path: Path) -> None:
    carry_out(recipe, copy_project(tmp_path))
