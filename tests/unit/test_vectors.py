"""Vectors of any program: enrolled, answered, saved; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glocal.bulk.vector_files import read_vectors
from glocal.recognizer import Recognizer
from glocal.recognizer.sklearn import GlocalClassifier
from refusal import one_sentence, refused

D, SHOTS = 32, 5
CENTRES = np.random.default_rng(0).normal(size=(6, D))


def drawn(k: int, n: int, seed: int = 0) -> np.ndarray:
    """Of cluster k; 4 and 5 are enrolled nowhere."""
    return CENTRES[k] + 0.5 * np.random.default_rng([seed, k]).normal(size=(n, D))


SUPPORT = np.concatenate([drawn(k, SHOTS) for k in range(4)])
LABELS = [f"class {k}" for k in range(4) for _ in range(SHOTS)]
QUERIES = np.concatenate([drawn(k, 5, seed=1) for k in range(6)])


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return Recognizer.enroll_vectors(SUPPORT, LABELS)


def test_clusters_are_named_and_others_are_unknown(recognizer: Recognizer) -> None:
    answers = recognizer.predict_vectors(QUERIES, [f"q{i}" for i in range(30)])
    assert [each.nearest for each in answers[:20]] == [f"class {k}" for k in range(4) for _ in range(5)]
    assert all(each.is_unknown for each in answers[20:])
    assert sum(each.is_unknown for each in answers[:20]) <= 2
    assert answers[7].path == "q7"
    assert "local" not in answers[7].reason
    assert recognizer.threshold.source == "leave-one-out"
    assert recognizer.threshold.n_scores == 20


def test_only_directions_count(recognizer: Recognizer) -> None:
    scaled = Recognizer.enroll_vectors(SUPPORT * np.linspace(1, 9, len(SUPPORT))[:, None], LABELS)
    a, b = (taught.predict_vectors(QUERIES) for taught in (recognizer, scaled))
    np.testing.assert_allclose([x.open_score for x in a], [x.open_score for x in b], atol=1e-4)


def test_a_file_gives_the_same_answers(recognizer: Recognizer, tmp_path: Path) -> None:
    recognizer.save(tmp_path / "a.glocal")
    again = Recognizer.load(tmp_path / "a.glocal")
    assert [each.same for each in again.verify()] == [True] * 4
    assert again.predict_vectors(QUERIES) == recognizer.predict_vectors(QUERIES)
    again.rename_class("class 0", "zero")
    again.remove_class("class 3")
    answers = again.predict_vectors(QUERIES[:20])
    assert {each.nearest for each in answers[:5]} == {"zero"}
    assert all(each.is_unknown for each in answers[15:])


def test_known_unknowns_and_other_heads() -> None:
    labels = [*LABELS, *["unknown"] * 5]
    taught = Recognizer.enroll_vectors(np.concatenate([SUPPORT, drawn(4, 5)]), labels, head="prototypes")
    assert taught.contents.unknown is not None
    assert len(taught.contents.unknown) == 5
    assert taught.contents.model.name == "prototypes on vectors"
    assert taught.classes == ("class 0", "class 1", "class 2", "class 3")


@pytest.mark.parametrize(
    ("vectors", "code", "words"),
    [
        (np.full((2, D), np.nan), "not-finite", ["vector 0"]),
        (np.zeros((1, D)), "not-finite", ["vector 0"]),
        (np.ones((2, D - 1)), "other-length", [str(D), str(D - 1)]),
        (np.ones(D), "bad-vectors", [f"({D},)"]),
        ([["a"] * D], "bad-vectors", []),
    ],
)
def test_vectors_that_cannot_be_answered(vectors: Any, code: str, words: list[str], recognizer: Recognizer) -> None:
    with refused(code, *words):
        recognizer.predict_vectors(vectors)


def test_what_cannot_be_enrolled() -> None:
    with refused("bad-vectors", "20", "19"):
        Recognizer.enroll_vectors(SUPPORT, LABELS[:-1])
    with refused("bad-vectors"):
        Recognizer.enroll_vectors(SUPPORT, ["unknown"] * 20)
    with refused("other-encoder", "gel"):
        Recognizer.enroll_vectors(SUPPORT, LABELS, head="gel")


def test_a_recognizer_of_vectors_looks_at_no_photos(recognizer: Recognizer) -> None:
    photo = np.zeros((20, 20, 3), np.uint8)
    for ask in (recognizer.predict, recognizer.explain, lambda photos: recognizer.add_photos("class 0", photos)):
        with refused("no-photos", "vectors"):
            ask([photo])


def test_the_command_line(glocal: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    np.savez(tmp_path / "support.npz", vectors=SUPPORT, labels=LABELS)
    table = {"vector": QUERIES.tolist(), "name": [f"q{i}" for i in range(30)]}
    pq.write_table(pa.table(table), tmp_path / "queries.parquet")
    file, answers = tmp_path / "a.glocal", tmp_path / "answers.csv"
    code, out, _ = glocal("enroll", "--vectors", tmp_path / "support.npz", "-o", file)
    assert code == 0
    assert "--vectors" in out
    assert glocal("predict", file, "--vectors", tmp_path / "queries.parquet", "--csv", answers)[0] == 0
    lines = answers.read_text().splitlines()
    assert len(lines) == 31
    assert lines[1].startswith("q0,class 0")
    assert lines[30].startswith("q29,unknown")
    one_sentence(glocal("predict", file, "--vectors", tmp_path / "support.npz", "--out", tmp_path / "x"), "--csv")
    one_sentence(glocal("enroll", "--vectors", tmp_path / "queries.parquet", "-o", tmp_path / "b.glocal"), "labels")
    assert not (tmp_path / "b.glocal").exists()


def test_files_without_vectors(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", vectors=np.array([{}], dtype=object))
    np.savez(tmp_path / "other.npz", numbers=SUPPORT)
    pq.write_table(pa.table({"vectors": [[1.0, 2.0], [1.0], [1.0, 2.0, 3.0]]}), tmp_path / "ragged.parquet")
    (tmp_path / "no.parquet").write_bytes(b"no table")
    with (tmp_path / "alone.npz").open("wb") as file:
        np.save(file, SUPPORT)
    np.savez(tmp_path / "one-label.npz", vectors=SUPPORT, labels="a")
    np.savez(tmp_path / "row.npz", vectors=SUPPORT[0])
    np.savez_compressed(tmp_path / "cut.npz", vectors=SUPPORT)
    packed = bytearray((tmp_path / "cut.npz").read_bytes())
    packed[300:400] = b"\xff" * 100
    (tmp_path / "cut.npz").write_bytes(packed)
    pq.write_table(pa.table({"vectors": [[1.0], [2.0]], "labels": ["a", None]}), tmp_path / "null.parquet")
    pq.write_table(pa.table({"vectors": [["1"], ["2"]]}), tmp_path / "texts.parquet")
    for name, word in (
        ("objects.npz", "pickle"),
        ("other.npz", "numbers"),
        ("ragged.parquet", "length"),
        ("no.parquet", ""),
        ("alone.npz", "zip"),
        ("one-label.npz", "one label"),
        ("row.npz", "(n, D)"),
        ("cut.npz", "decompressing"),
        ("null.parquet", "one label"),
        ("texts.parquet", "numbers"),
    ):
        with refused("no-vectors", word):
            read_vectors(tmp_path / name)


def test_each_vector_has_its_own_name(glocal: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    np.savez(tmp_path / "few.npz", vectors=SUPPORT, names=["a", "b"])
    with refused("bad-vectors", "20", "2 names"):
        read_vectors(tmp_path / "few.npz")
    np.savez(tmp_path / "nan.npz", vectors=SUPPORT, labels=np.full(len(SUPPORT), np.nan))
    with refused("no-vectors", "one label"):
        read_vectors(tmp_path / "nan.npz")
    file, many = tmp_path / "a.glocal", np.repeat(SUPPORT, 60, axis=0)
    Recognizer.enroll_vectors(SUPPORT, LABELS).save(file)
    many[1100] = np.nan  # beyond what is answered at once
    np.savez(tmp_path / "many.npz", vectors=many)
    code, _, err = glocal("predict", file, "--vectors", tmp_path / "many.npz", "--csv", tmp_path / "many.csv")
    assert code == 2
    assert "vector 1100 " in err


def test_large_lists_of_parquet(tmp_path: Path) -> None:
    lists = pa.array(SUPPORT.tolist(), pa.large_list(pa.float64()))
    pq.write_table(pa.table({"vectors": lists}), tmp_path / "large.parquet")
    np.testing.assert_array_equal(read_vectors(tmp_path / "large.parquet").vectors, SUPPORT)


def test_the_estimator_takes_vectors_of_an_encoder(recognizer: Recognizer) -> None:
    classifier = GlocalClassifier(distance=None).fit(SUPPORT, LABELS)
    expected = [each.label for each in recognizer.predict_vectors(QUERIES)]
    assert classifier.predict(QUERIES).tolist() == expected
    assert classifier.threshold_.value == pytest.approx(recognizer.threshold.value, abs=1e-5)
