"""The report in a real browser, as narrow as a phone and as wide as a desk: nothing sticks out, nothing complains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page import needs_browser

from glocal.research.data.episodes import EpisodeSpec
from glocal.research.engine.compare import Conditions
from glocal.research.metrics import Interval, paired_difference, score_histogram
from glocal.research.report import plots
from glocal.research.report.comparison import Result
from glocal.research.report.plots import Point, curve, joined
from glocal.research.report.table import Row, Table
from glocal.research.reproduce.report_folder import Drawing, Report, figure_part, table_part, write_report

pytestmark = needs_browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with a piece of every kind, wide tables and long names."""
    rng = np.random.default_rng(0)
    metrics = ("acc", "auroc", "f1", "fpr95", "aupr")
    values = {metric: Interval(0.8412, 0.0123, 600) for metric in metrics}
    gap = {metric: paired_difference(rng.normal(0, 1, 50), rng.normal(0, 1, 50)) for metric in ("acc", "auroc")}
    rows = [
        Row(f"A row with a long name {i}", values, "a note " * 12, gap if i else {}, "snatcher", published=values)
        for i in range(4)
    ]
    table = Table(
        "Wide", metrics, rows, reference=rows[0].name, sign_test=True, caption="Not comparable: " + "why, " * 30
    )
    result = Result(table, Conditions("d", "test", ("a",), EpisodeSpec()), 600, 0, "f" * 64, transductive=False)
    tasks = [(rng.normal(0, 1, 30), np.arange(30) < 15) for _ in range(5)]
    picture = rng.integers(0, 255, (48, 48, 3), dtype=np.uint8)
    patches = joined(
        picture,
        picture,
        side=3,
        partner=rng.integers(0, 9, 9),
        cosine=rng.uniform(0, 1, 9),
        names=("unknown: 7", "known: 1"),
        title="Look-alike",
        below="E_c: place 90, passes for known ✗\nE: place 3, found ✓",
    )
    swept = curve([Point(1, 0.7), Point(2, 0.71, 0.0, 0.02), Point(9, 0.72, 0.01, 0.03)], marked=1, axis="k")
    drawings = [
        Drawing(f"density-{i}", plots.density(score_histogram(tasks), title="GEL"), "density") for i in range(2)
    ]
    pieces = [
        table_part("ablation on data", "ablation-data", [result], {}),
        figure_part("figure-topk on data", [Drawing("topk", swept, "curve")], ["Words below."], {}),
        figure_part("figure-density on data", drawings, ["Words below."], {}),
        figure_part("figure-pixels on data", [Drawing("pixels", patches, "patches")], [], {}),
    ]
    conditions = {"Data": f"data {'0' * 12}", "glocal": f"0.1.0, commit {'a' * 12}+", "Scale": "embedded"}
    command = "glocal reproduce all --scale embedded --out " + "a-long-name" * 12
    report = Report("Reproduced", ["A sentence of what was found. " * 5] * 3, conditions, pieces, command)
    return write_report(report, tmp_path_factory.mktemp("report"))


@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_is_wider_than_the_screen(chromium: Any, page: Path, width: int) -> None:
    opened, console = chromium.new_page(viewport={"width": width, "height": 800}), list[str]()
    opened.on("console", lambda message: console.append(message.text))
    opened.goto(page.as_uri())
    content, window = opened.evaluate(
        "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert content <= window == width, "the page scrolls sideways"
    assert console == []
    assert opened.evaluate("() => document.querySelectorAll('img').length") >= 4
    opened.close()
