"""The command line: results on stdout, one sentence on stderr for what the user can mend, no tracebacks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from glocal import __version__
from glocal.cli.main import app
from glocal.research.engine.checkpoint import BEST, LAST, load_model, read_checkpoint, save_model
from glocal.research.methods import METHODS
from refusal import one_sentence
from tiny_models import tiny_model
from tiny_runs import fields, make_dataset
from waiting import PATIENCE, wait_for

SLOW = "{'torch', 'numpy', 'pydantic', 'PIL', 'sklearn', 'matplotlib', 'safetensors'} & set(sys.modules)"
SHAPE = ["--query", "3", "--tasks", "3"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("cli")
    make_dataset(home / "data")
    save_model(home / "m.safetensors", tiny_model())
    recipe = fields(home / "data", "pretrain", backbone={"name": "conv4", "width": 4, "image_size": 16})
    recipe["backbone"].pop("dropblock_steps")
    (home / "pretrain.json").write_text(json.dumps(recipe | {"pretrain": {"epochs": 1, "batch_size": 8}}))
    return home


def evaluating(home: Path, *more: Any, model: Any = None) -> list[str]:
    return ["evaluate", model or home / "m.safetensors", "--dataset", home / "data", "--way", "2", *SHAPE, *more]


def test_version_and_help(glocal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert glocal("--version") == (0, f"glocal {__version__}\n", "")
    _, shown, _ = glocal("--help")
    assert len(shown.splitlines()) <= 20 + len(get_command(app).commands), "a line for each command"
    places = [shown.index(part) for part in ("Your own photos", "demo", "For researchers", "pretrain")]
    assert places == sorted(places)
    assert all(command in shown for command in ("list", "cache", "train", "evaluate", "--import"))
    assert "--install-completion" in shown
    for command in app.registered_commands:
        assert command.callback is not None
        code, out, _ = glocal(command.name or command.callback.__name__, "-h")
        assert code == 0
        assert "Usage" in out
        assert len(out.splitlines()) <= 45, "a page"
        assert command.callback.__doc__, "the help of a command is its docstring"


def test_the_package_help_and_completion_do_not_import_torch() -> None:
    """What makes them answer at once, on any machine."""
    script = (
        "import sys\nimport glocal\nassert 'evaluate' in dir(glocal)\n"
        "from glocal.cli.main import main\n"
        "sys.argv = ['glocal', *sys.argv[1:]]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('slow:', sorted({SLOW}), file=sys.stderr)\n"
    )
    for arguments, environment in ((["--help"], {}), ([], {"_GLOCAL_COMPLETE": "source_bash"})):
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, text=True, env=os.environ | environment
        )
        assert done.stderr.splitlines()[-1] == "slow: []"
        assert done.stdout, "help, or the script that shells source"


def test_the_library_at_top_level() -> None:
    import glocal

    for name in glocal.__all__:
        assert getattr(glocal, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'evalute'"):
        glocal.evalute  # noqa: B018


def test_list(glocal: Any) -> None:
    found = json.loads(glocal("list", "--json")[1])
    assert found["methods"] == sorted(METHODS)
    assert {"resnet12", "conv4"} <= set(found["backbones"])
    assert "embedded" in found["datasets"]
    assert "cifar-fs-cpu-pretrain" in found["recipes"]
    assert not any(found["plugins"].values())
    code, shown, _ = glocal("list")
    assert code == 0
    assert all(f"\n  {name} " in shown for name in METHODS)
    assert "\n  gel " in glocal("list", "heads")[1]
    assert len(shown.splitlines()) <= 76, "no wall"
    assert "cifar-fs-...  " in shown
    models = glocal("list", "models")[1].splitlines()
    assert len(models) < 12
    assert any(line.startswith("  photos-fast ") and "EfficientNet-Lite0" in line for line in models)


def test_list_of_one_kind_and_of_a_part_of_the_names(glocal: Any) -> None:
    found = json.loads(glocal("list", "recipes", "tiered-64", "--json")[1])
    assert found.keys() == {"recipes", "plugins"}
    assert "tiered-64-cpu-pretrain" in found["recipes"]
    assert all("tiered-64" in name for name in found["recipes"])
    _, shown, _ = glocal("list", "recipes", "tiered-64")
    assert len(shown.splitlines()) == 1 + len(found["recipes"])
    assert "tiered-64-cpu-pretrain " in shown
    one_sentence(glocal("list", "methods", "gell"), "none of the methods holds 'gell' in its name; did you mean 'gel'?")


def test_cache_is_shown_and_cleared(glocal: Any, home: Path, own_cache: Path) -> None:
    assert json.loads(glocal("cache", "--json")[1]) == {"folder": str(own_cache), "banks": 0, "bytes": 0}
    glocal(*evaluating(home))
    full = json.loads(glocal("cache", "--json")[1])
    assert full["banks"] == 1
    assert full["bytes"] > 0
    assert "1 feature banks" in glocal("cache")[1]
    assert json.loads(glocal("cache", "--clear", "--json")[1])["bytes"] == 0


class TestEvaluate:
    def test_json_is_all_that_is_printed(self, glocal: Any, home: Path) -> None:
        code, out, err = glocal(*evaluating(home, "--json", "--split", "val", "--seed", "4", "--score", "entropy"))
        assert (code, err) == (0, "")
        found = json.loads(out)
        assert (found["split"], found["seed"], found["tasks"], found["open_score"]) == ("val", 4, 3, "entropy")
        assert found["spec"] == {"way": 2, "shot": 1, "query": 3, "unknown_way": 2, "unknown_query": 3}
        assert set(found["metrics"]["auroc"]) == {"mean", "ci95"}
        assert len(found["manifest"]) == len(found["tasks_fingerprint"]) == 64
        assert list(found) == [
            "checkpoint", "method", "open_score", "dataset", "split", "manifest", "skipped", "ignored", "duplicates",
            "spec", "support_views", "seed", "tasks", "tasks_fingerprint", "metrics",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("more", "part"),
        [
            (["--split", "tset"], "'tset'"),
            (["--split", "all"], "is divided into train, val, test"),
            (["--score", "mood"], "open_score must be one of"),
            (["--device", "abacus"], "device must be auto, cpu, cuda or mps"),
            (["--shot", "9"], "has 8 images, but a task needs 12"),
            (["--unknown-way", "3"], "has 4 classes, but a task needs 5"),
            (["--tasks-from", "no-such-file"], "no-such-file cannot be read"),
            (["--save-tasks", "/proc/no/tasks.json"], "/proc/no"),
            (["--dataset", "nowhere"], "dataset 'nowhere' is none of those by name"),
            (["--dataset", "mini-imagenet"], "set GLOCAL_DATA to the folder that has mini-imagenet in it"),
            (["--save-tasks", __file__], "is there already; write over it with --force"),
        ],
    )
    def test_what_the_user_can_mend(self, glocal: Any, home: Path, more: list[str], part: str) -> None:
        one_sentence(glocal(*evaluating(home, *more)), part)

    def test_models_that_are_missing(self, glocal: Any, home: Path) -> None:
        for model, part in (("nobody", "'nobody'"), (home / "data", "has no best.safetensors"), ("x" * 300, "x" * 300)):
            one_sentence(glocal(*evaluating(home, model=model)), part)

    @pytest.mark.parametrize("option", ["--way=0", "--tasks=0", "--seed=-1", "--tasks=many", "--workers=0", "--wya=3"])
    def test_values_that_are_no_values(self, glocal: Any, home: Path, option: str) -> None:
        code, out, err = glocal(*evaluating(home, option))
        assert (code, out) == (2, "")
        assert option.partition("=")[0] in err


class TestTraining:
    def test_the_stages_one_after_the_other(self, glocal: Any, home: Path, tmp_path: Path) -> None:
        code, out, err = glocal(
            "pretrain", home / "pretrain.json", "--out", tmp_path / "one", "--device", "cpu", "--json"
        )
        assert code == 0, err
        assert set(json.loads(out)) == {"run", "step", "validation"}
        assert glocal(*evaluating(home, model=tmp_path / "one" / LAST))[0] == 0, (
            "the last checkpoint can be evaluated too"
        )
        again = json.loads((home / "pretrain.json").read_text()) | {"backbone": None}
        (tmp_path / "again.json").write_text(json.dumps(again))
        options = ["--init", tmp_path / "one", "--out", tmp_path / "again", "--device", "cpu"]
        assert glocal("pretrain", tmp_path / "again.json", *options)[0] == 0
        assert read_checkpoint(tmp_path / "again" / BEST)[1]["recipe"]["init"] == str(tmp_path / "one")
        recipe = tmp_path / "train.toml"
        task = "way = 2\nquery = 3\nunknown_way = 2\n"
        recipe.write_text(
            f'stage = "train"\n[data]\ndataset = "{home / "data"}"\n[method]\nname = "feat"\n'
            f'[train]\nbackbone = "frozen"\ntasks = 9\n{task}[validation]\ntasks = 2\n{task}'
        )
        arguments = ["train", recipe, "--out", tmp_path / "two", "--init", tmp_path / "one", "--device", "cpu"]
        code, out, err = glocal(*arguments, "--set", "train.tasks=3", "--set", "method.temperature=2")
        assert code == 0, err
        assert "step 3" in err
        assert f"glocal evaluate {tmp_path / 'two'}" in out
        _, record = read_checkpoint(tmp_path / "two" / BEST)
        assert record["recipe"]["train"]["tasks"] == 3
        assert record["recipe"]["init"] == str(tmp_path / "one")
        assert record["method"]["settings"] == {"temperature": 2}
        assert load_model(tmp_path / "two").method.temperature == 2
        one_sentence(glocal(*arguments), "already holds a run")
        one_sentence(glocal(*arguments, "--resume"), "method.temperature (2 there, None now)")

    def test_what_the_user_can_mend(self, glocal: Any, home: Path, tmp_path: Path) -> None:
        recipe, out = home / "pretrain.json", ["--out", tmp_path / "run"]
        for words, part in (
            (["train", recipe], "is for `glocal pretrain`, not for `glocal train`"),
            (["pretrain", "no-recipe"], "recipe 'no-recipe' is neither"),
            (["pretrain", recipe, "--set", "optimiser.lr=1"], "did you mean 'optimizer'?"),
            (["pretrain", recipe, "--set", "optimizer.lr=0"], "optimizer.lr should be greater than 0"),
            (["pretrain", recipe, "--set", "data.dataset=nowhere"], "dataset 'nowhere'"),
            (["pretrain", recipe, "--resume"], "nothing to resume"),
        ):
            one_sentence(glocal(*words, *out), part)
        one_sentence(glocal("pretrain", recipe, "--out", home / "m.safetensors"), str(home / "m.safetensors"))
        assert not (tmp_path / "run").exists()


def hear_ctrl_c() -> None:
    """A shell that runs the tests in the background makes its children deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_while_evaluating(home: Path, tmp_path: Path) -> None:
    """A real process and a real signal, in the middle of far too many tasks."""
    command = [sys.executable, "-m", "glocal", *map(str, evaluating(home, "--tasks", "20000", "--device", "cpu"))]
    process = subprocess.Popen(
        [*command, "--json"],
        env=os.environ | {"GLOCAL_CACHE": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    )
    wait_for((tmp_path / "banks").exists)  # then the pictures are being encoded
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err


def test_a_wrong_path_is_told_before_anything_large_is_imported(tmp_path: Path) -> None:
    """Each of these takes a part of the second that a person waits for one sentence."""
    gone = str(tmp_path / "gone")
    script = (
        "import sys\nfrom glocal.cli.main import main\n"
        f"for words in (['predict', {gone!r}], ['embed', '-o', 'x', {gone!r}], ['check', {gone!r}]):\n"
        f"    sys.argv = ['glocal', *words, {gone!r}]\n"
        "    try:\n        main()\n    except SystemExit as stopped:\n        assert stopped.code == 2\n"
        "    print(words[0], sorted({'torch', 'numpy', 'PIL', 'pyarrow'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "predict []\nembed []\ncheck []\n"
    assert done.stderr.count("there is no such file or folder") == 3
