"""Many photos on one machine: what the local engine and Ray cost on top of decoding and the backbone, and crashes.

    python benchmarks/many_photos.py [--photos 5000] [--workers 2] [--skip ray,kills,hostile] [--data DIR]

Goals: the local engine does at least 0.9 times as many photos a second as decoding and the backbone alone do on the
same cores, its memory stays flat; Ray with the same workers does 0.85 times as many as the local engine.  The plain
pass runs in two halves, one before and one after, so that other load on the machine meets both alike; CPU seconds,
which other load hardly moves, stand beside the wall clock.  Then 1,000 photos: 3 workers of Ray killed, the driver
killed 5 times, and 20 hostile files among them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds
from PIL import Image

from glocal.bulk.job import Job, JobFolder
from glocal.bulk.store import Store
from glocal.bulk.workers import work
from glocal.common.memory import keep_freed_memory
from glocal.recognizer.batches import BATCH

MARK = "GLOCAL_BENCHMARK"  # in the environment of all processes of a run


def photos(data: Path, n: int) -> list[Path]:
    """Those of caltech-photos first, then of the other folders with large ones, in even steps."""
    found = sorted((data / "caltech-photos").glob("*/*.jpg"))[:n]
    more = sorted((data / "photo-domains").rglob("*.jpg"))
    missing = n - len(found)
    return found + more[:: max(1, len(more) // max(1, missing))][:missing]


def plain_pass(paths: list[Path], file: Path, ready: object, go: object, used: object) -> None:
    """Decode in order, encode in batches, in one thread: what one would write without glocal."""
    os.environ["OMP_NUM_THREADS"] = "1"
    keep_freed_memory()
    import numpy as np

    from glocal.recognizer import Recognizer
    from glocal.recognizer.photos.images import decode, fit

    recognizer = Recognizer.load(file, device="cpu")
    encoder = recognizer.embedder.encoder
    ready.release()  # type: ignore[attr-defined]
    go.wait()  # type: ignore[attr-defined]
    before = time.process_time()
    for start in range(0, len(paths), BATCH):
        encoder(np.stack([fit(decode(path), encoder.preprocess) for path in paths[start : start + BATCH]]))
    used.put(time.process_time() - before)  # type: ignore[attr-defined]


def cpu() -> float:
    """Of processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def plain(paths: list[Path], file: Path, workers: int) -> tuple[float, float]:
    """Wall and CPU seconds, imports and loading not counted."""
    context = multiprocessing.get_context("spawn")
    ready, go, used = context.Semaphore(0), context.Event(), context.Queue()
    shares = [paths[i::workers] for i in range(workers)]
    processes = [context.Process(target=plain_pass, args=(share, file, ready, go, used)) for share in shares]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    start = time.perf_counter()
    go.set()
    busy = sum(used.get() for _ in processes)
    took = time.perf_counter() - start
    for process in processes:
        process.join()
    return took, busy


@contextmanager
def memory(samples: list[int], pids: Callable[[], list[int]]) -> Iterator[None]:
    """Sum of what the processes hold, in MiB, every second."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(1):
            total = 0
            for pid in pids():
                try:
                    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                except OSError:
                    continue
                total += next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)
            samples.append(total >> 10)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def local(paths: list[Path], file: Path, out: Path, workers: int) -> tuple[float, float, list[int]]:
    folder, job = begun(paths, file, out)
    samples: list[int] = []
    before = cpu()
    start = time.perf_counter()
    children = lambda: [os.getpid(), *(each.pid or 0 for each in multiprocessing.active_children())]  # noqa: E731
    with memory(samples, children):
        work(folder, job, workers=workers)
    took = time.perf_counter() - start
    folder.finish()
    return took, cpu() - before, samples


def begun(paths: list[Path], file: Path, out: Path) -> tuple[JobFolder, Job]:
    shutil.rmtree(out, ignore_errors=True)
    folder, job = JobFolder(Store(str(out))), Job("answers", str(file), "benchmark", ("photos",), "cpu")
    folder.begin(job, resume=False, uris=iter(map(str, paths)))
    return folder, job


def rows(out: Path) -> list[dict[str, object]]:
    found = ds.dataset(out, format="parquet").to_table().to_pylist()
    return sorted(found, key=lambda row: str(row["uri"]))


def marked(word: str) -> list[int]:
    """Processes of this run whose command holds the word."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:
            continue
        if word.encode() in command and f"{MARK}={os.environ[MARK]}".encode() in environment:
            found.append(int(folder.name))
    return found


@contextmanager
def all_cpu(seconds: list[float]) -> Iterator[None]:
    """CPU seconds of all processes of this run, looked at twice a second: those of Ray are nobody's children."""
    ended, found = threading.Event(), {}
    tick = os.sysconf("SC_CLK_TCK")

    def look() -> dict[int, float]:
        now = {}
        for pid in marked(""):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            now[pid] = (int(fields[11]) + int(fields[12])) / tick
        return now

    def watch() -> None:
        while not ended.wait(0.5):
            found.update(look())

    before = look()
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        found.update(look())
        ended.set()
        thread.join()
        seconds.append(sum(used - before.get(pid, 0.0) for pid, used in found.items()))


def ray_rate(paths: list[Path], file: Path, out: Path, workers: int) -> float:
    from glocal.bulk.on_ray import cluster
    from glocal.bulk.on_ray import work as work_on_ray

    folder, job = begun(paths, file, out)
    with cluster(None, workers):  # started before the clock, as a cluster is
        start = time.perf_counter()
        work_on_ray(folder, job, workers=workers)
        took = time.perf_counter() - start
    folder.finish()
    return took


def ray_killed(paths: list[Path], file: Path, out: Path, workers: int) -> int:
    """Workers of Ray end with SIGKILL at random moments; returns how many did."""
    from glocal.bulk.on_ray import work as work_on_ray

    folder, job = begun(paths, file, out)
    killed, over = 0, threading.Event()

    def killer() -> None:
        nonlocal killed
        rng = random.Random(0)
        while killed < 3 and not over.is_set():
            done = len(list(out.glob("part-*")))
            if done > 3 + 6 * killed and (actors := marked("ray::MapWorker")):
                over.wait(rng.uniform(0.1, 3))
                os.kill(rng.choice(actors), signal.SIGKILL)
                killed += 1
            over.wait(0.2)

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        work_on_ray(folder, job, workers=workers)
    finally:
        over.set()
        thread.join()
    folder.finish()
    return killed


def driver_killed(file: Path, list_: Path, out: Path, workers: int, engine: str) -> int:
    """`glocal predict` ends with SIGKILL at random moments and goes on with --resume; returns how often it did."""
    command = [sys.executable, "-m", "glocal", "predict", str(file), str(list_), "--device", "cpu"]
    command += ["--workers", str(workers), "-o", str(out), "--engine", engine, "--resume"]
    rng, killed = random.Random(0), 0
    shutil.rmtree(out, ignore_errors=True)
    for goal in (1, 6, 12, 18, 24):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and len(list(out.glob("part-*"))) < goal:
                time.sleep(0.05)
            time.sleep(rng.uniform(0, 2))
            killed += process.poll() is None
            process.kill()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return killed


def hostile(folder: Path, good: Path) -> list[Path]:
    """Twenty files that are no photos, each in its own way."""
    folder.mkdir()
    data, made = good.read_bytes(), []
    for i in range(4):
        (folder / f"truncated{i}.jpg").write_bytes(data[: 100 << i])
        (folder / f"text{i}.jpg").write_text("no picture " * i)
        (folder / f"vanished{i}.jpg").write_bytes(data)
        os.mkfifo(folder / f"pipe{i}.jpg")
        Image.new("L", (12000 + i, 12000)).save(folder / f"bomb{i}.png")
        made += [folder / f"{name}{i}.jpg" for name in ("truncated", "text", "vanished", "pipe")]
        made.append(folder / f"bomb{i}.png")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=int, default=5000)
    parser.add_argument("--some", type=int, default=1000, help="photos of all but the first measurement")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--skip", default="")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("GLOCAL_DATA", ".")))
    asked = parser.parse_args()
    skip, workers = set(asked.skip.split(",")), asked.workers
    os.environ[MARK] = str(os.getpid())
    paths = photos(asked.data, asked.photos)
    if len(paths) < asked.photos:
        sys.exit(f"there are {len(paths)} photos below {asked.data}; set GLOCAL_DATA, or ask for fewer")
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        file = home / "ten.glocal"
        for path in sorted((asked.data / "caltech-photos").glob("*/image_000[1-5].jpg"))[:50]:
            (home / "few" / path.parent.name).mkdir(parents=True, exist_ok=True)
            (home / "few" / path.parent.name / path.name).symlink_to(path)
        glocal = [sys.executable, "-m", "glocal"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([*glocal, "enroll", str(home / "few"), "-o", str(file), "--device", "cpu"], check=True, **quiet)
        print(
            f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {len(paths)} photos, {workers} workers",
            flush=True,
        )
        if "rate" not in skip:
            first = plain(paths[: len(paths) // 2], file, workers)
            took, busy_here, samples = local(paths, file, home / "local", workers)
            second = plain(paths[len(paths) // 2 :], file, workers)
            wall, busy = first[0] + second[0], first[1] + second[1]
            print(f"decode and backbone {wall:8.1f} s   {busy:8.1f} s of CPU, {len(paths) / wall:.1f} photos/s")
            print(f"local engine        {took:8.1f} s   {busy_here:8.1f} s of CPU, {len(paths) / took:.1f} photos/s")
            print(f"rate {wall / took:.2f} by the clock, {busy / busy_here:.2f} by CPU (goal >= 0.9)")
            tenth = len(samples) // 10
            at = {"start": samples[tenth], "middle": samples[len(samples) // 2], "end": samples[-tenth - 1]}
            print("memory of all processes, MiB:", json.dumps(at | {"largest": max(samples)}))
            print(f"load {os.getloadavg()[0]:.1f}", flush=True)
        some = paths[: asked.some]
        if "ray" not in skip:
            used: list[float] = []
            with all_cpu(used):
                ours = local(some, file, home / "local1", workers)[0]
            with all_cpu(used):
                rays = ray_rate(some, file, home / "ray", workers)
            with all_cpu(used):
                again = local(some, file, home / "local2", workers)[0]
            print(f"{len(some)} photos: local {ours:.1f} and {again:.1f} s, Ray {rays:.1f} s between them")
            print(f"CPU: local {used[0]:.1f} and {used[2]:.1f} s, Ray {used[1]:.1f} s with the start of its servers")
            by_cpu = (used[0] + used[2]) / 2 / used[1]
            print(
                f"Ray: rate {(ours + again) / 2 / rays:.2f} of the local engine's, {by_cpu:.2f} by CPU (goal >= 0.85)"
            )
            print("the same rows:", rows(home / "ray") == rows(home / "local1"), flush=True)
        if "kills" not in skip:
            if "ray" in skip:
                local(some, file, home / "local1", workers)
            whole = [row | {"recognizer": ""} for row in rows(home / "local1")]
            killed = ray_killed(some, file, home / "killed", workers)
            found = [row | {"recognizer": ""} for row in rows(home / "killed")]
            once = [row["uri"] for row in found] == sorted(map(str, some))
            print(f"{killed} workers of Ray killed: each uri once: {once}, the same rows: {found == whole}", flush=True)
            listed = home / "list.csv"
            listed.write_text("uri\n" + "\n".join(map(str, some)) + "\n")
            for engine in ("local", "ray"):
                killed = driver_killed(file, listed, home / f"driver-{engine}", workers, engine)
                found = [row | {"recognizer": ""} for row in rows(home / f"driver-{engine}")]
                time.sleep(5)
                left = len(marked("ray::")) + len(marked("raylet"))
                print(
                    f"driver ({engine}) killed {killed} times: the same rows: {found == whole}, {left} processes left"
                )
        if "hostile" not in skip:
            bad = hostile(home / "bad", some[0])
            listed = home / "mixed.csv"
            listed.write_text(
                "uri\n" + "\n".join(map(str, [*some[:490], *bad, *some[490 : len(some) - len(bad)]])) + "\n"
            )
            for path in bad:
                if path.name.startswith("vanished"):
                    path.unlink()
            command = [
                *glocal,
                "predict",
                str(file),
                str(listed),
                "-o",
                str(home / "mixed"),
                "--device",
                "cpu",
                "--json",
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            said = json.loads(done.stdout)
            wrong = {row["uri"] for row in rows(home / "mixed") if row["error"] is not None}
            counts = f"{said['answered']} answered, {said['errors']} errors"
            print(f"{len(bad)} hostile of {len(some)}: exit code {done.returncode}, {counts},")
            print("exactly the hostile ones:", wrong == set(map(str, bad)), flush=True)


if __name__ == "__main__":
    main()
