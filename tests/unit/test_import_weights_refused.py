"""Files that are damaged, hostile or do not fit: one sentence each, nothing executed, nothing written."""

from __future__ import annotations

import argparse
import io
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from glocal.cli.research.studies import convert
from glocal.common.errors import GlocalError, RecipeError, WeightsError
from glocal.research.engine.import_weights import import_weights, read_pickled
from glocal.research.engine.torch_file import check_torch_file
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
    "missing-statistics": (
        {"params": changed(encoder__layer1__0__bn2__running_var=None)},
        r"lacks encoder\.layer1\.0\.bn2\.running_var;",
    ),
    "extra": ({"params": changed(slf_attn__w_os__weight=torch.ones(2))}, r"has slf_attn\.w_os\.weight, which has no"),
    "second-block": ({"params": changed(encoder__layer1__1__conv1__weight=torch.ones(2))}, r"has encoder\.layer1\.1"),
    "att-in-feat": ({"params": changed(metric__temp=torch.ones(()))}, r"has metric\.temp, which has no place"),
    "shape": (
        {"params": changed(slf_attn__fc__weight=torch.ones(DIM, DIM + 1))},
        r"slf_attn\.fc\.weight must be \(12, 12\), got \(12, 13\)",
    ),
    "conv-shape": (
        {"params": changed(encoder__layer2__0__conv2__weight=torch.ones(6, 6, 1, 1))},
        r"layer2\.0\.conv2\.weight must be \(6, 6, 3, 3\), got \(6, 6, 1, 1\)",
    ),
    "flat-conv": ({"params": changed(encoder__layer1__0__conv1__weight=torch.ones(3))}, r"must be \(out, in, 3, 3\)"),
    "base-shape": ({"params": changed(fc__bias=torch.ones(63))}, r"fc\.bias must be \(64,\), got \(63,\)"),
    "base-half": ({"params": changed(fc__weight=None)}, r"has fc\.bias, which has no place here"),
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
        convert(file, file.parent / "out.safetensors", dataset="cifar-fs")
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


def test_harmless_company_is_replaced_not_built(tmp_path):
    """The objects that are tolerated beside weights cannot carry a call along."""
    trap = tmp_path / "trap"
    torch.save({"params": changed(), "args": argparse.Namespace(x=Bomb(trap))}, tmp_path / "a.pth")
    refuse(tmp_path / "a.pth", "nothing in it was run")
    assert not trap.exists()


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path, zipped, share):
    file = tmp_path / "cut.pth"
    torch.save({"params": changed()}, file, _use_new_zipfile_serialization=zipped)
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    refuse(file, "is damaged, cut short, or not a file that torch.save wrote")


@pytest.mark.parametrize("content", [b"hello world", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04", bytes(range(256))])
def test_what_is_no_pickle_is_refused(tmp_path, content):
    (tmp_path / "x.pth").write_bytes(content)
    refuse(tmp_path / "x.pth", "is damaged, cut short, or not a file that torch.save wrote")


def test_files_that_cannot_be_opened_and_wrong_choices(tmp_path):
    file = write(tmp_path / "f.pth", Feat())
    layouts = "auto, feat, snatcher, gel-maps, gel, att-g, att, tane, pretrained"
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
        convert(file, file, dataset="cifar-fs")
    assert file.read_bytes() == content


@pytest.mark.parametrize("new", [True, False])
def test_a_small_file_takes_no_great_memory_or_time(tmp_path: Path, new: bool) -> None:
    """What torch itself would obey: a byte array of 4 GiB, keys that collide, weights that repeat one number."""
    file = tmp_path / "evil.pth"
    collide = {i * ((1 << 61) - 1): 0 for i in range(2_000)}
    for content in ({"params": changed(), "note": collide}, {"params": changed(), "note": Large()}):
        torch.save(content, file, _use_new_zipfile_serialization=new)
        assert file.stat().st_size < 2 << 20
        refuse(file, "damaged, cut short, or not")
    name, value = max(changed().items(), key=lambda each: each[1].numel())
    torch.save({"params": changed() | {name: torch.zeros(1).expand(value.shape)}}, file)
    refuse(file, "larger than what the file holds")


class Large:
    def __reduce__(self) -> tuple[Any, ...]:
        return bytearray, (1 << 32,)


def test_a_packed_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "packed.pth"
    torch.save({"params": changed()}, file)
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    refuse(file, "damaged, cut short, or not")


def in_each_other(levels: int, *, wide: int = 2, around: bytes = b"(%bt") -> bytes:
    """A dict with a tuple of one tuple, that of another and so on as its key: a few bytes for each level."""
    return b"\x80\x02)q\x01" + (around % (b"h\x01" * wide) + b"q\x01") * levels + b"}h\x01K\x00s."


def later_filled(levels: int) -> bytes:
    """A list of one list, that of another and so on, each filled when it already lies in the one above."""
    return b"\x80\x02]q\x03q\x01" + b"]q\x02h\x01(h\x02h\x02eh\x02q\x01" * levels + b"}X\x01\x00\x00\x00ah\x03s."


def archived(pickled: bytes, name: str = "data.pkl") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"archive/{name}", pickled)
        archive.writestr("archive/version", b"3\n")
    return buffer.getvalue()


def old(pickled: bytes) -> bytes:
    before = b"".join(pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1001, {}))
    return before + pickled + pickle.dumps([], 2)


@pytest.mark.parametrize("form", [archived, old])
@pytest.mark.parametrize(
    "pickled",
    [
        in_each_other(40),  # 2**40 values to hash
        in_each_other(8, wide=100),  # not deep, and 10**16 of them
        in_each_other(100_000, wide=1),  # overflows the stack of C
        in_each_other(40, around=b"](%be"),  # lists, which a message could try to tell
        in_each_other(40, around=b"ctorch\nSize\n(%bt\x85R"),
        later_filled(40),
        b"\x80\x02}q\x01X\x01\x00\x00\x00ah\x01s.",  # a dict in itself
    ],
    ids=["deep", "wide", "long", "lists", "sizes", "later", "circle"],
)
def test_values_that_repeat_one_another_are_refused_before_torch_reads_them(
    form: Callable[[bytes], bytes], pickled: bytes
) -> None:
    with pytest.raises(ValueError, match=r"over and over|part of something else"):
        check_torch_file(form(pickled))


@pytest.mark.parametrize("form", [archived, old])
def test_a_key_that_takes_for_ever_is_refused_by_the_command(tmp_path: Path, form: Callable[[bytes], bytes]) -> None:
    (tmp_path / "evil.pth").write_bytes(form(in_each_other(24)))  # seconds without the check, so that it can fail
    refuse(tmp_path / "evil.pth", "damaged, cut short, or not")


def test_the_pickle_that_torch_reads_is_the_one_that_is_looked_through(tmp_path: Path) -> None:
    """To torch names of entries are the same in large and small letters."""
    for name in ("data.pkl", "data.PKL"):
        (tmp_path / "evil.pth").write_bytes(archived(pickle.dumps({"params": {}, "note": Large()}, 2), name))
        with pytest.raises(ValueError, match="makes a byte array"):
            check_torch_file((tmp_path / "evil.pth").read_bytes())


@pytest.mark.parametrize("new", [True, False])
def test_what_weights_come_with_is_read(tmp_path: Path, new: bool) -> None:
    """Parameters, tied weights, the state of an optimizer and of a generator, a list of the command line."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    beside = {"net": dict(net.named_parameters()), "optimizer": optimizer.state_dict(), "state": net.state_dict()}
    beside |= {"random": random.getstate(), "args": argparse.Namespace(shots=[1, 5]), "shape": torch.Size((2, 2))}
    torch.save({"params": changed()} | beside, tmp_path / "a.pth", _use_new_zipfile_serialization=new)
    check_torch_file((tmp_path / "a.pth").read_bytes())
    assert sorted(read_pickled(tmp_path / "a.pth").beside) == sorted(beside)
