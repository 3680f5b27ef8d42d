"""What the conformance suites certify.  A new method needs one line here."""

from __future__ import annotations

from typing import Any

# Case -> settings.  The part of the name before a slash is the method's name in METHODS.
METHOD_CASES: dict[str, dict[str, Any]] = {
    "protonet": {},
    "protonet/cosine": {"distance": "cosine"},
    "protonet/euclidean": {"distance": "euclidean"},
    "feat": {"contrast_weight": 0.1},
    "feat/adapter": {"adapter": True},
    "snatcher-f": {},
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
    "gel/task-adaptive": {"coefficients": "task-adaptive"},
}
