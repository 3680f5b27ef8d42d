"""The paper's numbers against the ones the specification repeats, typed in here by hand."""

import pytest

from glocal.report.comparable import published


def value(*wanted: str | int, metric: str, backbone: str = "resnet12") -> float:
    """Of the row with this table, data set, method, shot and backbone."""
    found = {(row.table, row.dataset, row.method, row.shot, row.backbone): row for row in published()}
    return found[(*wanted, backbone)[:5]].values[metric].mean


@pytest.mark.parametrize(
    ("method", "numbers"),
    [
        ("protonet", (64.01, 51.81, 80.09, 60.39)),
        ("feat", (67.02, 57.01, 82.02, 63.18)),
        ("peeler", (65.86, 60.57, 80.61, 67.35)),
        ("snatcher-f", (67.02, 68.27, 82.02, 77.42)),
        ("snatcher-t", (66.60, 70.17, 81.77, 76.66)),
        ("snatcher-l", (67.60, 69.40, 82.36, 76.15)),
        ("att", (67.64, 71.35, 82.31, 79.85)),
        ("att-g", (68.11, 72.41, 83.12, 79.85)),
        ("rfdnet", (66.23, 71.37, 82.44, 80.31)),
        ("gel", (68.26, 73.70, 83.05, 82.29)),
    ],
)
def test_mini_imagenet_of_table_one(method, numbers):
    found = [
        value("table-1", "mini-imagenet", method, shot, metric=metric) for shot in (1, 5) for metric in ("acc", "auroc")
    ]
    assert found == pytest.approx([n / 100 for n in numbers])


@pytest.mark.parametrize(
    ("row", "metric", "number"),
    [
        (("table-1", "cifar-fs", "gel/energy", 1), "auroc", 0.7943),
        (("ablation", "tiered-imagenet", "gel/baseline", 5), "fpr95", 0.6891),
        (("combine", "cifar-fs", "gel/delay", 5), "auroc", 0.8601),
        (("coefficients", "cifar-fs", "gel/learnable", 5), "auroc", 0.8729),
        (("table-1", "mini-imagenet", "peeler", 5, "resnet18"), "acc", 0.7508),
        (("resnet-18", "tiered-imagenet", "rfdnet", 5, "resnet18"), "auroc", 0.8219),
    ],
)
def test_other_tables(row, metric, number):
    assert value(*row, metric=metric) == pytest.approx(number)


def test_every_row_is_there_with_its_interval():
    tables = [row.table for row in published()]
    assert {t: tables.count(t) for t in set(tables)} == {
        "table-1": 56, "ablation": 24, "combine": 12, "coefficients": 18, "resnet-18": 12,
    }  # fmt: skip
    assert all(0 < i.half < 0.03 and 0.3 < i.mean < 1 for row in published() for i in row.values.values())
