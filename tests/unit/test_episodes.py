"""Tasks: which pictures, in which roles, refused when impossible; task lists that cannot be mixed up."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glocal.common.errors import DataError
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.episodes import EpisodeSampler, EpisodeSpec, TaskList, unknown_share, with_unknown_share
from refusal import refused

SPEC = EpisodeSpec(way=3, shot=2, query=4, unknown_way=2, unknown_query=3)


def dataset(sizes: tuple[int, ...] = (9, 12, 7, 30, 8, 10), seed: int = 0, name: str = "toys") -> ClassDataset:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    images = rng.integers(0, 256, (len(labels), 8, 8, 3), dtype=np.uint8)
    return ClassDataset.from_arrays(
        images, labels, [f"{'abcdef'[c]}-{size}" for c, size in enumerate(sizes)], name=name
    )


def tables(tasks: TaskList) -> list[dict[str, Any]]:
    return [{name: None if v is None else np.asarray(v).tolist() for name, v in vars(task).items()} for task in tasks]


def test_every_class_plays_every_role_about_equally_often() -> None:
    data = dataset((8,) * 6)
    roles = np.array([EpisodeSampler(data, SPEC)[i].drawn for i in range(600)])
    for place in range(5):
        assert np.bincount(roles[:, place], minlength=6).min() > 70  # 100 expected
    support = np.concatenate([EpisodeSampler(data, SPEC)[i].support for i in range(600)])
    assert np.bincount(support, minlength=48).min() > 45  # 75 expected


def test_tasks_are_those_of_every_version_and_machine() -> None:
    """Frozen numbers: a change here changes every published result."""
    sampler = EpisodeSampler(
        dataset((8,) * 6), EpisodeSpec(way=2, shot=1, query=2, unknown_way=1, unknown_query=1), seed=7
    )
    assert [(t.drawn, t.support.tolist(), t.query.tolist()) for t in map(sampler.__getitem__, (0, 1))] == [
        ((3, 4, 0), [24, 39], [30, 29, 38, 32, 2]),
        ((1, 3, 2), [13, 28], [12, 9, 25, 26, 19]),
    ]
    tasks = EpisodeSampler(dataset(), SPEC, seed=0).take(50)
    assert tasks.fingerprint() == "c4c36c4dbcd017b26500bd732e633dc9e0bccbfa3d23c84ffc47e3ec8d56a70d"


def test_the_fingerprint_tells_seeds_data_and_roles_apart_and_not_mirrors() -> None:
    spec = EpisodeSpec(way=3, shot=(1, 3), query=4, unknown_way=2, unknown_query=3)
    plain, mirrored = (EpisodeSampler(dataset(), spec, seed=5, mirror=mirror).take(30) for mirror in (False, True))
    assert plain.fingerprint() == mirrored.fingerprint()
    assert {int(n) for task in plain for n in np.bincount(task.support_label)} == {1, 2, 3}
    assert all(set(task.mirror_support.tolist()) <= set(task.images().tolist()) for task in mirrored)
    prints = {
        EpisodeSampler(dataset(seed=data), spec, seed=seed).take(3).fingerprint()
        for data in (0, 1)
        for spec in (SPEC, EpisodeSpec(way=2, shot=3, query=4, unknown_way=3, unknown_query=3))
        for seed in (0, 1)
    }
    assert len(prints) == 8


def test_rows_restrict_tasks_take_starts_where_told_and_the_smallest_class_is_enough() -> None:
    data = dataset()
    rows = np.concatenate([data.members(c)[:7] for c in range(6)])
    tasks = EpisodeSampler(data, SPEC, rows=rows).take(50)
    assert set(tasks.images().tolist()) == set(rows.tolist())
    sampler = EpisodeSampler(dataset(), SPEC)
    assert tables(sampler.take(3, start=4)) == tables(sampler.take(7))[4:]
    assert sampler.take(3, start=4).fingerprint() != sampler.take(3).fingerprint()
    spec = EpisodeSpec(way=4, shot=3, query=4, unknown_way=2, unknown_query=7)
    assert len(EpisodeSampler(dataset(), spec).take(5).images()) > 30
    with pytest.raises(IndexError, match="must not be negative"):
        EpisodeSampler(dataset(), spec)[-1]
    with refused("data", "at least 1 task, got 0"):
        EpisodeSampler(dataset(), spec).take(0)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"way": 0}, "way must be at least 1, got 0"),
        ({"shot": 0}, "shot must be at least 1, got 0"),
        ({"shot": (3, 2)}, "from least to most, got (3, 2)"),
        ({"shot": (1, 2, 3)}, "one number, or two (least, most), got (1, 2, 3)"),
        ({"unknown_way": -1}, "unknown_way must be at least 0, got -1"),
    ],
)
def test_impossible_specs_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with refused("data", sentence):
        EpisodeSpec(**settings)


@pytest.mark.parametrize(
    ("spec", "how", "words"),
    [
        (EpisodeSpec(5, 1, 15, 2), {}, "toys has 6 classes, but a task needs 7 (5 known + 2 unknown)"),
        (EpisodeSpec(3, 4, 4, 0), {}, "'c-7' of toys has 7 images, but a task needs 8 (4 support + 4 queries): add"),
        (EpisodeSpec(3, (1, 6), 3, 0), {}, "needs 9 (6 support + 3 queries) (2 classes"),
        (EpisodeSpec(3, 1, 1, 2, 8), {}, "needs 8 (8 unknown queries)"),
        (EpisodeSpec(3, 2, 1, 2, 6), {"mirror": True}, "needs 8 (6 unknown queries + 2 mirrored support)"),
        (EpisodeSpec(3, 1, 1, 0), {"mirror": True}, "mirrored task needs unknown classes"),
        (EpisodeSpec(3, 1, 1, 0), {"rows": np.arange(3)}, "has 0 images"),
        (SPEC, {"seed": -1}, "seed must be 0 or more, got -1"),
    ],
)
def test_infeasible_tasks_are_refused_at_construction(spec: EpisodeSpec, how: dict[str, Any], words: str) -> None:
    with refused("data", words):
        EpisodeSampler(dataset(), spec, **how)


def test_a_task_list_survives_its_file(tmp_path: Path) -> None:
    spec = EpisodeSpec(way=3, shot=(1, 3), query=4, unknown_way=2, unknown_query=3)
    data = dataset()
    tasks = EpisodeSampler(data, spec, seed=2, mirror=True).take(4, start=10)
    tasks.save(tmp_path / "tasks.json")
    again = TaskList.load(tmp_path / "tasks.json", data)
    assert tables(again) == tables(tasks)
    assert (again.spec, again.seed, again.start, again.manifest) == (spec, 2, 10, data.manifest)
    assert again.fingerprint() == tasks.fingerprint()
    assert json.loads((tmp_path / "tasks.json").read_text())["fingerprint"] == tasks.fingerprint()
    assert all(part.dtype == np.int64 for part in (again[0].support, again[0].query_label))


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["tasks"][1]["query"].reverse(),
        lambda record: record["tasks"][0]["support"].__setitem__(0, 40),
        lambda record: record["tasks"][0]["mirror_support"].__setitem__(0, 40),
        lambda record: record["tasks"].pop(),
        lambda record: record["spec"].update(shot=5),
        lambda record: record.update(seed=8),
    ],
)
def test_an_altered_task_list_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = tmp_path / "tasks.json"
    EpisodeSampler(dataset(), SPEC, mirror=True).take(3).save(path)
    other = dataset(seed=1, name="other toys")
    with refused("other-data", "other toys", other.manifest[:12]):
        TaskList.load(path, other)
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    with refused("altered", "tasks.json"):
        TaskList.load(path, dataset())
    path.write_text(path.read_text().replace("glocal-tasks-1", "glocal-tasks-9"))
    with refused("data", "format should be 'glocal-tasks-1', got 'glocal-tasks-9'"):
        TaskList.load(path, dataset())


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["tasks"][0]["support"].__setitem__(0, 10**6),
        lambda r: r["tasks"][0]["query"].__setitem__(0, -1),
        lambda r: r["tasks"][0]["query_label"].__setitem__(0, -2),
        lambda r: r["tasks"][0]["query_label"].__setitem__(0, SPEC.way),  # an unknown class has no label
        lambda r: r["tasks"][0]["drawn"].__setitem__(0, 6),  # of six classes
        lambda r: r["tasks"][0].update(support="abc"),
        lambda r: r["tasks"][0].update(support_label=[0]),
        lambda r: r["spec"].update(unknown_query=math.inf),
    ],
)
def test_a_task_list_that_makes_no_sense_is_refused_whatever_its_checksum_says(tmp_path: Path, change: Any) -> None:
    data = dataset()
    EpisodeSampler(data, SPEC).take(2).save(tmp_path / "tasks.json")
    record = json.loads((tmp_path / "tasks.json").read_text())
    record.pop("checksum")
    change(record)
    checksum = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
    (tmp_path / "tasks.json").write_text(json.dumps(record | {"checksum": checksum}))
    with pytest.raises(DataError) as caught:
        TaskList.load(tmp_path / "tasks.json", data)
    assert "tasks.json" in str(caught.value)


@pytest.mark.parametrize("content", ["", "3", '{"format": "glocal-tasks-1"}', "nul", "[" * 100_000])
def test_what_is_no_task_list_is_called_so(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with refused("data", "notes.txt is not a task list of this glocal"):
        TaskList.load(path, dataset())
    with refused("data", "absent.json cannot be read: No such file"):
        TaskList.load(tmp_path / "absent.json", dataset())


def with_duplicates() -> ClassDataset:
    """Three classes of 4 different pictures, each there twice; one picture is in two classes."""
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    images[11] = images[0]
    return ClassDataset.from_arrays(np.concatenate([images, images]), np.tile(np.repeat(np.arange(3), 4), 2))


def test_a_picture_that_is_there_twice_is_never_on_both_sides_of_a_task() -> None:
    data = with_duplicates()
    assert (len(data), data.duplicates, dataset().duplicates) == (24, 12, 0)
    sampler = EpisodeSampler(data, EpisodeSpec(way=2, shot=1, query=3, unknown_way=1, unknown_query=4), seed=1)
    for task in sampler.take(20):
        for c in task.drawn:
            shown = [i for i in [*task.support.tolist(), *task.query.tolist()] if data.label[i] == c]
            assert len({data.digest[i].tobytes() for i in shown}) == len(shown) == 4
    second = np.flatnonzero(~np.isin(np.arange(24), np.concatenate([data.distinct(data.members(c)) for c in range(3)])))
    of_rows = EpisodeSampler(data, EpisodeSpec(way=2, shot=1, query=3, unknown_way=0), rows=second)
    assert np.isin(of_rows.take(5).images(), second).all()  # where only the copies are allowed, they are used
    with refused("data", "has 4 images (repeated ones counted once), but a task needs 5"):
        EpisodeSampler(data, EpisodeSpec(way=2, shot=1, query=4, unknown_way=0))


def test_a_list_that_keeps_nothing_holds_the_same_tasks(tmp_path: Path) -> None:
    sampler = EpisodeSampler(dataset(), EpisodeSpec(2, 1, 3, 2, 3), seed=4)
    kept, redrawn = sampler.take(300, start=2), sampler.take(300, start=2, keep=False)
    assert redrawn.fingerprint() == kept.fingerprint()
    assert redrawn.images().tolist() == kept.images().tolist()
    assert len(redrawn) == 300
    assert redrawn[7].query.tolist() == kept[7].query.tolist()
    assert redrawn[-1].support.tolist() == kept[299].support.tolist()
    assert [draw.drawn for draw in redrawn[3:5]] == [kept[3].drawn, kept[4].drawn]
    assert redrawn[7] is not redrawn[7]
    redrawn.save(tmp_path / "a.json")
    kept.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_shares_are_exact_or_near_in_share_and_size() -> None:
    for way, (share, queries) in product((5, 20), {0.1: (27, 3), 0.5: (15, 15), 0.9: (3, 27)}.items()):
        found = with_unknown_share(EpisodeSpec(way, 10, 15, way, 15), share)
        assert (found.query, found.unknown_query) == queries
        assert (found.way, found.shot, found.unknown_way) == (way, 10, way)
        assert unknown_share(found) == share
    for unknown_way, share in product((1, 2, 3, 7, 25), (0.05, 0.1, 0.37, 0.5, 0.9)):  # classes that are uneven
        found, total = with_unknown_share(EpisodeSpec(20, 1, 15, unknown_way, 15), share), (20 + unknown_way) * 15
        assert abs(unknown_share(found) - share) <= 0.01
        assert 0.75 * total <= 20 * found.query + unknown_way * found.unknown_query <= 1.25 * total
        assert min(found.query, found.unknown_query) >= 1


@pytest.mark.parametrize(
    ("spec", "share", "sentence"),
    [
        (EpisodeSpec(), 0.0, "must lie between 0 and 1, such as 0.1, got 0.0"),
        (EpisodeSpec(), 10.0, "got 10.0"),
        (EpisodeSpec(5, 1, 15, 0, 0), 0.1, "needs unknown classes, but unknown_way is 0"),
        (EpisodeSpec(5, 1, 3, 5, 3), 0.1, "nearest to 0.1 is 0.143; ask for more queries per class"),
    ],
)
def test_impossible_shares_are_refused(spec: EpisodeSpec, share: float, sentence: str) -> None:
    with refused("data", sentence):
        with_unknown_share(spec, share)
