"""A scikit-learn classifier that says "unknown": on picture files, or on features of your own.

>>> import numpy as np
>>> X = np.array([[0.0, 0.0], [0.0, 0.1], [0.1, 0.0], [5.0, 5.0], [5.0, 5.1], [5.1, 5.0]])
>>> classifier = GlocalClassifier(target_rate=0.15).fit(X, ["nut"] * 3 + ["bolt"] * 3)
>>> classifier.predict([[0.05, 0.05], [5.05, 5.05], [40.0, -40.0]]).tolist()
['nut', 'bolt', 'unknown']
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glocal.recognizer.calibration.leave_one_out import measure
from glocal.recognizer.calibration.threshold import compute_threshold
from glocal.recognizer.decision import Promise, Threshold
from glocal.recognizer.encoders.encoder import VECTORS
from glocal.recognizer.features import Features, Labels, unit
from glocal.recognizer.heads.head import Head, Scores
from glocal.recognizer.heads.prototypes import Prototypes
from glocal.recognizer.model import DEFAULT, DEFAULT_HEAD, build_model
from glocal.recognizer.photos.sources import Unreadable, is_unknown
from glocal.recognizer.recognizer import Recognizer
from glocal.recognizer.support import UNKNOWN_NAME, composed

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets, unique_labels
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("GlocalClassifier needs scikit-learn 1.6 or later: pip install 'glocal[sklearn]'") from error

Array = NDArray[Any]


class GlocalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """``fit(X, y)`` with X a list of picture files, or features (n, d).

    Files go through ``encoder`` and ``head``, or ``model``, as in ``Recognizer.enroll``.  Features are taken as they
    are and compared with class means by ``distance`` (sq-euclidean, euclidean or cosine).  With ``distance`` None they
    are vectors of an encoder, and ``head`` compares their directions, as in ``Recognizer.enroll_vectors``.

    ``reject``: photos above the threshold get ``unknown_label``, which is "unknown" for names and -1 for numbers unless
    given; without it every photo gets a class.
    """

    def __init__(
        self,
        *,
        encoder: str = DEFAULT,
        head: str = DEFAULT_HEAD,
        model: str | None = None,
        distance: str | None = "sq-euclidean",
        target_rate: float = 0.05,
        reject: bool = True,
        unknown_label: Any = None,
        device: str = "auto",
        workers: int = 2,
    ) -> None:
        self.encoder = encoder
        self.head = head
        self.model = model
        self.distance = distance
        self.target_rate = target_rate
        self.reject = reject
        self.unknown_label = unknown_label
        self.device = device
        self.workers = workers

    classes_: Array
    recognizer_: Recognizer
    names_: dict[str, Any]  # of the recognizer's classes -> the labels they stand for
    threshold_: Threshold

    def fit(self, X: Any, y: Any) -> GlocalClassifier:
        """Enroll the classes of y anew; X as the class says."""
        for name in ("recognizer_", "names_", "features_", "labels_", "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        return self._learn(X, y, first=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> GlocalClassifier:
        """More pictures, of old classes or new ones; ``classes``, if given, must name every class of ``y``."""
        if classes is not None and (extra := set(np.unique(y).tolist()) - set(np.asarray(classes).tolist())):
            raise ValueError(f"y has the classes {sorted(extra)}, which are not among those given in classes")
        return self._learn(X, y, first=not hasattr(self, "classes_"))

    def predict(self, X: Any) -> Array:
        """(n,) the class of each picture, or the unknown label where ``reject`` is on."""
        logits, open_score = self._scores(X)
        nearest = self.classes_[logits.argmax(axis=1)]
        if not self.reject:
            return nearest
        label = self._unknown()
        wide = np.result_type(nearest.dtype, np.asarray(label).dtype)
        return np.where(open_score > self.threshold_.value, np.asarray(label, wide), nearest.astype(wide))

    def decision_function(self, X: Any) -> Array:
        """Logits (n, classes), larger = more alike; for two classes (n,), positive for the second."""
        logits, _ = self._scores(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X: Any) -> Array:
        """(n, classes) if each picture is of one of the classes; ``open_score`` tells whether to believe that."""
        logits, _ = self._scores(X)
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        return shifted / shifted.sum(axis=1, keepdims=True)

    def open_score(self, X: Any) -> Array:
        """(n,) larger = more unknown; above ``threshold_.value`` a picture is rejected."""
        return self._scores(X)[1]

    def _learn(self, X: Any, y: Any, *, first: bool) -> GlocalClassifier:
        if are_paths(X):
            self._learn_files(X, y, first=first)
        else:
            self._learn_features(X, y, first=first)
        if self.reject and self._unknown() in self.classes_.tolist():
            raise ValueError(f"{self._unknown()!r} is the answer for unknown pictures, and a class; set unknown_label")
        return self

    def _learn_files(self, X: Any, y: Any, *, first: bool) -> None:
        files, labels = [Path(each) for each in np.ravel(X)], np.asarray(y)
        check_classification_targets(labels)
        if len(files) != len(labels):
            raise ValueError(f"one label per picture: {len(files)} pictures, {len(labels)} labels")
        if not first and not hasattr(self, "recognizer_"):
            raise ValueError("this classifier was fitted on features; partial_fit needs features too")
        if bad := [label for label in labels.tolist() if is_unknown(str(label))]:  # enroll would take them for no class
            raise ValueError(f"{bad[0]!r} is the answer for pictures of no class and cannot label files; rename it")
        # Labels stay as they were first given; a class has the same letters in composed Unicode.
        names = {} if first else dict(self.names_)
        by_class: dict[str, list[Path]] = {}
        for file, label in sorted(zip(files, labels.tolist(), strict=True), key=lambda pair: pair[1]):
            names.setdefault(composed(str(label)), label)
            by_class.setdefault(composed(str(label)), []).append(file)
        if first:
            recognizer = Recognizer.enroll(
                by_class,
                encoder=self.encoder,
                head=self.head,
                model=self.model,
                target_rate=self.target_rate,
                device=self.device,
                workers=self.workers,
            )
        else:
            recognizer = copy(self.recognizer_)  # a class that cannot be learned leaves all as it was
            for name, some in by_class.items():
                known = name in recognizer.classes
                (recognizer.add_photos if known else recognizer.add_class)(name, some)
        self.recognizer_, self.names_ = recognizer, names
        self.classes_ = np.unique(list(names.values()))
        self.threshold_ = recognizer.threshold

    def _learn_features(self, X: Any, y: Any, *, first: bool) -> None:
        if not first and hasattr(self, "recognizer_"):
            raise ValueError("this classifier was fitted on picture files; partial_fit needs files too")
        X, y = validate_data(self, X, y, reset=first, dtype=np.float64)
        check_classification_targets(y)
        self.features_: Array = X if first else np.concatenate([self.features_, X])
        self.labels_: Array = y if first else np.concatenate([self.labels_, y])
        self.classes_ = unique_labels(self.labels_)
        head, features, label = self._enrolled()
        promise = Promise(self.target_rate)
        self.threshold_ = compute_threshold(promise, np.bincount(label).tolist(), measure(head, features, label))
        for warning in self.threshold_.warnings if self.reject else ():
            warnings.warn(warning, UserWarning, stacklevel=4)

    def _enrolled(self) -> tuple[Head, Features, Labels]:
        label = np.searchsorted(self.classes_, self.labels_)
        if self.distance is None:
            return build_model(VECTORS, self.head).head, self._features(self.features_), label
        return Prototypes(distance=self.distance, temperature=1.0), self._features(self.features_), label

    def _features(self, X: Array) -> Features:
        return Features(X if self.distance is not None else unit(X))

    def _scores(self, X: Any) -> tuple[Array, Array]:
        """Logits (n, classes) in the order of ``classes_`` and open scores (n,)."""
        check_is_fitted(self, "classes_")
        if hasattr(self, "recognizer_"):
            if not are_paths(X):
                raise ValueError("this classifier was fitted on picture files; ask it about files")
            return self._scores_of_files(X)
        if are_paths(X):
            raise ValueError("this classifier was fitted on features; ask it about features")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        head, features, label = self._enrolled()
        compared = head.compare(head.enroll(features, label), self._features(X))
        return compared.logits, self.threshold_.levelled(compared.open_score, compared.logits.argmax(axis=1))

    def _scores_of_files(self, X: Any) -> tuple[Array, Array]:
        compared: list[Scores] = []
        for answered in self.recognizer_.batches([Path(each) for each in np.ravel(X)]):
            if bad := [each for each in answered.answers if isinstance(each, Unreadable)]:
                raise ValueError(f"cannot use picture {bad[0].path}: {bad[0].error}")
            compared.append(self.recognizer_.compare(answered.batch.features))
        labels = [self.names_[name] for name in self.recognizer_.classes]
        order = [labels.index(label) for label in self.classes_.tolist()]
        # In double precision, as a recognizer compares them with its threshold.
        logits = np.concatenate([each.logits for each in compared]).astype(np.float64)
        open_score = np.concatenate([each.open_score for each in compared])
        return logits[:, order], self.threshold_.levelled(open_score, logits.argmax(axis=1))

    def _unknown(self) -> Any:
        if self.unknown_label is not None:
            return self.unknown_label
        return UNKNOWN_NAME if self.classes_.dtype.kind in "UOS" else -1


def are_paths(X: Any) -> bool:
    """A flat list or array of text or paths."""
    if isinstance(X, str | Path) or not isinstance(X, Iterable):
        return False
    if isinstance(X, np.ndarray) and X.dtype.kind not in "UO":
        return False
    flat: Any = np.ravel(np.asarray(X, dtype=object)) if isinstance(X, np.ndarray | list | tuple) else []
    return len(flat) > 0 and all(isinstance(each, str | Path) for each in flat)
