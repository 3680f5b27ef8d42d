"""What the conformance suites certify.  A new method needs one line here."""

from __future__ import annotations

from typing import Any

# Case -> settings.  The part of the name before a slash is the method's name in METHODS.
METHOD_CASES: dict[str, dict[str, Any]] = {
    "protonet": {},
    "protonet/cosine": {"distance": "cosine"},
    "protonet/euclidean": {"distance": "euclidean"},
    "protonet/centred": {"temperature": 0.1, "centre": True},
    "protonet/nearest": {"open_score": "nearest"},
    "feat": {"contrast_weight": 0.1},
    "feat/adapter": {"adapter": True},
    "peeler": {"auxiliary_weight": 0},
    "peeler/auxiliary": {"adapter": True, "temperature": 8.0, "auxiliary_temperature": 8.0},
    "peeler/gaussian": {"variant": "gaussian", "sigma_channels": 8, "auxiliary_weight": 0},
    "peeler/full": {"variant": "gaussian", "sigma_channels": 8, "early_channels": 2},
    "peeler/gaussian-adapter": {"variant": "gaussian", "sigma_channels": 8, "adapter": True},
    "snatcher-f": {},
    "snatcher-t": {},
    "snatcher-l": {},
    "att": {},
    "att/single": {"memory": "single", "negative": "mlp"},
    "att-g": {},
    "att-g/mlp": {"negative": "mlp"},
    "att-g/means": {"rows": "means"},
    "rfdnet": {},
    "open-prototype": {},
    "open-prototype/cosine": {"distance": "cosine"},
    "gel": {"top_k": 2},
    "gel/baseline": {"variant": "baseline"},
    "gel/energy": {"variant": "energy", "distance": "cosine"},
    "gel/pixel": {"variant": "pixel", "local_scale": "mean"},
    "gel/delay": {"variant": "delay", "top_k": 4, "distance": "euclidean"},
    "gel/learnable": {"coefficients": "learnable", "adapter": True},
    "gel/gentle": {
        "distance": "cosine",
        "gentle_attention": True,
        "learn_temperature": True,
        "local_scale": "learned",
    },
    "gel/photos": {
        "distance": "cosine",
        "gentle_attention": True,
        "learn_temperature": True,
        "local_scale": "learned",
        "gentle_local": True,
        "channel_gains": True,
        "attention_width": 3,
        "local_width": 5,
    },
    "gel/task-adaptive": {"coefficients": "task-adaptive"},
    "gel/centred": {"top_k": 2, "centre": True},
    "oslo": {},
    "eol": {},
    "eol/ways": {"balance": "ways"},
}
