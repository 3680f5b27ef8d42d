"""Many photos on one machine: what the local engine and Ray cost on top of decoding and the encoder.

    python benchmarks/many_photos.py [--photos 5000] [--workers 2] [--skip rate,ray] [--data DIR]

Goals: the local engine does at least 0.9 times as many photos a second as decoding and the encoder alone, on the same
cores.  Its memory stays flat.  Ray with the same workers does 0.85 times as many as the local engine.  The plain pass
runs in two halves, one before and one after, so that other load on the machine meets both alike.
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
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
from photo_sets import groups

from glocal.bulk.job import Job, JobFolder
from glocal.bulk.store import Store
from glocal.bulk.workers import work
from glocal.recognizer import Recognizer
from glocal.recognizer.batches import BATCH
from glocal.recognizer.photos.images import decode, fit

CLASSES = 10


def plain_pass(file: Path, paths: list[Path]) -> None:
    """In a process of its own, in one thread: decode in order, encode in batches, print the seconds."""
    encoder = Recognizer.load(file, device="cpu").embedder.encoder
    start, busy = time.perf_counter(), time.process_time()
    for first in range(0, len(paths), BATCH):
        encoder(np.stack([fit(decode(path), encoder.preprocess) for path in paths[first : first + BATCH]]))
    print(json.dumps([time.perf_counter() - start, time.process_time() - busy]))


def plain(paths: list[Path], file: Path, workers: int) -> np.ndarray:
    """Wall and CPU seconds of processes that share the photos, imports and loading not counted."""
    shares = [[sys.executable, __file__, "--plain", file, *paths[i::workers]] for i in range(workers)]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True, env=alone) for each in shares]
    took = np.array([json.loads(each.communicate()[0]) for each in processes])
    return np.array([took[:, 0].max(), took[:, 1].sum()])


def made(paths: list[Path], file: Path, out: Path, run: Callable[[JobFolder, Job], None]) -> np.ndarray:
    """Wall and CPU seconds of an engine; CPU of its processes, which have ended."""
    shutil.rmtree(out, ignore_errors=True)
    identity = Recognizer.load(file, device="cpu").contents.identity
    folder, job = JobFolder(Store(str(out))), Job("answers", str(file), identity, ("photos",), "cpu")
    folder.begin(job, resume=False, uris=iter(map(str, paths)))
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run(folder, job)
    took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    folder.finish()
    return np.array([took, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime])


def sample_memory(samples: list[int], ended: threading.Event) -> None:
    """What this process and its workers hold, in MiB, every second."""
    while not ended.wait(1):
        pids = [os.getpid(), *(each.pid for each in multiprocessing.active_children())]
        pages = [Path(f"/proc/{pid}/statm") for pid in pids]
        samples.append(sum(int(each.read_text().split()[1]) for each in pages if each.exists()) >> 8)


def rows(out: Path) -> list[dict[str, object]]:
    return sorted(ds.dataset(out, format="parquet").to_table().to_pylist(), key=lambda row: str(row["uri"]))


def compare_rate(paths: list[Path], file: Path, home: Path, workers: int) -> None:
    samples: list[int] = []
    ended, half = threading.Event(), len(paths) // 2
    first = plain(paths[:half], file, workers)
    thread = threading.Thread(target=sample_memory, args=(samples, ended))
    thread.start()
    engine = made(paths, file, home / "local", lambda folder, job: work(folder, job, workers=workers))
    ended.set()
    thread.join()
    alone = first + plain(paths[half:], file, workers)
    for name, (wall, busy) in (("decode and encode", alone), ("local engine", engine)):
        print(f"{name:<18}{wall:8.1f} s   {busy:8.1f} s of CPU, {len(paths) / wall:.1f} photos/s")
    print("rate {:.2f} by the clock, {:.2f} by CPU (goal >= 0.9)".format(*(alone / engine)))
    tenth = len(samples) // 10
    held = {"start": samples[tenth], "middle": samples[len(samples) // 2], "end": samples[-tenth - 1]}
    print("memory of all processes, MiB:", json.dumps(held | {"largest": max(samples)}), flush=True)


def compare_ray(paths: list[Path], file: Path, home: Path, workers: int) -> None:
    from glocal.bulk.on_ray import cluster
    from glocal.bulk.on_ray import work as work_on_ray

    def local(folder: JobFolder, job: Job) -> None:
        work(folder, job, workers=workers)

    first = made(paths, file, home / "local", local)[0]
    with cluster(None, workers):  # started before the clock, as a cluster is
        ray = made(paths, file, home / "ray", lambda folder, job: work_on_ray(folder, job, workers=workers))[0]
    again = made(paths, file, home / "again", local)[0]
    print(f"{len(paths)} photos: local {first:.1f} and {again:.1f} s, Ray {ray:.1f} s between them")
    print(f"Ray: rate {(first + again) / 2 / ray:.2f} of the local engine's (goal >= 0.85)")
    print("the same rows:", rows(home / "ray") == rows(home / "local"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=int, default=5000)
    parser.add_argument("--some", type=int, default=1000, help="photos of the comparison with Ray")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--skip", default="")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("GLOCAL_DATA", ".")))
    parser.add_argument("--plain", nargs="+", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.plain:
        plain_pass(asked.plain[0], asked.plain[1:])
        return
    known = sorted((asked.data / "caltech-photos").glob("*/*.jpg"))
    paths = (known + sorted((asked.data / "photo-domains").rglob("*.jpg")))[: asked.photos]
    if len(paths) < asked.photos:
        sys.exit(f"there are {len(paths)} photos below {asked.data}; set GLOCAL_DATA, or ask for fewer")
    with tempfile.TemporaryDirectory() as scratch:
        home, file = Path(scratch), Path(scratch) / "ten.glocal"
        classes = {f"{i}": some for i, some in enumerate(list(groups(known))[:CLASSES])}
        Recognizer.enroll(classes, device="cpu").save(file)
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {len(paths)} photos, {asked.workers} workers")
        if "rate" not in asked.skip:
            compare_rate(paths, file, home, asked.workers)
        if "ray" not in asked.skip:
            compare_ray(paths[: asked.some], file, home, asked.workers)


if __name__ == "__main__":
    main()
