"""Answers from vectors: how many a second, and are they those from the pictures?

    python benchmarks/vectors.py [--rows 200000] [--photos 500] [--model fast]

Synthetic vectors of 1,280 numbers against 50 classes of 5; beside it, in the same run, the time of looking at photos.
Then real photos: embedded once, answered from pictures and from vectors.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from many_classes import grow
from photo_sets import groups, photos

from glocal.bulk.addresses import URI
from glocal.bulk.job import Job, JobFolder
from glocal.bulk.rows import vector_schema
from glocal.bulk.store import Store
from glocal.bulk.vectors import Vectors
from glocal.bulk.workers import work
from glocal.common.memory import keep_freed_memory
from glocal.recognizer import Recognizer
from glocal.recognizer.enrolled import Enrolled
from glocal.recognizer.features import Features

BLOCK = 10_000


def synthetic(recognizer: Recognizer, rows: int, file: Path) -> None:
    views = recognizer.contents.support.bank.features
    schema, rng = vector_schema(Features(views.vec), recognizer.contents.model.name), np.random.default_rng(0)
    with pq.ParquetWriter(file, schema) as writer:
        for start in range(0, rows, BLOCK):
            vec = views.vec[rng.integers(0, len(views), BLOCK)]
            vec = (vec + vec.std() * rng.standard_normal(vec.shape)).astype(np.float16)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(vec.ravel()), vec.shape[1])
            names = [f"photo {start + i}" for i in range(BLOCK)]
            sha = [recognizer.contents.model.sha256] * BLOCK
            writer.write_table(pa.table([names, lists, pa.nulls(BLOCK, pa.string()), sha], schema=schema))


def rows(folder: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = ds.dataset(folder, format="parquet").to_table().to_pylist()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--photos", type=int, default=500)
    parser.add_argument("--model", default="fast", help="of the synthetic vectors: one without local maps")
    parser.add_argument("--models", default="fast", help="of the real photos")
    asked = parser.parse_args()
    keep_freed_memory()
    data = Path(os.environ["GLOCAL_DATA"]) / "caltech-photos" if "GLOCAL_DATA" in os.environ else None
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        paths = photos(data, home, asked.photos + 50)
        classes = {f"{i}": each for i, each in enumerate(groups(paths[:50]))}
        few = Recognizer.enroll(classes, model=asked.model, device="cpu")
        enrolled = Enrolled(few.contents.model, grow(few, 50))
        many = Recognizer(enrolled.settled(few.contents), few.embedder, enrolled)
        synthetic(many, asked.rows, home / "vectors.parquet")
        wall, busy = time.perf_counter(), time.process_time()
        Vectors(str(home / "vectors.parquet")).answer(many, JobFolder(Store(str(home / "answers"))), "many")
        wall, busy = time.perf_counter() - wall, time.process_time() - busy
        looked = time.process_time()
        many.predict(paths[50:178])
        looked = (time.process_time() - looked) / 128
        print(f"load {os.getloadavg()[0]:.1f}; {asked.rows} vectors, 50 classes, {asked.model}")
        print(f"{asked.rows / wall:.0f} answers/s by the clock, {asked.rows / busy:.0f} by CPU")
        print(f"looking at a photo takes {looked / (busy / asked.rows):.0f} times the CPU of an answer from its vector")
        for name in asked.models.split(","):
            file = home / f"{name}.glocal"
            Recognizer.enroll(classes, model=name, device="cpu").save(file)
            recognizer = Recognizer.load(file, device="cpu")
            for kind, maker in (("vectors", recognizer.contents.model.sha256), ("answers", "-")):
                folder = JobFolder(Store(str(home / f"{name}-{kind}")))
                job = Job(kind, str(file), maker, ("photos",), "cpu")
                folder.begin(job, resume=False, uris=iter(map(str, paths[50:])))
                work(folder, job)
                folder.finish()
            kept = JobFolder(Store(str(home / f"{name}-kept")))
            Vectors(str(home / f"{name}-vectors")).answer(recognizer, kept, name)
            pairs = list(zip(rows(home / f"{name}-answers"), rows(home / f"{name}-kept"), strict=True))
            same = sum(a["label"] == b["label"] and a[URI] == b[URI] for a, b in pairs)
            worst = max(abs(a["open_score"] - b["open_score"]) / max(1, abs(a["open_score"])) for a, b in pairs)  # type: ignore[operator, arg-type]
            print(
                f"{name}: the same label on {same} of {len(pairs)}, largest difference of a score {worst:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
