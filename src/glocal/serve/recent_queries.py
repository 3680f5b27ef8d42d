"""The photos that were asked about of late, with their features: in memory and, if a folder was given, as PNG files."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from glocal.common.errors import DataError
from glocal.common.files import make_folder, replacing
from glocal.recognizer.features import Features
from glocal.recognizer.photos.images import UnusableImage, opened
from glocal.recognizer.photos.sources import Picture
from glocal.recognizer.support import signature

MOST = 200
log = logging.getLogger("glocal.serve")


@dataclass(frozen=True)
class Query:
    """One photo; asking about it again makes it the newest."""

    picture: Picture
    views: Features  # as those of a support photo would be stored

    @property
    def id(self) -> str:
        return self.picture.digest

    def to_json(self) -> dict[str, str]:
        """What the page shows of it."""
        return {"id": self.id, "name": self.picture.name, "thumbnail": f"/queries/{self.id}/thumbnail"}


class RecentQueries:
    """The newest ``most`` photos; safe to use from any thread."""

    def __init__(self, folder: Path | None = None, *, most: int = MOST) -> None:
        self._folder, self._most = folder, most
        self._lock = threading.RLock()
        self._queries: OrderedDict[str, Query] = OrderedDict()  # oldest first
        self._model = ""
        if folder is not None:
            make_folder(folder, mode=0o700)

    def read(self) -> Iterator[Picture]:
        """The photos in the folder, oldest first, as the encoder saw them."""
        for path in sorted(self._files("*"))[-self._most :]:
            try:
                with Image.open(path, formats=["PNG"]) as image:
                    pixels = opened(image, path.name)
                    name = str(image.info.get("name", path.name))
            except (OSError, UnusableImage):
                continue
            yield Picture(name, pixels, hashlib.sha256(pixels.data).hexdigest(), signature(pixels))

    def restore(self, queries: Iterable[Query], model: str) -> None:
        self._model = model
        self._queries.update((each.id, each) for each in queries)

    def belong_to(self, model: str) -> None:
        """Features of another model say nothing: forget them."""
        with self._lock:
            if model != self._model:
                self._model = model
                self._queries.clear()
                with suppress(OSError):
                    self._delete("*")

    def add(self, query: Query, model: str) -> None:
        with self._lock:
            if model != self._model:
                return
            known = self._queries.pop(query.id, None) is not None
            self._queries[query.id] = query
            try:
                if known:
                    self._delete(query.id)
                self._write(query)
                while len(self._queries) > self._most:
                    self._delete(next(iter(self._queries)))
                    self._queries.popitem(last=False)
            except OSError as error:
                log.warning("recent photos could not be written to %s: %s", self._folder, error)

    def get(self, id_: str) -> Query | None:
        return self._queries.get(id_)

    def forget(self, id_: str) -> bool:
        """On the disk first; a photo that cannot be deleted there is not forgotten."""
        with self._lock:
            try:
                self._delete(id_)
            except OSError as error:
                raise DataError(
                    f"the photo could not be deleted from the disk ({error.strerror or error}), so it is not "
                    "forgotten; check the permissions of the folder and try again",
                    code="not-written",
                ) from error
            return self._queries.pop(id_, None) is not None

    def newest_first(self) -> list[Query]:
        with self._lock:
            return list(reversed(self._queries.values()))

    def _write(self, query: Query) -> None:
        if self._folder is None:
            return
        about = PngInfo()
        about.add_itxt("name", query.picture.name)
        with replacing(self._folder / f"{time.time_ns():020d}-{query.id}.png", lasting=False) as partial:
            Image.fromarray(query.picture.pixels).save(partial, "PNG", pnginfo=about, compress_level=1)

    def _delete(self, id_: str) -> None:
        for path in self._files(id_):
            path.unlink(missing_ok=True)

    def _files(self, id_: str) -> list[Path]:
        return [] if self._folder is None else list(self._folder.glob(f"{'[0-9]' * 20}-{id_}.png"))
