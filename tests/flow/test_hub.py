"""Encoders from repositories of a hub, and recognizers to and from one: a stand-in of its endpoint on this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from glocal.common.hub import Repository
from glocal.recognizer import Recognizer
from glocal.recognizer.encoders.file import EncoderFile
from hub import hub, python
from photos import some
from refusal import refused
from tiny_graphs import repository

pytest.importorskip("huggingface_hub", reason="pip install 'glocal[hub]'")

COMMAND = "from glocal.cli.main import main\nmain()"


def sentence(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    for word in words:
        assert word in done.stderr


def test_a_repository_is_fetched_once_and_used_offline(tmp_path: Path) -> None:
    repository(tmp_path / "hub" / "maker" / "net")
    (tmp_path / "hub" / "maker" / "net" / "pytorch_model.bin").write_bytes(b"a pickle")
    out, home = tmp_path / "net.encoder", tmp_path / "home"
    with hub(tmp_path / "hub") as server:
        done = python(home, COMMAND, "encoder", "hf:maker/net", "-o", out, HF_ENDPOINT=server.address)
        assert done.returncode == 0, done.stderr
        fetched = {path.rpartition("/")[2] for path in server.asked if "/resolve/" in path}
        wanted = {"model.onnx", "model.onnx_data", "config.json", "preprocessor_config.json", "README.md"}
        assert fetched == wanted
    made = EncoderFile.read(out)
    assert (made.name, made.source, made.licence) == ("net", "hf:maker/net", "apache-2.0")
    for more in ({"HF_HUB_OFFLINE": "1"}, {}):  # with the setting, and without a network
        done = python(home, COMMAND, "encoder", "hf:maker/net", "-o", out, "--force", **more)
        assert done.returncode == 0, done.stderr
        assert EncoderFile.read(out) == made


def test_what_a_hub_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    out, home = tmp_path / "x.encoder", tmp_path / "home"
    with hub(tmp_path / "hub") as server:
        asked = python(home, COMMAND, "encoder", "hf:maker/nothing", "-o", out, HF_ENDPOINT=server.address)
    sentence(asked, "maker/nothing")
    sentence(python(home, COMMAND, "encoder", "hf:maker/other", "-o", out), "maker/other", "folder")
    assert not out.exists()
    with refused("no-repository", "../net", "hf:ORG/NAME"):
        Repository("hf:../net")


@pytest.mark.parametrize(
    ("lies", "words"),
    [
        ({"siblings": [{"rfilename": "../../../../out.glocal"}]}, "out.glocal"),
        ({"siblings": [{"rfilename": 5}]}, "maker/net"),
        ({"siblings": [{}]}, "maker/net"),
        ({"sha": "../../../../out"}, "'../../../../out'"),
    ],
)
def test_what_a_hub_may_not_answer(lies: dict[str, object], words: str, tmp_path: Path) -> None:
    (tmp_path / "hub" / "maker" / "net").mkdir(parents=True)
    (tmp_path / "hub" / "maker" / "net" / "r.glocal").write_bytes(b"other bytes")
    code = "from glocal import Recognizer\nfrom glocal.common.errors import GlocalError\nimport sys\n"
    code += "try:\n Recognizer.load('hf:maker/net')\nexcept GlocalError as error:\n sys.exit(f'{error.code}: {error}')"
    with hub(tmp_path / "hub") as server:
        server.lies.update(lies)
        done = python(tmp_path / "home", code, HF_ENDPOINT=server.address)
    assert done.stderr.splitlines()[-1].startswith("no-hub: ")
    assert words in done.stderr.splitlines()[-1]
    assert not list(tmp_path.rglob("out*"))


def test_a_name_that_no_repository_can_have() -> None:
    with refused("no-repository", "maker/a--b"):
        Repository("hf:maker/a--b").fetch(list)


def test_a_recognizer_goes_to_a_hub_and_comes_back(tmp_path: Path) -> None:
    file, home = tmp_path / "digits.glocal", tmp_path / "home"
    Recognizer.enroll({"one": some("one", 0, 4), "a|b": some("zero", 0, 4)}).save(file)
    (tmp_path / "hub").mkdir()
    with hub(tmp_path / "hub") as server:
        where = {"HF_ENDPOINT": server.address, "HF_TOKEN": "a-token-of-nobody"}
        done = python(home, COMMAND, "push", file, "hf:me/digits", **where)
        assert done.returncode == 0, done.stderr
        fields = server.made["me/digits"]
        assert fields.get("visibility") == "private" or fields.get("private"), fields
        code = "import sys; from glocal import Recognizer; print(Recognizer.load(sys.argv[1]).contents.identity)"
        loaded = python(home, code, "hf:me/digits", **where)
        assert loaded.stdout.strip() == Recognizer.load(file).contents.identity, loaded.stderr
        shutil.copy(file, tmp_path / "hub" / "me" / "digits" / "second.glocal")
        twice = python(tmp_path / "home2", code, "hf:me/digits", **where)
        assert "2 .glocal files" in twice.stderr.splitlines()[-1]
    card = (tmp_path / "hub" / "me" / "digits" / "README.md").read_text()
    assert "library_name: glocal" in card
    assert "| a\\|b | 4 |" in card
    assert "apache-2.0" in card
    assert "false unknowns: 5 %" in card
    assert 'Recognizer.load("hf:me/digits")' in card
