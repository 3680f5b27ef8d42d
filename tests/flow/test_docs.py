"""The documentation tells the truth: its code runs, its links lead somewhere, its commands exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main

from glocal import __version__
from glocal.cli.main import app
from glocal.research.backbones import BACKBONES
from glocal.research.data import DATASETS
from glocal.research.engine.recipe import shipped_recipes
from glocal.research.methods import METHODS
from glocal.research.metrics import METRICS

ONE_CACHE = True  # pictures are drawn and encoded once for all pages
ROOT = Path(__file__).parents[2]
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PAGES = [ROOT / name for name in TOP] + sorted(ROOT.glob("docs/**/*.md"))
WALK = ROOT / "docs/walk.md"  # test_tutorial.py runs it line by line
RUNNABLE = [page for page in PAGES if page != WALK and "\n```python\n" in page.read_text("utf-8")]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "sh", "toml", "text", "bibtex"}  # another one would escape the tests below
OTHER_PROGRAMS = {"make", "pip", "python", "curl", "source", "docker", "export", "for", "sudo"}
NUMBER = re.compile(r"^(\w+) +(\d\.\d+) ±", re.MULTILINE)


class Block(NamedTuple):
    language: str
    line: int  # of its first line of code in the page
    code: str


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text("utf-8")
    found = [Block(m[1], text.count("\n", 0, m.start(2)) + 1, m[2]) for m in FENCE.finditer(text)]
    return [block for block in found if block.language == language]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def registries() -> Iterator[None]:
    """What a page registers is gone when the page ends, also when it ends badly."""
    before: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (registry, dict(registry)) for registry in (METHODS, BACKBONES, DATASETS, METRICS)
    ]
    yield
    for registry, entries in before:
        registry.clear()
        registry.update(entries)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_fence_is_closed_and_of_a_known_language(page: Path):
    text = page.read_text("utf-8")
    assert {match[1] for match in FENCE.finditer(text)} <= LANGUAGES
    assert text.count("```") == 2 * len(FENCE.findall(text))


@pytest.mark.usefixtures("registries", "few_characters")
@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_python_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks run in order in one namespace; numbers that a page shows are those it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GLOCAL_DATA", raising=False)
    code = blocks(page, "python")
    namespace: dict[str, Any] = {"__name__": f"docs.{page.stem}"}
    for block in code:  # the empty lines make a traceback show the line of the page
        exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), namespace)

    printed = NUMBER.findall(capsys.readouterr().out)
    shown = [found for block in blocks(page, "text") for found in NUMBER.findall(block.code)]
    for (metric, value), (shown_metric, shown_value) in zip(printed, shown or printed, strict=True):
        assert shown_metric == metric
        assert float(shown_value) == pytest.approx(float(value), abs=0.005)


def test_pages_that_teach_by_code_have_some():
    assert {*ROOT.glob("docs/how-to/add-*.md"), ROOT / "docs/research.md"} <= set(RUNNABLE)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_toml_can_be_read(page: Path):
    for block in blocks(page, "toml"):
        assert tomllib.loads(block.code)


def commands() -> list[tuple[str, list[str]]]:
    """(page:line, words) of every command in a shell block; a backslash joins lines, a # starts a comment."""
    found = []
    for page in PAGES:
        for block in blocks(page, "sh"):
            joined = re.sub(r"\\\n", lambda _: " ", block.code)
            for line in joined.splitlines():
                words = shlex.split(line.partition(" > ")[0], comments=True)
                if words:
                    found.append((f"{name(page)}:{block.line}", words))
    return found


def program_of(words: list[str]) -> tuple[str, list[str]]:
    """Without ``NAME=value`` in front and without the folder of the program."""
    while "=" in words[0]:
        words = words[1:]
    return words[0].rpartition("/")[2], words[1:]


@cache
def program() -> dict[tuple[str, ...], Any]:
    """Every command and every group of commands, by the words that lead to it; the empty tuple is ``glocal``."""
    found, waiting = {}, [((), typer.main.get_command(app))]
    while waiting:
        words, command = waiting.pop()
        found[words] = command
        waiting += [((*words, word), each) for word, each in getattr(command, "commands", {}).items()]
    return found


def called(arguments: list[str]) -> tuple[str, ...]:
    """The words of ``arguments`` that name a command, as many as do."""
    known = program()
    return max((words for n in range(3) if (words := tuple(arguments[:n])) in known), key=len)


def problem_with(arguments: list[str]) -> str | None:
    """What ``glocal`` would object to in its arguments, found without running anything."""
    words = called(arguments)
    command, rest = program()[words], arguments[len(words) :]
    if hasattr(command, "commands"):
        known = {"--help", *(option for parameter in command.params for option in parameter.opts)}
        asked = rest[0] if rest else "(nothing)"
        return None if asked in known else f"no {'option' if asked.startswith('-') else 'command'} {asked}"
    try:
        context = command.make_context(words[-1], rest)
    except Exception as error:  # its class moved between versions of typer
        return str(error)
    recipe = context.params.get("recipe", "")
    return f"no recipe {recipe}" if recipe and recipe not in (*shipped_recipes(), Path(recipe).stem + ".toml") else None


def test_glocal_commands_parse():
    """Command, options, arguments and their types are those of the program."""
    used = [(where, *program_of(words)) for where, words in commands()]
    calls = [(where, arguments) for where, program, arguments in used if program == "glocal"]
    problems = {f"{where}: glocal {' '.join(arguments)}": problem_with(arguments) for where, arguments in calls}
    assert {line: problem for line, problem in problems.items() if problem} == {}
    commands_there = {words for words, command in program().items() if not hasattr(command, "commands")}
    assert commands_there - {called(arguments) for _, arguments in calls} == set(), "a command is not shown"


def test_make_targets_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    used = {target for _, words in commands() if words[0] == "make" for target in words[1:]}
    assert {"demo", "test"} <= used <= targets


def test_programs_files_and_extras_that_commands_name_exist():
    """What is neither ours nor of every system would be a misprint; so would a script or an extra that is not there."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    used = [(where, *program_of(words)) for where, words in commands()]
    assert {program for _, program, _ in used} <= {"glocal", *OTHER_PROGRAMS}
    for where, program, arguments in used:
        text = " ".join(arguments)
        for named in re.findall(r"\b(?:glocal|whl|\.)\[([\w,]+)\]", text) if program == "pip" else []:
            assert set(named.split(",")) <= extras.keys(), f"{where}: no extra {named}"
        for path in re.findall(r"(?:tools|tests|benchmarks)/[\w./-]+", text) if program == "python" else []:
            assert (ROOT / path).exists(), f"{where}: there is no {path}"


def links(page: Path) -> list[str]:
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text("utf-8")))
    return re.findall(r"\]\(([^)\s]+)\)", prose) + re.findall(r'(?:src|href)="([^"]+)"', prose)


def anchors(page: Path) -> set[str]:
    """Headings as GitHub turns them into anchors."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path):
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)} links to {link}, which is not there"
        assert target.is_relative_to(ROOT), f"{name(page)} links to {link}, outside the repository"
        if anchor:
            assert anchor in anchors(target), f"{name(page)} links to {link}, and there is no such heading"


def test_every_page_can_be_reached_from_the_readme():
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        linked = {(page.parent / link.partition("#")[0]).resolve() for link in links(page) if ".md" in link}
        waiting.extend(linked - reached)
    assert reached == set(PAGES)


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == __version__
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
