"""Where the authors' program computes something else than the equations: our numbers against an independent twin."""

from __future__ import annotations

import pytest
import torch

from glocal.research.methods.gel import GEL
from glocal.research.types import Episode
from reference import authors
from refusal import refused

WAY = 3


def episode(support: torch.Tensor, query: torch.Tensor, shot: int) -> Episode:
    label = torch.tensor([*range(WAY), *[-1] * WAY])
    return Episode(support, torch.arange(WAY).repeat_interleave(shot), query, label)


def built(dim: int, **settings: object) -> GEL:
    """As if it had been trained for a while: every batch norm has statistics that a mistake would not cancel with."""
    torch.manual_seed(0)
    method = GEL(dim, **settings).double().eval()  # type: ignore[arg-type]
    for norm in method.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
            torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    return method


@pytest.mark.parametrize("shot", [1, 2])
def test_energy_of_maps_without_pixels(shot: int) -> None:
    support, query = authors.seeded_task(0, channels=640, side=2, shot=shot)
    method, task = built(640, variant="energy-maps"), episode(support, query, shot)
    expected = authors.map_energies(support, query, WAY)
    assert method(task).open_score.tolist() == pytest.approx(expected, abs=1e-10)
    known, unknown = expected[:WAY], expected[WAY:]
    margin = sum(max(e + 1, 0) ** 2 for e in known) / WAY + sum(max(1 - e, 0) ** 2 for e in unknown) / WAY
    assert method.loss(task)["energy"].item() == pytest.approx(0.1 * margin, abs=1e-10)
    assert not any(name.startswith("calibrate") for name in method.state_dict()), "maps as they are"
    support_views, query_views = method.views(task)
    e_class = method.scores(method.enroll(support_views, task.support_one_hot), query_views)["E_c"]
    assert e_class.min() > 5 > 1 > max(expected), "E_c lies far outside the margins of -1 and 1, this energy between"


def test_resnet18_halves_the_maps_of_the_pixel_branch_alone() -> None:
    support, query = authors.seeded_task(1, channels=16, side=11)
    method, task = built(16, reduce=True, top_k=5), episode(support, query, 1)
    s_class, energies = authors.on_resnet18(method.state_dict(), support, query, WAY, top_k=5)
    out = method(task)
    torch.testing.assert_close(out.logits, torch.tensor(s_class, dtype=torch.float64), rtol=0, atol=1e-10)
    assert out.open_score.tolist() == pytest.approx(energies, abs=1e-9)
    local = method.embed(query).local
    assert local is not None
    assert local.shape == (2 * WAY, 8, 6, 6)


def test_energy_of_halved_maps() -> None:
    support, query = authors.seeded_task(2, channels=8, side=11)
    method = built(8, variant="energy-maps", reduce=True)
    weights = method.state_dict()
    halves = [torch.stack([authors.halved(weights, fmap) for fmap in maps]) for maps in (support, query)]
    expected = authors.map_energies(*halves, WAY)
    assert method(episode(support, query, 1)).open_score.tolist() == pytest.approx(expected, abs=1e-10)
    with refused("recipe", "'energy'"):
        GEL(8, variant="energy", reduce=True)
