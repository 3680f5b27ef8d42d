"""One self-contained HTML page: no script, no outside resource, light and dark, readable on a phone.

Ready markup has the type ``Html``.  Every other string is text and is escaped on its way in, so a class called
``<script>`` stays a name.

>>> page("Result", [Section("What we saw", ["a < b"])]).count("<p>a &lt; b</p>")
1
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from glocal.common.markup import Html, data_uri, placed, text

# The page may hold inline styles and embedded pictures and nothing else, whatever a later piece puts into it.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it: ``Html`` as it is, plain strings as escaped paragraphs."""

    title: str
    body: Sequence[str]


def code(lines: str) -> Html:
    """Commands to copy, kept line by line; a long line scrolls in its own box."""
    return Html(f'<pre class="code" tabindex="0"><code>{text(lines)}</code></pre>')


def facts(values: Mapping[str, object]) -> Html:
    """Name and value pairs as small cards: the numbers a reader should meet first, or the settings of a run."""
    pairs = "".join(f"<div><dt>{text(name)}</dt><dd>{placed(value)}</dd></div>" for name, value in values.items())
    return Html(f'<dl class="facts">{pairs}</dl>')


def figure(picture: str | bytes, *, alt: str) -> Html:
    """A plot on a white card, as SVG text or PNG bytes.

    It is embedded as an image, not as elements: the ids and style rules of two inline SVGs would meet in one page.
    """
    if isinstance(picture, str):
        kind, data = "svg+xml", picture.encode()
    else:
        kind, data = "png", picture
    return Html(f'<figure class="plot"><img src="{data_uri(data, f"image/{kind}")}" alt="{text(alt)}"></figure>')


def side_by_side(*parts: Html) -> Html:
    """Parts in one row where there is room, one below the other on a phone."""
    return Html(f'<div class="side">{"".join(parts)}</div>')


def page(title: str, sections: Sequence[Section], *, lead: str = "") -> str:
    """The whole document.  ``lead`` is the sentence under the title; three sections and more get links on top."""
    anchors = _anchors([section.title for section in sections])
    links = "".join(
        f'<li><a href="#{anchor}">{text(section.title)}</a></li>'
        for anchor, section in zip(anchors, sections, strict=True)
    )
    navigation = f'<nav aria-label="Sections"><ul>{links}</ul></nav>' if len(sections) > 2 else ""
    body = "\n".join(_section(anchor, section) for anchor, section in zip(anchors, sections, strict=True))
    style = files("glocal.common").joinpath("page.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{text(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{text(title)}</h1>
{f'<p class="lead">{text(lead)}</p>' if lead else ""}
{navigation}
</header>
<main>
{body}
</main>
</body>
</html>
"""


def _section(anchor: str, section: Section) -> str:
    parts = (part if isinstance(part, Html) else Html(f"<p>{text(part)}</p>") for part in section.body)
    heading = f'<h2 id="{anchor}-title">{text(section.title)}</h2>'
    return "\n".join([f'<section id="{anchor}" aria-labelledby="{anchor}-title">', heading, *parts, "</section>"])


def _anchors(titles: Sequence[str]) -> list[str]:
    """Readable ids; two sections of the same title get different ones."""
    anchors: list[str] = []
    for title in titles:
        plain = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
        anchor, again = plain, 2
        while anchor in anchors:
            anchor, again = f"{plain}-{again}", again + 1
        anchors.append(anchor)
    return anchors
