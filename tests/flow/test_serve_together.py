"""Several at once: two tabs, many clients, another program, and the next start of the server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from glocal_runtime import Recognizer
from photos import some
from serving import client, detail, ok, taught_names, teach, uploads


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


def test_undo_and_what_was_asked_survive_a_restart(tmp_path: Path) -> None:
    file, taught = tmp_path / "new.glocal", ["zero", "one", "two"]
    with client(file) as asking:
        teach(asking, tuple(taught), 2)
        asked = ok(asking.post("/predict", files=uploads("six", 20, 23)))
        ok(asking.delete("/classes/two"))
        before, review = ok(asking.get("/state")), ok(asking.get("/review"))
    with client(file) as asking:
        assert ok(asking.get("/state")) == before | {"findings": ok(asking.get("/state"))["findings"]}
        again = ok(asking.get("/review"))
        assert again["recent"] == review["recent"]  # answers too: what was kept is what was seen
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


def test_what_another_program_did_is_not_lost(tmp_path: Path) -> None:
    file = tmp_path / "new.glocal"
    with client(file) as asking:
        teach(asking, ("zero", "one"), 2)
        seen = ok(asking.get("/state"))["version"]
        other = Recognizer.load(file, device="cpu")
        other.add_class("two", some("two", 0, 2))
        other.save(file)
        late = asking.patch("/classes/one", json={"name": "uno"}, headers={"If-Match": str(seen)})
        assert detail(late, 409, "stale")
        ok(asking.patch("/classes/one", json={"name": "uno"}))
        assert taught_names(asking) == ["zero", "uno", "two"]
        ok(asking.post("/undo"))
        ok(asking.post("/undo"))
        assert taught_names(asking) == ["zero", "one"]
