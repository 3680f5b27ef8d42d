"""Every registered method keeps the promises of the suite, and so does one that a newcomer writes."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from cases import METHOD_CASES
from conformance.suite import DIM, MethodConformance, toy_base
from glocal.methods import Method, build_method
from glocal.ops.similarity import class_mean, cosine
from glocal.types import Output, Views


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

    def enroll(self, support: Views, label: Tensor, drawn: tuple[int, ...] = ()) -> Any:
        return self.State(class_mean(self.project(support.vec), label))

    def score(self, state: Any, query: Views) -> Output:
        logits = 5 * cosine(self.project(query.vec), state.proto)
        return Output(logits, -logits.amax(dim=-1))


class TestNewcomer(MethodConformance):
    @pytest.fixture
    def method(self) -> Method:
        torch.manual_seed(0)
        return Newcomer(DIM)


def test_a_method_that_defines_neither_score_nor_compare_is_told_so():
    class Unfinished(Method):
        pass

    with pytest.raises(NotImplementedError, match=r"Unfinished must define score\(\) or compare\(\)"):
        Unfinished().score(None, Views(torch.zeros(1, 2)))
