"""What the conformance suite certifies: every registered method with its defaults, and the cases below beside them."""

from __future__ import annotations

from typing import Any

from glocal.research.methods import METHODS

# Case -> settings.  The part of the name before a slash is the method's name in METHODS.
HEAD = {"distance": "cosine", "gentle_attention": True, "learn_temperature": True, "local_scale": "learned"}
MORE_CASES: dict[str, dict[str, Any]] = {
    "protonet/cosine": {"distance": "cosine"},
    "protonet/euclidean": {"distance": "euclidean"},
    "protonet/centred": {"temperature": 0.1, "centre": True},
    "protonet/nearest": {"open_score": "nearest"},
    "feat/adapter": {"adapter": True, "contrast_weight": 0.1},
    "peeler/auxiliary": {"adapter": True, "temperature": 8.0, "auxiliary_temperature": 8.0},
    "peeler": {"auxiliary_weight": 0},  # the base classes of the toy task are not those it draws
    "peeler/gaussian": {"variant": "gaussian", "sigma_channels": 8, "adapter": True},
    "peeler/full": {"variant": "gaussian", "sigma_channels": 8, "early_channels": 2},
    "att/single": {"memory": "single", "negative": "mlp"},
    "att-g/mlp": {"negative": "mlp"},
    "att-g/means": {"rows": "means"},
    "open-prototype/cosine": {"distance": "cosine"},
    "gel/baseline": {"variant": "baseline"},
    "gel/energy": {"variant": "energy", "distance": "cosine"},
    "gel/energy-maps": {"variant": "energy-maps", "map_temperature": 40.0},
    "gel/reduce": {"reduce": True},
    "gel/delay": {"variant": "delay", "top_k": 4, "distance": "euclidean"},
    "gel/learnable": {"coefficients": "learnable"},
    "gel/task-adaptive": {"coefficients": "task-adaptive"},
    "gel/centred": {"top_k": 2, "centre": True},
    "frozen-gel/cosine": HEAD,
    "frozen-gel/pixel": {"variant": "pixel", "local_scale": "mean", "adapter": True},
    "frozen-gel/energy-maps": {"variant": "energy-maps", "adapter": True},
    "frozen-gel/background": {"distance": "cosine", "background": 0.3},
    "frozen-gel/photos": HEAD
    | {"gentle_local": True, "channel_gains": True, "background": 0.3, "attention_width": 3, "local_width": 5},
    "ascm/plain": {"shift": 0.0, "similarity_weight": 0.0, "top_k": 2},
    "dnpg": {"epochs": 2},  # the fit to the base classes takes a second in full
    "dnpg/one": {"negatives": 1, "offset": False, "epochs": 2},
    "knn/centred": {"k": 1, "centre": True, "open_score": "knn_balanced"},
    "mahalanobis/relative": {"open_score": "relative", "shrinkage": 0.3, "correct_shots": True},
    "mahalanobis/plain": {"normalise": False},
    "eol/ways": {"balance": "ways"},
}
METHOD_CASES: dict[str, dict[str, Any]] = {name: {} for name in METHODS} | MORE_CASES
