"""A folder for results, here or in object storage.  A file in it is there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from glocal.bulk.addresses import OURS, client, is_remote, local_path, names_in, opened
from glocal.common.errors import DataError, RecipeError
from glocal.common.files import or_not_written, replacing


class Store:
    def __init__(self, where: str) -> None:
        self.where = where.rstrip("/")
        if where.startswith(OURS):
            raise RecipeError(f"{where} cannot hold results; name a folder, or object storage", code="bad-target")
        self.system: Any  # of fsspec, None is this machine's
        self.system, self.path = client(self.where) if is_remote(where) else (None, local_path(self.where))

    def __reduce__(self) -> tuple[type[Store], tuple[str]]:
        return Store, (self.where,)  # a client is made anew where it is used

    def place(self, name: str) -> str:
        return f"{self.path}/{name}"

    def names(self) -> set[str]:
        names = names_in(self.where)
        if names is None and self.system is None and os.path.lexists(self.path):
            raise DataError(f"{self.where} is a file; results in parts need a folder, name another", code="bad-target")
        return set(names or ())

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """A file under a name that nobody sees before it is whole; object storage does the same by itself."""
        if self.system is None:
            place, way_out = Path(self.place(name)), "what is finished stays, continue with --resume when there is room"
            with or_not_written(place, way_out), replacing(place) as partial, partial.open("wb") as file:
                yield file
            return
        file = self.system.open(self.place(name), "wb")
        try:
            yield file
        except BaseException:
            with suppress(Exception):
                file.discard()  # else closing it would publish a half
            raise
        file.close()

    def write(self, name: str, data: bytes) -> None:
        with self.writing(name) as file:
            file.write(data)

    def read(self, name: str) -> bytes:
        with opened(self.address(name)) as file:
            data: bytes = file.read()
        return data

    def address(self, name: str) -> str:
        return f"{self.where}/{name}"

    def sweep(self) -> None:
        """Remove what killed writers left under temporary names."""
        if self.system is None:
            for stray in Path(self.path).glob(".*.partial"):
                stray.unlink(missing_ok=True)
