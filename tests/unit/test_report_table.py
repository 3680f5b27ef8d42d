"""Result tables: one fixed table in every format, and names that are hostile to each of them."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest

from glocal.research.metrics import Interval, PairedDifference
from glocal.research.report.table import Row, Table, p_text, to_csv, to_html, to_json, to_latex, to_markdown

GAIN = PairedDifference(mean=0.0543, low=-0.0001, high=0.11, p_value=0.001, wins=400, losses=200, n=600)
TABLE = Table(
    "mini, 1-shot",
    ["auroc", "fpr95"],
    [
        Row("FEAT", {"auroc": Interval(0.6827, 0.0096, 600), "fpr95": Interval(0.80, 0.01, 600)}),
        Row("GEL", {"auroc": Interval(0.7370, 0.0082, 600)}, note="ours", difference={"auroc": GAIN}),
        Row("bound", {"fpr95": Interval(0.25, math.nan, 1)}),
    ],
    reference="FEAT",
    caption="Test classes.",
)
READING = (
    "Test classes. Mean ± 95 % confidence interval over 600 tasks, in percent; best value bold. "
    "Δ: difference to FEAT on the same tasks [95 % bootstrap interval]."
)
HOSTILE = Row("<script>a & b_c 50% #1 $x$ {y} ~^\\ *z* | [q]\n2", {"auroc": Interval(0.5, 0.1, 9)}, note='a,"b"')


def hostile() -> Table:
    return Table("t & <b>", ["auroc"], [HOSTILE])


def test_markdown() -> None:
    escaped = READING.replace("[", r"\[").replace("]", r"\]")
    assert to_markdown(TABLE).splitlines() == [
        "**mini, 1-shot**",
        "",
        "| Method |          AUROC ↑ |                 Δ AUROC |      FPR95 ↓ | Note |",
        "| ------ | ---------------: | ----------------------: | -----------: | ---- |",
        "| FEAT   |     68.27 ± 0.96 |                       – | 80.00 ± 1.00 |      |",
        r"| GEL    | **73.70 ± 0.82** | +5.43 \[−0.01, +11.00\] |            – | ours |",
        "| bound  |                – |                       – |    **25.00** |      |",
        "",
        escaped,
    ]


def test_latex() -> None:
    lines = to_latex(TABLE).splitlines()
    assert lines[3] == r"\begin{tabular}{lrrrl}"
    assert lines[5] == r"Method & AUROC $\uparrow$ & $\Delta$ AUROC & FPR95 $\downarrow$ & Note \\"
    assert lines[7:10] == [
        r"FEAT & 68.27 $\pm$ 0.96 & -- & 80.00 $\pm$ 1.00 &  \\",
        r"GEL & \textbf{73.70 $\pm$ 0.82} & +5.43 [$-$0.01, +11.00] & -- & ours \\",
        r"bound & -- & -- & \textbf{25.00} &  \\",
    ]
    caption = READING.replace("±", r"$\pm$").replace("%", r"\%").replace("Δ", r"$\Delta$")
    assert lines[2] == rf"\caption{{mini, 1-shot. {caption}}}"


def test_csv_and_json_hold_plain_fractions() -> None:
    assert to_csv([(TABLE, {})]).splitlines() == [
        "name,auroc,auroc_half,auroc_tasks,auroc_diff,auroc_diff_low,auroc_diff_high,auroc_diff_p,"
        "fpr95,fpr95_half,fpr95_tasks,note",
        "FEAT,0.6827,0.0096,600,,,,,0.8,0.01,600,",
        "GEL,0.737,0.0082,600,0.0543,-0.0001,0.11,0.001,,,,ours",
        "bound,,,,,,,,0.25,,1,",
    ]
    rows = json.loads(json.dumps(to_json(TABLE), allow_nan=False))["rows"]
    assert rows[1]["values"] == {"auroc": {"mean": 0.737, "half": 0.0082, "n": 600}}
    assert rows[1]["difference"]["auroc"]["wins"] == 400
    assert rows[2]["values"]["fpr95"] == {"mean": 0.25, "half": None, "n": 1}
    assert [p_text(p) for p in (1.0, 0.0512, 0.001, 0.00099, 0.0)] == ["1.000", "0.051", "0.001", "<0.001", "<0.001"]


@pytest.mark.parametrize(
    ("metric", "means", "best"),
    [
        ("auroc", (0.7, 0.9, 0.8), {"b"}),
        ("fpr95", (0.7, 0.9, 0.8), {"a"}),
        ("auroc", (0.70001, 0.70002, 0.6), {"a", "b"}),  # the same when printed
        ("auroc", (0.7, 0.7, 0.7), set()),
        ("auroc", (0.7, math.nan, 0.6), {"a"}),
    ],
)
def test_best_value(metric: str, means: tuple[float, ...], best: set[str]) -> None:
    rows = [Row(name, {metric: Interval(mean, 0.0, 5)}) for name, mean in zip("abc", means, strict=True)]
    assert Table("t", [metric], rows).best(metric) == best


def test_hostile_names_are_escaped_in_every_format() -> None:
    html = to_html(hostile())
    assert "<script>" not in html
    assert '<th scope="row">&lt;script&gt;a &amp; b_c 50% #1' in html
    assert 'aria-label="t &amp; &lt;b&gt;"' in html
    assert '<span class="note">a,&quot;b&quot;</span>' in html
    line = to_markdown(hostile()).splitlines()[4]
    assert line.startswith(r"| &lt;script&gt;a &amp; b\_c 50% #1 $x$ {y} \~^\\ \*z\* \| \[q\] 2 | 50.00 ± 10.00 |")
    line = to_latex(hostile()).splitlines()[7]
    assert line.startswith(
        r"\textless{}script\textgreater{}a \& b\_c 50\% \#1 \$x\$ \{y\} \textasciitilde{}\textasciicircum{}"
        r"\textbackslash{} *z* \textbar{} [q] 2 & 50.00 $\pm$ 10.00 &"
    )
    # "\\" followed by "[" would be a length in LaTeX
    assert "\n{}[ours] & 50.00" in to_latex(Table("t", ["auroc"], [Row("[ours]", HOSTILE.values)]))
    (row,) = csv.DictReader(io.StringIO(to_csv([(hostile(), {"shot": 5})])))
    numbers = {"auroc": "0.5", "auroc_half": "0.1", "auroc_tasks": "9"}
    assert row == {"shot": "5", "name": HOSTILE.name, **numbers, "note": 'a,"b"'}


SCORED = Table(
    "all",
    ["auroc"],
    [
        Row("a", {"auroc": Interval(0.5, 0.1, 9)}, open_score="E", rank={"auroc": 1.75}),
        Row(
            "b",
            {"auroc": Interval(0.6, 0.1, 9)},
            open_score="entropy",
            rank={"auroc": 1.25},
            difference={"auroc": GAIN},
            published={"auroc": Interval(0.62, 0.008, 600)},
        ),
    ],
    reference="a",
    sign_test=True,
)


def test_a_comparison_in_every_format() -> None:
    lines = to_markdown(SCORED).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == [
        "Method", "Open score", "AUROC ↑", "Δ AUROC", "p", "Rank", "Published",
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[5].split("|")[1:-1]] == [
        "b", "entropy", "**60.00 ± 10.00**", r"+5.43 \[−0.01, +11.00\]", "0.001", "1.25", "62.00 ± 0.80",
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[4].split("|")[4:-1]] == ["–", "–", "1.75", "–"]
    assert "p: exact sign test" in lines[-1]
    assert "Rank: mean place" in lines[-1]
    found = list(csv.DictReader(io.StringIO(to_csv([(SCORED, {})]))))
    assert list(found[0])[1] == "open_score"
    assert (found[0]["auroc_rank"], found[1]["auroc_rank"]) == ("1.75", "1.25")
    assert (found[0]["auroc_published"], found[1]["auroc_published"]) == ("", "0.62")
    row = to_json(SCORED)["rows"][1]
    assert (row["open_score"], row["rank"], row["published"]["auroc"]["half"]) == ("entropy", {"auroc": 1.25}, 0.008)
    assert "open_score" not in to_json(TABLE)["rows"][0]
    second = str(to_html(SCORED)).split("<tr>")[3]
    assert second.startswith('<th scope="row">b</th><td>entropy</td><td><strong>60.00 ± 10.00</strong>')
    assert '<span class="delta">Δ +5.43<br>[−0.01, +11.00] p 0.001</span></td><td>1.25</td>' in second
