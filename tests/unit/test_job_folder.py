"""The folder of a job: a list with each photo once, parts, counts, and what may not be mixed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from glocal.bulk.job import Job, JobFolder
from glocal.bulk.rows import ANSWERS, error_rows
from glocal.bulk.store import Store
from glocal.recognizer.batches import BATCH
from refusal import refused

JOB = Job("answers", "x.glocal", "maker", ("photos",))


def answered(uris: list[str]) -> pa.Table:
    columns = {"uri": uris} | {name: [None] * len(uris) for name in ANSWERS.names[1:]}
    return pa.table(columns, schema=ANSWERS)


def begun(where: str, uris: list[str], *, resume: bool = False) -> JobFolder:
    folder = JobFolder(Store(where))
    folder.begin(JOB, resume=resume, uris=iter(uris))
    return folder


@pytest.mark.parametrize("where", ["{}/out.parquet", "memory://job/out.parquet"])
def test_parts_counts_and_resuming(tmp_path: Path, where: str) -> None:
    where = where.format(tmp_path)
    uris = [f"photo {i % 90}" for i in range(100)]  # ten of them twice
    folder = begun(where, uris)
    assert folder.waiting() == [0, 1, 2]
    parts = dict(folder.photos([0, 1, 2]))
    assert [uri for part in parts.values() for uri in part] == uris[:90]
    folder.write(1, answered(parts[1]))
    again = begun(where, [], resume=True)
    assert again.waiting() == [0, 2]
    assert again.size([0, 2]) == 90 - BATCH
    again.write(0, error_rows(ANSWERS, parts[0], "bad", "maker"))
    again.write(2, answered(parts[2]))
    counts = again.finish()
    assert (counts.photos, counts.errors, counts.answered, counts.parts) == (90, BATCH, 90 - BATCH, 3)
    assert json.loads(again.store.read("_SUCCESS"))["errors"] == BATCH
    assert again.first_error() == "cannot use picture photo 0: bad"
    store = again.store
    table = ds.dataset(store.path, filesystem=store.system, format="parquet").to_table()
    assert table.column("uri").to_pylist() == uris[:90], "readers of Parquet see the parts alone"


def test_jobs_are_not_mixed(tmp_path: Path) -> None:
    where = str(tmp_path / "out")
    begun(where, ["a"])
    with refused("interrupted-run", where):
        begun(where, ["a"])
    folder = JobFolder(Store(where))
    for other in ({"maker": "another"}, {"kind": "vectors"}, {"given": ("others",)}):
        with refused("other-photos" if "given" in other else "other-recognizer"):
            folder.begin(replace(JOB, **other), resume=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with refused("bad-target", "letter.txt"):
        begun(str(tmp_path / "mine"), ["a"])
    (tmp_path / "file").touch()
    with refused("bad-target"):
        begun(str(tmp_path / "file"), ["a"])
    with refused("bad-list"):
        begun(str(tmp_path / "new"), ["a", ""])
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"kind": 1, "maker": 2, "given": 3}', "[" * 50_000])
def test_a_damaged_record_of_the_job_is_a_sentence(tmp_path: Path, content: str) -> None:
    where = str(tmp_path / "out")
    begun(where, ["a"]).store.write("_job.json", content.encode())
    with refused("damaged-job", where):
        begun(where, ["a"], resume=True)


def test_a_part_that_is_short_is_not_a_success(tmp_path: Path) -> None:
    folder = begun(str(tmp_path / "out"), [f"{i}" for i in range(40)])
    folder.write(0, answered(["0"]))
    folder.write(1, answered([f"{i}" for i in range(8)]))
    with refused("part"):
        folder.finish()
    assert "_SUCCESS" not in folder.store.names()
