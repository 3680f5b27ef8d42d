"""Commands in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import typer.main

from glocal.cli import main

Command: TypeAlias = Callable[..., tuple[int, str, str]]


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
