"""Who takes part in a comparison: a model and one of its open scores, under the name of its row.

    RUN                   a run folder, a checkpoint file or a shipped model; the open score it was trained with
    RUN:SCORE             another open score; several as RUN:E,entropy, every one as RUN:all
    LABEL=RUN:SCORE       under a name of your own

A path that itself holds ``=`` or ``:`` is taken as it is when it exists.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from glocal.backbones import Backbone
from glocal.engine.checkpoint import BEST, LAST, Model, load_model, shipped_models
from glocal_runtime.errors import RecipeError


@dataclass(frozen=True)
class Contestant:
    name: str  # of its row
    model: Model
    score: str  # the open score that is read off
    identity: str  # hash of all that its answers depend on, the open score excepted
    eye: str  # hash of backbone and preprocessing: equal ones give equal maps

    @property
    def method(self) -> str:
        name: str = self.model.record["method"]["name"]
        return name


def load_contestants(texts: Iterable[str]) -> list[Contestant]:
    """As named on a command line.  Models with equal backbones share one of them in memory."""
    eyes: dict[str, Backbone] = {}
    loaded: dict[str, Contestant] = {}  # by run: one named twice is read once
    found: list[Contestant] = []
    for text in texts:
        label, run, wanted = parse_contestant(text)
        if run not in loaded:
            loaded[run] = contestant(label, load_model(run), eyes=eyes)
        known = loaded[run]
        scores = known.model.method.score_names
        for score in scores if wanted == ("all",) else wanted or (known.model.method.open_score,):
            if score not in scores:
                raise RecipeError(
                    f"{run} ({known.method}) has the open scores {', '.join(scores)}, got {score!r} in {text!r}"
                )
            found.append(replace(known, name=label, score=score))
    return _told_apart(found)


def contestant(name: str, model: Model, *, eyes: dict[str, Backbone] | None = None) -> Contestant:
    """A model with the open score it has; its backbone is exchanged for an equal one of ``eyes``, if there is one."""
    eye = _hash(model.backbone.fingerprint(), model.backbone.preprocess.fingerprint())
    if eyes is not None:
        model = replace(model, backbone=eyes.setdefault(eye, model.backbone))
    weights = hashlib.sha256()
    for key, value in sorted(model.method.state_dict().items()):
        weights.update(f"{key}{tuple(value.shape)}{value.dtype}".encode())
        weights.update(value.detach().cpu().contiguous().numpy().tobytes())
    identity = _hash(eye, json.dumps(model.record["method"], sort_keys=True), weights.hexdigest())
    return Contestant(name, model, model.method.open_score, identity, eye)


def parse_contestant(text: str) -> tuple[str, str, tuple[str, ...]]:
    """LABEL=RUN:SCORE,SCORE -> label (the run's own name when left out), run, scores."""
    if _is_run(text):
        return _own_name(text), text, ()
    label, equals, rest = text.partition("=")
    if not equals:
        label, rest = "", text
    run, scores = rest, ""
    if not _is_run(rest) and ":" in rest:
        run, _, scores = rest.rpartition(":")
    wanted = tuple(score.strip() for score in scores.split(",") if score.strip())
    if not run or (":" in rest and run != rest and not wanted):
        raise RecipeError(f"a model is named as RUN, RUN:SCORE or LABEL=RUN:SCORE, got {text!r}")
    return label or _own_name(run), run, wanted


def _is_run(text: str) -> bool:
    try:
        return bool(text) and (Path(text).exists() or text in shipped_models())
    except OSError:  # too long to be the name of a file
        return False


def _own_name(run: str) -> str:
    path = Path(run).resolve() if run in (".", "..") else Path(run)
    if path.name in (BEST, LAST):
        return path.resolve().parent.name
    return path.name.removesuffix(".safetensors")


def _told_apart(found: Sequence[Contestant]) -> list[Contestant]:
    """Several scores of one label become label:score; what is still the same twice is refused."""
    labels = Counter(each.name for each in found)
    named = [replace(each, name=f"{each.name}:{each.score}") if labels[each.name] > 1 else each for each in found]
    twice = [name for name, count in Counter(each.name for each in named).items() if count > 1]
    if twice:
        raise RecipeError(f"two rows would be called {twice[0]!r}; give them different labels, as in LABEL=RUN")
    return named


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
