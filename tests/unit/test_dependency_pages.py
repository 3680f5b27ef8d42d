"""What is said of the dependencies: for each pinned version, or not at all."""

from __future__ import annotations

import io
import json
import re
import urllib.error
from importlib.metadata import PackageNotFoundError, PathDistribution
from pathlib import Path

import pytest

import advisories
import licences

PAGE = Path(__file__).parents[2] / "docs/licences.md"


def test_the_page_of_licences_has_the_pinned_names_and_versions() -> None:
    rows = re.findall(r"^\| (\S+) \| (\S+) \| ([^|]+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    found = {name: version for name, version, _ in rows if name != "package"}
    assert found == advisories.pinned()
    assert all("not installed" not in licence for _, _, licence in rows)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that pins one and two; what is installed lies in the folder."""
    (tmp_path / "constraints.txt").write_text("# tested\none==1.0\ntwo==2.0+cpu\n")
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["one>=1"]\n[project.optional-dependencies]\n')

    def distribution(name: str) -> PathDistribution:
        if not (tmp_path / name).exists():
            raise PackageNotFoundError(name)
        return PathDistribution(tmp_path / name)

    for module in (licences, advisories):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(licences, "distribution", distribution)
    return tmp_path


def install(site: Path, name: str, version: str) -> None:
    (site / name).mkdir(exist_ok=True)
    told = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nLicense-Expression: MIT\n"
    (site / name / "METADATA").write_text(told)


def test_no_page_is_written_where_a_pinned_package_is_not_installed(site: Path, capsys: pytest.CaptureFixture[str]):
    page = site / "licences.md"
    page.write_text("as it was")
    install(site, "one", "1.0")
    assert licences.main([str(page)]) == 1
    assert "1 of 2 packages of constraints.txt are not installed here in the pinned version: two" in (
        capsys.readouterr().err
    )
    install(site, "two", "2.1")  # another version may have another licence
    assert licences.main([str(page)]) == 1
    assert page.read_text() == "as it was"
    install(site, "two", "2.0+cpu")
    assert licences.main([str(page)]) == 0
    assert "| one | 1.0 | MIT |  |\n| two | 2.0 | MIT | x |" in page.read_text()


@pytest.mark.parametrize(
    ("answers", "code", "words"),
    [
        ({}, 2, "0 of 2"),  # nobody answers: that is not the same as nothing known
        ({"one": []}, 0, "1 of 2"),
        ({"one": [], "two": []}, 0, "2 of 2"),
        ({"one": ["PYSEC-1"]}, 1, "one 1.0: PYSEC-1"),
    ],
)
def test_advisories_tell_nothing_known_from_nobody_asked(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answers, code: int, words: str
) -> None:
    def urlopen(address: str, timeout: float) -> io.BytesIO:
        name, version = address.removeprefix(f"{advisories.INDEX}/").split("/")[:2]
        if name not in answers or version == "json":
            raise urllib.error.URLError("no network")
        ids = [{"id": each} for each in answers[name]]
        return io.BytesIO(json.dumps({"info": {"version": version}, "vulnerabilities": ids}).encode())

    monkeypatch.setattr(advisories.urllib.request, "urlopen", urlopen)
    assert advisories.main() == code
    assert words in capsys.readouterr().out
