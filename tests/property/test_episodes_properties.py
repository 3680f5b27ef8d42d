"""Whatever is asked for: every task is legal, and depends on nothing but data, spec, seed and its number."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glocal.common.errors import DataError
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.episodes import EpisodeSampler, EpisodeSpec
from glocal.research.types import UNKNOWN

shots = st.one_of(st.integers(1, 4), st.tuples(st.integers(1, 2), st.integers(2, 5)))
specs = st.builds(
    EpisodeSpec,
    way=st.integers(1, 4),
    shot=shots,
    query=st.integers(1, 5),
    unknown_way=st.integers(0, 3),
    unknown_query=st.integers(0, 6),
)


def dataset(sizes: list[int]) -> ClassDataset:
    label = np.repeat(np.arange(len(sizes)), sizes)
    images = np.arange(len(label) * 192).astype(np.uint8).reshape(-1, 8, 8, 3)
    images[:, 0, 0, 0] = np.arange(len(label))  # no two alike
    return ClassDataset.from_arrays(images, label, [f"c{i}" for i in range(len(sizes))])


@given(specs, st.integers(-1, 2), st.data(), st.integers(0, 2**40), st.integers(0, 10**6), st.booleans())
def test_tasks_are_legal_or_refused_before_the_first(
    spec: EpisodeSpec, more_classes: int, draw: st.DataObject, seed: int, i: int, mirror: bool
) -> None:
    low, high = spec.shot_range
    mirror = mirror and spec.unknown_way > 0
    need = max(high + spec.query, (spec.unknown_query + high * mirror) if spec.unknown_way else 0)
    n = max(1, spec.way + spec.unknown_way + more_classes)
    spare = st.lists(st.sampled_from([0, 0, 1, 2, 5, 9, -1]), min_size=n, max_size=n)
    sizes = [need + each for each in draw.draw(spare)]
    data = dataset(sizes)
    feasible = len(sizes) >= spec.way + spec.unknown_way and min(sizes) >= need
    try:
        task = EpisodeSampler(data, spec, seed=seed, mirror=mirror)[i]
    except DataError:
        assert not feasible
        return
    assert feasible
    own = [task.support, task.query] + ([task.mirror_support] if mirror else [])
    used = np.concatenate(own)
    assert len(np.unique(used)) == len(used)
    assert len(task.drawn) == len(set(task.drawn)) == spec.way + spec.unknown_way
    np.testing.assert_array_equal(data.label[task.support], np.array(task.drawn)[task.support_label])
    known = task.query_label != UNKNOWN
    np.testing.assert_array_equal(data.label[task.query[known]], np.array(task.drawn)[task.query_label[known]])
    assert set(data.label[task.query[~known]]) <= set(task.drawn[spec.way :])
    per_class = np.bincount(task.support_label)
    assert len(per_class) == spec.way
    assert low <= per_class.min() <= per_class.max() <= high
    assert known.sum() == spec.way * spec.query
    assert (~known).sum() == spec.unknown_way * spec.unknown_query
    if mirror:
        roles = np.array(task.drawn[spec.way :])
        np.testing.assert_array_equal(data.label[task.mirror_support], roles[task.mirror_support_label])
        np.testing.assert_array_equal(data.label[task.query[~known]], roles[task.mirror_query_label[~known]])
        assert (task.mirror_query_label[known] == UNKNOWN).all()


@given(st.integers(0, 2**63), st.lists(st.integers(0, 50), min_size=1, max_size=6), st.booleans())
def test_a_task_does_not_depend_on_what_was_drawn_before(seed: int, order: list[int], mirror: bool) -> None:
    data = dataset([9, 7, 8, 12])
    spec = EpisodeSpec(way=2, shot=(1, 2), query=3, unknown_way=1, unknown_query=2)
    used = EpisodeSampler(data, spec, seed=seed, mirror=mirror)
    for i in order:
        fresh, again = EpisodeSampler(data, spec, seed=seed)[i], used[i]
        assert again.drawn == fresh.drawn
        np.testing.assert_array_equal(again.support, fresh.support)
        np.testing.assert_array_equal(again.query, fresh.query)
        np.testing.assert_array_equal(again.query_label, fresh.query_label)
