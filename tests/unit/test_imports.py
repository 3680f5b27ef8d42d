"""What a part of the package takes along when it is imported, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

# Each step is imported after those above it, which take along less.
STEPS = """
import sys

def absent(*names):
    assert not [name for name in sys.modules if name.startswith(names)], (names, list(sys.modules))

import glocal.research.metrics
glocal.research.metrics.auroc([1.0, 0.0], [False, True])
absent("torch", "matplotlib")
import glocal.research.report.table, glocal.research.report.plots
absent("torch", "matplotlib")
import glocal.research.backbones
absent("efficientnet", "timm")
"""


def test_metrics_tables_and_backbones_import_no_more_than_they_need() -> None:
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
