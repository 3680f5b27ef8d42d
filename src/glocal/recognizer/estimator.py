"""A scikit-learn classifier that says "unknown": on picture files, or on features of your own.

>>> import numpy as np
>>> X = np.array([[0.0, 0.0], [0.0, 0.1], [0.1, 0.0], [5.0, 5.0], [5.0, 5.1], [5.1, 5.0]])
>>> classifier = GlocalClassifier(max_false_unknown=0.15).fit(X, ["nut"] * 3 + ["bolt"] * 3)
>>> classifier.predict([[0.05, 0.05], [5.05, 5.05], [40.0, -40.0]]).tolist()
['nut', 'bolt', 'unknown']
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glocal.engine.calibrate import Threshold, left_out_scores, plain_threshold
from glocal.methods.protonet import ProtoNet
from glocal.recognizer.brain import DEFAULT
from glocal.recognizer.recognizer import Recognizer
from glocal.types import Views
from glocal_runtime.naming import UNKNOWN_NAME

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets, unique_labels
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("GlocalClassifier needs scikit-learn 1.6 or later: pip install 'glocal[sklearn]'") from error

Array = NDArray[Any]


class GlocalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """``fit(X, y)`` with X a list of picture files, or features (n, d).

    Files go through ``model``; features are taken as they are and compared with class means by ``distance``
    (sq-euclidean, euclidean or cosine).  ``reject``: pictures above the threshold get ``unknown_label``, which is
    "unknown" for names and -1 for numbers unless given; without it every picture gets a class.
    """

    def __init__(
        self,
        *,
        model: str = DEFAULT,
        distance: str = "sq-euclidean",
        max_false_unknown: float = 0.05,
        reject: bool = True,
        unknown_label: Any = None,
        device: str = "auto",
        workers: int = 2,
    ) -> None:
        self.model = model
        self.distance = distance
        self.max_false_unknown = max_false_unknown
        self.reject = reject
        self.unknown_label = unknown_label
        self.device = device
        self.workers = workers

    classes_: Array
    threshold_: Threshold

    def fit(self, X: Any, y: Any) -> GlocalClassifier:
        for name in ("recognizer_", "features_", "labels_", "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        return self._learn(X, y, first=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> GlocalClassifier:
        """More pictures, of old classes or new ones; ``classes``, if given, must name every class of ``y``."""
        if classes is not None and (extra := set(np.unique(y).tolist()) - set(np.asarray(classes).tolist())):
            raise ValueError(f"y has the classes {sorted(extra)}, which are not among those given in classes")
        return self._learn(X, y, first=not hasattr(self, "classes_"))

    def predict(self, X: Any) -> Array:
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
        by_class = {label: [f for f, own in zip(files, labels, strict=True) if own == label] for label in set(labels)}
        if first:
            self.recognizer_ = Recognizer.enroll(
                {str(label): by_class[label] for label in sorted(by_class)},
                model=self.model,
                max_false_unknown=self.max_false_unknown,
                device=self.device,
                workers=self.workers,
            )
            known: list[Any] = []
        else:
            if not hasattr(self, "recognizer_"):
                raise ValueError("this classifier was fitted on features; partial_fit needs features too")
            known = self.classes_.tolist()
            for label, some in sorted(by_class.items()):
                grow = self.recognizer_.add_photos if label in known else self.recognizer_.add_class
                grow(str(label), some)
        self.classes_ = np.unique([*known, *labels.tolist()]) if known else np.unique(labels)
        self.threshold_ = self.recognizer_.threshold

    def _learn_features(self, X: Any, y: Any, *, first: bool) -> None:
        if not first and hasattr(self, "recognizer_"):
            raise ValueError("this classifier was fitted on picture files; partial_fit needs files too")
        X, y = validate_data(self, X, y, reset=first, dtype=np.float64)
        check_classification_targets(y)
        self.features_: Array = X if first else np.concatenate([self.features_, X])
        self.labels_: Array = y if first else np.concatenate([self.labels_, y])
        self.classes_ = unique_labels(self.labels_)
        method, views, label = self._enrolled()
        self.threshold_ = plain_threshold(
            shots=np.bincount(label.numpy()).tolist(),
            left_out=left_out_scores(method, views, label),
            max_false_unknown=self.max_false_unknown,
        )
        for warning in self.threshold_.warnings if self.reject else ():
            warnings.warn(warning, UserWarning, stacklevel=4)

    def _enrolled(self) -> tuple[ProtoNet, Views, torch.Tensor]:
        label = torch.from_numpy(np.searchsorted(self.classes_, self.labels_))
        method = ProtoNet(self.features_.shape[1], distance=self.distance, temperature=1.0, open_score="distance")
        return method, Views(torch.from_numpy(self.features_)), label

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
        method, views, label = self._enrolled()
        out = method.score(method.enroll(views, label), Views(torch.from_numpy(X)))
        return out.logits.numpy(), out.open_score.numpy()

    def _scores_of_files(self, X: Any) -> tuple[Array, Array]:
        logits, open_score = [], []
        for found in self.recognizer_.batches([Path(each) for each in np.ravel(X)]):
            if bad := [each for each in found.answers if hasattr(each, "error")]:
                raise ValueError(f"cannot use picture {bad[0].path}: {bad[0].error}")
            scores, rows = self.recognizer_.scores(found.batch.views)
            logits += rows
            open_score += scores
        names = list(self.recognizer_.classes)
        order = [names.index(str(label)) for label in self.classes_]
        return np.array(logits)[:, order], np.array(open_score)

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
