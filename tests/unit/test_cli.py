"""The command line: results on stdout, one sentence on stderr for what the user can mend, no tracebacks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from glocal import __version__
from glocal.backbones import build_backbone
from glocal.cli import inventory, main
from glocal.engine.checkpoint import BEST, LAST, Model, load_model, read_checkpoint, save_model
from glocal.methods import METHODS
from glocal_runtime.errors import DataError
from tiny_runs import fields, make_dataset

GLOCAL = [sys.executable, "-m", "glocal"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("cli")
    make_dataset(home / "data")
    settings = {"width": 4, "image_size": 16}
    torch.manual_seed(0)
    backbone = build_backbone("conv4", **settings)
    record = {"backbone": {"name": "conv4", "settings": settings}, "method": {"name": "protonet", "settings": {}}}
    save_model(home / "m.safetensors", Model(backbone, METHODS["protonet"](backbone.channels), record))
    recipe = fields(home / "data", "pretrain", backbone={"name": "conv4", "width": 4, "image_size": 16})
    recipe["backbone"].pop("dropblock_steps")
    (home / "pretrain.json").write_text(json.dumps(recipe | {"pretrain": {"epochs": 1, "batch_size": 8}}))
    return home


@pytest.fixture(autouse=True)
def own_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOCAL_CACHE", str(home / "cache"))


class Said:
    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def glocal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """``glocal(*arguments)`` in this process, through the same main() as the command."""

    def call(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["glocal", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main.main()
        return Said(stopped.value.code or 0, *capsys.readouterr())  # type: ignore[arg-type]

    return call


def test_version(glocal: Any) -> None:
    said = glocal("--version")
    assert (said.code, said.out, said.err) == (0, f"glocal {__version__}\n", "")


def test_help_groups_the_commands() -> None:
    shown = CliRunner().invoke(main.app, ["--help"]).output
    everybody, researchers = shown.index("For everybody"), shown.index("For researchers")
    assert everybody < shown.index("demo") < researchers < shown.index("pretrain")
    for command in ("list", "cache", "train", "evaluate"):
        assert command in shown
    assert "--install-completion" in shown


def test_every_command_explains_itself(glocal: Any) -> None:
    for command in main.app.registered_commands:
        assert command.callback is not None
        said = glocal(command.name or command.callback.__name__, "-h")
        assert said.code == 0
        assert "Usage" in said.out
        assert command.callback.__doc__, "the help of a command is its docstring"


def test_help_and_completion_do_not_import_torch() -> None:
    """What makes them answer at once, on any machine."""
    script = (
        "import sys\n"
        "from glocal.cli.main import main\n"
        "sys.argv = ['glocal', *sys.argv[1:]]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "slow = {'torch', 'numpy', 'pydantic', 'PIL', 'sklearn', 'matplotlib', 'safetensors'} & set(sys.modules)\n"
        "print('slow:', sorted(slow), file=sys.stderr)\n"
    )
    for arguments, environment in ((["--help"], {}), ([], {"_GLOCAL_COMPLETE": "source_bash"})):
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments], capture_output=True, text=True, env=os.environ | environment
        )
        assert done.stderr.splitlines()[-1] == "slow: []"
        assert done.stdout, "help, or the script that shells source"


def test_list(glocal: Any) -> None:
    found = glocal("list", "--json").json
    assert found["methods"] == sorted(METHODS)
    assert {"resnet12", "conv4"} <= set(found["backbones"])
    assert "embedded" in found["datasets"]
    assert "cifar-fs-cpu-pretrain" in found["recipes"]
    plain = glocal("list")
    assert plain.code == 0
    assert all(name in plain.out for name in METHODS)


def test_cache_is_shown_and_cleared(glocal: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path))
    assert glocal("cache", "--json").json == {"folder": str(tmp_path), "banks": 0, "bytes": 0}
    evaluate(glocal, home)
    full = glocal("cache", "--json").json
    assert full["banks"] == 1
    assert full["bytes"] > 0
    assert "1 feature banks" in glocal("cache").out
    assert glocal("cache", "--clear", "--json").json["bytes"] == 0


def evaluate(glocal: Any, home: Path, *more: str, model: str | None = None, way: str = "2") -> Said:
    shape = ["--way", way, "--query", "3", "--tasks", "3"]
    said: Said = glocal(
        "evaluate", model or str(home / "m.safetensors"), "--dataset", str(home / "data"), *shape, *more
    )
    return said


class TestEvaluate:
    def test_json_is_all_that_is_printed(self, glocal: Any, home: Path) -> None:
        said = evaluate(glocal, home, "--json", "--split", "val", "--seed", "4", "--score", "distance")
        assert (said.code, said.err) == (0, "")
        found = said.json
        assert (found["split"], found["seed"], found["tasks"], found["open_score"]) == ("val", 4, 3, "distance")
        assert found["spec"] == {"way": 2, "shot": 1, "query": 3, "unknown_way": 2, "unknown_query": 3}
        assert set(found["metrics"]["auroc"]) == {"mean", "ci95"}
        assert len(found["manifest"]) == len(found["tasks_fingerprint"]) == 64

    def test_a_table_for_people(self, glocal: Any, home: Path) -> None:
        said = evaluate(glocal, home)
        assert said.code == 0
        assert "2-way 1-shot" in said.out
        assert "AUROC" in said.out

    def test_without_unknown_classes(self, glocal: Any, home: Path) -> None:
        assert list(evaluate(glocal, home, "--unknown-way", "0", "--json").json["metrics"]) == ["acc"]

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
        ],
    )
    def test_what_the_user_can_mend(self, glocal: Any, home: Path, more: list[str], part: str) -> None:
        refused(evaluate(glocal, home, *more), part)

    def test_missing_things(self, glocal: Any, home: Path) -> None:
        refused(evaluate(glocal, home, model="nobody"), "neither a file, nor a run folder, nor a shipped model")
        refused(evaluate(glocal, home, model=str(home / "data")), "has no best.safetensors")
        refused(evaluate(glocal, home, model="x" * 300), "x" * 300)
        refused(glocal("evaluate", home / "m.safetensors", "--dataset", "nowhere"), "dataset 'nowhere' is not one of")
        refused(evaluate(glocal, home, "--save-tasks", "/proc/no/tasks.json"), "/proc/no")

    @pytest.mark.parametrize("option", ["--way=0", "--tasks=0", "--seed=-1", "--tasks=many", "--workers=0", "--wya=3"])
    def test_values_that_are_no_values(self, glocal: Any, home: Path, option: str) -> None:
        said = evaluate(glocal, home, option)
        assert said.code == 2
        assert said.out == ""
        assert option.partition("=")[0] in said.err


def refused(said: Said, part: str) -> None:
    assert said.code == 2, said.err
    assert said.out == ""
    assert said.err.startswith("glocal: ")
    assert said.err.count("\n") == 1, "one line"
    assert part in said.err


class TestTraining:
    def test_the_stages_one_after_the_other(self, glocal: Any, home: Path, tmp_path: Path) -> None:
        first = glocal("pretrain", home / "pretrain.json", "--out", tmp_path / "one", "--device", "cpu", "--json")
        assert first.code == 0, first.err
        assert set(first.json) == {"run", "step", "validation"}
        recipe = tmp_path / "train.toml"
        task = "way = 2\nquery = 3\nunknown_way = 2\n"
        recipe.write_text(
            f'stage = "train"\n[data]\ndataset = "{home / "data"}"\n[method]\nname = "feat"\n'
            f'[train]\nbackbone = "frozen"\ntasks = 9\n{task}[validation]\ntasks = 2\n{task}'
        )
        arguments = ["train", recipe, "--out", tmp_path / "two", "--init", tmp_path / "one", "--device", "cpu"]
        second = glocal(*arguments, "--set", "train.tasks=3", "--set", "method.temperature=2")
        assert second.code == 0, second.err
        assert "step 3" in second.err
        assert f"glocal evaluate {tmp_path / 'two'}" in second.out
        _, record = read_checkpoint(tmp_path / "two" / BEST)
        assert record["recipe"]["train"]["tasks"] == 3
        assert record["recipe"]["init"] == str(tmp_path / "one")
        assert record["method"]["settings"] == {"temperature": 2}
        assert load_model(tmp_path / "two").method.temperature == 2
        refused(glocal(*arguments), "already holds a run")
        refused(glocal(*arguments, "--resume"), "method.temperature (2 there, None now)")

    def test_what_the_user_can_mend(self, glocal: Any, home: Path, tmp_path: Path) -> None:
        recipe, out = home / "pretrain.json", ["--out", tmp_path / "run"]
        refused(glocal("train", recipe, *out), "is for `glocal pretrain`, not for `glocal train`")
        refused(glocal("pretrain", "no-recipe", *out), "recipe 'no-recipe' is neither")
        refused(glocal("pretrain", recipe, *out, "--set", "optimiser.lr=1"), "did you mean 'optimizer'?")
        refused(glocal("pretrain", recipe, *out, "--set", "optimizer.lr=0"), "optimizer.lr should be greater than 0")
        refused(glocal("pretrain", recipe, *out, "--set", "data.dataset=nowhere"), "dataset 'nowhere'")
        refused(glocal("pretrain", recipe, *out, "--resume"), "nothing to resume")
        refused(glocal("pretrain", recipe, "--out", home / "m.safetensors"), str(home / "m.safetensors"))
        assert not (tmp_path / "run").exists()


def test_errors_of_ours_end_with_2_and_others_are_shown(glocal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: Exception) -> Any:
        def listing(*found: Any) -> Any:
            raise error

        return listing

    monkeypatch.setattr(inventory, "_listing", fail(DataError("the sentence")))
    refused(glocal("list"), "the sentence")
    monkeypatch.setattr(inventory, "_listing", fail(ZeroDivisionError("a bug")))
    monkeypatch.setattr(sys, "argv", ["glocal", "list"])
    with pytest.raises(ZeroDivisionError):  # a traceback is what a bug report needs
        main.main()


def test_ctrl_c_in_any_command(glocal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*found: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(inventory, "_listing", interrupted)
    said = glocal("list")
    assert said.code == 130
    assert "Traceback" not in said.err


def hear_ctrl_c() -> None:
    """A shell that runs the tests in the background makes its children deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_while_evaluating(home: Path, tmp_path: Path) -> None:
    """A real process and a real signal, in the middle of far too many tasks."""
    command = [*GLOCAL, "evaluate", str(home / "m.safetensors"), "--dataset", str(home / "data")]
    shape = ["--way", "2", "--query", "3", "--tasks", "20000", "--device", "cpu", "--json"]
    environment = os.environ | {"GLOCAL_CACHE": str(tmp_path)}
    process = subprocess.Popen(
        [*command, *shape],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "banks").exists() and time.monotonic() < deadline:  # then the pictures are being encoded
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err


def test_the_last_checkpoint_can_be_evaluated_too(glocal: Any, home: Path, tmp_path: Path) -> None:
    glocal("pretrain", home / "pretrain.json", "--out", tmp_path / "run", "--device", "cpu")
    assert evaluate(glocal, home, "--json", model=str(tmp_path / "run" / LAST)).code == 0
