"""Many photos on one machine: what the local engine and Ray cost on top of decoding and the encoder.

    python benchmarks/many_photos.py [--photos 5000] [--workers 2] [--skip rate,ray] [--data DIR]

Goals: the local engine does at least 0.9 times as many photos a second as decoding and the encoder alone do on the
same cores, its memory stays flat; Ray with the same workers does 0.85 times as many as the local engine.  The plain
pass runs in two halves, one before and one after, so that other load on the machine meets both alike; CPU seconds,
which other load hardly moves, stand beside the wall clock.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds

from glocal.bulk.job import Job, JobFolder
from glocal.bulk.store import Store
from glocal.bulk.workers import work
from glocal.common.memory import keep_freed_memory
from glocal.recognizer import Recognizer
from glocal.recognizer.batches import BATCH


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
    identity = Recognizer.load(file, device="cpu").contents.identity
    folder, job = JobFolder(Store(str(out))), Job("answers", str(file), identity, ("photos",), "cpu")
    folder.begin(job, resume=False, uris=iter(map(str, paths)))
    return folder, job


def rows(out: Path) -> list[dict[str, object]]:
    found = ds.dataset(out, format="parquet").to_table().to_pylist()
    return sorted(found, key=lambda row: str(row["uri"]))


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=int, default=5000)
    parser.add_argument("--some", type=int, default=1000, help="photos of all but the first measurement")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--skip", default="")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("GLOCAL_DATA", ".")))
    asked = parser.parse_args()
    skip, workers = set(asked.skip.split(",")), asked.workers
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
            print(f"decode and encode   {wall:8.1f} s   {busy:8.1f} s of CPU, {len(paths) / wall:.1f} photos/s")
            print(f"local engine        {took:8.1f} s   {busy_here:8.1f} s of CPU, {len(paths) / took:.1f} photos/s")
            print(f"rate {wall / took:.2f} by the clock, {busy / busy_here:.2f} by CPU (goal >= 0.9)")
            tenth = len(samples) // 10
            at = {"start": samples[tenth], "middle": samples[len(samples) // 2], "end": samples[-tenth - 1]}
            print("memory of all processes, MiB:", json.dumps(at | {"largest": max(samples)}))
            print(f"load {os.getloadavg()[0]:.1f}", flush=True)
        some = paths[: asked.some]
        if "ray" not in skip:
            ours = local(some, file, home / "local1", workers)[0]
            rays = ray_rate(some, file, home / "ray", workers)
            again = local(some, file, home / "local2", workers)[0]
            print(f"{len(some)} photos: local {ours:.1f} and {again:.1f} s, Ray {rays:.1f} s between them")
            print(f"Ray: rate {(ours + again) / 2 / rays:.2f} of the local engine's (goal >= 0.85)")
            print("the same rows:", rows(home / "ray") == rows(home / "local1"), flush=True)


if __name__ == "__main__":
    main()
