"""The page and the gallery: well-formed, escaped, self-contained, written whole or not at all."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser

import numpy as np

from glocal.common.markup import Html
from glocal.common.page import Section, code, facts, figure, page, side_by_side
from glocal.research.metrics import Interval, score_histogram
from glocal.research.report import plots
from glocal.research.report.table import Row, Table, to_html
from glocal.samples.recognizer_report import picture_of

VOID = {"meta", "img", "br", "link", "input", "hr"}
RED = np.zeros((32, 32, 3), dtype=np.uint8)
RED[..., 0] = 255


class Reader(HTMLParser):
    """Fails on a tag that is not closed in order; collects what the tests ask for."""

    def __init__(self, html: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@cache
def whole_page() -> str:
    tasks = [(np.array([0.0, 1.0]), np.array([True, False]))]
    table = Table("Numbers", ["acc"], [Row("<i>x</i>", {"acc": Interval(0.5, 0.1, 9)})])
    plot = figure(plots.to_svg(plots.density(score_histogram(tasks))), alt='a "quoted" <alt>')
    png = figure(plots.to_png(plots.roc({"m": tasks}), dpi=40), alt="roc")
    return page(
        "Report <1>",
        [
            Section("Same", ["1 < 2 & 3", facts({"a<b": "c>d"})]),
            Section("Same", [to_html(table), side_by_side(plot, png)]),
            Section("!?", [Html(picture_of(RED, "red")), code("a && b > c")]),
        ],
        lead="<script>alert(1)</script>",
    )


def test_page_is_well_formed_escaped_and_has_anchors() -> None:
    html = whole_page()
    reader = Reader(html)
    assert reader.all("script") == []
    assert reader.all("i") == []
    words = "".join(reader.words)
    for text in ("Report <1>", "<script>alert(1)</script>", "1 < 2 & 3", "a<b", "<i>x</i>", "a && b > c"):
        assert text in words
    assert 'a "quoted" <alt>' in [image["alt"] for image in reader.all("img")]
    reader = Reader(whole_page())
    assert [tag for tag, _ in reader.tags if tag in ("h1", "h2")] == ["h1", "h2", "h2", "h2"]
    assert [section["id"] for section in reader.all("section")] == ["same", "same-2", "section"]
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert reader.all("html") == [{"lang": "en"}]
