"""The scikit-learn estimator."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from converted import model_file
from glocal.recognizer.sklearn import GlocalClassifier
from photos import write

# With rejection a few training points are "unknown", which these checks take for a mistake.
EXPECTED = {
    "check_classifiers_train": "compares predict() with argmax of decision_function(), and some are rejected",
    "check_classifiers_classes": "has a class -1, which is the answer for unknown",
}
CHECKS = [
    pytest.param(estimator, check, id=f"{'reject' if estimator.reject else 'closed'}-{check.func.__name__}")
    for reject in (False, True)
    for estimator, check in estimator_checks_generator(GlocalClassifier(reject=reject))
    if not (reject and check.func.__name__ in EXPECTED)
]


def test_check_estimator() -> None:
    """All checks of scikit-learn in closed form; with rejection all but those named above."""
    assert len(CHECKS) > 80
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few points per class, missing pandas: not what is tested here
        for case in CHECKS:
            estimator, check = case.values
            try:
                check(estimator)
            except Exception as error:
                if type(error).__name__ != "SkipTest":
                    raise AssertionError(f"{case.id}: {error}") from error


def blobs(seed: int = 0, n: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(c * 5, 1, (n, 4)) for c in range(3)]), np.repeat(["a", "b", "c"], n)


def test_features() -> None:
    X, y = blobs()
    classifier = GlocalClassifier().fit(X, y)
    fresh, truth = blobs(seed=1, n=100)
    told = classifier.predict(fresh)
    assert (told == truth).mean() > 0.85
    assert 0.005 < (told == "unknown").mean() < 0.15
    assert set(classifier.predict(np.full((3, 4), 100.0))) == {"unknown"}
    assert classifier.predict_proba(fresh).sum(axis=1) == pytest.approx(1)
    assert (classifier.classes_[classifier.decision_function(fresh).argmax(axis=1)] == truth).mean() > 0.95
    assert ((classifier.open_score(fresh) > classifier.threshold_.value) == (told == "unknown")).all()
    numbers = GlocalClassifier().fit(X, np.repeat([0, 1, 2], 30))
    assert numbers.predict(np.full((1, 4), 100.0)).tolist() == [-1]


def test_partial_fit_is_fit_on_all() -> None:
    X, y = blobs()
    order = np.random.default_rng(0).permutation(90)
    parts = GlocalClassifier()
    for some in np.array_split(order, 3):
        parts.partial_fit(X[some], y[some])
    whole = GlocalClassifier().fit(X[order], y[order])
    assert parts.threshold_ == whole.threshold_
    assert (parts.decision_function(X) == whole.decision_function(X)).all()
    with pytest.raises(ValueError, match=r"y has the classes \['c'\]"):
        GlocalClassifier().partial_fit(X, y, classes=["a", "b"])


def test_files(tmp_path: Path) -> None:
    files = [*write(tmp_path, "zero", 0, 6, prefix="0-"), *write(tmp_path, "one", 0, 6, prefix="1-")]
    fresh = [*write(tmp_path, "zero", 20, 30, prefix="0-"), *write(tmp_path, "one", 20, 30, prefix="1-")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier = GlocalClassifier(model=model_file(), device="cpu").fit(list(map(str, files)), [0] * 6 + [1] * 6)
    told = classifier.predict(fresh)
    assert (told == [0] * 10 + [1] * 10).mean() >= 0.8
    assert classifier.decision_function(fresh).shape == (20,)
    sixes = write(tmp_path, "six", 0, 6, prefix="6-")
    answers = classifier.recognizer_.predict(sixes)  # of views as they are stored: a picture has one answer
    assert classifier.open_score(sixes).tolist() == [each.open_score for each in answers]
    assert classifier.predict(sixes).tolist() == [-1 if each.is_unknown else int(each.label) for each in answers]
    assert (classifier.predict(sixes) == -1).sum() >= 4
    classifier.partial_fit(sixes, [6] * 6)
    assert classifier.classes_.tolist() == [0, 1, 6]
    assert classifier.decision_function(fresh).shape == (20, 3)
    assert (classifier.predict(write(tmp_path, "six", 20, 26, prefix="6-")) == 6).sum() >= 4
    with pytest.raises(ValueError, match="fitted on picture files"):
        classifier.predict(np.zeros((2, 3)))
    (tmp_path / "bad.png").touch()
    with pytest.raises(ValueError, match="cannot use picture"):
        classifier.predict([tmp_path / "bad.png"])


def test_files_are_learned_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    files = [*write(tmp_path, "zero", 0, 4, prefix="0-"), *write(tmp_path, "one", 0, 4, prefix="1-")]
    classifier = GlocalClassifier(model=model_file(), device="cpu").fit(files, ["nut"] * 4 + ["bolt"] * 4)
    before, fresh = classifier.threshold_, write(tmp_path, "six", 0, 3, prefix="6-")
    scores = classifier.decision_function(files)
    with pytest.raises(ValueError, match=r"gone\.png"):
        classifier.partial_fit([*fresh, tmp_path / "gone.png"], ["clip"] * 3 + ["screw"])
    assert (classifier.classes_.tolist(), classifier.threshold_) == (["bolt", "nut"], before)
    assert classifier.decision_function(files).tolist() == scores.tolist()
    classifier.partial_fit(fresh, ["clip"] * 3)
    assert set(classifier.predict(files)) <= {"bolt", "clip", "nut", "unknown"}


@pytest.mark.parametrize("label", ["unknown", "Unknown"])
def test_a_class_of_files_is_not_called_unknown(tmp_path: Path, label: str) -> None:
    files = [*write(tmp_path, "zero", 0, 3, prefix="0-"), *write(tmp_path, "one", 0, 3, prefix="1-")]
    for how in ({"reject": False}, {"unknown_label": "none of them"}):
        classifier = GlocalClassifier(model=model_file(), device="cpu", **how)
        with pytest.raises(ValueError, match=f"'{label}' is the answer"):
            classifier.fit(files, ["nut"] * 3 + [label] * 3)
        assert not hasattr(classifier, "classes_")


def test_labels_of_other_systems_are_the_same_class(tmp_path: Path) -> None:
    """Decomposed letters, as a Mac writes folder names, and composed ones; labels stay as they were given."""
    decomposed, composed = "cafe\u0301", "caf\u00e9"
    files = [*write(tmp_path, "zero", 0, 4, prefix="0-"), *write(tmp_path, "one", 0, 4, prefix="1-")]
    classifier = GlocalClassifier(model=model_file(), device="cpu", reject=False)
    classifier.fit(files, [decomposed] * 4 + ["tea"] * 4)
    classifier.partial_fit(write(tmp_path, "zero", 4, 6, prefix="0-"), [composed] * 2)
    assert classifier.classes_.tolist() == [decomposed, "tea"]
    assert classifier.recognizer_.contents.support.shots == [6, 4]
    told = classifier.predict(write(tmp_path, "zero", 20, 26, prefix="0-")).tolist()
    assert told.count(decomposed) >= 5
