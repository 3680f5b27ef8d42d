"""The one contract.  A method sees feature maps, never images, files or backbones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glocal.common.errors import RecipeError
from glocal.research.ops.open_scores import OPEN_SCORES
from glocal.research.ops.similarity import pool
from glocal.research.types import UNKNOWN, BaseClasses, Episode, Output, Views

# What a distance is divided by when nothing else is said: 64 as published for 640 channels, eq. 4 of GEL as written,
# and the scale 10 that cosine classifiers start from.
TEMPERATURES = {"sq-euclidean": 64.0, "euclidean": 1.0, "cosine": 0.1}


@dataclass(frozen=True)
class Paper:
    authors: str
    title: str
    venue: str
    year: int
    arxiv: str = ""
    doi: str = ""


@dataclass(frozen=True)
class MethodCard:
    """What the documentation and the tables say of a method and its code cannot."""

    title: str = ""  # the name of the class when empty
    paper: Paper | None = None  # None: a method of ours
    published: tuple[str, ...] = ()  # its names in published.json
    learns: str = ""  # beside the backbone; empty: nothing
    reconstruction: str = ""  # why we had to guess, if we had to


class LazyScores(Mapping[str, Tensor]):
    """Open scores by name, (Q,) each; one is computed when it is read, because some cost more than the logits."""

    def __init__(self, functions: Mapping[str, Callable[[], Tensor]]) -> None:
        self.functions = functions

    def __getitem__(self, name: str) -> Tensor:
        return self.functions[check_choice("open_score", name, self.functions)]()

    def __contains__(self, name: object) -> bool:
        return name in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)


class Comparison:
    """Queries compared with a state.

    Parameters
    ----------
    logits : Tensor
        (Q, N), larger for a more similar class.
    own : mapping of str to callable
        The method's own open scores, each a function that returns (Q,).  ``scores`` has them and ``OPEN_SCORES``.
    """

    def __init__(self, logits: Tensor, own: Mapping[str, Callable[[], Tensor]] | None = None) -> None:
        of_logits = {name: partial(score, logits) for name, score in OPEN_SCORES.items()}
        self.logits, self.scores = logits, LazyScores({**(own or {}), **of_logits, **(own or {})})


class Method(nn.Module):
    """Embed images, enroll the support once, score queries any number of times.

    A subclass declares ``State``, a NamedTuple of tensors, and writes ``enroll`` and either ``score`` or, when it has
    open scores to choose from, ``compare``.  State is returned and never set on the module, so that one method serves
    any number of tasks.

    Examples
    --------
    >>> from glocal.research.ops.similarity import class_mean, cosine
    >>> class Means(Method):
    ...     class State(NamedTuple):
    ...         proto: Tensor  # (N, D)
    ...
    ...     def enroll(self, support, one_hot, drawn=()):
    ...         return self.State(class_mean(support.vec, one_hot))
    ...
    ...     def compare(self, state, query):
    ...         return Comparison(cosine(query.vec, state.proto))
    >>> state = Means().enroll(Views(torch.eye(2)), torch.eye(2))
    >>> Means().compare(state, Views(torch.tensor([[3.0, 0.0]]))).logits
    tensor([[1., 0.]])
    """

    card: ClassVar[MethodCard] = MethodCard()
    State: type[NamedTuple]
    early_channels: int = 0  # of the stage before the last, when it wants them packed behind the maps (``ops.packing``)
    needs_mirror: bool = False  # loss() uses Episode.mirrored()
    needs_base: bool = False  # set_base() must be called before the first task
    pooled: bool = False  # embed() looks at the mean of a map alone, as the one below does: a 1x1 map is as good
    transductive: bool = False  # score() lets queries see each other
    min_way: int = 1  # fewest classes of a task it is defined for
    takes_unknown: bool = False  # enroll() uses support photos of no class, whose one-hot rows are 0
    own_scores: tuple[str, ...] = ()  # the open scores that compare() gives beside OPEN_SCORES
    score_names: tuple[str, ...] = ("own",)  # all there are to choose from; with compare() own_scores and OPEN_SCORES
    score_name: str = "own"  # the one of them that score() reports

    def __init__(self) -> None:
        super().__init__()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.embed is Method.embed:
            cls.pooled = True
        if cls.compare is not Method.compare and "score_names" not in cls.__dict__:
            cls.score_names = (*cls.own_scores, *OPEN_SCORES)

    def choose_score(self, name: str) -> None:
        """Let score() report another open score.

        Parameters
        ----------
        name : str
            One of ``score_names``.
        """
        self.score_name = check_choice("open_score", name, self.score_names)

    def set_base(self, base: BaseClasses) -> None:
        """Take from the base classes what the method remembers of them; it is saved with the weights.

        The engine calls it once, before training, on every method that says ``needs_base``.

        Parameters
        ----------
        base : BaseClasses
            Names, classifier rows and means of the base classes.
        """

    def embed(self, maps: Tensor) -> Views:
        """Embed images one by one.  Batch norm lives here and nowhere else.

        Parameters
        ----------
        maps : Tensor
            (B, C, H, W) from the backbone.

        Returns
        -------
        Views
            What the method keeps of each image.
        """
        return Views(pool(maps))

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        """Enroll the support of a task.

        Parameters
        ----------
        support : Views
            Of the support images.
        one_hot : Tensor
            (S, N) their labels as rows of 0 and 1; the row of a photo of no class is 0.
        drawn : tuple of int
            In training the numbers of the task's classes among the base classes.

        Returns
        -------
        State
            What the method keeps of the task.
        """
        raise NotImplementedError

    def score(self, state: Any, query: Views) -> Output:
        """Score queries.

        Parameters
        ----------
        state : State
            From ``enroll``.
        query : Views
            Of the queries.

        Returns
        -------
        Output
            logits (Q, N) and open_score (Q,), the one that ``score_name`` names.
        """
        if type(self).compare is Method.compare:
            raise NotImplementedError(f"{type(self).__name__} must define score() or compare()")
        comparison = self.compare(state, query)
        return Output(comparison.logits, comparison.scores[self.score_name])

    def compare(self, state: Any, query: Views) -> Comparison:
        """Score queries, with every open score; a method that defines only score() has one, "own".

        Parameters
        ----------
        state : State
            From ``enroll``.
        query : Views
            Of the queries.

        Returns
        -------
        Comparison
            logits (Q, N) and the open scores by name.
        """
        out = self.score(state, query)
        return Comparison(out.logits, {"own": lambda: out.open_score})

    def scores(self, state: Any, query: Views) -> dict[str, Tensor]:
        """Compute every open score of one comparison.

        Parameters
        ----------
        state : State
            From ``enroll``.
        query : Views
            Of the queries.

        Returns
        -------
        dict of str to Tensor
            (Q,) each.
        """
        return dict(self.compare(state, query).scores)

    def views(self, episode: Episode) -> tuple[Views, Views]:
        """Embed support and queries in one batch, so that batch norm sees the whole task.

        Parameters
        ----------
        episode : Episode
            A task of maps.

        Returns
        -------
        tuple of Views
            Of the support and of the queries.
        """
        views, n = self.embed(torch.cat([episode.support, episode.query])), len(episode.support)
        return views.rows(slice(n)), views.rows(slice(n, None))

    def forward(self, episode: Episode) -> Output:
        """Embed everything in one batch, then enroll and score.

        Parameters
        ----------
        episode : Episode
            A task of maps.

        Returns
        -------
        Output
            logits (Q, N) and open_score (Q,).
        """
        support, query = self.views(episode)
        return self.score(self.enroll(support, episode.support_one_hot, episode.drawn), query)

    def loss(self, episode: Episode) -> dict[str, Tensor]:
        """Return the terms of the loss; here the cross-entropy of the known queries.

        Parameters
        ----------
        episode : Episode
            A task of maps.

        Returns
        -------
        dict of str to Tensor
            Named and weighted terms, which the trainer adds up and logs.
        """
        support, query = self.views(episode)
        logits = self.compare(self.enroll(support, episode.support_one_hot, episode.drawn), query).logits
        return {"closed": known_cross_entropy(logits, episode.query_label)}


def known_cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """Mean over the known queries of -log softmax(logits)[label]: (Q, N), (Q,) -> ().  0 when none is known."""
    total = F.cross_entropy(logits, label, ignore_index=UNKNOWN, reduction="sum")
    return total / (label != UNKNOWN).sum().clamp_min(1)


def check_choice(setting: str, value: str, choices: Iterable[str]) -> str:
    """``value``, or a sentence that lists what it may be."""
    if value not in (choices := tuple(choices)):
        raise RecipeError(f"{setting} must be one of {', '.join(choices)}, got {value!r}")
    return value


def check_positive(setting: str, value: float) -> float:
    if not value > 0:
        raise RecipeError(f"{setting} must be positive, got {value}")
    return value


def check_weight(setting: str, value: float) -> float:
    if not value >= 0:
        raise RecipeError(f"{setting} must be 0 (off) or positive, got {value}")
    return value
