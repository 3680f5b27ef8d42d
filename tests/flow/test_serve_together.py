"""Several at once: two tabs, many clients, another program, and the next start of the server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from glocal.recognizer import Recognizer
from glocal.serve.workspace import Workspace
from photos import some
from serving import client, detail, ok, rename, taught_names, teach, tiny_file, uploads


def test_two_tabs_do_not_lose_each_others_changes_and_those_at_the_same_time_all_happen(tmp_path: Path) -> None:
    with client(tmp_path / "digits.glocal") as asking:
        teach(asking, ("zero", "one"), 2)
        version = ok(asking.get("/state"))["version"]
        seen = {"If-Match": str(version)}
        ok(asking.post("/classes", data={"name": "first"}, files=uploads("six", 0, 2), headers=seen))
        late = asking.patch("/classes/one", json={"name": "uno"}, headers=seen)
        assert "meant for version" in detail(late, 409, "stale")
        assert late.json()["version"] == version + 1
        assert taught_names(asking) == ["zero", "one", "first"]
        again = asking.patch("/classes/one", json={"name": "uno"}, headers={"If-Match": f'"{version + 1}"'})
        assert again.headers["etag"] == f'"{ok(again)["version"]}"'
        assert taught_names(asking) == ["zero", "uno", "first"]
        for odd in ("0", "x", "", 'W/"1"', "-1"):
            assert detail(asking.post("/undo", headers={"If-Match": odd}), 409, "stale")

        start = threading.Barrier(4)

        def add(i: int) -> int:
            start.wait()
            form = {"data": {"name": f"new {i}"}, "files": uploads("seven", 2 * i, 2 * i + 2)}
            return int(ok(asking.post("/classes", **form))["version"])  # type: ignore[arg-type]

        with ThreadPoolExecutor(4) as tabs:
            assert sorted(tabs.map(add, range(4))) == list(range(version + 3, version + 7))
        assert sorted(taught_names(asking)[3:]) == [f"new {i}" for i in range(4)]


def test_undo_survives_a_restart_and_with_a_folder_recent_photos_do(tmp_path: Path) -> None:
    file, taught, recent = tmp_path / "new.glocal", ["zero", "one", "two"], tmp_path / "recent"
    with client(file, recent=recent) as asking:
        teach(asking, tuple(taught), 2)
        asked = ok(asking.post("/predict", files=uploads("six", 20, 23)))
        ok(asking.delete("/classes/two"))
        before, review = ok(asking.get("/state")), ok(asking.get("/review"))
    with client(file) as asking:
        assert ok(asking.get("/review"))["recent"] == []
    with client(file, recent=recent) as asking:
        assert ok(asking.get("/state")) == before | {"findings": ok(asking.get("/state"))["findings"]}
        again = ok(asking.get("/review"))
        for one, other in zip(again["recent"], review["recent"], strict=True):
            assert one == other | {name: pytest.approx(other[name], rel=1e-4) for name in ("open_score", "probability")}
        assert {each["id"] for each in again["recent"]} == {each["id"] for each in asked["answers"]}
        assert [each["id"] for each in again["groups"]] == [each["id"] for each in review["groups"]]
        ok(asking.post("/undo"))
        assert taught_names(asking) == taught
        for _ in taught:
            ok(asking.post("/undo"))
        assert (taught_names(asking), file.exists()) == ([], False)
        end = asking.post("/undo")
        assert detail(end, 422, "rule") == "there is nothing to undo"
        assert end.json()["code"] == "nothing-to-undo"
        ok(asking.post("/redo"))
        assert (taught_names(asking), file.exists()) == (["zero"], True)


def elsewhere(file: Path, change: Callable[[Recognizer], object]) -> Recognizer:
    """What another program made of the file."""
    other = Recognizer.load(file, device="cpu")
    change(other)
    other.save(file)
    return other


def test_what_another_program_did_is_not_lost(tmp_path: Path) -> None:
    file = tmp_path / "new.glocal"
    with client(file) as asking:
        teach(asking, ("zero", "one"), 2)
        seen = ok(asking.get("/state"))["version"]
        elsewhere(file, lambda other: other.add_class("two", some("two", 0, 2)))
        late = asking.patch("/classes/one", json={"name": "uno"}, headers={"If-Match": str(seen)})
        assert detail(late, 409, "stale")
        ok(asking.patch("/classes/one", json={"name": "uno"}))
        assert taught_names(asking) == ["zero", "uno", "two"]
        ok(asking.post("/undo"))
        ok(asking.post("/undo"))
        assert taught_names(asking) == ["zero", "one"]


def test_who_only_asks_gets_the_answer_of_what_another_program_made(tmp_path: Path) -> None:
    file = tmp_path / "new.glocal"
    with client(file) as asking:
        teach(asking, ("zero", "one"), 3)
        before = ok(asking.get("/health"))
        other = elsewhere(file, lambda other: other.add_class("two", some("two", 0, 3)))
        [answer] = ok(asking.post("/predict", files=uploads("two", 20, 21)))["answers"]
        assert "two" in answer["probabilities"]
        assert ok(asking.get("/health"))["version"] == before["version"] + 1
        assert ok(asking.get("/state"))["undo_label"] == "a change by another program"

        whole = file.read_bytes()
        file.write_bytes(whole[:1000])  # as somebody copies it, not yet at the end
        assert ok(asking.get("/health"))["version"] == before["version"] + 1
        assert len(ok(asking.post("/predict", files=uploads("two", 20, 21)))["answers"]) == 1
        other.remove_class("one")
        other.save(tmp_path / "other.glocal")
        file.write_bytes((tmp_path / "other.glocal").read_bytes())
        assert taught_names(asking) == ["zero", "two"]
        version = ok(asking.get("/health"))["version"]
        file.touch()
        assert ok(asking.get("/health"))["version"] == version, "the same photos in a file of another time"


def test_the_example_is_taught_to_an_empty_page_and_undone(tmp_path: Path) -> None:
    with client(tmp_path / "new.glocal") as asking:
        assert ok(asking.get("/state"))["example"] is True
        done = ok(asking.post("/example"))
        assert done["message"] == "example taught"
        assert taught_names(asking) == ["zero", "one", "two", "three"]
        pictures = [asking.get(f"/example/{i}").content for i in range(6)]
        files = [("images", (f"{i}.png", each, "image/png")) for i, each in enumerate(pictures)]
        answers = [each["label"] for each in ok(asking.post("/predict", files=files))["answers"]]
        assert answers[:4] == ["zero", "one", "two", "three"]
        assert asking.get("/example/6").status_code == 422
        assert "4 classes" in detail(asking.post("/example"), 422, "rule")
        ok(asking.post("/undo"))
        assert taught_names(asking) == []


def test_downloads_are_named_after_the_recognizer(tmp_path: Path) -> None:
    with client(tmp_path / 'my "ß" parts.glocal') as asking:
        teach(asking, ("zero", "one"), 2)
        named = asking.get("/export/file").headers["content-disposition"]
        assert 'filename="my ___ parts.glocal"' in named
        assert "filename*=UTF-8''my%20%22%C3%9F%22%20parts.glocal" in named
        assert 'parts-answers.csv"' in asking.get("/export/results.csv").headers["content-disposition"]


def written_after_reading(monkeypatch: pytest.MonkeyPatch, file: Path, *, times: int) -> None:
    """Another program writes so often right after this one has read the file: each time one more class."""
    load, left = Recognizer.load, iter(("two", "three", "four", "five", "six", "seven")[:times])

    def loaded(path: Path, **how: Any) -> Recognizer:
        found = load(path, **how)
        if path == file and (word := next(left, None)) is not None:
            other = load(path, device="cpu")
            other.add_class(word, some(word, 0, 2))
            other.save(file)
        return found

    monkeypatch.setattr(Recognizer, "load", loaded)


@pytest.mark.parametrize("when", ["start", "take in", "change"])
def test_what_another_program_writes_right_after_reading_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    file = tiny_file(tmp_path)
    with monkeypatch.context() as patch:
        if when == "start":
            written_after_reading(patch, file, times=2)
        served = Workspace(file, device="cpu")
        if when != "start":
            elsewhere(file, lambda other: other.set_threshold(value=1.0))
            written_after_reading(patch, file, times=2)
            served.take_in() if when == "take in" else rename(served, "zero", "null")
    rename(served, "one", "uno")
    served.close()
    first = "null" if when == "change" else "zero"
    assert Recognizer.load(file, device="cpu").classes == (first, "uno", "two", "three")
