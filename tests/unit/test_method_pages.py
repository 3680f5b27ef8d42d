"""The pages in docs/methods are those that records, docstrings, signatures and results give today."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from glocal.research.methods import METHODS
from glocal.research.report.published import published
from method_pages import COMMAND, main, pages, with_methods

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bare() -> dict[str, str]:
    return pages()


def section(page: str, heading: str) -> str:
    return page.partition(f"## {heading}\n\n")[2].partition("\n## ")[0].strip()


def test_the_pages_are_current_and_the_command_wants_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    made = pages()
    kept = {path.name: path.read_text("utf-8") for path in (ROOT / "docs/methods").glob("*.md")}
    stale = [name for name in made if made[name] != kept.get(name)]
    assert not stale, f"{', '.join(stale)} out of date in docs/methods; run {COMMAND}"
    assert kept.keys() == made.keys(), "a page without a method; delete it"
    readme = (ROOT / "README.md").read_text("utf-8")
    assert with_methods(readme) == readme, f"the README lists other methods; run {COMMAND}"
    assert all(f"`{name}`" in readme for name in METHODS)
    assert main([]) == 2
    assert "docs/methods" in capsys.readouterr().err


class TestCards:
    def test_every_published_row_belongs_to_one_method(self) -> None:
        claimed = [name for method in METHODS.values() for name in method.card.published]
        assert sorted(claimed) == sorted({row.method for row in published()})

    @pytest.mark.parametrize("name", METHODS)
    def test_it_says_what_the_method_and_its_docstring_say(self, name: str) -> None:
        card, docstring = METHODS[name].card, sys.modules[METHODS[name].__module__].__doc__ or ""
        learned = [p for p in METHODS[name](8).parameters() if p.requires_grad]
        assert bool(card.learns) == bool(learned)
        named = re.match(r"(\w+ et al\.) (\d{4}), ", docstring)
        assert (named and named.groups()) == (card.paper and (card.paper.authors, str(card.paper.year)))
        assert bool(card.reconstruction) == ("reconstruction**" in docstring)


class TestPage:
    @pytest.mark.parametrize("name", METHODS)
    def test_markdown_leaves_the_formulas_whole(self, name: str, bare: dict[str, str]) -> None:
        """Neither emphasis nor a list nor an escape may begin within one."""
        parser = pytest.importorskip("markdown_it").MarkdownIt().enable("table")
        page = bare[f"{name}.md"]
        formulas = [a or b for a, b in re.findall(r"\$\$\n(.+)\n\$\$|\$([^$\n]+)\$", page)]
        inline = [child for token in parser.parse(page) for child in token.children or [] if token.type == "inline"]
        texts = [child.content for child in inline if child.type == "text"]
        assert formulas
        assert [formula for formula in formulas if not any(formula in text for text in texts)] == []
        assert not re.search(r":math:|\.\. math|``|>>>", page)
