"""What every test gets: no time limits on a busy machine, a cache of its own, small pictures, and commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

# Some virtual machines announce matrix instructions (AMX) that they do not carry out, and bfloat16 would end the tests.
# oneDNN reads this when torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import typer.main
from hypothesis import settings

from glocal.cli import main
from glocal.research.data import embedded
from glocal.research.data.embedded import VAL_SCRIPTS, alphabet
from glocal.research.engine import loop
from tiny_runs import make_dataset

settings.register_profile("glocal", deadline=None)
settings.load_profile("glocal")
Command: TypeAlias = Callable[..., tuple[int, str, str]]
# The files that take longest come first: with two processes, nobody waits at the end for one that has just begun.
LONGEST = ("train_resume", "docs", "wheel", "export", "reproduce", "many_photos", "distributed", "demo")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {f"test_{name}": i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


@pytest.fixture(scope="module")
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all tests of a file."""
    return tmp_path_factory.mktemp(request.module.__name__.rpartition(".")[2])


@pytest.fixture(autouse=True)
def own_cache(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """No test reads or writes the cache of whoever runs it; those of a file that says ``ONE_CACHE`` share theirs."""
    together = getattr(request.module, "ONE_CACHE", False)
    folder = request.getfixturevalue("home") / "cache" if together else tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GLOCAL_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session", autouse=True)
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder that all processes of this run share, for what takes long to make."""
    own = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOCAL_TEST_RUN", str(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own))
        yield


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of 16 pixels, divided into train, val and test; nobody changes them."""
    return make_dataset(tmp_path_factory.mktemp("pictures") / "data")


@pytest.fixture
def few_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dozen printed characters to learn from and a dozen to validate with: all of them take ten seconds to draw."""
    of_val = {val: [each for each in alphabet() if (each.script in VAL_SCRIPTS) == val] for val in (True, False)}
    monkeypatch.setattr(embedded, "alphabet", lambda: [*of_val[True][:12], *of_val[False][:12]])


@pytest.fixture
def saved_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training saves after every step, as if each took as long as usually many."""
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)


@pytest.fixture(scope="session")
def program() -> Any:
    """All commands, put together once: typer does so at every call, which takes longer than most of them."""
    return typer.main.get_command(main.app)


@pytest.fixture
def glocal(program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """(exit code, what went to stdout, what went to stderr) of a command."""

    def call(*arguments: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(main, "app", program)
        monkeypatch.setattr(sys, "argv", ["glocal", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main.main()
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return call
