"""The heads in numpy against slow twins, photo by photo and cell by cell, as their formulas are written."""

from __future__ import annotations

import numpy as np
import pytest

from glocal.common.errors import RecipeError
from glocal.recognizer.features import UNKNOWN, Features, join, unit
from glocal.recognizer.heads.prototypes import Prototypes
from glocal.recognizer.heads.ridge import MOST, PAIRS, Ridge, cells_of

LABEL = np.array([0, 0, 1, 1, 1, 2])


def photos(n: int, seed: int = 0, *, members: int = 1) -> Features:
    """Unit vectors, and unit cells for each member, all a little alike as those of photos are."""
    rng = np.random.default_rng(seed)
    maps = tuple(unit(rng.random((n, 5 + m, 2, 2)), axis=1) for m in range(members))
    return Features(unit(rng.random((n, 16))), maps)


def match(a: np.ndarray, b: np.ndarray) -> float:
    """Maps (C, h, w)."""
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    there = np.mean([max(float(a[:, u] @ b[:, v]) for v in range(b.shape[1])) for u in range(a.shape[1])])
    back = np.mean([max(float(a[:, u] @ b[:, v]) for u in range(a.shape[1])) for v in range(b.shape[1])])
    return float(there + back) / 2


def twin(support: Features, query: Features, *, r: float = 0.1, w: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """s_c and s_f of every query and class, with loops."""
    e, q, n = support.vec, query.vec, len(support)

    def alike(some: Features, i: int, j: int) -> float:
        return float(np.mean([match(a[i], b[j]) for a, b in zip(some.local, support.local, strict=True)]))

    kernel = np.array([[e[i] @ e[j] + alike(support, i, j) for j in range(n)] for i in range(n)])
    shots = np.bincount(LABEL)
    weight = np.array([shots[k] / shots.mean() for k in LABEL])
    alpha = np.linalg.inv(kernel + r * np.diag(weight)) @ np.eye(3)[LABEL]
    rho = np.mean([e[i] @ e[j] for i in range(n) for j in range(n) if i != j and LABEL[i] == LABEL[j]])
    s_c, s_f = np.zeros((len(q), 3)), np.zeros((len(q), 3))
    for i in range(len(q)):
        for k in range(3):
            mean = e[k == LABEL].mean(axis=0)
            length = np.sqrt((1 + (shots[k] - 1) * rho) / shots[k] / ((1 + (shots.mean() - 1) * rho) / shots.mean()))
            s_c[i, k] = q[i] @ mean / np.linalg.norm(mean) * length
            s_c[i, k] += w * sum(q[i] @ e[j] * alpha[j, k] for j in range(n))
            s_f[i, k] = w * sum(alike(query, i, j) * alpha[j, k] for j in range(n))
    return s_c, s_f


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("score", Ridge.score_names)
def test_ridge_is_its_formulas(members: int, score: str) -> None:
    support, query, head = photos(6, members=members), photos(4, 1, members=members), Ridge()
    head.open_score = score
    scores = head.compare(head.enroll(support, LABEL), query)
    s_c, s_f = twin(support, query)
    best = (s_c + s_f).argmax(axis=1)
    np.testing.assert_allclose(scores.logits * head.temperature, s_c + s_f, atol=1e-5)
    expected = {"E_c": -s_c, "E_f": -s_f, "E": -s_c - s_f}
    np.testing.assert_allclose(scores.open_score, expected[score][np.arange(4), best], atol=1e-5)
    for name, values in scores.parts.items():
        np.testing.assert_allclose(values, expected[name][np.arange(4), best], atol=1e-5)


def test_ridge_without_maps_compares_vectors_alone() -> None:
    support, head = Features(photos(6).vec), Ridge()
    scores = head.compare(head.enroll(support, LABEL), Features(photos(4, 1).vec))
    assert set(scores.parts) == {"E_c"}
    np.testing.assert_array_equal(scores.parts["E_c"], scores.open_score)
    assert scores.logits.shape == (4, 3)


def test_a_known_unknown_is_more_unknown_once_it_was_shown() -> None:
    support, strange, head = photos(6), photos(3, 7), Ridge()
    label = np.concatenate([LABEL, np.full(3, UNKNOWN)])
    before, after = (
        head.compare(head.enroll(*some), strange) for some in ((support, LABEL), (join([support, strange]), label))
    )
    assert (after.open_score > before.open_score + 0.1).all()
    assert after.logits.shape == (3, 3)


def test_many_photos_are_judged_by_prototypes_alone() -> None:
    support, query, head = photos(MOST + 1), photos(4, 1), Ridge()
    label = np.resize(LABEL, MOST + 1)
    state = head.enroll(support, label)
    assert not len(state.alpha), "no table of photos and classes"
    scores = head.compare(state, query)
    np.testing.assert_allclose(scores.logits * head.temperature, query.vec @ state.proto.T, rtol=1e-6)
    with_unknown = head.enroll(join([support, query]), np.concatenate([label, np.full(4, UNKNOWN)]))
    np.testing.assert_allclose(head.compare(with_unknown, query).logits, scores.logits)


@pytest.mark.parametrize("head", [Ridge(), Prototypes()], ids=["ridge", "prototypes"])
@pytest.mark.parametrize("n", [6, MOST + 3])
def test_trials_answer_as_enrolling_their_rows_does(head: Ridge | Prototypes, n: int) -> None:
    support, query, label = photos(n), photos(4, 1), np.resize(LABEL, n)
    for asked in (support, query):
        tried = head.trials(support, asked)
        for left_out in ([1], [0, 3]):
            rows, some = np.delete(np.arange(n), left_out), np.array([3, 0])
            found = tried(rows, label[rows])(some)
            expected = head.compare(head.enroll(support.rows(rows), label[rows]), asked.rows(some))
            np.testing.assert_allclose(found.logits, expected.logits, rtol=1e-5)
            np.testing.assert_allclose(found.open_score, expected.open_score, rtol=1e-5)


def test_turns_give_what_one_product_gives() -> None:
    some, others = (np.random.default_rng(i).random((n, 100, 3), dtype=np.float32) for i, n in enumerate((50, 40)))
    assert PAIRS < 50 * 40 * 100 * 100
    alone = [Ridge().match((some[i : i + 1],), (others,), (1, 40))[0] for i in range(50)]
    np.testing.assert_allclose(Ridge().match((some,), (others,), (50, 40)), alone, rtol=1e-6)


def test_the_length_of_a_prototype_takes_away_what_its_number_of_photos_adds() -> None:
    rng = np.random.default_rng(0)
    centre, shots, score = unit(rng.standard_normal((3, 50))), [1, 4, 30], np.zeros(3)
    label = np.repeat(np.arange(3), shots)
    for _ in range(40):
        vec = unit(centre[label] + 0.2 * rng.standard_normal((len(label), 50)))
        proto = Ridge().enroll(Features(vec), label).proto
        fresh = unit(centre[:, None] + 0.2 * rng.standard_normal((3, 50, 50)))
        score += np.einsum("nkd,nd->n", fresh, proto) / 50
    assert score.max() / score.min() < 1.1  # lengths of 1 make it 1.5


@pytest.mark.parametrize("distance", ["cosine", "euclidean", "sq-euclidean"])
def test_prototypes_are_class_means(distance: str) -> None:
    support, query, head = photos(6), photos(4, 1), Prototypes(distance=distance, temperature=2.0)
    scores = head.compare(head.enroll(support, LABEL), query)
    for i in range(4):
        for k in range(3):
            q, p = query.vec[i], support.vec[k == LABEL].mean(axis=0)
            far = float(np.sum((q - p) ** 2))
            cosine = float(q @ p / np.linalg.norm(q) / np.linalg.norm(p))
            expected = {"cosine": cosine, "euclidean": -np.sqrt(far), "sq-euclidean": -far}[distance] / 2
            assert scores.logits[i, k] == pytest.approx(expected, abs=1e-6)
    assert scores.open_score.tolist() == (-scores.logits.max(axis=1)).tolist()


def test_a_distance_that_is_not_there_is_refused() -> None:
    with pytest.raises(RecipeError, match="distance must be one of cosine, euclidean, sq-euclidean, got 'manhattan'"):
        Prototypes(distance="manhattan")


def noisy(seed: int, spread: float, shots: int = 4) -> tuple[Features, np.ndarray, Features, np.ndarray]:
    """Three classes that differ in a few numbers; photos of all of them differ along one direction."""
    rng = np.random.default_rng(seed)
    centres, along = rng.normal(size=(3, 12)), rng.normal(size=12)
    label, truth = np.repeat(np.arange(3), shots), np.repeat(np.arange(3), 50)

    def drawn(classes: np.ndarray) -> Features:
        vec = (
            centres[classes]
            + 0.3 * rng.normal(size=(len(classes), 12))
            + spread * np.outer(rng.normal(size=len(classes)), along)
        )
        return Features(unit(vec).astype(np.float32))

    return drawn(label), label, drawn(truth), truth


def test_the_whitening_of_the_support_is_that_of_its_covariance_within_classes() -> None:
    support, label, query, _ = noisy(0, 1.0)
    state = Ridge(whiten=3.0).enroll(support, label)
    off = support.vec - np.stack([support.vec[label == c].mean(axis=0) for c in label])
    covariance = off.T.astype(np.float64) @ off
    variance, directions = np.linalg.eigh(np.eye(12) + 3 * covariance / (np.trace(covariance) / 9))  # of 12 photos
    white = unit(query.vec @ (directions * variance**-0.5) @ directions.T)
    plain = Ridge().enroll(Features(state.vec), label)
    expected = Ridge().compare(plain, Features(white.astype(np.float32)))
    np.testing.assert_allclose(Ridge(whiten=3.0).compare(state, query).logits, expected.logits, atol=1e-3)


def test_whitening_by_the_support_names_more_where_photos_of_a_class_differ_in_one_way() -> None:
    right = {0.0: 0.0, 3.0: 0.0}
    for seed in range(5):
        support, label, query, truth = noisy(seed, 2.0)
        for whiten in right:
            head = Ridge(whiten=whiten)
            right[whiten] += (
                head.compare(head.enroll(support, label), query).logits.argmax(axis=1) == truth
            ).mean() / 5
    assert right[3.0] > right[0.0] + 0.05


def test_trials_whiten_by_the_photos_that_they_enroll() -> None:
    support, label, query, _ = noisy(0, 1.0)
    head, rows = Ridge(whiten=3.0), np.array([0, 1, 2, 4, 5, 8, 9, 11])
    scores = head.trials(support, query)(rows, label[rows])(np.arange(7))
    direct = head.compare(head.enroll(support.rows(rows), label[rows]), query.rows(slice(7)))
    np.testing.assert_allclose(scores.logits, direct.logits, atol=1e-4)


def test_many_cells_of_few_channels_leave_the_regression_stable() -> None:
    rng = np.random.default_rng(0)
    support, label, query, truth = noisy(0, 0.0, shots=20)
    some, others = (unit(1 + rng.normal(size=(len(each), 2, 4, 4)), axis=1) for each in (support, query))
    cells = cells_of(Features(support.vec, (some,)))
    least = np.linalg.eigvalsh(support.vec @ support.vec.T + Ridge().match(cells, cells, (60, 60)))[0]
    assert least < -0.01, "best partners are no inner products"
    head = Ridge(ridge=-1.001 * float(least))
    scores = head.compare(head.enroll(Features(support.vec, (some,)), label), Features(query.vec, (others,)))
    assert (scores.logits.argmax(axis=1) == truth).mean() > 0.9
    assert np.abs(scores.logits).max() < 100
