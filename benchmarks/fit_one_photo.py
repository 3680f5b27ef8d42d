"""Coefficients ``single`` of the threshold: quantile regression over tasks of one photo per class.

    GLOCAL_DATA=DIR python benchmarks/fit_one_photo.py [--work DIR]        # prints the table

The loss of a share p is the pinball loss, made smooth; every domain weighs the same, and two heads take part (the
recognizer's and cosine prototypes), so that the table does not belong to one of them.  Coefficients are drawn towards 0
(``L2``, chosen by leaving domains out), because what tells twelve domains apart hardly tells the thirteenth.  The
constant is moved until the domains' rates are off by a factor of 1 in the geometric mean: the few domains that nothing
predicts would else make all others far too careful.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from domains import Domain, domains, head_without

from glocal.recognizer.calibration.leave_one_out import measure
from glocal.recognizer.calibration.threshold import FITTED

TASKS = 80
SHARES = FITTED.shares
SMOOTH = (0.2, 0.05, 0.02)  # widths of the corner of the loss, in gaps, one after the other
L2 = 0.3
LEAST = 0.1  # of the promised share: a domain with less counts as having this much


def gather(every: dict[str, Domain], kept: Path) -> dict[str, Any]:
    """By domain: numbers (Q, 4) of the task of each known photo, and its score (Q,) in gaps."""
    if not kept.exists():
        arrays = {}
        for name, domain in every.items():
            rows = [_rows(*head_without(every, name, kind), domain) for kind in ("ridge", "protonet")]
            arrays[f"x.{name}"] = np.concatenate([x for x, _ in rows])
            arrays[f"y.{name}"] = np.concatenate([y for _, y in rows])
        np.savez(kept, **arrays)
    with np.load(kept) as found:
        return {name: (found[f"x.{name}"], found[f"y.{name}"]) for name in every}


def _rows(head: Any, views_of: Any, domain: Domain) -> tuple[Any, Any]:
    rng, views = np.random.default_rng(7), views_of(domain)
    xs, ys = [], []
    for number in range(TASKS):
        most = max(2, domain.classes // 2)
        way = min(5, most) if number % 3 else int(rng.integers(2, most + 1))
        classes = rng.permutation(domain.classes)[:way]
        rows = [rng.permutation(np.flatnonzero(domain.label == c))[:9] for c in classes]
        support, known = np.array([each[0] for each in rows]), np.concatenate([each[1:] for each in rows])
        label = np.arange(way)
        measured = measure(head, views.rows(support), label)
        compared = head.compare(head.enroll(views.rows(support), label), views.rows(known))
        strange = np.array([each.score for each in measured.strange])
        gap = strange.mean() - measured.own
        numbers = (1.0, strange.std() / gap, np.log(way), measured.alike)
        xs.append(np.tile(numbers, (len(known), 1)))
        ys.append((compared.open_score - measured.own) / gap)
    return np.concatenate(xs), np.concatenate(ys)


def fit(domains_: list[Any]) -> tuple[tuple[float, ...], ...]:
    x = torch.from_numpy(np.concatenate([x for x, _ in domains_])).double()
    y = torch.from_numpy(np.concatenate([y for _, y in domains_])).double()
    weight = torch.cat([torch.full((len(y_),), 1 / len(y_) / len(domains_), dtype=torch.double) for _, y_ in domains_])
    mean, scale = x[:, 1:].mean(dim=0), x[:, 1:].std(dim=0)
    z = torch.cat([x[:, :1], (x[:, 1:] - mean) / scale], dim=1)
    table = []
    for share in SHARES:
        b = torch.zeros(z.shape[1], dtype=torch.double, requires_grad=True)
        for width in SMOOTH:
            step = torch.optim.LBFGS([b], max_iter=100, line_search_fn="strong_wolfe")

            def loss(width: float = width, b: Any = b, step: Any = step, share: float = share) -> Any:
                step.zero_grad()
                off = y - z @ b
                total = (weight * (torch.nn.functional.softplus(off / width) * width - share * off)).sum()
                total = total + L2 * b[1:].square().sum()
                total.backward()
                return total

            step.step(loss)
        own = b.detach()
        slopes = own[1:] / scale
        off = y - z @ own
        table.append(
            (
                float(own[0] - slopes @ mean) + _centre(off.numpy(), [len(y_) for _, y_ in domains_], share),
                *slopes.tolist(),
            )
        )
    return tuple(table)


def _centre(off: Any, sizes: list[int], share: float) -> float:
    """What to add to limits that scores are ``off`` from, domain by domain, for rates around the share."""
    parts = np.split(off, np.cumsum(sizes)[:-1])
    low, high = -0.5, 0.5
    for _ in range(20):
        middle = (low + high) / 2
        ratio = np.mean([np.log(max(float((each > middle).mean()) / share, LEAST)) for each in parts])
        low, high = (middle, high) if ratio > 0 else (low, middle)
    return low


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("promise-work"))
    given = parser.parse_args()
    every = domains("fast", given.work)
    for row in fit(list(gather(every, given.work / "fast-one-photo.npz").values())):
        print("    (" + ", ".join(f"{each:.4f}" for each in row) + "),")


if __name__ == "__main__":
    main()
