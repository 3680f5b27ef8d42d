r"""The recognizer's own head: cosine prototypes, and a kernel ridge regression on whole photos and their patches.

Photos are compared by their unit vectors e and the unit cells c of their maps,

.. math:: k(i, j) = \langle e_i, e_j \rangle, \quad
   l(i, j) = \tfrac12 \operatorname{mean}_u \max_v \langle c_{i,u}, c_{j,v} \rangle + \tfrac12 (i \leftrightarrow j)

Class n is its prototype :math:`p_n` and the weights of a ridge regression on the one-hot labels Y.  Every class counts
alike, however many photos it has (:math:`K_i` of the class of photo i, their mean over classes K):

.. math:: \alpha = (k + l + r \operatorname{diag}(K_i / K))^{-1} Y, \quad
   s_c(q, n) = \langle e_q, p_n \rangle + w \sum_i k(q, i) \alpha_{i,n}, \quad s_f(q, n) = w \sum_i l(q, i) \alpha_{i,n}

Logits are :math:`(s_c + s_f) / T`.  With n the best class, :math:`E_c = -s_c`, :math:`E_f = -s_f`, and the open score
is :math:`E = E_c + E_f`, GEL's sum of a global and a local energy.

The mean of many photos is nearer to any photo than a single photo is.  With cosines rho between photos of a class,
prototypes of length 1 would score :math:`\rho / g(K_n)` on a new photo, :math:`g(K) = \sqrt{(1 + (K - 1) \rho) / K}`.
So they get the length :math:`g(K_n) / g(K)`, with rho from the support.

Vectors of encoders that bring no whitening are whitened by the support: with F from the eigenvectors :math:`v_j` and
eigenvalues :math:`\lambda_j > 0` of the covariance within classes, :math:`\bar\lambda` their mean, e becomes the unit
vector of

.. math:: e - F F^\top e, \quad F_j = v_j \sqrt{1 - (1 + b \lambda_j / \bar\lambda)^{-1/2}}

Known unknowns have rows of 0 in Y, and one more column, which is 1 for them alone.  Its response is added to the
energies.  Beyond ``MOST`` support photos the prototypes decide alone: the regression needs the kernel of all pairs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from glocal.recognizer.encoders.session import Graph
from glocal.recognizer.features import UNKNOWN, Array, Features, Labels, class_means, unit
from glocal.recognizer.heads.head import PARTS, Asked, Scores, Trial

MOST = 600  # support photos whose kernel is taken
USUAL, ALIKE = 0.5, (0.05, 1.0)  # cosine of two photos of a class when no class has two, and where it may lie
WHITEN = 3.0  # b of the support's whitening
PAIRS = 2**23  # cosines of cells held at once: 32 MiB

Cells = tuple[Array, ...]  # (B, P, C) for each member of the encoder


class RidgeState(NamedTuple):
    proto: Array  # (N, D) class means of comparable lengths
    vec: Array  # (S, D) of every support photo; beyond ``MOST`` of none, here and below
    cells: Cells
    alpha: Array  # (S, N + 1) weights of the regression, last those of the known unknowns
    spread: Array | None = None  # (D, m) F, where the support whitens


class Ridge:
    """Prototypes and a ridge regression; see the module.

    ``open_score`` is E, or one of its parts E_c and E_f.  ``whiten`` is b; 0 leaves vectors as they are.
    """

    name, min_way, takes_unknown = "ridge", 1, True
    score_names: tuple[str, ...] = ("E", "E_c", "E_f")
    open_score = "E"

    def __init__(
        self, *, ridge: float = 0.1, weight: float = 0.5, temperature: float = 0.05, whiten: float = 0.0
    ) -> None:
        self.ridge, self.weight, self.temperature, self.whiten = ridge, weight, temperature, whiten

    def enroll(self, support: Features, label: Labels) -> RidgeState:
        if len(support) > MOST:
            return _prototypes_alone(support.vec, label)
        cells, spread = cells_of(support), self._spread(support.vec, label)
        vec = _whitened(support.vec, spread)
        kernel = vec @ vec.T
        matches = _solvable(self.match(cells, cells, kernel.shape))
        return self._regression(vec, cells, kernel + matches, label, spread)

    def compare(self, state: RidgeState, query: Features) -> Scores:
        vec = _whitened(query.vec, state.spread)
        photo = vec @ state.vec.T
        return self._scores(state, vec, photo, self.match(cells_of(query), state.cells, photo.shape))

    def trials(self, support: Features, asked: Features) -> Trial:
        """k and l of all photos are taken once: matching patches takes a hundred times as long as solving.

        Whether there is a regression at all goes by the whole support.
        """
        vec, ask = support.vec, asked.vec
        if len(support) > MOST:

            def alone(rows: Labels, label: Labels) -> Asked:
                every = np.full(len(vec), UNKNOWN)
                every[rows] = label
                state = _prototypes_alone(vec, every)
                return lambda query: self._scores(state, ask[query], *[np.zeros((len(query), 0), np.float32)] * 2)

            return alone
        cells = cells_of(support)
        k = vec @ vec.T
        l = self.match(cells, cells, k.shape)
        solvable, of_k, of_l = _least(l) >= 0, k, l  # then every part of it is
        if asked is not support:
            of_k = ask @ vec.T
            of_l = self.match(cells_of(asked), cells, of_k.shape)

        def trial(rows: Labels, label: Labels) -> Asked:
            some = np.ix_(rows, rows)
            matches = l[some] if solvable else _solvable(l[some])
            spread = self._spread(vec[rows], label)
            if spread is not None:  # it differs from trial to trial, and so do the vectors
                own = _whitened(vec[rows], spread)
                state = self._regression(own, (), own @ own.T + matches, label, spread)

                def asked_of(query: Labels) -> Scores:
                    white = _whitened(ask[query], spread)
                    return self._scores(state, white, white @ own.T, of_l[np.ix_(query, rows)])

                return asked_of
            state = self._regression(vec[rows], (), k[some] + matches, label)
            return lambda query: self._scores(state, ask[query], of_k[np.ix_(query, rows)], of_l[np.ix_(query, rows)])

        return trial

    def match(self, some: Cells, others: Cells, shape: tuple[int, ...]) -> Array:
        """(A, B): how well each cell finds its best partner in the other photo, both ways; the mean over members.

        0 without cells.
        """
        similarity = np.zeros(shape, np.float32)
        for a, b in zip(some, others, strict=False):  # a state without photos has no cells
            similarity += _match_member(a, b) / np.float32(len(some))
        return similarity

    def record(self) -> dict[str, Any]:
        return {"kind": self.name, "open_score": self.open_score}

    def graphs(self) -> tuple[Graph, ...]:
        return ()

    def _spread(self, vec: Array, label: Labels) -> Array | None:
        """(D, m) F: the directions in which photos of one class differ, and by how much each is shortened."""
        known = label != UNKNOWN
        off = vec[known] - class_means(vec[known], label[known])[label[known]]
        variance, rows = np.linalg.eigh(off @ off.T) if self.whiten else (np.zeros(1), off)
        kept = variance > 1e-6
        if not kept.any():
            return None
        variance = variance[kept]
        shorter = 1 - (1 + self.whiten * variance / variance.mean()) ** -0.5
        factor: Array = off.T @ (rows[:, kept] * np.sqrt(shorter / variance))
        return factor

    def _regression(
        self, vec: Array, cells: Cells, kernel: Array, label: Labels, spread: Array | None = None
    ) -> RidgeState:
        known = label != UNKNOWN
        shots = np.bincount(label[known])
        target = np.zeros((len(label), len(shots) + 1), np.float64)
        target[np.arange(len(label)), label] = 1  # UNKNOWN is the last column
        weight = np.where(known, (shots / shots.mean())[label], 1.0)
        alpha = np.linalg.solve(kernel + self.ridge * np.diag(weight), target).astype(vec.dtype)
        return RidgeState(_prototypes(vec[known], label[known]), vec, cells, alpha, spread)

    def _scores(self, state: RidgeState, vec: Array, photo: Array, patch: Array) -> Scores:
        """Vectors of queries (Q, D), their k and l to the support (Q, S)."""
        by_photo, by_patch = self.weight * photo @ state.alpha, self.weight * patch @ state.alpha
        whole, patches = vec @ state.proto.T + by_photo[:, :-1], by_patch[:, :-1]
        both = whole + patches
        best = both.argmax(axis=1)[:, None]
        e_class = by_photo[:, -1] - np.take_along_axis(whole, best, axis=1)[:, 0]
        e_patch = by_patch[:, -1] - np.take_along_axis(patches, best, axis=1)[:, 0]
        energies = {"E": e_class + e_patch, "E_c": e_class, "E_f": e_patch}
        parts = PARTS if patch.any() else PARTS[:1]  # without patches their energy says nothing
        return Scores(both / self.temperature, energies[self.open_score], {name: energies[name] for name in parts})


def _prototypes_alone(vec: Array, label: Labels) -> RidgeState:
    """A state without photos: nothing in it is as large as photos times classes."""
    known = label != UNKNOWN
    proto = _prototypes(vec[known], label[known])
    return RidgeState(proto, vec[:0], (), np.zeros((0, len(proto) + 1), np.float32))


def _solvable(matches: Array) -> Array:
    """Best partners are no inner products.  So the diagonal is raised until no eigenvalue is below 0."""
    least = _least(matches)
    return matches if least >= 0 else matches - least * np.eye(len(matches), dtype=matches.dtype)


def _least(matches: Array) -> float:
    """The smallest eigenvalue; 0 for none."""
    return float(np.linalg.eigvalsh(matches)[0]) if matches.any() else 0.0


def _whitened(vec: Array, spread: Array | None) -> Array:
    return vec if spread is None else unit(vec - (vec @ spread) @ spread.T)


def _prototypes(vec: Array, label: Labels) -> Array:
    """(N, D) class means of the lengths that make their products comparable."""
    mean, shots = class_means(vec, label), np.bincount(label).astype(np.float64)
    pairs = float((shots * (shots - 1)).sum())
    alike = float((shots**2 * np.square(mean).sum(axis=1) - shots).sum() / pairs) if pairs else USUAL
    rho = min(max(alike, ALIKE[0]), ALIKE[1])
    length, usual = (np.sqrt((1 + (k - 1) * rho) / k) for k in (shots, shots.mean()))
    proto: Array = unit(mean) * (length / usual)[:, None].astype(vec.dtype)
    return proto


def cells_of(features: Features) -> Cells:
    """(B, C, h, w) -> (B, P, C) for each member."""
    flat = (each.reshape(*each.shape[:2], math.prod(each.shape[2:])) for each in features.full().local)
    return tuple(np.ascontiguousarray(each.swapaxes(1, 2)) for each in flat)


def _match_member(a: Array, b: Array) -> Array:
    """(A, P, C), (B, P, C) -> (A, B), a few photos at a time."""
    similarity = np.empty((len(a), len(b)), np.float32)
    pairs = a.shape[1] * b.shape[1]
    columns = max(1, min(len(b), PAIRS // pairs))
    rows = max(1, PAIRS // (pairs * columns))
    for top in range(0, len(a), rows):
        x = a[top : top + rows]
        for left in range(0, len(b), columns):
            y = b[left : left + columns]
            flat = x.reshape(-1, x.shape[2]) @ y.reshape(-1, y.shape[2]).T
            cosine = flat.reshape(*x.shape[:2], *y.shape[:2])  # (A, P, B, P)
            similarity[top : top + rows, left : left + columns] = (
                cosine.max(axis=3).mean(axis=1) + cosine.max(axis=1).mean(axis=2)
            ) / 2
    return similarity
