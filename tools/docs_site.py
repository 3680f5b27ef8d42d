"""What mkdocs cannot do by itself, as one hook: pages from outside of docs/, notebooks, formulas, a nav with stars.

The pages in docs/ are written for readers of the repository too, so their links point at files of it.  On the site a
link to README.md leads home, one to CONTRIBUTING.md and its like to their copies, and one to code is only its text.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
COPIES = {"CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}
HOMES = {**COPIES, "README.md": "index.md"}
LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> None:
    """The extension of mkdocstrings looks for its neighbours; mkdocs puts back a path that is set while this loads."""
    sys.path.insert(0, str(ROOT / "tools"))


def on_files(files: Files, config: Any) -> Files:
    for source, place in COPIES.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text("utf-8")))
    for notebook in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        place = f"notebooks/{notebook.stem}.md"
        files.append(File.generated(config, place, content=notebook_page(notebook)))
    config["nav"] = _expanded(config["nav"], sorted(file.src_uri for file in files.documentation_pages()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    original = next((name for name, place in COPIES.items() if place == page.file.src_uri), f"docs/{page.file.src_uri}")
    parts = FENCE.split(markdown)
    return "".join(part if i % 2 else _with_links(part, original, page.file.src_uri) for i, part in enumerate(parts))


def on_page_content(html: str, **_: Any) -> str:
    """Formulas as MathML, which browsers draw without a script."""
    html = re.sub(r'<span class="arithmatex">\\\((.*?)\\\)</span>', lambda m: _formula(m[1], "inline"), html)
    block = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
    return block.sub(lambda m: f'<div class="formula">{_formula(m[1], "block")}</div>', html)


def _formula(tex: str, display: str) -> str:
    for sign, meaning in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        tex = tex.replace(sign, meaning)
    return convert(tex.strip().replace(r"\thinspace", r"\,").replace(r"\thickspace", r"\;"), display=display)


def _with_links(text: str, original: str, here: str) -> str:
    """Links of a file of the repository, as they are on the page ``here`` of the site."""
    before, after = PurePosixPath(original).parent, PurePosixPath(here).parent

    def moved(link: re.Match[str]) -> str:
        shown, target, anchor = link[1], link[2], link[3] or ""
        if re.match(r"[a-z]+:", target):
            return link[0]
        place = os.path.normpath(before / target)
        if place in HOMES:
            place = HOMES[place]
        elif place.startswith("docs/") and not place.endswith(".json"):
            place = place.removeprefix("docs/")
            place = f"{place.removesuffix('.ipynb')}.md" if place.endswith(".ipynb") else place
        else:
            return shown[1:-1]  # code and records stay in the repository
        return f"{shown}({os.path.relpath(place, after)}{anchor})"

    return LINK.sub(moved, text)


def _expanded(nav: list[Any], pages: list[str]) -> list[Any]:
    """``results/*`` stands for all pages that nothing else in the nav names."""
    named = {place for place in _places(nav) if "*" not in place}

    def expand(entries: list[Any]) -> Iterator[Any]:
        for entry in entries:
            if isinstance(entry, str) and "*" in entry:
                yield from (page for page in pages if fnmatch(page, entry) and page not in named)
            elif isinstance(entry, dict):
                yield {title: list(expand(it)) if isinstance(it, list) else it for title, it in entry.items()}
            else:
                yield entry

    return list(expand(nav))


def _places(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for below in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else []:
        yield from _places(below)


def notebook_page(path: Path) -> str:
    """A notebook as a page: text, code, and what came out of it when it was run last."""
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            parts += [shown for output in cell["outputs"] if (shown := _output(output))]
        if len(parts) == 1:
            parts.append(f"*The notebook: `docs/notebooks/{path.name}` of the repository. A test runs it.*")
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```" if output["name"] == "stdout" else ""
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f'<img class="output" alt="what the cell draws" src="data:image/png;base64,{picture}">'
    if "text/html" in data:
        return f'<div class="output">{"".join(data["text/html"])}</div>'.replace("\n\n", "\n")
    return f"```text\n{''.join(data['text/plain'])}\n```" if "text/plain" in data else ""
