"""Write a recognizer as a folder of static files: page, graphs, arrays, runtime, and a worker that keeps them all.

The page computes what ``Recognizer.predict`` computes, in WebAssembly.  The package ``glocal-web`` holds the runtime.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import shutil
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from glocal.common.errors import DataError
from glocal.common.files import make_folder, or_not_written
from glocal.recognizer.calibration.probability import STEEP
from glocal.recognizer.features import Array
from glocal.recognizer.heads.converted import ConvertedHead
from glocal.recognizer.heads.prototypes import Prototypes, PrototypeState
from glocal.recognizer.heads.ridge import Ridge, RidgeState
from glocal.recognizer.recognizer import Recognizer

PAGE = Path(__file__).parent / "page"
WORKER, MANIFEST, ARRAYS = "sw.js", "recognizer.json", "arrays.bin"
ALIGNED = 4  # bytes: where an array of float32 may begin in a browser


def export_web(recognizer: Recognizer, folder: str | Path, *, name: str = "Recognizer") -> int:
    """Write the page into a new folder.

    Parameters
    ----------
    recognizer : Recognizer
        What the page answers as.
    folder : str or Path
        A folder that does not exist yet.
    name : str
        Title of the page.

    Returns
    -------
    int
        Bytes of all files.
    """
    folder, runtime = Path(folder), _runtime()
    if os.path.lexists(folder):
        raise DataError(f"{folder} is there already; choose another folder, or remove it", code="file-exists")
    recognizer.contents.model.encoder.check_photos()
    with or_not_written(folder, "free some space or choose another place"):
        make_folder(folder.parent)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".web-") as temporary:
            whole = Path(temporary) / "page"
            shutil.copytree(PAGE, whole)
            shutil.copytree(runtime.RUNTIME, whole / "runtime")
            shutil.copy(Path(runtime.RUNTIME).parent / "LICENSE", whole / "runtime")
            _write_recognizer(recognizer, name, whole)
            files = sorted(each.relative_to(whole).as_posix() for each in whole.rglob("*") if each.is_file())
            kept = ["./", *(each for each in files if each != WORKER)]
            worker = (whole / WORKER).read_text("utf-8")
            worker = worker.replace("@IDENTITY@", recognizer.contents.identity).replace('"@FILES@"', json.dumps(kept))
            (whole / WORKER).write_text(worker, "utf-8")
            whole.rename(folder)
    return sum((folder / each).stat().st_size for each in files)


def _runtime() -> ModuleType:
    try:
        return importlib.import_module("glocal_web")
    except ImportError:
        raise DataError(
            "a page needs the package glocal-web, which is not installed; in the repository: pip install ./web",
            code="no-runtime",
        ) from None


def _write_recognizer(recognizer: Recognizer, name: str, folder: Path) -> None:
    contents = recognizer.contents
    encoder, head, threshold = contents.model.encoder, contents.model.head, contents.decision.threshold
    about, arrays = _head(head, recognizer.enrolled.state, contents.support.bank.features.shape)
    for sha256, data in {each.sha256: each.data for each in (*encoder.graphs(), *head.graphs())}.items():
        (folder / _graph(sha256)).write_bytes(data)
    manifest = {
        "name": name,
        "classes": recognizer.classes,
        "threshold": {
            "value": threshold.value if math.isfinite(threshold.value) else None,
            "levels": threshold.levels,
            "spread": threshold.spread,
        },
        "steep": STEEP,
        "usual": contents.decision.usual,
        "members": [
            {
                "graph": _graph(each.graph.sha256),
                "neck": None if each.neck is None else _graph(each.neck.sha256),
                "unit": each.unit,
                "preprocess": each.preprocess.to_json(),
            }
            for each in encoder.members
        ],
        "head": about,
        "arrays": _write_arrays(arrays, folder / ARRAYS),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    app = {"name": name, "short_name": name, "start_url": "./", "display": "standalone", "icons": [{"src": "icon.svg"}]}
    (folder / "app.webmanifest").write_text(json.dumps(app), "utf-8")


def _head(head: Any, state: Any, shape: tuple[tuple[int, ...], ...]) -> tuple[dict[str, Any], dict[str, Array]]:
    """What the page has to know of a head, and the arrays of the enrolled classes."""
    if isinstance(head, Ridge) and isinstance(state, RidgeState):
        about = {"kind": head.name, "weight": head.weight, "temperature": head.temperature}
        cells = {f"cells.{i}": each.astype(np.float16) for i, each in enumerate(state.cells)}  # as files keep them
        arrays = {"proto": state.proto, "vec": state.vec, "alpha": state.alpha, **cells}
        if state.spread is not None:
            arrays["spread"] = state.spread.T
    elif isinstance(head, Prototypes) and isinstance(state, PrototypeState):
        length = np.linalg.norm(state.proto, axis=1, keepdims=True).clip(1e-12)
        about, arrays = {"kind": head.name, "temperature": head.temperature}, {"proto": state.proto / length}
    elif isinstance(head, ConvertedHead):
        arrays = {key: each for key, each in state.items() if key != "n_way"}
        score = head.graphs()[1]
        about = {
            "kind": "converted",
            "graph": _graph(score.sha256),
            "state": list(arrays),
            "parts": head.outputs[1:],
            "map_shape": shape[-1][1:],
        }
    else:
        raise DataError(f"the head {head.name} cannot answer in a page; enroll with ridge or prototypes", code="head")
    return {**about, "open_score": head.open_score}, arrays


def _write_arrays(arrays: dict[str, Array], path: Path) -> dict[str, Any]:
    """All arrays in one file, and where each begins in it."""
    places: dict[str, Any] = {}
    with path.open("wb") as file:
        for name, array in arrays.items():
            file.write(bytes(-file.tell() % ALIGNED))
            if array.dtype.kind != "f":
                raise DataError(f"a page cannot feed {array.dtype} to the graph of this head; use ridge", code="head")
            values = array if array.dtype == np.float16 else array.astype("<f4")
            places[name] = {"dtype": values.dtype.name, "shape": values.shape, "offset": file.tell()}
            file.write(np.ascontiguousarray(values).tobytes())
    return places


def _graph(sha256: str) -> str:
    return f"{sha256[:16]}.onnx"
