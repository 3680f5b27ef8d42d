"""What the server gives of what the machine can do, with 64 clients at once, and whether every answer is the right one.

    python benchmarks/serve.py [--seconds 60] [--clients 64] [--model fast] [--photos 400] [--data DIR]

Goals: no error but 429, no lost or crossed answer, flat memory, and 0.7 times the photos per second of offline batches.
Every answer must have the offline score within 1e-4 * max(1, |score|) and the name that was sent.  It must have the
offline label, unless the score is that close to the threshold.  The offline prediction runs in two halves in a process
of its own, one before and one after the server.  So other load on the machine meets both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from photo_sets import SHOTS, groups, photos

from glocal.recognizer import Recognizer

CLASSES = 10
TOLERANCE = 1e-4
WARM = 3.0  # seconds before anything counts


def offline(file: Path, asked: list[Path]) -> None:
    """In a process of its own: answers and seconds on stdout."""
    recognizer, data = Recognizer.load(file, device="cpu"), [path.read_bytes() for path in asked]
    recognizer.predict(data[:64])  # the first pass chooses kernels
    started, cpu = time.perf_counter(), time.process_time()
    answers = recognizer.predict(data)
    taken = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    print(json.dumps({**taken, "answers": [each.to_json() for each in answers]}))


class Clients:
    """They ask without pause, each on one connection, and check what they get."""

    def __init__(self, address: str, data: list[bytes], expected: list[dict[str, Any]]) -> None:
        self._address, self._data, self._expected = address, data, expected
        self.seconds: list[float] = []
        self.wrong: list[str] = []
        self.counts: Counter[int] = Counter()
        self._next = 0

    async def run(self, n: int, seconds: float) -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(self._client(i, until) for i in range(n)))

    async def _client(self, number: int, until: float) -> None:
        async with httpx.AsyncClient(base_url=self._address, timeout=120) as client:
            while time.perf_counter() < until:
                i = self._next % len(self._data)
                self._next += 1
                name, started = f"{number}-{self._next}.jpg", time.perf_counter()
                answer = await client.post("/predict", files={"images": (name, self._data[i], "image/jpeg")})
                self.counts[answer.status_code] += 1
                if answer.status_code == 200:
                    self.seconds.append(time.perf_counter() - started)
                    self._check(answer.json(), name, self._expected[i])
                elif answer.status_code == 429:
                    await asyncio.sleep(float(answer.headers["retry-after"]))

    def _check(self, body: dict[str, Any], name: str, expected: dict[str, Any]) -> None:
        (answer,) = body["answers"]
        score = expected["open_score"]
        allowed = TOLERANCE * max(1.0, abs(score))
        if answer["name"] != name:
            self.wrong.append(f"asked about {name}, got an answer about {answer['name']}")
        elif abs(answer["open_score"] - score) > allowed:
            self.wrong.append(f"{name}: score {answer['open_score']}, offline {score}")
        elif answer["label"] != expected["label"] and abs(score - expected["threshold"]) > allowed:
            self.wrong.append(f"{name}: {answer['label']}, offline {expected['label']}")


def memory(pid: int) -> float:
    """MiB that the server holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu(pid: int) -> float:
    """Seconds that the server has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(pid: int, clients: Clients, n: int, seconds: float) -> tuple[float, list[float]]:
    """CPU seconds of the server, and its memory second by second."""
    await clients.run(n, WARM)
    clients.seconds.clear()
    clients.counts.clear()
    before, samples = cpu(pid), []
    asking = asyncio.create_task(clients.run(n, seconds))
    while not asking.done():
        samples.append(memory(pid))
        await asyncio.wait([asking], timeout=1)
    return cpu(pid) - before, samples


def main() -> None:
    home = os.environ.get("GLOCAL_DATA")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="fast")
    parser.add_argument("--photos", type=int, default=400)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60, help="of the server under load")
    parser.add_argument("--data", type=Path, default=Path(home) / "caltech-photos" if home else None)
    parser.add_argument("--offline", nargs="+", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.offline:
        offline(asked.offline[0], asked.offline[1:])
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "served.glocal"
        paths = photos(asked.data, Path(folder), asked.photos + CLASSES * SHOTS)
        known = {f"class {i}": some for i, some in enumerate(list(groups(paths))[:CLASSES])}
        Recognizer.enroll(known, model=asked.model, device="cpu").save(file)
        serve_and_report(asked, file, paths[CLASSES * SHOTS :])


def serve_and_report(asked: argparse.Namespace, file: Path, paths: list[Path]) -> None:
    command = [sys.executable, __file__, "--offline", str(file), *map(str, paths)]

    def half() -> dict[str, Any]:
        return dict(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))

    before = half()
    serve = [sys.executable, "-m", "glocal", "serve", str(file), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split("open ")[1].split()[0]
        clients = Clients(address, [path.read_bytes() for path in paths], before["answers"])
        busy, held = asyncio.run(load(process.pid, clients, asked.clients, asked.seconds))
        process.terminate()
    halves = (before, half())
    plain = 2 * len(paths) / sum(each["seconds"] for each in halves)
    n, alone = len(clients.seconds), 500 * sum(each["cpu"] for each in halves) / len(paths)
    p50, p95, p99 = np.percentile(clients.seconds, [50, 95, 99])
    print(f"{asked.model}, {CLASSES} classes, {asked.clients} clients, {asked.seconds:g} s, {os.cpu_count()} cores")
    print(f"offline  {plain:7.1f} photos/s, {alone:.1f} ms CPU each; load {os.getloadavg()[0]:.1f}")
    print(f"served   {n / asked.seconds:7.1f} photos/s, {1000 * busy / n:.1f} ms CPU each", end="")
    print(f", {n / asked.seconds / plain:.2f} times (goal >= 0.70)")
    print(f"answers  {dict(clients.counts)}, {n} checked, {len(clients.wrong)} wrong (goal 0)")
    print(f"seconds  {p50:.3f} at the median, {p95:.3f} at 95 %, {p99:.3f} at 99 %")
    middle = held[len(held) // 2]
    print(f"memory   {held[0]:.0f} MiB at first, {middle:.0f} in the middle, {held[-1]:.0f} at the end")
    print(*clients.wrong[:5], sep="\n")
    if clients.wrong or set(clients.counts) - {200, 429}:
        sys.exit(1)


if __name__ == "__main__":
    main()
