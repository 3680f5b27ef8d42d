"""Pictures that were asked about: kept as the encoder saw them, with their views, so that nothing is encoded twice.

The newest are in memory and, a moment later, in files of their own in the history folder.  Under load they are written
every now and then and not one by one, because most would be pushed out before anybody looks.  What a full disk does not
take is kept in memory and tried again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from glocal.common.errors import DataError
from glocal.common.files import replacing
from glocal.recognizer.features import Views
from glocal.recognizer.photos.sources import Picture
from glocal.recognizer.support import CELLS

MOST = 200
QUIET, LONGEST = 1.0, 30.0  # seconds without a new one, or since the first unwritten one, after which they are written
log = logging.getLogger("glocal.serve")


@dataclass(frozen=True)
class Query:
    """One picture; asking about it again makes it the newest."""

    picture: Picture
    views: Views  # of this one, as a support photo's would be stored
    asked: float  # when

    @property
    def id(self) -> str:
        return self.picture.digest

    def to_json(self) -> dict[str, str]:
        """What the page shows of it."""
        return {"id": self.id, "name": self.picture.name, "thumbnail": f"/queries/{self.id}/thumbnail"}


class RecentQueries:
    """The newest ``most`` pictures; safe to use from any thread."""

    def __init__(self, folder: Path, *, most: int = MOST) -> None:
        self._folder, self._most = folder, most
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._queries: OrderedDict[str, Query] = OrderedDict()  # oldest first
        self._model = ""
        self._unwritten: float | None = None  # since when
        self._touched = 0.0
        self._closed = threading.Event()
        self._writer = threading.Thread(target=self._keep_writing, name="glocal-queries", daemon=True)

    def open(self, model: str, *, fits: Callable[[Query], bool] = lambda query: True) -> None:
        """Read what is on disk, pictures and views of the model with this hash only and that fit; then keep writing."""
        self.belong_to(model)
        found = [_read(path, model) for path in self._folder.glob("*.safetensors")]
        read = [each for each in found if each is not None and fits(each)]
        for query in sorted(read, key=lambda each: each.asked):
            self._put(query)
        self._unwritten = None
        self._try_to_write()  # deletes what could not be read
        self._writer.start()

    def belong_to(self, model: str) -> None:
        """Views of another model say nothing: forget them."""
        with self._lock:
            if model != self._model:
                self._model = model
                self._queries.clear()
                self._changed()

    def add(self, query: Query, model: str) -> None:
        if model == self._model:
            self._put(query)

    def get(self, id_: str) -> Query | None:
        return self._queries.get(id_)

    def forget(self, id_: str) -> bool:
        """At once, on the disk too; when that cannot be, it is kept."""
        with self._writing:
            try:
                for path in self._folder.glob(f"{id_}-*.safetensors"):
                    path.unlink(missing_ok=True)
            except OSError as error:
                raise DataError(
                    f"the picture could not be deleted from the disk ({error.strerror or error}), so it is not "
                    "forgotten; check the permissions of the folder and try again",
                    code="not-written",
                ) from error
            with self._lock:
                return self._queries.pop(id_, None) is not None

    def newest_first(self) -> list[Query]:
        with self._lock:
            return list(reversed(self._queries.values()))

    def close(self) -> None:
        self._closed.set()
        if self._writer.is_alive():
            self._writer.join()
        self._try_to_write()

    def write(self) -> None:
        """Make the folder hold what memory holds."""
        with self._writing:
            with self._lock:
                wanted, since = {_file_name(each): each for each in self._queries.values()}, self._unwritten
                self._unwritten = None
            try:
                for folder in (self._folder.parent, self._folder):  # the history may have been deleted
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                there = {path.name: path for path in self._folder.iterdir()}
                for name in there.keys() - wanted.keys():
                    there[name].unlink(missing_ok=True)
                for name in wanted.keys() - there.keys():
                    _write(self._folder / name, wanted[name], self._model)
            except BaseException:
                self._unwritten = since
                raise

    def _try_to_write(self) -> None:
        """Or say in the log, which keeps one line a minute, why it was not possible."""
        try:
            self.write()
        except (OSError, SafetensorError) as error:  # the library has an error of its own for a full disk
            log.warning("pictures that were asked about could not be written to %s: %s", self._folder, error)

    def _put(self, query: Query) -> None:
        with self._lock:
            self._queries.pop(query.id, None)
            self._queries[query.id] = query
            while len(self._queries) > self._most:
                self._queries.popitem(last=False)
            self._changed()

    def _changed(self) -> None:
        self._touched = time.monotonic()
        self._unwritten = self._unwritten or self._touched

    def _keep_writing(self) -> None:
        while not self._closed.wait(QUIET / 2):
            now, since = time.monotonic(), self._unwritten
            if since is not None and (now - self._touched > QUIET or now - since > LONGEST):
                self._try_to_write()


def _file_name(query: Query) -> str:
    """Another one when it is asked again, so that its new time and name are written."""
    again = hashlib.sha256(f"{query.asked} {query.picture.name}".encode(errors="replace")).hexdigest()[:8]
    return f"{query.id}-{again}.safetensors"


def _write(path: Path, query: Query, model: str) -> None:
    arrays = {"pixels": query.picture.pixels, "signature": query.picture.signature, "vec": query.views.vec}
    if query.views.local is not None:
        arrays["local"] = query.views.local
    arrays = {name: np.ascontiguousarray(each) for name, each in arrays.items()}  # others would be stored scrambled
    about = {"name": query.picture.name, "digest": query.id, "asked": query.asked, "model": model}
    with replacing(path, lasting=False) as partial:  # what a power cut leaves is read with care
        save_file(arrays, partial, metadata={"about": json.dumps(about)})


def _read(path: Path, model: str) -> Query | None:
    """None for a file of another model, and for one that makes no sense."""
    try:
        with safe_open(path, framework="np") as file:
            about = json.loads((file.metadata() or {})["about"])
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        pixels, views = found["pixels"], Views(found["vec"], found.get("local"))
        if about["model"] != model or hashlib.sha256(np.ascontiguousarray(pixels).data).hexdigest() != about["digest"]:
            return None
        numbers = [views.vec, *([] if views.local is None else [views.local])]
        square = len(pixels) > 0 and pixels.shape == (len(pixels), len(pixels), 3)
        whole = pixels.dtype == np.uint8 and square and found["signature"].shape == (CELLS * CELLS,)
        if not whole or not all(each.dtype.kind == "f" and np.isfinite(each).all() for each in numbers):
            return None
        if not math.isfinite(about["asked"]) or len(views) != 1 or found["signature"].dtype != np.uint8:
            return None
        picture = Picture(str(about["name"]), pixels, about["digest"], found["signature"])
        return Query(picture, views, float(about["asked"]))
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError):
        return None
