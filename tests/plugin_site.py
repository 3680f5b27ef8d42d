"""A package and a file that bring plugins, outside the repository, and ``glocal`` in processes that find them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from apart import PROCESSES, glocal
from tiny_runs import PATIENCE, make_dataset

METHOD = """
from glocal.research.methods.feat import FEAT

class {name}(FEAT):
    '''FEAT under another name.'''
"""
FILES = {
    "other_lab/__init__.py": "",
    "other_lab/methods.py": METHOD.format(name="Lab"),
    "other_lab/backbones.py": "from glocal.research.backbones.conv4 import Conv4\n\nclass Tiny(Conv4):\n    pass\n",
    "other_lab/datasets.py": """
import os
from pathlib import Path
from glocal.research.data import ClassDataset

def noise(split):
    return ClassDataset.from_folder(Path(os.environ["NOISE"]) / split, name=f"noise/{split}")
""",
    "other_lab/metrics.py": """
from glocal.research.metrics import Metric

def misnamed(answers):
    return 1 - answers.correct.sum(axis=-1) / answers.n_known

MISNAMED = Metric("MIS", "known queries given a wrong name", False, misnamed, needs_unknown=False)
""",
    "other_lab/broken.py": "import no_such_module_anywhere\n",
    "other_lab/recipes/__init__.py": "",
    "other_lab/recipes/lab-train.toml": """
stage = "train"
[data]
dataset = "noise"
workers = 1
[backbone]
name = "tiny"
width = 4
image_size = 16
[method]
name = "lab"
[train]
backbone = "frozen"
tasks = 2
way = 2
query = 3
unknown_way = 2
[validation]
tasks = 2
way = 2
query = 3
unknown_way = 2
""",
    "other_lab-1.5.dist-info/METADATA": "Metadata-Version: 2.1\nName: other-lab\nVersion: 1.5\n",
    "other_lab-1.5.dist-info/entry_points.txt": """
[glocal.methods]
lab = other_lab.methods:Lab
broken = other_lab.broken:Broken
[glocal.backbones]
tiny = other_lab.backbones:Tiny
[glocal.datasets]
noise = other_lab.datasets:noise
[glocal.metrics]
misnamed = other_lab.metrics:MISNAMED
[glocal.recipes]
lab = other_lab.recipes
""",
}


class Site:
    """A folder with the plugin package, a plugin file, and pictures."""

    def __init__(self, home: Path):
        self.home = home
        for name, text in FILES.items():
            (home / "site" / name).parent.mkdir(parents=True, exist_ok=True)
            (home / "site" / name).write_text(text)
        make_dataset(home / "noise")
        single = f'import glocal\n{METHOD.format(name="Mine")}\nglocal.methods.METHODS["mine"] = Mine\n'
        (home / "mine.py").write_text(single)

    def __call__(self, *arguments: Any, plugins: bool = True) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of ``glocal ARGUMENTS`` in a process of its own."""
        process = PROCESSES.Process(target=_glocal, args=(str(self.home), tuple(map(str, arguments)), plugins))
        process.start()
        process.join(PATIENCE)
        said = [(self.home / name).read_text() for name in ("out", "err")]
        for name in ("out", "err"):
            (self.home / name).unlink()
        return process.exitcode, said[0], said[1]


def _glocal(home: str, arguments: tuple[str, ...], plugins: bool) -> None:
    if plugins:
        sys.path.insert(0, f"{home}/site")
    glocal(arguments, f"{home}/out", f"{home}/err", GLOCAL_CACHE=f"{home}/cache", NOISE=f"{home}/noise")
