"""Plugins outside the repository: a package with entry points, and a single file; both train, evaluate and compare."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from apart import PROCESSES, glocal
from refusal import one_sentence
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


SHAPE = ["--way", "2", "--query", "3", "--tasks", "3", "--device", "cpu"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("plugins"))


def test_a_package_trains_evaluates_compares_and_is_listed(site: Site) -> None:
    run = site.home / "lab-run"
    code, _, err = site("train", "lab-train", "--out", run, "--device", "cpu", "--json")
    assert code == 0, err
    code, out, err = site("evaluate", run, "--dataset", "noise", *SHAPE, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["method"], found["dataset"]) == ("lab", "noise")
    metrics = found["metrics"]
    assert metrics["misnamed"]["mean"] == pytest.approx(1 - metrics["acc"]["mean"]), "the metric of the package"
    names = [f"lab={run}", f"again={run}:entropy"]
    code, out, err = site("compare", *names, "--dataset", "noise", "--shots", "1", *SHAPE, "--json")
    assert code == 0, err
    assert [row["name"] for row in json.loads(out)["tables"][0]["rows"]] == ["lab", "again"]

    code, out, err = site("list", "--json")
    listed = json.loads(out)
    assert code == 0
    for kind, name in (("methods", "lab"), ("backbones", "tiny"), ("datasets", "noise"), ("metrics", "misnamed")):
        assert name in listed[kind]
        assert listed["plugins"][kind] == {name: "other-lab 1.5"}
    assert listed["plugins"]["recipes"] == {"lab-train": "other-lab 1.5"}
    assert "broken" not in listed["methods"]
    assert err.count("\n") == 1, "one sentence about the plugin that cannot be imported"
    assert "'broken' of other-lab 1.5" in err
    assert "no_such_module_anywhere" in err

    said = site("train", "lab-train", "--out", site.home / "no", "--set", "method.name=broken")
    assert said[0] == 2
    assert "the plugin 'broken' of other-lab 1.5 (glocal.methods) cannot be used" in said[2]
    said = site("evaluate", run, "--dataset", "embedded", *SHAPE, plugins=False)
    one_sentence(said, "'tiny'", "install its package, or give its file with --import")


def test_a_single_file_trains_evaluates_compares_and_is_listed(site: Site) -> None:
    mine, run, data = ["--import", site.home / "mine.py"], site.home / "mine-run", str(site.home / "noise")
    settings = ["method.name=mine", 'backbone={name = "conv4", width = 4, image_size = 16}', f"data.dataset={data}"]
    overrides = [word for setting in settings for word in ("--set", setting)]
    recipe = site.home / "site" / "other_lab" / "recipes" / "lab-train.toml"
    code, _, err = site(*mine, "train", recipe, *overrides, "--out", run, "--device", "cpu", plugins=False)
    assert code == 0, err
    code, out, err = site(*mine, "compare", run, "embedded-gel", "--dataset", data, "--shots", "1", *SHAPE, "--json",
                          plugins=False)  # fmt: skip
    assert code == 0, err
    assert [each["method"] for each in json.loads(out)["models"]] == ["mine", "frozen-gel"]
    code, out, err = site(*mine, "list", plugins=False)
    assert (code, err) == (0, "")
    assert "mine (from mine.py)" in " ".join(out.split())
    one_sentence(site("evaluate", run, "--dataset", data, *SHAPE, plugins=False), "'mine'", "--import")


def test_a_file_that_cannot_be_imported_is_one_sentence(site: Site) -> None:
    (site.home / "bad.py").write_text("1 / 0\n")
    for name, part in (("bad.py", "ZeroDivisionError"), ("absent.py", "no such file"), ("json.py", "rename the file")):
        if name == "json.py":
            (site.home / name).write_text("")
        one_sentence(site("--import", site.home / name, "list"), part)
