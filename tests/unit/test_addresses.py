"""Where photos can lie, and what is said when they do not."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glocal.bulk.addresses import addresses, check_clients, source_of
from glocal.bulk.store import Store
from glocal.cli.console import check_there
from glocal.recognizer.photos.images import Preprocess, decode
from glocal.recognizer.photos.sources import Unreadable, take
from photos import write
from refusal import refused
from web import served


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("addresses")
    write(home / "photos" / "below", "one", 0, 3)
    write(home / "photos", "two", 3, 5)
    (home / "photos" / "notes.txt").write_text("no picture")
    with zipfile.ZipFile(home / "photos.zip", "w") as archive:
        for path in sorted((home / "photos").rglob("*.*")):
            archive.write(path, path.relative_to(home / "photos"))
    return home


@pytest.fixture
def web(home: Path) -> Iterator[str]:
    with served(home) as address:
        yield address


def names(*given: object) -> list[str]:
    return [uri.rsplit("/", 1)[-1].partition("::")[0] for uri in addresses(map(str, given))]


FIVE = ["003.png", "004.png", "000.png", "001.png", "002.png"]


def test_folders_globs_zips_and_lists(home: Path, tmp_path: Path) -> None:
    photos = home / "photos"
    assert names(photos) == FIVE
    assert names(photos / "*.png") == ["003.png", "004.png"]
    assert sorted(names(f"{photos}/**")) == sorted(FIVE), "globs take pictures only"
    zipped = list(addresses([str(home / "photos.zip")]))
    assert sorted(uri.rsplit("/", 1)[-1] for uri in (each.partition("::")[0] for each in zipped)) == sorted(FIVE)
    listed = list(addresses([str(photos)]))
    pq.write_table(pa.table({"place": range(5), "uri": listed}), tmp_path / "list.parquet")
    with (tmp_path / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("uri", "n"), *((uri, 1) for uri in listed)])
    assert list(addresses([str(tmp_path / "list.parquet")])) == listed
    assert list(addresses([str(tmp_path / "list.csv")])) == listed
    with zipfile.ZipFile(tmp_path / "odd::name.zip", "w") as archive:
        archive.write(photos / "003.png", "a::b.png")
    zipped += addresses([str(tmp_path / "odd::name.zip")])
    pixels = [source_of(uri).read() for uri in (listed[0], next(uri for uri in zipped if "//003" in uri))]
    np.testing.assert_array_equal(*pixels)
    np.testing.assert_array_equal(source_of(zipped[-1]).read(), pixels[0])


def test_object_storage_and_the_web(home: Path, web: str) -> None:
    expected = decode(home / "photos" / "003.png")
    memory = fsspec.filesystem("memory")
    for path in (home / "photos").glob("*.*"):
        memory.pipe_file(f"/bucket/photos/{path.name}", path.read_bytes())
    memory.pipe_file("/bucket/photos.zip", (home / "photos.zip").read_bytes())
    assert list(addresses(["memory://bucket/photos"])) == [
        "memory:///bucket/photos/003.png",
        "memory:///bucket/photos/004.png",
    ]
    assert names("memory://bucket/photos/*4.png") == ["004.png"]
    assert len(names("memory://bucket/photos.zip")) == 5
    for uri in ("memory://bucket/photos/003.png", "zip://003.png::memory://bucket/photos.zip"):
        np.testing.assert_array_equal(source_of(uri).read(), expected)
    pq.write_table(pa.table({"uri": ["a.jpg", "b.jpg"]}), home / "list.parquet")
    (home / "list.csv").write_text("uri\nc.jpg\n")
    assert list(addresses([f"{web}/list.parquet", f"{web}/list.csv"])) == ["a.jpg", "b.jpg", "c.jpg"]
    assert len(names(f"{web}/photos.zip")) == 5
    assert list(addresses([f"{web}/photos/003.png"])) == [f"{web}/photos/003.png"]
    np.testing.assert_array_equal(source_of(f"{web}/photos/003.png").read(), expected)
    for gone in (f"{web}/photos/gone.png", "memory://bucket/gone.png"):
        found = take(source_of(gone), Preprocess(32))
        assert isinstance(found, Unreadable)
        assert found.path == gone
        assert "cannot be read" in found.error


def test_paths_of_every_kind(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert list(addresses([f"file://{home}/photos"])) == list(addresses([str(home / "photos")]))
    Store(f"file://{tmp_path}/a%20folder").write("x", b"1")
    assert (tmp_path / "a folder" / "x").read_bytes() == b"1"
    assert Store(f"file://{tmp_path}/a%20folder").read("x") == b"1"
    # Names that are not Unicode.
    [path] = write(tmp_path, "one", 0, 1)
    odd = os.path.join(os.fsencode(tmp_path), b"\xff %.png")
    os.rename(path, odd)
    [uri] = addresses([str(tmp_path)])
    assert uri.encode().startswith(b"file:///")
    assert source_of(uri).read().shape == (32, 32, 3)
    monkeypatch.chdir("/")
    assert source_of("photos/003.png", str(home)).read().shape == (32, 32, 3)


def test_what_is_refused_and_what_a_glob_takes(home: Path, tmp_path: Path) -> None:
    with refused("needs-client", "nosuch://x"):
        check_clients([str(home), "nosuch://x"])
    with refused("needs-client", "nosuch://x"):
        Store("nosuch://x")
    for no_folder in ("https://example.org/out", "zip://out::photos.zip"):
        with refused("bad-target", no_folder):
            Store(no_folder)
    fsspec.filesystem("memory").mkdir("/empty")
    with refused("no-photos", "memory://empty"):
        list(addresses(["memory://empty"]))
    (tmp_path / "list.csv").write_text("url\na.jpg\n")
    (tmp_path / "list.parquet").write_text("no")
    for name in ("list.csv", "list.parquet"):
        with refused("bad-list", name):
            list(addresses([str(tmp_path / name)]))
    for name, rows in (("null", ["a.jpg", None]), ("empty", [""]), ("numbers", [1])):
        pq.write_table(pa.table({"uri": rows}), tmp_path / f"{name}.parquet")
        with refused("bad-list", f"got {rows[-1]!r}"):
            list(addresses([str(tmp_path / f"{name}.parquet")]))
    (tmp_path / "x.zip").write_text("no")
    with refused("data", "x.zip"):
        list(addresses([str(tmp_path / "x.zip")]))
    write(tmp_path / "flat", "one", 0, 1)
    for given in (tmp_path / "flat" / "**" / "*.png", tmp_path / "**" / "*.png", tmp_path / "fl?t", "s3://bucket/x"):
        check_there(given)
    for gone in (tmp_path / "**" / "*.gif", tmp_path / "gone"):
        with refused("no-file", str(gone)):
            check_there(gone)


WITHOUT = """
import sys
sys.modules["pyarrow"] = None
from glocal.bulk.addresses import addresses
list(addresses(["list.parquet"]))
"""


def test_a_list_without_pyarrow_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert "pip install pyarrow" in done.stderr.splitlines()[-1]
