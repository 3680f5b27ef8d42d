"""Every registered method keeps the promises of the suite, and so does one that a newcomer writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from cases import METHOD_CASES
from conformance.suite import DIM, MethodConformance, toy_base
from glocal.research.engine.checkpoint import save_model
from glocal.research.methods import METHODS, Method, build_method
from glocal.research.ops.similarity import class_mean, cosine
from glocal.research.types import Output, Views
from tiny_models import tiny_model


class TestRegistered(MethodConformance):
    @pytest.fixture(params=METHOD_CASES)
    def method(self, request: pytest.FixtureRequest) -> Method:
        torch.manual_seed(0)
        method = build_method(request.param.split("/")[0], DIM, METHOD_CASES[request.param])
        if method.needs_base:
            method.set_base(toy_base())
        return method


class Newcomer(Method):
    """Cosine to the class mean after one linear layer: what docs ask of somebody who adds a method."""

    class State(NamedTuple):
        proto: Tensor  # (N, D)

    def __init__(self, dim: int):
        super().__init__()
        self.project = nn.Linear(dim, dim)

    def enroll(self, support: Views, one_hot: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        return self.State(class_mean(self.project(support.vec), one_hot))

    def score(self, state: Any, query: Views) -> Output:
        logits = 5 * cosine(self.project(query.vec), state.proto)
        return Output(logits, -logits.amax(dim=-1))


class TestNewcomer(MethodConformance):
    @pytest.fixture
    def method(self) -> Method:
        torch.manual_seed(0)
        return Newcomer(DIM)


class TestExampleOfTheHowTo(MethodConformance):
    """docs/how-to/add-a-method.md: what a reader copies must pass, and what ``glocal compare`` takes, too."""

    @pytest.fixture
    def example(self) -> type[Method]:
        page = (Path(__file__).parents[2] / "docs/how-to/add-a-method.md").read_text("utf-8")
        names: dict[str, Any] = {"__name__": "example"}
        exec(page.partition("```python\n")[2].partition("```")[0], names)
        return names["NearestPicture"]

    @pytest.fixture
    def method(self, example: type[Method]) -> Method:
        return example(DIM)

    def test_it_can_be_compared(self, example: type[Method], dataset: Path, tmp_path: Path, monkeypatch, glocal: Any):
        monkeypatch.setitem(METHODS, "nearest-picture", example)
        for name in ("nearest-picture", "protonet"):
            save_model(tmp_path / f"{name}.safetensors", tiny_model(name))
        models = [f"near={tmp_path / 'nearest-picture.safetensors'}:margin", tmp_path / "protonet.safetensors"]
        shape = ["--way", "2", "--query", "3", "--tasks", "3", "--shots", "1", "--device", "cpu", "--json"]
        code, out, err = glocal("compare", *models, "--dataset", dataset, *shape)
        assert code == 0, err
        rows = json.loads(out)["tables"][0]["rows"]
        assert [(row["name"], row["open_score"]) for row in rows] == [("near", "margin"), ("protonet", "distance")]


def test_the_suite_notices_scores_that_a_method_does_not_name():
    """Without them ``glocal compare`` and reports would refuse every score but its own."""

    forgetful = METHODS["protonet"](DIM)
    suite = MethodConformance.test_every_named_score_is_given_and_the_chosen_one_reported
    for names in (("own",), ("entropy", "distance")):  # "nearest" is given as well
        forgetful.score_names = names
        with pytest.raises(AssertionError):
            suite(MethodConformance(), forgetful)


def test_a_method_that_defines_neither_score_nor_compare_is_told_so():
    class Unfinished(Method):
        pass

    with pytest.raises(NotImplementedError, match=r"Unfinished must define score\(\) or compare\(\)"):
        Unfinished().score(None, Views(torch.zeros(1, 2)))
