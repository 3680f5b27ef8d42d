"""Photos that take a decoder long, or end it: their own request is refused, and no other one waits for them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from glocal.recognizer import Recognizer
from glocal.serve import app, decoder
from glocal.serve.security import Limits, Settings
from hostile_photos import repeated_scan
from serving import client, connect, detail, everything, ok, taught_names, tiny_file, uploads
from waiting import wait_for

HOSTILE = [("images", ("slow.jpg", repeated_scan(7900, 90), "image/jpeg"))]


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "QUICK", 0.2)
    monkeypatch.setattr(decoder, "SLOW", 0.4)


def test_a_photo_that_takes_long_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with client(tiny_file(tmp_path)) as asking:
        for path, data in (("/predict", {}), ("/classes", {"name": "slow"}), ("/unknowns", {}), ("/check", {})):
            files = [("images", ("one/slow.jpg", *HOSTILE[0][1][1:]))] if path == "/check" else HOSTILE
            refusal = asking.post(path, data=data, files=[*files, *files])
            assert "slow.jpg takes more than 0.4 s" in detail(refusal, 422, "rule")
            assert refusal.json()["code"] == "slow-photo"
        assert taught_names(asking) == ["zero", "one"]


def test_nobody_waits_for_the_photos_of_another(tmp_path: Path) -> None:
    with client(tiny_file(tmp_path)) as asking, ThreadPoolExecutor(5) as others:
        hostile = [others.submit(asking.post, "/predict", files=HOSTILE) for _ in range(5)]
        for i in range(10):
            assert ok(asking.post("/predict", files=uploads("one", i, i + 1)))["answers"][0]["ok"]
            if i < 4:
                ok(asking.post("/classes", data={"name": f"new {i}"}, files=uploads("seven", 2 * i, 2 * i + 2)))
        assert {each.result().status_code for each in hostile} == {422}


def test_the_end_waits_for_no_photo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "SLOW", 1000.0)
    monkeypatch.setattr(app, "GRACE", 0.2)
    with ExitStack() as stack:
        with client(tiny_file(tmp_path)) as asking:
            form = httpx.Request("POST", f"{asking.base_url}/predict", files=HOSTILE * 30)
            head = "".join(f"{name}: {value}\r\n" for name, value in form.headers.items())
            one = stack.enter_context(connect(str(asking.base_url)))
            one.sendall(f"POST /predict HTTP/1.1\r\n{head}\r\n".encode() + form.read())
            wait_for(lambda: "glocal_queue_pictures 30.0" in asking.get("/metrics").text)
            began = time.monotonic()
        assert time.monotonic() - began < 20
        answer = everything(one)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b'"code":"stopping"' in answer


def test_photos_that_take_long_to_encode_change_nothing(tmp_path: Path) -> None:
    hurried = Settings(limits=Limits(answer_seconds=0))
    for file, names in ((tiny_file(tmp_path), ["zero", "one"]), (tmp_path / "new.glocal", [])):
        with client(file, settings=hurried) as asking:
            for path, data in (("/classes", {"name": "slow"}), *([("/photos", {"class": "one"})] if names else [])):
                refusal = asking.post(path, data=data, files=uploads("six", 0, 2))
                assert "too long to encode" in detail(refusal, 422, "rule")
                assert refusal.json()["code"] == "slow-encoder"
            assert taught_names(asking) == names


def test_a_process_that_was_ended_is_replaced(tmp_path: Path) -> None:
    before = {each.pid for each in multiprocessing.active_children()}
    with client(tiny_file(tmp_path)) as asking:
        for _ in range(2):
            assert ok(asking.post("/predict", files=uploads("one", 0, 1)))["answers"][0]["ok"]
            for each in multiprocessing.active_children():
                if each.pid not in before:
                    os.kill(each.pid or 0, signal.SIGKILL)
            time.sleep(0.5)
        assert ok(asking.post("/predict", files=uploads("one", 0, 1)))["answers"][0]["ok"]


def test_answers_are_those_of_the_recognizer(tmp_path: Path) -> None:
    """A photo is cut once: the model of this file enlarges even photos of its own size."""
    file = tiny_file(tmp_path)
    photos = uploads("one", 0, 4)
    expected = Recognizer.load(file, device="cpu").predict([data for _, (_, data, _) in photos])
    with client(file) as asking:
        answers = ok(asking.post("/predict", files=photos))["answers"]
        assert [each["open_score"] for each in answers] == pytest.approx([each.open_score for each in expected])
        ok(asking.post("/photos", data={"class": "one"}, files=uploads("one", 30, 32)))
    taught = Recognizer.load(file, device="cpu").contents.support.photos
    alone = Recognizer.load(tiny_file(tmp_path), device="cpu")
    alone.add_photos("one", [data for _, (_, data, _) in uploads("one", 30, 32)])
    assert [each.digest for each in taught] == [each.digest for each in alone.contents.support.photos]
