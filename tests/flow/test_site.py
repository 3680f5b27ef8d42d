"""The site builds strictly and loads nothing from elsewhere; the notebooks run and say what they show."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?")
LOADED = re.compile(r"""<(?:script|img|iframe|source)[^>]+src=["']?(https?:)?//|<link[^>]+href=["']?(https?:)?//""")
WITHOUT = "needs the extra docs: make docs installs it"


def test_the_nav_has_every_page() -> None:
    """Also without mkdocs: a page that is forgotten in mkdocs.yml fails here and not in `make docs`."""
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"[\w/.*-]+\.md|[\w/-]+/\*", nav)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("**/*.md")}
    stars = tuple(name.removesuffix("*") for name in named if name.endswith("*"))
    assert {page for page in pages if page not in named and not page.startswith(stars)} == set()
    copies = {"contributing.md", "security.md", "changelog.md"}
    notebooks = {f"notebooks/{path.stem}.md" for path in NOTEBOOKS}
    assert {name for name in named if "*" not in name} - pages == copies | notebooks


@pytest.mark.long
def test_it_builds_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings", reason=WITHOUT)
    pytest.importorskip("material", reason=WITHOUT)
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 50
    assert [page.name for page in pages if LOADED.search(page.read_text("utf-8"))] == []
    gel = (tmp_path / "site/methods/gel.html").read_text("utf-8")
    assert "<math" in gel
    assert "arithmatex" not in gel
    python = (tmp_path / "site/reference/python.html").read_text("utf-8")
    assert "the class it is most like, also when it is unknown" in python  # a comment beside a field


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")  # those of Jupyter are not ours
def test_a_notebook_runs_and_says_what_it_shows(path: Path) -> None:
    pytest.importorskip("nbclient", reason=WITHOUT)
    pytest.importorskip("ipykernel", reason=WITHOUT)
    import nbformat

    from notebooks import executed

    kept, today = nbformat.read(path, as_version=4), executed(path)
    told, shown = (list(map(_told, notebook.cells)) for notebook in (today, kept))
    assert [NUMBER.sub("#", each) for each in told] == [NUMBER.sub("#", each) for each in shown]
    for new, old in zip(told, shown, strict=True):  # they may differ a little from processor to processor
        for a, b in zip(NUMBER.findall(new), NUMBER.findall(old), strict=True):
            assert float(a) == pytest.approx(float(b), rel=0.02, abs=0.02)


def _told(cell: Any) -> str:
    """What a cell prints, and that it draws."""
    found = []
    for output in cell.get("outputs", []):
        found.append(output.get("text", "") or "".join(sorted(output.get("data", {}))))
    return "\n".join(found)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_has_been_run(path: Path) -> None:
    assert path.stat().st_size < 200_000
    cells = json.loads(path.read_text("utf-8"))["cells"]
    assert sum(bool(cell["outputs"]) for cell in cells if cell["cell_type"] == "code") >= 4, "run: make notebooks"
