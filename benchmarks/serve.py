"""What the server gives of what the machine can do, with 64 clients at once, and whether every answer is the right one.

    python benchmarks/serve.py [--seconds 60] [--clients 64] [--model fast] [--photos 400] [--data DIR]
    python benchmarks/serve.py --seconds 0      # only the server's worker thread against a batcher that decodes ahead

Goals: no error but 429, no lost or crossed answer, memory flat, throughput at least 0.7 times that of offline batched
prediction of the same photos.  Every answer is compared with the offline prediction: scores within
1e-4 * max(1, |score|), the same label unless the score is that close to the threshold, the name that was sent.
The offline prediction runs in two halves in a process of its own, one before and one after the server, so that other
load on the machine meets both alike.  The clients share the cores with the server; the CPU time they take is printed.

At the end the worker thread of the server is measured against ``batcher.py``, at 1, 8 and 64 clients without HTTP, in
turns: goal at most 1.3 times its time at 64 clients.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from photo_sets import SHOTS, groups, photos

CLASSES = 10
BOUNDARY = "glocal-benchmark"
TOLERANCE = 1e-4
SETTLED = 10.0  # seconds after which memory is looked at: threads and caches are there by then


def enroll(file: Path, paths: list[Path], model: str) -> list[Path]:
    """A recognizer of the first photos; the others are asked about."""
    from glocal.recognizer import Recognizer

    known = {f"class {i}": some for i, some in enumerate(list(groups(paths))[:CLASSES])}
    Recognizer.enroll(known, model=model, device="cpu").save(file)
    return paths[CLASSES * SHOTS :]


def offline(file: Path, asked: list[Path]) -> None:
    """In a process of its own: answers and seconds on stdout."""
    from glocal.recognizer import Recognizer

    recognizer = Recognizer.load(file, device="cpu")
    data = [path.read_bytes() for path in asked]
    recognizer.predict(data[:64])  # the first pass chooses kernels
    started, cpu = time.perf_counter(), own_cpu()
    answers = recognizer.predict(data)
    taken = {"seconds": time.perf_counter() - started, "cpu": own_cpu() - cpu}
    print(json.dumps({**taken, "answers": [each.to_json() for each in answers]}))


class Clients:
    """They ask without pause, each on one connection, and check what they get."""

    def __init__(self, address: str, data: list[bytes], expected: list[dict[str, Any]]) -> None:
        self._host, self._port = urlsplit(address).hostname, urlsplit(address).port
        self._data, self._expected = data, expected
        self.seconds: list[float] = []
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self._next = 0

    async def run(self, n: int, seconds: float) -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(self._client(i, until) for i in range(n)))

    async def _client(self, who: int, until: float) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        while time.perf_counter() < until:
            i = self._next % len(self._data)
            self._next += 1
            name = f"{who}-{self._next}.jpg"
            started = time.perf_counter()
            writer.write(self._request(name, self._data[i]))
            status, headers, body = await _response(reader)
            self.counts[str(status)] += 1
            if status == 200:
                self.seconds.append(time.perf_counter() - started)
                self._check(json.loads(body), name, self._expected[i])
            elif status == 429:
                await asyncio.sleep(float(headers["retry-after"]))
        writer.close()

    def _request(self, name: str, data: bytes) -> bytes:
        head = (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="images"; filename="{name}"\r\n'
            "Content-Type: image/jpeg\r\n\r\n"
        )
        body = head.encode() + data + f"\r\n--{BOUNDARY}--\r\n".encode()
        lines = (
            "POST /predict HTTP/1.1",
            f"Host: {self._host}:{self._port}",
            f"Content-Type: multipart/form-data; boundary={BOUNDARY}",
            f"Content-Length: {len(body)}",
        )
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def _check(self, found: dict[str, Any], name: str, expected: dict[str, Any]) -> None:
        (answer,) = found["answers"]
        score = expected["open_score"]
        allowed = TOLERANCE * max(1.0, abs(score))
        if answer["name"] != name:
            self.wrong.append(f"asked about {name}, got an answer about {answer['name']}")
        elif abs(answer["open_score"] - score) > allowed:
            self.wrong.append(f"{name}: score {answer['open_score']}, offline {score}")
        elif answer["label"] != expected["label"] and abs(score - expected["threshold"]) > allowed:
            self.wrong.append(f"{name}: {answer['label']}, offline {expected['label']}")


async def _response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    return int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


class Watched:
    """Memory and CPU time of the server, as Linux tells them."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        self.memory: list[float] = []  # MiB, second by second

    async def watch(self) -> None:
        while True:
            pages = int((self._folder / "statm").read_text().split()[1])
            self.memory.append(pages * resource.getpagesize() / 2**20)
            await asyncio.sleep(1)

    def cpu(self) -> float:
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def load(address: str, pid: int, clients: Clients, n: int, seconds: float) -> tuple[Watched, float, float]:
    """Watched server, its CPU seconds, the clients' CPU seconds."""
    await clients.run(n, 3)  # warm-up
    clients.seconds.clear()
    clients.counts.clear()
    watched = Watched(pid)
    watching = asyncio.create_task(watched.watch())
    server, own = watched.cpu(), own_cpu()
    await clients.run(n, seconds)
    watching.cancel()
    return watched, watched.cpu() - server, own_cpu() - own


def report(
    asked: argparse.Namespace,
    paths: list[Path],
    before: dict[str, Any],
    after: dict[str, Any],
    clients: Clients,
    watched: Watched,
    server_cpu: float,
    own: float,
) -> None:
    halves = [len(paths) / half["seconds"] for half in (before, after)]
    plain = 2 * len(paths) / (before["seconds"] + after["seconds"])
    plain_cpu = 500 * (before["cpu"] + after["cpu"]) / len(paths)
    n = len(clients.seconds)
    served = n / asked.seconds
    p50, p95, p99 = np.percentile(clients.seconds, [50, 95, 99])
    memory = watched.memory[int(min(SETTLED, asked.seconds / 3)) :]
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{asked.model}, {CLASSES} classes, {asked.clients} clients, {asked.seconds:g} s, {os.cpu_count()} cores")
    print(f"offline  {plain:7.1f} photos/s  (halves {halves[0]:.1f}, {halves[1]:.1f}), {plain_cpu:.1f} ms CPU each")
    print(f"served   {served:7.1f} photos/s  {served / plain:.2f} times (goal >= 0.70)", end="")
    print(f", {1000 * server_cpu / n:.1f} ms CPU each and {1000 * own / n:.1f} ms in the clients")
    print(f"answers  {dict(clients.counts)}, {n} checked, {len(clients.wrong)} wrong (goal 0)")
    print(f"seconds  {p50:.3f} at the median, {p95:.3f} at 95 %, {p99:.3f} at 99 %")
    print(f"CPU      server {server_cpu:.1f} s, clients {own:.1f} s; load of the machine {load}")
    middle = memory[len(memory) // 2]
    print(f"memory   {memory[0]:.0f} MiB at first, {middle:.0f} in the middle, {memory[-1]:.0f} at the end", end="")
    print(f", at most {max(memory):.0f}")


def compare_workers(asked: argparse.Namespace, file: Path, paths: list[Path]) -> None:
    """Photos per second of both ways at each number of clients, in short turns, the same photos; and their CPU time,
    which other load on the machine moves less."""
    from batcher import DecodingBatcher

    from glocal.recognizer import Recognizer
    from glocal.recognizer.photos.sources import as_source
    from glocal.serve.server import Worker
    from glocal.serve.snapshot import Snapshot

    snapshot = Snapshot(1, Recognizer.load(file, device="cpu"), None, None)
    sources = [as_source(path.read_bytes(), path.name) for path in paths]
    snapshot.predict(sources[:64])  # the first pass chooses kernels
    ways = {"batcher": DecodingBatcher(), "worker": Worker(queue=1000, on_batch=lambda size: None)}

    def cost(way: Worker | DecodingBatcher, clients: int) -> tuple[float, float]:
        """Seconds and CPU seconds for a photo."""
        started, cpu, counts = time.perf_counter(), time.process_time(), [0] * clients

        def ask(who: int) -> None:
            while time.perf_counter() < started + asked.turn:
                way.submit(snapshot, [sources[(who + counts[who] * clients) % len(sources)]]).result()
                counts[who] += 1

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(clients)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        n = sum(counts)
        return (time.perf_counter() - started) / n, (time.process_time() - cpu) / n

    for clients in asked.compare:
        turns = [[cost(way, clients) for way in ways.values()] for _ in range(asked.turns + 1)][
            1:
        ]  # the first warms up
        found = np.array(turns)  # turn, way, seconds or CPU seconds
        (batcher, worker), (_, cpu) = (
            1 / np.median(found[:, :, 0], axis=0),
            np.median(found[:, 1] / found[:, 0], axis=0),
        )
        ratios = found[:, 1, 0] / found[:, 0, 0]
        low, ratio, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        print(
            f"{clients:3d} clients  batcher {batcher:6.1f} photos/s, worker {worker:6.1f}; the worker takes "
            f"{ratio:.2f} times as long (half of the turns {low:.2f} to {high:.2f}), {cpu:.2f} times the CPU time",
            flush=True,
        )
    for way in ways.values():
        way.close()


def main() -> None:
    home = os.environ.get("GLOCAL_DATA")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="fast")
    parser.add_argument("--photos", type=int, default=400)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60, help="of the server under load; 0 leaves it out")
    parser.add_argument("--compare", type=int, nargs="+", default=[1, 8, 64], help="clients of worker and batcher")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--turn", type=float, default=2, help="seconds of each turn of worker against batcher")
    parser.add_argument("--data", type=Path, default=Path(home) / "caltech-photos" if home else None)
    parser.add_argument("--offline", nargs="+", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.offline:
        offline(asked.offline[0], asked.offline[1:])
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "served.glocal"
        paths = enroll(file, photos(asked.data, Path(folder), asked.photos + CLASSES * SHOTS), asked.model)

        if asked.seconds:
            serve_and_report(asked, file, paths)
        compare_workers(asked, file, paths)


def serve_and_report(asked: argparse.Namespace, file: Path, paths: list[Path]) -> None:
    def half() -> dict[str, Any]:
        command = [sys.executable, __file__, "--offline", str(file), *map(str, paths)]
        found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        return found

    before = half()
    serve = [sys.executable, "-m", "glocal", "serve", str(file), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split("open ")[1].split()[0]
        clients = Clients(address, [path.read_bytes() for path in paths], before["answers"])
        watched, server_cpu, own = asyncio.run(load(address, process.pid, clients, asked.clients, asked.seconds))
        process.terminate()
    report(asked, paths, before, half(), clients, watched, server_cpu, own)
    for line in clients.wrong[:5]:
        print(f"  {line}")
    if clients.wrong or set(clients.counts) - {"200", "429"}:
        sys.exit(1)


if __name__ == "__main__":
    main()
