"""The folder of an export: graphs, one table of all else that answers depend on, and one file of numbers.

    manifest.json           classes, threshold, preprocessing, score model, hashes of the other files
    embed.onnx, enroll.onnx, score.onnx                                              (graphs.py)
    bank-<hash>.safetensors views, signatures and thumbnails of the support photos; probe pictures and their views
    glocal_runtime/         this package

A change writes a new bank and then replaces the manifest, which alone says which bank counts: whatever interrupts it,
the folder holds the old classes or the new ones.  What is read is believed to come from a stranger.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from glocal_runtime.decision import Decision, Promise
from glocal_runtime.errors import DataError, GlocalError
from glocal_runtime.files import replacing
from glocal_runtime.graphs import GRAPHS
from glocal_runtime.left_out import LeftOut
from glocal_runtime.preprocess import Preprocess
from glocal_runtime.score_model import ScoreModel
from glocal_runtime.support import Bank, Photo, Support
from glocal_runtime.tensors import pack, unpack
from glocal_runtime.threshold import Threshold
from glocal_runtime.twins import CELLS
from glocal_runtime.views import Array, Views, join

FORMAT, SCHEMA = "glocal export", 1
MANIFEST, BANK = "manifest.json", "bank-{}.safetensors"
PACKAGE = Path(__file__).parent
README = """An exported recognizer of glocal.  It needs Python 3.11 or newer and three packages:

    pip install numpy pillow onnxruntime

In this folder:

    python -m glocal_runtime verify .                 the same answers as where it was made?
    python -m glocal_runtime predict . photo.jpg      a name, or "unknown"
    python -m glocal_runtime add . bolt photos/bolt   teach it a class; nothing has to be exported again
"""


@dataclass(frozen=True)
class Probes:
    """A few pictures and what they scored, to prove elsewhere that the answers are the same."""

    images: tuple[bytes, ...]  # PNG
    views: Views
    open_score: tuple[float, ...] = ()
    logits: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Facts:
    """What an export knows of its model."""

    name: str
    method: str
    open_score: str
    min_way: int
    preprocess: Preprocess
    score_model: ScoreModel | None
    precision: str = "float32"
    report: Mapping[str, Any] = field(default_factory=dict)  # what was measured when it was made
    version: str = ""  # of the glocal that wrote it


@dataclass(frozen=True)
class Contents:
    facts: Facts
    support: Support
    unknown: Bank | None  # known unknowns
    promise: Promise
    decision: Decision
    probes: Probes


def is_export(folder: Path) -> bool:
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads((folder / MANIFEST).read_bytes())
        return isinstance(found, dict) and found.get("format") == FORMAT
    return False


def copy_package(folder: Path) -> None:
    """This package and a word about it, so that a machine needs nothing of glocal but the folder."""
    target = folder / PACKAGE.name
    target.mkdir(exist_ok=True)
    for source in sorted(PACKAGE.glob("*.py")):
        shutil.copyfile(source, target / source.name)
    (folder / "README.txt").write_text(README, encoding="utf-8")


def write_contents(folder: Path, contents: Contents, graphs: Mapping[str, str]) -> None:
    """Bank and manifest, into a folder that holds the ``graphs``, given by their sha256."""
    banks = [*contents.support.classes.values(), *([contents.unknown] if contents.unknown is not None else [])]
    views = {"photo": join([bank.views for bank in banks]), "probe": contents.probes.views}
    arrays = {f"{kind}.vec": each.vec for kind, each in views.items()}
    arrays |= {f"{kind}.local": each.local for kind, each in views.items() if each.local is not None}
    arrays["photo.signature"] = np.concatenate([bank.signature for bank in banks])
    arrays |= _packed("photo.thumbnail", [photo.thumbnail for bank in banks for photo in bank.photos])
    arrays |= _packed("probe.image", contents.probes.images)
    data = pack(arrays)
    digest = hashlib.sha256(data).hexdigest()
    bank = folder / BANK.format(digest[:16])
    manifest = _manifest(contents) | {"bank": {"file": bank.name, "sha256": digest}, "graphs": dict(graphs)}
    try:
        with replacing(bank) as partial:
            partial.write_bytes(data)
        with replacing(folder / MANIFEST) as partial:
            partial.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        for other in folder.glob(BANK.format("*")):
            if other.name != bank.name:
                other.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"{folder} could not be written ({error.strerror or error}); what was there before is unchanged, "
            "free some space or choose another place"
        ) from error


def read_contents(folder: Path) -> tuple[Contents, dict[str, bytes]]:
    """What the folder says, and its graphs by file name."""
    manifest = read_manifest(folder)
    try:
        graphs = {name: _verified(folder, name, manifest["graphs"][name]) for name in GRAPHS}
        bank = manifest["bank"]
        if Path(bank["file"]).name != bank["file"]:
            raise ValueError("a bank outside of the folder")
        arrays = unpack(_verified(folder, bank["file"], bank["sha256"]), str(folder / bank["file"]))
        return _contents(manifest, arrays), graphs
    except GlocalError as error:
        raise DataError(f"{folder}: {error}") from error
    except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else error
        raise DataError(f"{folder} is damaged: its manifest does not make sense ({what}); copy it again") from error


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(f"{folder} is not an export of glocal: it has no {MANIFEST}; name a folder of `glocal export`")
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{folder} is damaged: {MANIFEST} is not JSON ({error}); copy it again") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{folder} is not an export of glocal; name a folder that `glocal export` wrote")
    schema = manifest.get("schema_version")
    if schema != SCHEMA:
        raise DataError(
            f"{folder} was written by another glocal ({manifest.get('version')}, schema {schema}); this glocal_runtime "
            f"reads schema {SCHEMA}: use the one in the folder, or export again"
        )
    return manifest


def _manifest(contents: Contents) -> dict[str, Any]:
    facts, decision, probes, aside = contents.facts, contents.decision, contents.probes, contents.unknown
    return {
        "format": FORMAT,
        "schema_version": SCHEMA,
        "version": facts.version,
        "model": {
            "name": facts.name,
            "method": facts.method,
            "open_score": facts.open_score,
            "min_way": facts.min_way,
            "precision": facts.precision,
            "preprocess": facts.preprocess.to_json(),
            "score_model": None if facts.score_model is None else facts.score_model.to_json(),
        },
        "report": dict(facts.report),
        "classes": [{"name": name, "photos": _named(bank)} for name, bank in contents.support.classes.items()],
        "unknown": None if aside is None else _named(aside),
        "promise": asdict(contents.promise),
        "threshold": decision.threshold.to_json(),
        "usual": decision.usual,
        "left_out": [each._asdict() for each in decision.left_out],
        "probes": [
            {"open_score": score, "logits": list(logits)}
            for score, logits in zip(probes.open_score, probes.logits, strict=True)
        ],
    }


def _contents(manifest: Mapping[str, Any], arrays: Mapping[str, Array]) -> Contents:
    model, classes = manifest["model"], manifest["classes"]
    banks_of = [each["photos"] for each in classes] + [manifest["unknown"] or []]
    listed = [photo for some in banks_of for photo in some]
    thumbnails = _unpacked(arrays, "photo.thumbnail", len(listed))
    photos = [Photo(str(p["name"]), str(p["digest"]), t) for p, t in zip(listed, thumbnails, strict=True)]
    views, signature = _views(arrays, "photo", len(listed)), arrays["photo.signature"]
    if signature.shape != (len(listed), CELLS * CELLS) or signature.dtype != np.uint8:
        raise ValueError("signatures that do not belong to the photos")
    whole = Bank(tuple(photos), views, signature)
    ends = np.cumsum([len(some) for some in banks_of]).tolist()
    banks = [whole.rows(list(range(end - len(some), end))) for end, some in zip(ends, banks_of, strict=True)]
    names, threshold = [str(each["name"]) for each in classes], Threshold.from_json(manifest["threshold"])
    left = tuple(LeftOut(**each) for each in manifest["left_out"])
    outside = any(e.photo >= ends[-2] or max(e.label, e.nearest) >= len(names) for e in left)
    probes = manifest["probes"]
    if outside or len(set(names)) != len(names) or any(len(each["logits"]) != len(names) for each in probes):
        raise ValueError("scores that do not belong to the classes")
    if threshold.per_class is not None and len(threshold.per_class) != len(names):
        raise ValueError("thresholds that do not belong to the classes")
    facts = Facts(
        str(model["name"]),
        str(model["method"]),
        str(model["open_score"]),
        int(model["min_way"]),
        Preprocess.from_json(model["preprocess"]),
        None if model["score_model"] is None else ScoreModel.from_json(model["score_model"]),
        str(model["precision"]),
        dict(manifest["report"]),
        str(manifest["version"]),
    )
    return Contents(
        facts,
        Support(dict(zip(names, banks[:-1], strict=True))),
        banks[-1] if len(banks[-1]) else None,
        Promise(**manifest["promise"]),
        Decision(threshold, left, {name: (float(low), float(high)) for name, (low, high) in manifest["usual"].items()}),
        Probes(
            tuple(_unpacked(arrays, "probe.image", len(probes))),
            _views(arrays, "probe", len(probes)),
            tuple(float(each["open_score"]) for each in probes),
            tuple(tuple(map(float, each["logits"])) for each in probes),
        ),
    )


def _named(bank: Bank) -> list[dict[str, str]]:
    return [{"name": each.name, "digest": each.digest} for each in bank.photos]


def _verified(folder: Path, name: str, sha256: str) -> bytes:
    path = folder / name
    if not path.is_file():
        raise DataError(f"{name} is missing; copy the folder again")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DataError(f"{name} is not what was written; copy the folder again")
    return data


def _views(arrays: Mapping[str, Array], kind: str, n: int) -> Views:
    vec, local = arrays[f"{kind}.vec"], arrays.get(f"{kind}.local")
    if vec.ndim != 2 or len(vec) != n or vec.dtype != np.float32 or not np.isfinite(vec).all():
        raise ValueError(f"views that do not belong to the {n} pictures")
    if local is not None and (local.ndim != 4 or len(local) != n or local.dtype.kind != "f"):
        raise ValueError(f"local views that do not belong to the {n} pictures")
    return Views(vec, local)


def _packed(name: str, files: Sequence[bytes]) -> dict[str, Array]:
    """Files in a row, and where each ends."""
    ends = np.cumsum([len(each) for each in files], dtype=np.int64)
    return {f"{name}.bytes": np.frombuffer(b"".join(files), np.uint8), f"{name}.ends": ends}


def _unpacked(arrays: Mapping[str, Array], name: str, n: int) -> list[bytes]:
    data, ends = arrays[f"{name}.bytes"].tobytes(), arrays[f"{name}.ends"].tolist()
    if len(ends) != n or ends != sorted(ends) or (ends and not 0 <= ends[0] <= ends[-1] == len(data)):
        raise ValueError(f"{name} files that do not belong to the {n} pictures")
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
