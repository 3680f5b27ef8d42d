"""Files of glocal 0.1: a ``.glocal`` file of schema 1, and the folder that `glocal export` wrote then.

Both become the members of a file of today, which file.py checks like any other.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from glocal.recognizer.tensors import unpack

EXPORT = "glocal export"
GRAPHS = ("embed.onnx", "enroll.onnx", "score.onnx")


def is_export(folder: Path) -> bool:
    with suppress(OSError, ValueError, RecursionError, AttributeError):
        return bool(json.loads((folder / "manifest.json").read_bytes()).get("format") == EXPORT)
    return False


def export_members(folder: Path, *, manifest_only: bool) -> dict[str, bytes]:
    """The files of an export, under the names that they have in a file; its manifest as it is."""
    members = {"manifest.json": (folder / "manifest.json").read_bytes()}
    if manifest_only:
        return members
    bank = json.loads(members["manifest.json"])["bank"]
    if Path(bank["file"]).name != bank["file"]:
        raise ValueError("its bank lies outside of the folder")
    for name, file in {"support.safetensors": bank["file"], **{f"model/{each}": each for each in GRAPHS}}.items():
        if not (folder / file).is_file():
            raise ValueError(f"{file} is missing")
        members[name] = (folder / file).read_bytes()
    packed = members["support.safetensors"]
    if hashlib.sha256(packed).hexdigest() != bank["sha256"]:
        raise ValueError(f"{bank['file']} is not what was written")
    arrays = unpack(packed, bank["file"])
    for kind, member in (("photo.thumbnail", "thumbnails/{}.jpg"), ("probe.image", "probes/{}.png")):
        data, ends = arrays[f"{kind}.bytes"].tobytes(), arrays[f"{kind}.ends"].tolist()
        if ends != sorted(ends) or (ends and not 0 <= ends[0] <= ends[-1] == len(data)):
            raise ValueError(f"{kind} files that do not fit")
        members |= {member.format(i): data[a:b] for i, (a, b) in enumerate(zip([0, *ends], ends, strict=False))}
    return members


def upgraded(manifest: dict[str, Any], members: dict[str, bytes]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Manifest and other members of schema 1 as those of schema 2."""
    old = dict(manifest)
    if old["format"] == EXPORT:
        model = old["model"] | {"kind": "onnx", "report": old.pop("report")}
        graphs, bank = old.pop("graphs"), old.pop("bank")
        sha256 = {f"model/{name}": graphs[name] for name in GRAPHS} | {"support.safetensors": bank["sha256"]}
        old |= {"identity": ""}
    else:
        model = old["model"] | {"kind": "checkpoint"}
        names = {"model.safetensors": "model/checkpoint.safetensors"}
        sha256 = {names.get(name, name): value for name, value in old["sha256"].items()}
        members = {names.get(name, name): data for name, data in members.items()}
    return old | {"format": "glocal recognizer", "model": model, "sha256": sha256}, members


def without_score_model(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest of schema 2 as one of schema 3: the threshold stays as it was computed then."""
    old = dict(manifest)
    if "score_model" in old["model"]:
        old["model"] = {name: value for name, value in old["model"].items() if name != "score_model"}
        old["model"]["takes_unknown"] = False
    gone = ("midpoint", "slope", "extrapolated")
    old["threshold"] = {name: value for name, value in old["threshold"].items() if name not in gone}
    old["promise"] = {**old["promise"], "with_unknown": None}
    nothing: dict[str, Any] = {"alone": [], "strange": [], "unknown": [], "own": 0.0}
    old["measured"] = {"left_out": old.pop("left_out"), **nothing}
    return old
