"""Whether this machine's processor can do what it says.

Some virtual machines tell of matrix instructions (AMX) without the details that the libraries ask for; then the first
large product of bfloat16 ends the process with "Illegal instruction", without a word.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from glocal.common.errors import RecipeError

LIMIT = "ONEDNN_MAX_CPU_ISA"
CPU = Path("/proc/cpuinfo")
PRODUCT = "import torch; x = torch.ones(512, 512, dtype=torch.bfloat16); x @ x"


def check_bfloat16(cpu: Path = CPU, product: str = PRODUCT) -> None:
    """Refuse it where it would end the process; tried in another one, and only on processors that tell of AMX."""
    if LIMIT in os.environ or not cpu.exists() or "amx_tile" not in cpu.read_text():
        return
    if subprocess.run([sys.executable, "-c", product], capture_output=True, check=False).returncode:
        raise RecipeError(
            'speed.precision = "bfloat16" ends the process on this machine: its processor tells of matrix instructions '
            f"(AMX) that it does not carry out; set {LIMIT}=AVX512_CORE_BF16 in the environment, or use float32",
            code="bfloat16",
        )
