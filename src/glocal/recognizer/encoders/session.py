"""The one place that runs ONNX graphs."""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from glocal.common.errors import DataError, RecipeError
from glocal.recognizer.encoders.self_contained import check_self_contained
from glocal.recognizer.features import Array

encoding_end: ContextVar[float] = ContextVar("encoding_end", default=math.inf)  # a value of time.monotonic
DEVICES = {"auto": "CPU", "cpu": "CPU", "cuda": "CUDA"}  # of --device -> execution provider


@contextmanager
def encoding_within(seconds: float) -> Iterator[None]:
    """Encoders that are still at work in this thread after so many seconds are stopped."""
    before = encoding_end.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        encoding_end.reset(before)


class Graph:
    """Arrays by name in and out.  The session is made when the first answer is asked for.

    Parameters
    ----------
    source : bytes or Path
        The graph; a path is that of one that ships with the package, which no file needs to hold.
    what : str
        Names the graph in messages.
    sha256 : str
        Of the graph, where it is known.
    device : str
        auto, cpu or cuda.
    threads : int
        Threads of onnxruntime; 0 means OMP_NUM_THREADS, or one per core.
    linked : bool
        Whether files of recognizers name it without holding it.
    """

    def __init__(
        self,
        source: bytes | Path,
        what: str,
        *,
        sha256: str = "",
        device: str = "auto",
        threads: int = 0,
        linked: bool = False,
    ) -> None:
        self.what, self.linked, self._source = what, linked, source
        self.sha256 = sha256 or hashlib.sha256(self.data).hexdigest()
        self._provider, self._threads = provider(device), threads or int(os.environ.get("OMP_NUM_THREADS") or 0)

    @property
    def data(self) -> bytes:
        return self._source if isinstance(self._source, bytes) else self._source.read_bytes()

    @property
    def ships(self) -> bool:
        """Whether the package has it."""
        return not isinstance(self._source, bytes)

    def __call__(self, feeds: Mapping[str, Array], outputs: Sequence[str], *, end: float = math.inf) -> list[Array]:
        """The outputs in that order; inputs that the graph does not have are left out.

        At ``end``, a value of ``time.monotonic``, the graph is stopped wherever it is.
        """
        import onnxruntime

        taken = {name: each for name, each in feeds.items() if name in self._inputs}
        options, left = onnxruntime.RunOptions(), end - time.monotonic()
        stop = threading.Timer(min(left, threading.TIMEOUT_MAX), setattr, (options, "terminate", True))
        try:
            if left <= 0:
                raise TimeoutError
            if end < math.inf:
                stop.start()
            arrays: list[Array] = self._session.run(outputs, taken, options)
        except Exception as error:  # onnxruntime has no common error class
            if time.monotonic() >= end:
                raise DataError(
                    "the photos take too long to encode; send fewer of them at once, or use a smaller encoder",
                    code="slow-encoder",
                ) from error
            raise self.damaged(error) from error
        finally:
            stop.cancel()
        for name, each in zip(outputs, arrays, strict=True):
            if not isinstance(each, np.ndarray):
                raise self.damaged(f"its output {name} is no array")
        return arrays

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        return tuple(each.name for each in self._session.get_outputs())

    def check(self, array: Array, name: str, *shape: int | None) -> Array:
        """An output as the caller needs it (None: any length but 0), or the sentence of a damaged file."""
        fits = len(shape) == array.ndim and all(a == (b or a) for a, b in zip(array.shape, shape, strict=True))
        if not fits or not array.size or array.dtype.kind != "f":
            sides = ", ".join("any" if each is None else str(each) for each in shape)
            raise self.damaged(f"its output {name} is {array.dtype} {array.shape}, not floating point ({sides})")
        return array

    def damaged(self, error: Exception | str) -> DataError:
        import onnxruntime

        line = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        return DataError(
            f"{self.what} cannot be used by onnxruntime {onnxruntime.__version__} ({line}); copy or make it again",
            code="damaged-file",
        )

    @cached_property
    def _inputs(self) -> frozenset[str]:
        return frozenset(each.name for each in self._session.get_inputs())

    @cached_property
    def _session(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.log_severity_level = 3  # errors alone: a user cannot mend what a graph could do better
        options.add_session_config_entry("session.load_model_format", "ONNX")  # not its own, which is not checked
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads would burn a core
        with tempfile.TemporaryDirectory() as empty:  # a graph must not read other files as its weights
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", empty)
            try:
                if not self.ships:
                    check_self_contained(self.data)
                return onnxruntime.InferenceSession(self.data, options, providers=[self._provider])
            except Exception as error:
                raise self.damaged(error) from error


def provider(device: str) -> str:
    """The execution provider of onnxruntime that ``device`` names."""
    if device not in DEVICES:
        raise RecipeError(f"device must be one of {', '.join(DEVICES)}, got {device!r}", code="device")
    name = f"{DEVICES[device]}ExecutionProvider"
    if device == "cuda":
        import onnxruntime

        if name not in onnxruntime.get_available_providers():
            raise RecipeError(
                "this onnxruntime has no CUDA: pip uninstall onnxruntime, then pip install onnxruntime-gpu; "
                "or leave out --device cuda",
                code="device",
            )
    return name
