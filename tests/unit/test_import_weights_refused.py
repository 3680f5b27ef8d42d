"""Files that are damaged, hostile or do not fit: one sentence each, nothing executed, nothing written."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from glocal.cli.research.studies import import_
from glocal.common.errors import GlocalError, RecipeError, WeightsError
from glocal.research.engine.import_weights import import_weights
from reference.published import DIM, Feat, shaken, write


def changed(**edits: Any) -> dict[str, Any]:
    """FEAT's weights with entries replaced (``__`` for a dot), or taken away by None."""
    state = dict(shaken(Feat(base_classes=64)).state_dict())
    for name, value in edits.items():
        state[name.replace("__", ".")] = value
    return {name: value for name, value in state.items() if value is not None}


class Bomb:
    def __init__(self, path: Path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


BAD = {
    "missing": ({"params": changed(slf_attn__fc__bias=None)}, r"lacks slf_attn\.fc\.bias;"),
    "missing-conv": ({"params": changed(encoder__layer3__0__conv1__weight=None)}, r"lacks encoder\.layer3\.0\.conv1"),
    "extra": ({"params": changed(slf_attn__w_os__weight=torch.ones(2))}, r"has slf_attn\.w_os\.weight, which has no"),
    "shape": (
        {"params": changed(slf_attn__fc__weight=torch.ones(DIM, DIM + 1))},
        r"slf_attn\.fc\.weight must be \(12, 12\), got \(12, 13\)",
    ),
    "base-shape": ({"params": changed(fc__bias=torch.ones(63))}, r"fc\.bias must be \(64,\), got \(63,\)"),
    "twice": ({"params": changed(module__fc__bias=torch.ones(64))}, r"fc\.bias twice"),
    "not-a-tensor": ({"params": changed(fc__bias=[1.0])}, r"entry 'fc\.bias' is a list"),
    "two-containers": ({"params": changed(), "state_dict": changed()}, "in params and state_dict"),
    "other-network": ({"params": {"encoder.conv1.weight": torch.ones(2)}}, "its entries begin with encoder"),
    "empty": ({"params": {}}, "holds no weights"),
    "list": ([torch.ones(2)], "holds a list"),
    "module": (nn.Linear(2, 2), r"asks for torch\.nn\.modules\.linear\.Linear"),
}


def refuse(file: Path, match: str, **options: Any) -> None:
    """The library and the command both say it in one sentence, and the command writes nothing."""
    with pytest.raises(WeightsError, match=match) as caught:
        import_weights(file, **{"dataset": "cifar-fs", **options})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) - 2 * len(str(file)) < 300
    before = sorted(file.parent.iterdir())
    with pytest.raises(GlocalError):
        import_(file, file.parent / "out.safetensors", dataset="cifar-fs")
    assert sorted(file.parent.iterdir()) == before


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused(tmp_path, case):
    content, match = BAD[case]
    torch.save(content, tmp_path / "bad.pth")
    refuse(tmp_path / "bad.pth", match)


@pytest.mark.parametrize("kind", ["zip", "old", "pickle-2", "pickle-4"])
def test_a_malicious_file_runs_nothing(tmp_path, kind):
    trap, file = tmp_path / "trap", tmp_path / "evil.pth"
    content = {"params": changed(), "note": Bomb(trap)}
    if kind.startswith("pickle"):
        file.write_bytes(pickle.dumps(content["note"], protocol=int(kind[-1])))
    else:
        torch.save(content, file, _use_new_zipfile_serialization=kind == "zip")
    refuse(
        file, "damaged, cut short, or not" if kind == "pickle-4" else r"nothing in it was run: it asks for \w+\.mkdir"
    )
    assert not trap.exists()

    if kind == "zip":  # the trap works: the loader that this package never uses would spring it
        torch.load(file, weights_only=False)
        assert trap.exists()


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path, zipped, share):
    file = tmp_path / "cut.pth"
    torch.save({"params": changed()}, file, _use_new_zipfile_serialization=zipped)
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    refuse(file, "is damaged, cut short, or not a file that torch.save wrote")


def test_files_that_cannot_be_opened_and_wrong_choices(tmp_path):
    file = write(tmp_path / "f.pth", Feat())
    layouts = "auto, feat, snatcher, gel-maps, gel, att-g, att, tane, pretrained, conv4"
    for path, wrong, error, match in (
        (tmp_path / "none.pth", {}, WeightsError, "cannot be read: No such file"),
        (tmp_path, {}, WeightsError, "cannot be read: Is a directory"),
        (file, {"layout": "peeler"}, RecipeError, f"layout must be one of {layouts}, got 'peeler'"),
        (
            file,
            {"dataset": "cub"},
            RecipeError,
            "dataset must be one of mini-imagenet, tiered-imagenet, cifar-fs, got 'cub'",
        ),
        (file, {"shot": 3}, RecipeError, "shot must be one of 1, 5, got 3"),
        (file, {"layout": "gel"}, WeightsError, r"layout of GEL lacks conv\.0\.weight, conv\.0\.bias, .* and 5 more"),
        (file, {"layout": "tane"}, WeightsError, r"layout of TANE lacks feature\.layer1\.conv1\.weight"),
        (file, {"layout": "pretrained"}, WeightsError, r"has slf_attn\.fc\.bias, .* and 4 more, which have no place"),
    ):
        with pytest.raises(error, match=match):
            import_weights(path, **({"dataset": "cifar-fs"} | wrong))


def test_the_command_never_overwrites_the_file_it_reads(tmp_path):
    file = write(tmp_path / "f.pth", Feat())
    content = file.read_bytes()
    with pytest.raises(RecipeError, match=r"named \*\.safetensors, got f\.pth"):
        import_(file, file, dataset="cifar-fs")
    assert file.read_bytes() == content


def test_a_weight_that_repeats_one_number_is_refused(tmp_path: Path) -> None:
    name, value = max(changed().items(), key=lambda each: each[1].numel())
    torch.save({"params": changed() | {name: torch.zeros(1).expand(value.shape)}}, tmp_path / "a.pth")
    refuse(tmp_path / "a.pth", "larger than what the file holds")
