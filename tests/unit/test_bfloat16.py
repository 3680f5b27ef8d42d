"""A processor that cannot do what it says is found out in another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from glocal.research.engine.bfloat16 import check_bfloat16
from refusal import refused

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


def test_it_is_refused_where_it_would_end_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = tmp_path / "cpuinfo"
    cpu.write_text("flags : fpu amx_tile")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    with refused("bfloat16", "ONEDNN_MAX_CPU_ISA"):
        check_bfloat16(cpu, DIES)
    check_bfloat16(cpu, "pass")
    cpu.write_text("flags : fpu")
    check_bfloat16(cpu, DIES)
    check_bfloat16(tmp_path / "none", DIES)
    cpu.write_text("flags : fpu amx_tile")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    check_bfloat16(cpu, DIES)
