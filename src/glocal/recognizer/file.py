"""The ``.glocal`` file: one zip, no pickle, replaced as a whole.

    manifest.json           classes, model, hashes, threshold and how it came about.
    model/<hash>.onnx       graphs of the model, but for those that come with the package.
    support.safetensors     features and signatures of the support photos, the known unknowns and the probes.
    thumbnails/0.jpg ...    of every support photo, then of the known unknowns.
    probes/0.png ...        pictures whose scores are in the manifest.

The reader trusts nothing in a file: it checks names, sizes, hashes and shapes before it uses them.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from glocal.common.errors import DataError, GlocalError
from glocal.common.files import check_recognizer, or_not_written, replacing
from glocal.common.stored_zip import LONG_AGO, LONGEST
from glocal.common.validation import LARGEST_THUMBNAIL, check_kind, check_picture
from glocal.recognizer.arrays import read_arrays, write_arrays
from glocal.recognizer.calibration.leave_one_out import LeftOut, Measured
from glocal.recognizer.decision import Decision, Promise, Threshold
from glocal.recognizer.enrolled import Contents, Probes
from glocal.recognizer.features import UNKNOWN, Array, Features
from glocal.recognizer.model import Model, read_model
from glocal.recognizer.photos.images import LARGEST_SIDE
from glocal.recognizer.support import CELLS, Bank, Photo, Support

SUFFIX = ".glocal"
FORMAT, SCHEMA = "glocal recognizer", 4
MANIFEST, SUPPORT = "manifest.json", "support.safetensors"
_graph, _thumbnail, _probe = "model/{}.onnx".format, "thumbnails/{}.jpg".format, "probes/{}.png".format
WHOLE = ("no-recognizer", "newer-file")  # codes of errors about files that are not damaged

# What a manifest holds, as ``door.check_kind`` reads it.
_PHOTO = {"name": str, "digest": str}
_MEMBER = {"graph": str, "neck": str | None, "preprocess": dict, "unit": bool}
_HEAD = {"kind": str, "open_score": str}
_GRAPHS = {"name": str, "score_names": list[str], "min_way": int, "takes_unknown": bool, "enroll": str, "score": str}
_SCORED = {"photo": int, "label": int, "shots": int, "score": float, "nearest": int, "parts": dict[str, float]}
_SINGLE = ("own", "alike")  # numbers among what was measured
_FIELDS: dict[str, Any] = {
    "format": str,
    "schema_version": int,
    "version": str,  # of the glocal that wrote it
    "identity": str,  # hash of all that an answer depends on
    "model": {"encoder": {"name": str, "licence": str, "members": [_MEMBER]}, "head": dict},
    "classes": [{"name": str, "photos": [_PHOTO]}],
    "unknown": list | None,
    "promise": {"target_rate": float, "with_unknown": float | None},
    "threshold": dict,
    "usual": dict[str, list[float]],
    "measured": {name: [_SCORED] for name in ("left_out", "confirmed", "strange", "unknown")}
    | dict.fromkeys(_SINGLE, float),
    "probes": [{"open_score": float, "logits": list[float]}],
    "sha256": dict[str, str],  # of the members that hold numbers
}


def write_contents(path: Path, contents: Contents, *, is_current: Callable[[], bool] | None = None) -> None:
    """``is_current`` as for ``files.put``."""
    banks = [contents.support.bank, *([] if contents.unknown is None else [contents.unknown])]
    arrays: dict[str, list[Array]] = {"photo.signature": [bank.signature for bank in banks]}
    for kind, some in (("photo", [bank.features for bank in banks]), ("probe", [contents.probes.features])):
        arrays[f"{kind}.vec"] = [each.vec for each in some]
        for i in range(len(some[0].local)):
            arrays[f"{kind}.local.{i}"] = [each.local[i] for each in some]
    graphs = contents.model.graphs()
    members = {_graph(sha256): data for sha256, data in graphs.items()}
    members |= {_thumbnail(i): photo.thumbnail for i, photo in enumerate(chain(*(bank.photos for bank in banks)))}
    members |= {_probe(i): data for i, data in enumerate(contents.probes.images)}
    check_target(path)
    with (
        or_not_written(path, "what was there before is unchanged, free some space or choose another place"),
        replacing(path, is_current=is_current) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive,
    ):
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, LONG_AGO), data)
        with archive.open(zipfile.ZipInfo(SUPPORT, LONG_AGO), "w", force_zip64=True) as support:
            hashes = {SUPPORT: write_arrays(support, arrays), **{_graph(sha256): sha256 for sha256 in graphs}}
        archive.writestr(zipfile.ZipInfo(MANIFEST, LONG_AGO), json.dumps(_manifest(contents, hashes), indent=1))


def check_target(path: Path, suffix: str = SUFFIX) -> None:
    """Refuse a place where nothing can be written, before minutes are spent on what is to be written there."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file, such as {path / 'parts'}{suffix}", code="bad-target")
    above = next(each for each in (path.parent, *path.parent.parents) if each.exists())
    if not above.is_dir():
        raise DataError(
            f"{path} cannot be written: {above} is a file, not a folder; choose another place", code="bad-target"
        )


def holds_recognizer(path: Path) -> bool:
    """Whether a path names a file of ours; a checkpoint or a run folder is none."""
    return path.suffix == SUFFIX or (path.is_file() and zipfile.is_zipfile(path))


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest alone, in a moment."""
    with _opened(path) as archive:
        return _read_manifest(path, archive)


def read_contents(path: Path, *, device: str = "auto", threads: int = 0) -> Contents:
    with _opened(path) as archive:
        manifest = _read_manifest(path, archive)
        photos = [photo for each in manifest["classes"] for photo in each["photos"]]
        shots = [len(each["photos"]) for each in manifest["classes"]]
        aside, probes, hashes = manifest["unknown"] or [], manifest["probes"], manifest["sha256"]
        thumbnails, images = (
            list(map(_thumbnail, range(len(photos) + len(aside)))),
            list(map(_probe, range(len(probes) if manifest["model"]["encoder"]["members"] else 0))),
        )
        expected, there = {MANIFEST, SUPPORT, *hashes, *thumbnails, *images}, set(archive.namelist())
        if missing := sorted(expected - there):
            raise ValueError(f"{missing[0]} is missing")
        if extra := sorted(there - expected):
            raise ValueError(f"{extra[0]!r} does not belong to a recognizer")
        pictures = {name: archive.read(name) for name in (*thumbnails, *images)}
        for name, data in pictures.items():
            kind, most = ("PNG", LARGEST_SIDE) if name in images else ("JPEG", LARGEST_THUMBNAIL)
            check_picture(data, kind, most)
        graphs = {Path(name).stem: archive.read(name) for name in hashes if name != SUPPORT}
        for sha256, data in graphs.items():
            if not hashlib.sha256(data).hexdigest() == sha256 == hashes[_graph(sha256)]:
                raise ValueError(f"{_graph(sha256)} is not what was written")
        with archive.open(SUPPORT) as file:
            arrays = read_arrays(file, archive.getinfo(SUPPORT).file_size, hashes[SUPPORT])
        bank = _bank([*photos, *aside], [pictures[name] for name in thumbnails], arrays)
        support = Support(tuple(each["name"] for each in manifest["classes"]), shots, bank.rows(slice(len(photos))))
        decision = _decision(manifest, len(shots), len(photos), len(aside))
        seen = _features(arrays, "probe", len(probes))
        if bank.features.shape != seen.shape:
            raise ValueError("its probes were seen by another model than its photos")
        kept = Probes(
            tuple(pictures[name] for name in images),
            seen,
            tuple(each["open_score"] for each in probes),
            tuple(tuple(each["logits"]) for each in probes),
        )
        unknown = bank.rows(slice(len(photos), None)) if aside else None
        promise = Promise(**manifest["promise"])
    model = _model(path, manifest, graphs, device=device, threads=threads)
    return Contents(model, support, unknown, promise, decision, kept)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip that is as ours are: nothing packed, so that it cannot grow, and nothing twice.

    Whatever the block makes of wrong content becomes the sentence of a damaged file.
    """
    check_recognizer(path)
    try:
        with path.open("rb") as file:
            if file.read(4) != b"PK\x03\x04":
                raise _foreign(path, "not a recognizer of glocal, or one that was cut short or damaged")
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            if MANIFEST not in entries:
                raise _foreign(path, f"a zip, but not a recognizer of glocal: it has no {MANIFEST}")
            total = sum(entry.file_size for entry in archive.infolist())
            packed = any(entry.compress_type or entry.file_size != entry.compress_size for entry in entries.values())
            if len(entries) != len(archive.infolist()) or packed or total > path.stat().st_size:
                raise ValueError("it was packed by another program")
            yield archive
    except (
        *(OSError, EOFError, RuntimeError, zipfile.BadZipFile),  # of zips
        *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError),  # of what is in them
    ) as error:
        if isinstance(error, DataError) and error.code in WHOLE:
            raise
        raise damaged(path, error) from error


def _read_manifest(path: Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    try:
        manifest = json.loads(archive.read(MANIFEST), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its manifest is not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _foreign(path, "a zip, but not a recognizer of glocal; name a file that `glocal enroll` wrote")
    schema = manifest.get("schema_version")
    if isinstance(schema, int) and schema > SCHEMA:
        raise DataError(
            f"{path} was written by a newer glocal ({manifest.get('version')}, schema {schema}); this glocal reads "
            f"schema {SCHEMA}: update glocal",
            code="newer-file",
        )
    if schema != SCHEMA:
        raise ValueError(f"its schema is {schema!r}, and this glocal reads {SCHEMA}")
    check_kind(manifest, _FIELDS, "manifest")
    check_kind(manifest["unknown"] or [], [_PHOTO], "unknown")
    head = manifest["model"]["head"]
    check_kind(head, _HEAD | _GRAPHS if head["kind"] == "converted" else _HEAD, "head")
    if not manifest["classes"] or not all(each["photos"] for each in manifest["classes"]):
        raise ValueError("a class without photos, or no class")
    return manifest


def _model(path: Path, manifest: Mapping[str, Any], graphs: Mapping[str, bytes], *, device: str, threads: int) -> Model:
    try:
        return read_model(manifest["model"], graphs, where=str(path), device=device, threads=threads)
    except GlocalError as error:
        raise type(error)(
            f"the model in {path}, written by glocal {manifest['version']}, cannot be used: {error}", code=error.code
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise damaged(path, error) from error


def _manifest(contents: Contents, sha256: Mapping[str, str]) -> dict[str, Any]:
    decision, probes, aside = contents.decision, contents.probes, contents.unknown
    return {
        "format": FORMAT,
        "schema_version": SCHEMA,
        "version": importlib.import_module("glocal").__version__,
        "identity": contents.identity,
        "model": contents.model.record(),
        "classes": [{"name": name, "photos": _named(bank)} for name, bank in contents.support.classes.items()],
        "unknown": None if aside is None else _named(aside),
        "promise": vars(contents.promise),
        "threshold": decision.threshold.to_json(),
        "usual": decision.usual,
        "measured": {
            name: [each._asdict() | {"parts": dict(each.parts)} for each in value] if name not in _SINGLE else value
            for name, value in vars(decision.measured).items()
        },
        "probes": [
            {"open_score": score, "logits": list(logits)}
            for score, logits in zip(probes.open_score, probes.logits, strict=True)
        ],
        "sha256": dict(sha256),
    }


def _decision(manifest: Mapping[str, Any], n_way: int, n_photos: int, n_unknown: int) -> Decision:
    threshold = Threshold.from_json(manifest["threshold"])
    if threshold.levels and len(threshold.levels) != n_way:
        raise ValueError(f"{len(threshold.levels)} levels for {n_way} classes")
    measured = manifest["measured"]
    scored = {name: tuple(LeftOut(**each) for each in measured[name]) for name in measured if name not in _SINGLE}
    for name, some in scored.items():
        first = UNKNOWN if name == "unknown" else 0  # known unknowns have no class, and are counted for themselves
        for e in some:
            placed = 0 <= e.photo < (n_photos if first == 0 else n_unknown) and first <= e.label < n_way
            if not (placed and 0 <= e.nearest < n_way and 0 <= e.shots <= n_photos):
                raise ValueError(f"its scores do not belong to its {n_way} classes")
    if any(len(each["logits"]) != n_way for each in manifest["probes"]):
        raise ValueError(f"its scores do not belong to its {n_way} classes")
    usual = {name: (float(low), float(high)) for name, (low, high) in manifest["usual"].items()}
    return Decision(threshold, Measured(**scored, own=float(measured["own"]), alike=float(measured["alike"])), usual)


def _bank(listed: list[dict[str, str]], thumbnails: list[bytes], arrays: Mapping[str, Array]) -> Bank:
    features, signature = _features(arrays, "photo", len(listed)), arrays["photo.signature"]
    if signature.shape != (len(listed), CELLS * CELLS) or signature.dtype != np.uint8:
        raise ValueError(f"its signatures do not belong to its {len(listed)} photos")
    photos = [Photo(each["name"], each["digest"], data) for each, data in zip(listed, thumbnails, strict=True)]
    return Bank(tuple(photos), features, signature)


def _features(arrays: Mapping[str, Array], kind: str, n: int) -> Features:
    vec = arrays[f"{kind}.vec"]
    local = tuple(arrays[name] for name in sorted(arrays) if name.startswith(f"{kind}.local."))
    if vec.ndim != 2 or len(vec) != n or vec.dtype != np.float32 or not np.isfinite(vec).all():
        raise ValueError(f"its features do not belong to its {n} pictures")
    for each in local:
        if each.ndim != 4 or len(each) != n or each.dtype.kind != "f" or not np.isfinite(each).all():
            raise ValueError(f"its maps do not belong to its {n} pictures")
    return Features(vec, local)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _named(bank: Bank) -> list[dict[str, str]]:
    return [{"name": each.name, "digest": each.digest} for each in bank.photos]


def damaged(path: Path, error: Exception) -> DataError:
    what = f"{error} is missing" if isinstance(error, KeyError) else str(error)[:LONGEST]
    return DataError(f"{path} is damaged or was cut short: {what}; copy it again", code="damaged-file")


def _foreign(path: Path, what: str) -> DataError:
    return DataError(f"{path} is {what}", code="no-recognizer")
