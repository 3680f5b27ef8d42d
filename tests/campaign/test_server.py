"""A server under load, attack and misfortune: everybody is answered or refused, and no acknowledged change is lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from campaign.processes import Served, image_disk, serving, small_disk
from campaign.results import keep
from glocal.recognizer import Recognizer
from glocal.serve.workspace import Workspace
from serving import PAGE, taught_names, tiny_file, uploads

pytestmark = pytest.mark.campaign
SECONDS = float(os.environ.get("GLOCAL_CAMPAIGN_SECONDS", "600"))
CLIENTS, KILLS, CUTS = 64, 50, 14


def told(name: str, counts: Counter[str], about: str) -> None:
    """``counts`` by good, refused and wrong."""
    record = {"tried": counts.total(), "about": about} | {each: counts[each] for each in ("good", "refused", "wrong")}
    keep("server", name, record)
    assert counts["good"]
    assert not counts["wrong"], counts


def asking(served: Served, seconds: float = 60) -> httpx.Client:
    return httpx.Client(base_url=served.address, headers=PAGE, timeout=seconds)


def place(served: Served) -> tuple[str, int]:
    where = urlsplit(served.address)
    assert where.hostname is not None
    assert where.port is not None
    return where.hostname, where.port


def kind_of(answer: httpx.Response) -> str:
    if answer.status_code == 200:
        return "good"
    return "refused" if answer.status_code in (409, 422, 429) and "code" in answer.json() else "wrong"


def test_load(tmp_path: Path) -> None:
    """Each client knows what its own pictures are called by, and nobody gets the answer of another."""
    counts: Counter[str] = Counter()
    lock = threading.Lock()
    with serving(tiny_file(tmp_path)) as served:
        until = time.monotonic() + SECONDS

        def client(number: int) -> None:
            with asking(served, 120) as one:
                turn = 0
                while time.monotonic() < until:
                    turn, start, word = turn + 1, (7 * number + turn) % 90, ("one", "zero", "six")[turn % 3]
                    sent = range(start, start + 1 + turn % 3)
                    answer = one.post("/predict", files=uploads(word, sent.start, sent.stop))
                    outcome = kind_of(answer)
                    if outcome == "good":
                        names = [each["name"] for each in answer.json()["answers"]]
                        outcome = "good" if names == [f"{word}-{i}.png" for i in sent] else "wrong"
                    with lock:
                        counts[outcome] += 1

        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(client, range(CLIENTS)))
        assert "Traceback" not in served.said()
    told("load", counts, f"{CLIENTS} clients for {SECONDS:g} s; answers that were crossed count as wrong")


def test_slow_clients_and_disconnects(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    rng = random.Random(1)
    whole = httpx.Request("POST", "http://localhost/predict", files=uploads("one", 0, 3))
    head = "".join(f"{name}: {value}\r\n" for name, value in whole.headers.items())
    raw = f"POST /predict HTTP/1.1\r\n{head}\r\n".encode() + whole.read()
    with serving(tiny_file(tmp_path)) as served, asking(served) as good, ExitStack() as stack:
        for i in range(300):
            one = socket.create_connection(place(served), timeout=20)
            with suppress(OSError):
                one.sendall(raw[: rng.randrange(len(raw) + 1)])
            if i % 3 == 0:  # stays, and says no more
                stack.callback(one.close)
            else:
                if i % 3 == 1:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # ends with a reset
                one.close()
            if i % 10 == 0:
                counts[kind_of(good.post("/predict", files=uploads("one", 0, 1)))] += 1
        counts["wrong"] += 'status="5' in good.get("/metrics").text or "Traceback" in served.said()
    told("slow clients, abrupt disconnects", counts, "300 of them; counted are the requests of somebody else meanwhile")


def test_a_crowd(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    with serving(tiny_file(tmp_path), descriptors=1024) as served, ExitStack() as stack:
        for i in range(1500):
            with suppress(OSError):
                stack.enter_context(socket.create_connection(place(served), timeout=5))
            if i % 50 == 0:
                with asking(served) as good:
                    counts[kind_of(good.post("/predict", files=uploads("one", 0, 1)))] += 1
        size = served.log.stat().st_size
        counts["wrong"] += size > 100_000 or "Traceback" in served.said()
    told("idle connections", counts, f"1,500 at 1,024 descriptors; counted are other requests; log of {size} bytes")


def test_full_disk(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    with small_disk(tmp_path / "disk", "3m") as disk:
        file = tiny_file(disk)
        with serving(file) as served, asking(served) as one:
            for turn in range(10):
                left = os.statvfs(disk)
                filler = disk / "filler"
                filler.write_bytes(bytes(max(0, left.f_bavail * left.f_bsize - turn * 4096)))
                name = taught_names(one)[0]
                refused = one.patch(f"/classes/{name}", json={"name": f"full {turn}"})
                counts[kind_of(refused)] += 1
                counts[kind_of(one.post("/predict", files=uploads("one", turn, turn + 2)))] += 1
                counts[kind_of(one.post("/undo"))] += 1
                filler.unlink()
                name = taught_names(one)[0]
                changed = one.patch(f"/classes/{name}", json={"name": f"free {turn}"})
                counts["good" if changed.status_code == 200 else "wrong"] += 1
                found = Recognizer.load(file, device="cpu").classes
                counts["good" if found == tuple(taught_names(one)) else "wrong"] += 1
            time.sleep(2)
            remembered = len(list((disk / f"{file.name}.history/queries").glob("*.safetensors")))
            counts["good" if remembered >= 10 else "wrong"] += 1  # what was asked meanwhile is on the disk now
            counts["wrong"] += "Traceback" in served.said() or len(list(disk.rglob("*.partial")))
    told("full disk", counts, "3 MB, filled and freed ten times; changes, undo, questions, and the file after each")


def test_read_only_folder(tmp_path: Path) -> None:
    """Folders that nobody may change, not even the superuser."""
    counts: Counter[str] = Counter()
    file = tiny_file(tmp_path)

    def closed(sign: str) -> None:
        folders = [tmp_path, *(path for path in tmp_path.rglob("*") if path.is_dir())]
        done = subprocess.run(["chattr", sign, *map(str, folders)], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("folders cannot be closed here")

    with serving(file) as served, asking(served) as one:
        for turn in range(5):
            closed("+i")
            try:
                before = file.read_bytes()
                counts[kind_of(one.post("/predict", files=uploads("one", turn, turn + 1)))] += 1
                for answer in (one.post("/undo"), one.put("/threshold", json={"value": 1.0})):
                    counts["refused" if kind_of(answer) == "refused" else "wrong"] += 1
                counts["good" if file.read_bytes() == before else "wrong"] += 1
            finally:
                closed("-i")
            changed = one.put("/threshold", json={"value": float(turn)})
            counts["good" if changed.status_code == 200 else "wrong"] += 1
        counts["wrong"] += "Traceback" in served.said()
    told("read-only folder", counts, "closed and opened again five times; nothing is written and nothing is lost")


def test_file_replaced(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    file = tiny_file(tmp_path)
    others = []
    for words in (("two", "three"), ("six", "seven", "eight")):
        (tmp_path / words[0]).mkdir()
        others.append(tiny_file(tmp_path / words[0], words=words).read_bytes())
    with serving(file) as served, asking(served) as one:
        for turn in range(20):
            data = others[turn % 2] if turn % 4 < 2 else others[turn % 2][: 1000 * turn]
            if turn % 4 < 2:
                (tmp_path / "new").write_bytes(data)
                os.replace(tmp_path / "new", file)
            else:
                file.write_bytes(data)
            changed = one.put("/threshold", json={"value": float(turn)})
            counts[kind_of(changed)] += 1
            if turn % 4 < 2:
                found = Recognizer.load(file, device="cpu").threshold.value
                counts["wrong"] += (changed.status_code, found) != (200, turn)
            counts[kind_of(one.post("/predict", files=uploads("one", 0, 1)))] += 1
        counts["wrong"] += "Traceback" in served.said()
    told("file replaced underneath", counts, "by other recognizers, and by pieces of them, which are refused")


def test_sigterm_in_flight(tmp_path: Path) -> None:
    """At five moments of a crowd: while it connects, while all ask for the first time, when they have asked often."""
    counts: Counter[str] = Counter()
    file = tiny_file(tmp_path)
    for moment in (0.1, 0.3, 1.0, 2.0, 4.0):
        with serving(file) as served:

            def ask(i: int, served: Served = served) -> Counter[str]:
                """Again and again on one connection, until it is sent away."""
                found: Counter[str] = Counter()
                with asking(served) as one:
                    while not found["refused"] + found["wrong"]:
                        try:
                            answer = one.post("/predict", files=uploads("one", i, i + 4))
                            ending = answer.status_code == 503 and answer.json()["code"] == "ending"
                            found["refused" if ending else kind_of(answer)] += 1
                        except httpx.ConnectError:
                            found["refused"] += 1
                        except httpx.HTTPError as error:
                            print(f"after {found['good']} answers: {error!r}")
                            found["wrong"] += 1  # connected, and not answered
                return found

            with ThreadPoolExecutor(CLIENTS) as pool:
                asked = [pool.submit(ask, i) for i in range(CLIENTS)]
                time.sleep(moment)
                os.kill(served.process.pid or 0, signal.SIGTERM)
                counts.update(sum((each.result() for each in asked), Counter()))
            served.process.join(90)
            counts["good" if served.process.exitcode == 0 else "wrong"] += 1
            counts["wrong"] += "Traceback" in served.said()
    about = f"{CLIENTS} clients that ask until they are sent away, five times; refused: not connected any more, or 503"
    told("SIGTERM with requests in flight", counts, about)


def test_sigkill_in_a_save(tmp_path: Path) -> None:
    """After each: the file is whole and has every change that was acknowledged; the next start goes on."""
    counts: Counter[str] = Counter()
    file, rng, last = tiny_file(tmp_path), random.Random(1), "one"
    for kill in range(KILLS):
        with serving(file) as served:
            acknowledged: list[str] = [last]

            def change(served: Served = served, kill: int = kill, done: list[str] = acknowledged) -> None:
                with suppress(httpx.HTTPError), asking(served) as one:
                    for turn in range(1000):
                        new = f"k{kill}t{turn}"
                        if one.patch(f"/classes/{done[-1]}", json={"name": new}).status_code != 200:
                            done.append("lost")
                            return
                        done.append(new)

            with ThreadPoolExecutor(1) as pool:
                changing = pool.submit(change)
                time.sleep(rng.uniform(0.05, 0.6))
                served.process.kill()
                changing.result()
        found = Recognizer.load(file, device="cpu").classes[1]
        turn = int(acknowledged[-1].partition("t")[2] or -1) if len(acknowledged) > 1 else -1
        fine = found in (acknowledged[-1], f"k{kill}t{turn + 1}")
        counts["good" if fine else "wrong"] += 1
        last = found
    told("SIGKILL in a save", counts, "at random moments of changes that follow each other; what was answered is there")


def test_power_cuts(tmp_path: Path) -> None:
    """A copy of the disk at any moment, mounted again, is what a power cut leaves."""
    counts: Counter[str] = Counter()
    image, rng = tmp_path / "disk.img", random.Random(1)
    with image.open("wb") as blank:
        blank.truncate(48 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=False)
    if made.returncode:
        pytest.skip("mkfs.ext4 is not here")
    cuts: list[tuple[Path, str]] = []
    with image_disk(image, tmp_path / "disk") as disk:
        file = tiny_file(disk)
        os.sync()
        with serving(file) as served, asking(served) as one:
            last = "one"
            for cut in range(CUTS):
                for turn in range(rng.randrange(1, 4)):
                    new = f"c{cut}t{turn}"
                    one.patch(f"/classes/{last}", json={"name": new}).raise_for_status()
                    last = new
                copy = tmp_path / f"cut-{cut}.img"
                shutil.copyfile(image, copy)
                cuts.append((copy, last))
    for copy, acknowledged in cuts:
        with image_disk(copy, tmp_path / "after") as disk:
            file = disk / file.name
            try:
                here = Workspace(file, device="cpu")
                fine = here.snapshot.classes[1] == acknowledged
                here.undo()
                fine = fine and here.snapshot.classes[1] != acknowledged
                fine = fine and Recognizer.load(file, device="cpu").classes == here.snapshot.classes
                here.close()
            except Exception as error:
                print(copy.name, repr(error))
                fine = False
        counts["good" if fine else "wrong"] += 1
        copy.unlink()
    told("power cuts", counts, "snapshots of an ext4 image right after an answer: the change is there, and undo works")


def test_two_editors(tmp_path: Path) -> None:
    """Each change names the version that it is meant for: both go on, and none is lost."""
    counts: Counter[str] = Counter()
    with serving(tiny_file(tmp_path)) as served:
        made: list[str] = []

        def edit(who: str) -> None:
            with asking(served) as one:
                for turn in range(15):
                    version = one.get("/state").json()["version"]
                    name, files = f"{who}{turn}", uploads("six", 3 * turn + (who == "b"), 3 * turn + (who == "b") + 1)
                    new = one.post("/classes", data={"name": name}, files=files, headers={"If-Match": str(version)})
                    counts[kind_of(new)] += 1
                    if new.status_code == 200:
                        made.append(name)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(edit, "ab"))
        with asking(served) as one:
            lost = set(made) - set(taught_names(one))
        counts["wrong"] += len(lost)
    told("two editors", counts, "each change with If-Match; refused: 409, somebody else was quicker")
