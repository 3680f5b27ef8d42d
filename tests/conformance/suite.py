"""What every method promises.  Inherit ``MethodConformance`` and give it a ``method`` fixture for ``DIM`` channels."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from glocal.common.errors import RecipeError
from glocal.recognizer.converted import ENROLL, SCORE, ConvertedModel
from glocal.recognizer.encoders.session import Graph
from glocal.research.backbones import Backbone
from glocal.research.convert import convert
from glocal.research.engine.checkpoint import TrainedModel
from glocal.research.methods import Method
from glocal.research.methods.ridge import KernelRidge
from glocal.research.types import UNKNOWN, BaseClasses, Episode, Preprocess, Views

DIM = 16


@cache  # a hundred of them train every method
def toy_task(seed: int, *, shots: Sequence[int] = (2, 1, 3), n_query: int = 4, n_unknown: int = 5) -> Episode:
    """Maps (B, 16, 2, 2) around one random centre per class; half of the channels are noise alone."""
    rng = torch.Generator().manual_seed(seed)
    centre = 2 * torch.randn(len(shots) + n_unknown, DIM, 1, 1, generator=rng)
    centre[:, DIM // 2 :] = 0

    def maps(which: list[int]) -> Tensor:
        return centre[which] + torch.randn(len(which), DIM, 2, 2, generator=rng)

    support = [n for n, k in enumerate(shots) for _ in range(k)]
    query = [n for n in range(len(shots)) for _ in range(n_query)]
    unknown = [len(shots) + i for i in range(n_unknown)]
    label = torch.tensor(query + [UNKNOWN] * n_unknown)
    order = torch.randperm(len(label), generator=rng)  # known and unknown queries mixed
    task = Episode(
        maps(support), torch.tensor(support), maps(query + unknown)[order], label[order], tuple(range(len(centre)))
    )
    if not unknown:
        return task
    mirror_label = torch.tensor([UNKNOWN] * len(query) + list(range(n_unknown)))
    return replace(
        task,
        mirror_support=maps(unknown),
        mirror_support_label=torch.arange(n_unknown),
        mirror_query_label=mirror_label[order],
    )


def double_task(seed: int = 0, **sizes: Any) -> Episode:
    """In float64, for comparisons with the slow references."""
    return toy_task(seed, **sizes).to(dtype=torch.float64)


def toy_base() -> BaseClasses:
    """Twenty base classes of eight images: more than any toy task draws."""
    rng = torch.Generator().manual_seed(7)
    centre = torch.randn(20, DIM, generator=rng)
    weight = centre + 0.1 * torch.randn(20, DIM, generator=rng)
    spread = torch.randn(20, 8, DIM, generator=rng)
    vec = (centre[:, None] + spread - spread.mean(dim=1, keepdim=True)).flatten(0, 1)
    label = torch.arange(20).repeat_interleave(8)
    return BaseClasses(tuple(f"base {b}" for b in range(20)), weight, centre, centre.mean(dim=0), vec, label)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-4) -> bool:
    """Within ``tolerance`` of the largest value of ``b``."""
    return bool((a.double() - b.double()).abs().max() <= tolerance * b.double().abs().max().clamp_min(1e-3))


class MethodConformance:
    @pytest.fixture
    def method(self) -> Method:
        raise NotImplementedError("a conformance class gives its own `method` fixture")

    def test_shapes_and_finite_values(self, method: Method):
        for task in (
            toy_task(0),
            toy_task(1, shots=(1, 1)),
            toy_task(2, shots=(1, 4, 2, 1, 5, 1, 2), n_query=1),
            toy_task(3, shots=(1,)),
            toy_task(4, n_query=0, n_unknown=1),
        ):
            if task.n_way < method.min_way:
                with pytest.raises(RecipeError, match=str(method.min_way)):
                    method.eval()(task)
                continue
            logits, open_score = method.eval()(task)
            assert logits.shape == (len(task.query), task.n_way)
            assert open_score.shape == (len(task.query),)
            assert logits.isfinite().all()
            assert open_score.isfinite().all()

    def test_every_named_score_is_given_and_the_chosen_one_reported(self, method: Method):
        state, query = enrolled(method.eval(), toy_task(0))
        scores, logits = method.scores(state, query), method.compare(state, query).logits
        assert method.score_name in method.score_names
        if method.score_names != ("own",):  # what compare() gives is what compare and reports may ask for
            assert set(method.score_names) == set(scores)
        assert all(score.shape == (len(query),) and score.isfinite().all() for score in scores.values())
        for name in method.score_names:
            method.choose_score(name)
            out = method.score(state, query)
            assert torch.equal(scores[name], out.open_score), name
            assert torch.equal(logits, out.logits), name

    def test_meeting_the_base_classes_leaves_batch_norm_alone(self, method: Method):
        """Means of classes are no pictures: statistics that saw them would be of something else."""
        statistics = {name: b.clone() for name, b in method.train().named_buffers() if "running_" in name}
        method.set_base(toy_base())
        assert all(torch.equal(method.get_buffer(name), before) for name, before in statistics.items())

    def test_a_method_that_says_so_needs_no_more_than_the_mean_of_a_map(self, method: Method):
        method, maps = method.eval(), toy_task(0).query
        if method.pooled:
            views, means = method.embed(maps), method.embed(maps.mean(dim=(2, 3), keepdim=True))
            assert views.local is None
            assert close(views.vec, means.vec)

    def test_queries_do_not_see_each_other(self, method: Method):
        if method.transductive:
            pytest.skip("a transductive method looks at all queries together")
        task = toy_task(0)
        together = method.eval()(task)
        for i in range(len(task.query)):
            one = {part: getattr(task, part)[i : i + 1] for part in ("query", "query_label", "mirror_query_label")}
            alone = method(replace(task, **one))
            assert close(alone.logits, together.logits[i : i + 1])
            assert close(alone.open_score, together.open_score[i : i + 1])

    def test_relabelling_permutes_logits_and_leaves_the_open_score(self, method: Method):
        task, new_label = toy_task(0), torch.tensor([2, 0, 1])
        moved = replace(
            task,
            support_label=new_label[task.support_label],
            query_label=torch.where(task.known, new_label[task.query_label], UNKNOWN),
        )
        before, after = method.eval()(task), method(moved)
        assert close(after.logits[:, new_label], before.logits)
        assert close(after.open_score, before.open_score)

    def test_order_of_the_support_does_not_matter(self, method: Method):
        task, order = toy_task(0), torch.tensor([5, 0, 3, 1, 4, 2])
        shuffled = replace(task, support=task.support[order], support_label=task.support_label[order])
        before, after = method.eval()(task), method(shuffled)
        assert close(after.logits, before.logits)
        assert close(after.open_score, before.open_score)

    def test_evaluation_is_deterministic(self, method: Method):
        task = toy_task(0)
        first, second = method.eval()(task), method(task)
        assert torch.equal(first.logits, second.logits)
        assert torch.equal(first.open_score, second.open_score)

    def test_float32_agrees_with_float64(self, method: Method):
        task = toy_task(0)
        single, double = method.eval()(task), copy.deepcopy(method).double()(task.to(dtype=torch.float64))
        assert double.logits.dtype == double.open_score.dtype == torch.float64
        assert close(single.logits, double.logits)
        assert close(single.open_score, double.open_score)

    def test_state_is_tensors_and_survives_a_file(self, method: Method, tmp_path: Path):
        state, query = enrolled(method.eval(), toy_task(0))
        assert isinstance(state, method.State)
        assert all(isinstance(value, Tensor) for value in state)
        state = method.State(*(value.detach().contiguous() for value in state))  # products round by memory layout
        save_file(state._asdict(), tmp_path / "state.safetensors")
        again = method.State(**load_file(tmp_path / "state.safetensors"))
        assert torch.equal(method.score(again, query).logits, method.score(state, query).logits)
        assert torch.equal(method.score(again, query).open_score, method.score(state, query).open_score)

    def test_state_does_not_depend_on_training_mode(self, method: Method):
        task = toy_task(0)
        (state, _), (training, _) = enrolled(method.eval(), task), enrolled(method.train(), task)
        assert type(training) is type(state)
        assert [value.shape for value in training] == [value.shape for value in state]

    def test_batch_norm_lives_in_embed_alone(self, method: Method):
        task = toy_task(0)
        support, query = method.train().views(task)
        before = {name: buffer.clone() for name, buffer in method.named_buffers()}
        method.score(method.enroll(support, task.support_one_hot, task.drawn), query)
        assert all(torch.equal(buffer, before[name]) for name, buffer in method.named_buffers())

    def test_its_graphs_answer_as_it_does(self, method: Method):
        """For any number of photos, classes and queries; ``convert`` compares the answers to pictures."""
        model = TrainedModel(Tiles(), method.eval())
        if method.transductive:
            with pytest.raises(RecipeError, match="transductive method cannot be converted"):
                convert(model)
            return
        if isinstance(method, KernelRidge):
            with pytest.raises(RecipeError, match="ridge decides in numpy"):
                convert(model)
            return
        converted = convert(model)
        for shots in ((1,) * method.min_way, (1, 4, 2, 1, 5, 1, 2)):
            task = toy_task(2, shots=shots, n_query=3)
            (support, query), (state, _) = method.views(task), enrolled(method, task)
            expected = {"logits": method.compare(state, query).logits, **method.scores(state, query)}
            kept = run_graph(converted, ENROLL, {"label": task.support_one_hot, **arrays(support)})
            answers = run_graph(converted, SCORE, {**kept, **arrays(query)})
            assert converted.score_names == tuple(method.score_names)
            assert answers.keys() == {"logits", *method.score_names}
            for name, answer in answers.items():
                assert close(answer, expected[name]), (name, shots)

    @pytest.mark.parametrize("training", [True, False])
    def test_loss_terms_are_finite_scalars(self, method: Method, training: bool):
        for n_query, n_unknown in ((4, 5), (4, 0), (0, 5), (1, 1)):
            terms = method.train(training).loss(toy_task(0, n_query=n_query, n_unknown=n_unknown))
            assert terms
            assert all(term.shape == () and term.isfinite() for term in terms.values()), (n_query, n_unknown)

    def test_every_parameter_gets_a_gradient(self, method: Method):
        gradients(method.train(), toy_task(0))
        if any(p.requires_grad for p in method.parameters()):
            train(method, steps=1)  # an output layer that starts at zero hides what lies before it until then
        # Evaluation mode, because batch norm over a batch makes the gradient of a bias before it vanish.
        for name, largest in gradients(method.eval(), toy_task(0)).items():
            assert largest > 0, name

    def test_learns_a_toy_problem(self, method: Method):
        held_out = [toy_task(1000 + i) for i in range(8)]
        enough = 0.95 * mean_loss(method, held_out)
        if any(p.requires_grad for p in method.parameters()):
            train(method, 60, lambda: mean_loss(method, held_out) < enough and accuracy(method, held_out) > 0.8)
            assert mean_loss(method, held_out) < enough
        assert accuracy(method, held_out) > 0.8  # chance is 1/3


class Tiles(Backbone):
    """One convolution: 8-pixel images -> maps (B, 16, 2, 2)."""

    stage_channels = (DIM,)

    def __init__(self) -> None:
        super().__init__()
        self.preprocess = Preprocess(8)
        self.conv = nn.Conv2d(3, DIM, 4, stride=4)

    def stages_of(self, images: Tensor) -> list[Tensor]:
        return [self.conv(images)]


def arrays(views: Views) -> dict[str, Tensor]:
    return {"vec": views.vec} if views.local is None else {"vec": views.vec, "local": views.local}


def run_graph(converted: ConvertedModel, name: str, feeds: dict[str, Tensor]) -> dict[str, Tensor]:
    graph = Graph(converted.graphs[name], name)
    outputs = graph({key: value.detach().numpy() for key, value in feeds.items()}, graph.outputs)
    return dict(zip(graph.outputs, map(torch.from_numpy, outputs), strict=True))


def enrolled(method: Method, task: Episode) -> tuple[object, Views]:
    support, query = method.views(task)
    return method.enroll(support, task.support_one_hot, task.drawn), query


def gradients(method: Method, task: Episode) -> dict[str, Tensor]:
    """Largest of each parameter over the terms of the loss, which may cancel each other: RFDNet's two margins do, as
    long as no query is beyond them.  Fails when a parameter is left out or its gradient is not finite."""
    learning = {name: p for name, p in method.named_parameters() if p.requires_grad}
    largest_of = {name: torch.full((), torch.nan) for name in learning}
    for term in method.loss(task).values():
        if learning and term.requires_grad:
            by_term = torch.autograd.grad(term, list(learning.values()), retain_graph=True, allow_unused=True)
            for name, gradient in zip(learning, by_term, strict=True):
                if gradient is not None:
                    assert gradient.isfinite().all(), name
                    largest_of[name] = torch.fmax(largest_of[name], gradient.abs().max())
    assert not any(largest.isnan() for largest in largest_of.values()), largest_of
    return largest_of


def train(method: Method, steps: int, enough: Callable[[], bool] = lambda: False) -> None:
    """Stops early, every tenth step, where it is ``enough``."""
    optimiser = torch.optim.Adam([p for p in method.parameters() if p.requires_grad], lr=5e-3)
    for step in range(steps):
        if step and step % 10 == 0 and enough():
            return
        method.train()
        optimiser.zero_grad()
        sum(method.loss(toy_task(step)).values()).backward()
        optimiser.step()


@torch.no_grad()
def mean_loss(method: Method, tasks: list[Episode]) -> float:
    return sum(float(sum(method.eval().loss(task).values())) for task in tasks) / len(tasks)


@torch.no_grad()
def accuracy(method: Method, tasks: list[Episode]) -> float:
    right = [(method.eval()(task).logits.argmax(-1) == task.query_label)[task.known] for task in tasks]
    return float(torch.cat(right).float().mean())
