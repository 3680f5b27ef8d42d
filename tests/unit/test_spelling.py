"""What is said of a name that nobody knows."""

from __future__ import annotations

import pytest

from glocal.common.errors import GlocalError
from glocal.research.data import open_dataset
from glocal.research.engine.checkpoint import load_model
from glocal.research.engine.recipe import load_recipe
from glocal.research.engine.records import shipped_models


@pytest.mark.parametrize(
    ("look", "says"),
    [
        (lambda: load_model("photos-fats"), "did you mean 'photos-fast'?"),
        (lambda: load_model("zz"), "`glocal list models` shows the "),
        (lambda: load_recipe("demo-gle"), "did you mean 'demo-gel'?"),
        (lambda: load_recipe("zz"), "`glocal list recipes` shows the "),
        (lambda: open_dataset("embeded", "test"), "did you mean 'embedded'?"),
    ],
)
def test_a_wrong_name_gets_a_near_one_and_not_every_name(look: object, says: str) -> None:
    with pytest.raises(GlocalError) as found:
        look()  # type: ignore[operator]
    assert says in str(found.value)
    assert len(str(found.value)) < 300, "no wall of names"
    assert sum(name in str(found.value) for name in shipped_models()) <= 1
