"""Where photos lie: paths, folders, globs, zips, lists of uris, and addresses of object storage; and how one is read.

A uri is a path as it was named, ``zip://MEMBER::ZIP``, ``http(s)://...``, or whatever fsspec has a client for
(``s3://``, ``gs://``, ``memory://``, ...).  A path that is not Unicode becomes ``file://`` with its bytes in percent.
"""

from __future__ import annotations

import csv
import glob
import io
import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from glocal.common.errors import DataError, GlocalError, RecipeError
from glocal.recognizer.photos.images import Pixels, UnusableImage, decode, is_picture
from glocal.recognizer.photos.sources import Source, picture_files

URI = "uri"  # column of a list of photos
LISTS, ZIP = (".parquet", ".csv"), ".zip"
WEB = ("http://", "https://")
FILE, MEMBER = "file://", "zip://"
OURS = (*WEB, MEMBER)  # read without a client
BLOCK = 1 << 14  # rows of a list that are in memory
LARGEST = 256 << 20  # bytes of a picture file that is read into memory
PATIENCE = 60  # seconds that a web server may be silent


def addresses(given: Iterable[str]) -> Iterator[str]:
    """The uri of every photo, in order; a folder, glob, zip or list without any photo is refused."""
    for each in given:
        empty = True
        for uri in _below(each):
            empty = False
            yield uri
        if empty:
            raise DataError(f"{each}: there is no picture in it; name what holds some", code="no-photos")


def check_clients(given: Iterable[str]) -> None:
    """Refuse an address that nothing here can read, before there is a list of them."""
    for each in given:
        if is_remote(each) and not each.startswith(OURS):
            client(each)


def is_remote(address: str) -> bool:
    return "://" in address and not address.startswith(FILE)


def local_path(address: str) -> str:
    """Of a path, or of ``file://`` and a path."""
    return os.fsdecode(unquote_to_bytes(address.removeprefix(FILE))) if address.startswith(FILE) else address


def client(address: str) -> tuple[Any, str]:
    """The file system of fsspec that an address belongs to, and the path in it."""
    try:
        import fsspec

        system, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise RecipeError(f"{address} cannot be reached from here: {_reason(error)}", code="needs-client") from error
    except Exception as error:  # each client has errors of its own
        raise DataError(f"{address} cannot be opened ({_reason(error)}); check it and your access to it") from error
    return system, path


def names_in(folder: str) -> list[str] | None:
    """Names of files and folders; None where there is no such folder."""
    system, path = client(folder) if is_remote(folder) and not folder.startswith(OURS) else (os, local_path(folder))
    if system is os:
        return os.listdir(path) if os.path.isdir(path) else None
    system.invalidate_cache(path)
    return [str(each).rsplit("/", 1)[-1] for each in system.ls(path, detail=False)] if system.isdir(path) else None


def opened(address: str) -> Any:
    """A binary file to read from."""
    if address.startswith(MEMBER):
        name, _, archive = address.removeprefix(MEMBER).rpartition("::")
        return _archive(archive).open(name)
    if address.startswith(WEB):
        from urllib.request import urlopen  # a tenth of the time that one photo takes

        return urlopen(address, timeout=PATIENCE)
    if not is_remote(address):
        return open(local_path(address), "rb")
    system, path = client(address)
    return system.open(path, "rb")


def seekable(address: str) -> Any:
    """As ``opened``; a file of the web comes into memory."""
    file = opened(address)
    if file.seekable():
        return file
    with file:
        return io.BytesIO(file.read())


@contextmanager
def needing_pyarrow() -> Iterator[None]:
    """An import of it that fails says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyarrow", "pebble"):
            raise
        raise RecipeError(
            f"Parquet files of photos and results need {error.name}: pip install pyarrow",
            code="needs-parquet",
        ) from error


def named(uri: Any) -> str:
    """A row of a list."""
    if not isinstance(uri, str) or not uri:
        raise DataError(f"a list of photos must name one in each row, got {uri!r}; leave those out", code="bad-list")
    return uri


def source_of(uri: str, home: str | None = None) -> Source:
    """``home``: the folder that relative paths are meant from, where this process runs in another."""
    if is_remote(uri):
        return Source(uri, partial(_fetch, uri))
    return Source(uri, partial(decode, Path(home or "", local_path(uri)), name=uri))


def _below(given: str) -> Iterator[str]:
    given = local_path(given)
    ending = os.path.splitext(given)[1].lower()
    if ending in LISTS:
        return _listed(given)
    if ending == ZIP:
        return _zipped(given)
    return _stored(given) if is_remote(given) else _local(given)


def _local(given: str) -> Iterator[str]:
    if not os.path.lexists(given) and glob.has_magic(given):
        yield from (_uri(path) for path in sorted(glob.glob(given, recursive=True)) if _is_picture(path))
    else:
        yield from (_uri(str(path)) for path in picture_files([given]))


def _stored(given: str) -> Iterator[str]:
    if given.startswith(WEB):  # a web server lists nothing
        yield given
        return
    system, path = client(given)
    try:
        if glob.has_magic(path):
            names = sorted(system.glob(path))
        elif system.isdir(path):
            names = sorted(system.find(path))
        else:
            yield given
            return
    except Exception as error:  # each client has errors of its own
        raise DataError(f"{given} cannot be listed ({_reason(error)}); check the address and your access") from error
    yield from (system.unstrip_protocol(name) for name in names if _is_picture(name))


def _zipped(given: str) -> Iterator[str]:
    try:
        names = sorted(_archive(given).namelist())
    except Exception as error:
        raise DataError(f"{given} is no zip that can be read ({_reason(error)}); pack it again") from error
    archive = FILE + quote(os.path.abspath(given)) if "::" in given else given  # the last :: ends the name
    yield from (f"{MEMBER}{name}::{archive}" for name in names if _is_picture(name))


@lru_cache(maxsize=8)
def _archive(address: str) -> zipfile.ZipFile:
    """Open for the rest of the process: its table of contents may be long, and threads may read from it together."""
    file = seekable(address)
    try:
        return zipfile.ZipFile(file)
    except Exception:
        file.close()
        raise


def _listed(given: str) -> Iterator[str]:
    """The column ``uri`` of a CSV or Parquet file, or of a folder of Parquet files."""
    try:
        if given.lower().endswith(".csv"):
            with opened(given) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
                yield from (named(row[URI]) for row in csv.DictReader(text))
            return
        with needing_pyarrow():
            from glocal.bulk.parquet import blocks, parquet_files
        for block in blocks(parquet_files(given), [URI], BLOCK):
            yield from map(named, block.column(URI).to_pylist())
    except (csv.Error, KeyError, OSError, ValueError) as error:
        if isinstance(error, GlocalError):
            raise
        raise DataError(
            f"{given} is no list of photos: it must be a Parquet or CSV file with a column {URI!r} ({_reason(error)})",
            code="bad-list",
        ) from error


def _fetch(uri: str) -> Pixels:
    try:
        with opened(uri) as file:
            data = file.read(LARGEST + 1)
    except Exception as error:  # each client has errors of its own
        raise UnusableImage(uri, f"it cannot be read ({_reason(error)}); check the address and your access") from error
    if len(data) > LARGEST:
        raise UnusableImage(uri, f"its file has more than {LARGEST >> 20} MiB; make the picture smaller")
    return decode(data, name=uri)


def _uri(path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError:
        return FILE + quote(os.fsencode(os.path.abspath(path)))
    return path


def _is_picture(name: str) -> bool:
    return is_picture(name) and not os.path.basename(name).startswith(".")


def _reason(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
