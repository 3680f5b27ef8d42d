"""Leave-one-out: what every support photo scores when its class is enrolled without it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from glocal.engine.threshold import LeaveOneOut
from glocal.methods import Method
from glocal.types import Views

ROUNDS = 32  # at most this many photos of a class are left out in turn: more hardly change a threshold


def left_out_scores(method: Method, views: Views, label: Tensor) -> list[LeaveOneOut]:
    """The score of every support photo whose class has others: views of S photos, label (S,) in 0..N-1.

    Round r leaves the r-th photo out of every class that has two or more and scores these photos together, so a support
    is enrolled as often as its largest class has photos and not once per photo.
    """
    members = [torch.nonzero(label == c).flatten().tolist() for c in range(int(label.max()) + 1)]
    members = [rows if len(rows) > 1 else [] for rows in members]
    turns = [_spread(rows) for rows in members]
    found: list[LeaveOneOut] = []
    with torch.inference_mode():
        for r in range(max(map(len, turns), default=0)):
            out = [rows[r] for rows in turns if r < len(rows)]
            kept = torch.ones(len(label), dtype=torch.bool, device=label.device)
            kept[out] = False
            state = method.enroll(views.rows(kept), label[kept])
            scores = method.score(state, views.rows(torch.tensor(out, device=label.device))).open_score
            for row, score in zip(out, scores.tolist(), strict=True):
                c = int(label[row])
                found.append(LeaveOneOut(c, len(members[c]) - 1, score))
    return found


def _spread(rows: list[int]) -> list[int]:
    """All rows, or ``ROUNDS`` of them in even steps."""
    if len(rows) <= ROUNDS:
        return rows
    return [rows[i] for i in np.linspace(0, len(rows) - 1, ROUNDS).round().astype(int)]
