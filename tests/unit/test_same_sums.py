"""One order of summation on every x86 processor with AVX2, on Linux."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from glocal.research.reproduce.machine import ALIKE, OWN
from glocal.research.same_sums import CPU, ORDER, sum_alike, sums_alike

X86 = platform.machine() == "x86_64" and CPU.exists() and "avx2" in CPU.read_text().split()

# Weights after a few steps of a small ResNet-12 and of two heads, as one number.
TRAINING = """
from glocal.research.same_sums import sum_alike
assert sum_alike()
import torch
from glocal.research.backbones import build_backbone
from glocal.research.methods import build_method
from glocal.research.types import Episode, tensor_hash
torch.set_num_threads(1)
torch.manual_seed(0)
net = build_backbone("resnet12", width=[16, 32, 64, 128], image_size=48, drop_rate=0.0)
linear = torch.nn.Linear(128, 20)
learning = torch.optim.SGD([*net.parameters(), *linear.parameters()], lr=0.1, momentum=0.9, nesterov=True)
for step in range(2):
    images = torch.randint(0, 256, (16, 3, 48, 48), dtype=torch.uint8)
    maps = net(net.preprocess.normalize(images).contiguous(memory_format=torch.channels_last))
    learning.zero_grad()
    torch.nn.functional.cross_entropy(linear(maps.mean((2, 3))), torch.arange(16)).backward()
    learning.step()
weights = {f"net.{name}": each for name, each in net.state_dict().items()}
label, answer = torch.arange(5), torch.cat([torch.arange(5).repeat(3), torch.full((15,), -1)])
for name in ("gel", "snatcher-f"):
    head = build_method(name, 128, {})
    learning = torch.optim.SGD(head.parameters(), lr=0.01, momentum=0.9)
    for step in range(2):
        maps = torch.randn(35, 128, 3, 3).relu()
        learning.zero_grad()
        sum(head.loss(Episode(maps[:5], label, maps[5:], answer, tuple(range(10)))).values()).backward()
        learning.step()
    weights |= {f"{name}.{key}": each for key, each in head.state_dict().items()}
print("weights", tensor_hash(weights))
"""


def run(program: str, *before: str, **told: str) -> str:
    left = {name: value for name, value in os.environ.items() if name not in ORDER}
    command = [*before, sys.executable, "-c", program]
    return subprocess.run(command, env=left | told, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(not X86, reason="this processor has no AVX2, or does not say so")
def test_torch_and_onednn_do_without_what_others_lack() -> None:
    said = run(
        "from glocal.research.same_sums import sum_alike; print('alike', sum_alike())\n"
        "import torch; print('torch', torch.backends.cpu.get_cpu_capability())\n"
        "torch.nn.functional.conv2d(torch.ones(8, 16, 12, 12), torch.ones(32, 16, 3, 3))",
        ONEDNN_VERBOSE="1",
    )
    assert "alike True" in said
    assert "torch AVX2" in said
    assert "onednn_verbose" in said
    assert "avx512" not in said.lower()


@pytest.mark.skipif(not X86, reason="this processor has no AVX2, or does not say so")
def test_the_embedded_scale_sums_alike_before_torch_starts() -> None:
    program = """
import contextlib, sys
from glocal.cli.main import app
from glocal.common.errors import GlocalError
with contextlib.suppress(GlocalError):  # refused, but later
    app(["reproduce", "nothing", "--scale", sys.argv[1]], standalone_mode=False)
from glocal.research.reproduce.machine import machine
print("sums", machine()["sums"], machine()["cpu"], machine("meta")["sums"])
"""
    said = run(f"import sys; sys.argv.append('embedded')\n{program}")
    assert f"sums {ALIKE} AVX2 {OWN}" in said, "of another device nothing is known"
    said = run(f"import sys; sys.argv.append('cpu')\n{program}")
    assert f"sums {OWN} {torch.backends.cpu.get_cpu_capability()}" in said, "other scales are left alone"


def test_who_cannot_is_told_how(glocal: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ORDER:
        monkeypatch.delenv(name, raising=False)
    for more, told in ((), True), (("--dry-run",), False):
        _, _, said = glocal("reproduce", "nothing", "--scale", "embedded", *more)  # refused, but later; torch is here
        assert ("order of this machine's own" in " ".join(said.split())) == told


def test_who_has_decided_otherwise_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpu = tmp_path / "cpuinfo"
    cpu.write_text("flags : fpu avx avx2 fma\n")
    for name in ORDER:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert not sum_alike(cpu), "torch has started"
    monkeypatch.delitem(sys.modules, "torch")
    cpu.write_text("flags : fpu avx\n")
    assert not sum_alike(cpu), "torch would use instructions that are not there"
    assert not sum_alike(tmp_path / "none")
    cpu.write_text("flags : fpu avx avx2 fma\n")
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    assert not sum_alike(cpu)
    assert {name: os.environ.get(name) for name in ORDER} == dict.fromkeys(ORDER) | {"MKL_CBWR": "AVX2"}
    monkeypatch.delenv("MKL_CBWR")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not sum_alike(cpu)
    for name, value in ORDER.items():
        monkeypatch.setenv(name, value)
    assert not sums_alike(cpu), "words alone do not make it so"
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert sum_alike(cpu), "told from outside"
    monkeypatch.delenv("MKL_CBWR")
    assert sum_alike(cpu), "told a part of it from outside"
    assert sums_alike(cpu)


@pytest.mark.long
@pytest.mark.skipif(not X86, reason="this processor has no AVX2, or does not say so")
@pytest.mark.parametrize("processor", ["Haswell", "EPYC-Rome"])
def test_processors_of_two_makers_train_the_same_weights(processor: str) -> None:
    """Beside this one; emulated, a minute each."""
    if (emulator := shutil.which("qemu-x86_64")) is None:
        pytest.skip("qemu-x86_64 (Debian: qemu-user) is not installed")
    # -0: Python finds its environment by the name that it was called with, which may be a link.
    python = str(Path(sys.executable).resolve())
    emulated = subprocess.run(
        [emulator, "-0", sys.executable, "-cpu", processor, python, "-c", TRAINING],
        env={**os.environ, **ORDER},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert emulated.split()[:1] == ["weights"]
    assert emulated == run(TRAINING)
