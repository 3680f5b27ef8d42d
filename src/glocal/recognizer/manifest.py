"""The manifest of a ``.glocal`` file: what a program or a person reads first."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from glocal import __version__
from glocal.recognizer.contents import Contents
from glocal.recognizer.left_out import LeftOut
from glocal_runtime.errors import DataError
from glocal_runtime.threshold import Threshold

FORMAT = "glocal recognizer"
SCHEMA = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PhotoPart(_Part):
    name: str
    digest: str


class ClassPart(_Part):
    name: str
    photos: list[PhotoPart] = Field(min_length=1)


class ModelPart(_Part):
    name: str
    method: str
    settings: dict[str, Any]
    open_score: str
    backbone: dict[str, Any]  # its name and settings
    backbone_sha256: str
    preprocess: dict[str, Any]


class PromisePart(_Part):
    max_false_unknown: float = Field(gt=0, lt=1)
    per_class: bool


class LeftOutPart(_Part):
    photo: int = Field(ge=0)
    label: int = Field(ge=0)
    shots: int = Field(ge=1)
    score: float
    nearest: int = Field(ge=0)
    parts: dict[str, float]


class ProbePart(_Part):
    open_score: float
    logits: list[float]


class Manifest(_Part):
    format: str
    schema_version: int
    version: str  # of the glocal that wrote it
    identity: str  # hash of all that an answer depends on
    model: ModelPart
    classes: list[ClassPart] = Field(min_length=1)
    unknown: list[PhotoPart] | None
    promise: PromisePart
    threshold: dict[str, Any]
    usual: dict[str, tuple[float, float]]
    left_out: list[LeftOutPart]
    probes: list[ProbePart]
    sha256: dict[str, str]  # of the members that hold numbers

    @property
    def n_photos(self) -> int:
        return sum(len(each.photos) for each in self.classes)


def manifest_of(contents: Contents, sha256: dict[str, str]) -> Manifest:
    brain, decision, probes = contents.brain, contents.decision, contents.probes
    record = brain.model.record
    aside = contents.unknown
    return Manifest(
        format=FORMAT,
        schema_version=SCHEMA,
        version=__version__,
        identity=contents.identity,
        model=ModelPart(
            name=brain.name,
            method=brain.method,
            settings=dict(record["method"]["settings"]),
            open_score=brain.score,
            backbone={key: record["backbone"][key] for key in ("name", "settings") if key in record["backbone"]},
            backbone_sha256=brain.eye_sha256,
            preprocess=brain.model.backbone.preprocess.to_json(),
        ),
        classes=[
            ClassPart(name=name, photos=[PhotoPart(name=each.name, digest=each.digest) for each in bank.photos])
            for name, bank in contents.support.classes.items()
        ],
        unknown=None if aside is None else [PhotoPart(name=p.name, digest=p.digest) for p in aside.photos],
        promise=PromisePart(max_false_unknown=contents.promise.max_false_unknown, per_class=contents.promise.per_class),
        threshold=decision.threshold.to_json(),
        usual=decision.usual,
        left_out=[LeftOutPart(**each._asdict()) for each in decision.left_out],
        probes=[
            ProbePart(open_score=score, logits=list(logits))
            for score, logits in zip(probes.open_score, probes.logits, strict=True)
        ],
        sha256=sha256,
    )


def parse_manifest(text: bytes, where: str) -> Manifest:
    """The manifest, or a sentence: foreign, newer, or damaged."""
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is damaged: its manifest is not JSON ({error}); copy it again") from error
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise DataError(f"{where} is a zip, but not a recognizer of glocal; name a file that `glocal enroll` wrote")
    schema = plain.get("schema_version")
    if isinstance(schema, int) and schema > SCHEMA:
        raise DataError(
            f"{where} was written by a newer glocal ({plain.get('version')}, schema {schema}); this is glocal "
            f"{__version__}, which reads schema {SCHEMA}: update glocal"
        )
    try:
        manifest = Manifest.model_validate(plain)
        Threshold.from_json(manifest.threshold)
    except (ValidationError, DataError, TypeError, ValueError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        what = str(error) if first is None else f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise DataError(f"{where} is damaged: its manifest does not make sense ({what}); copy it again") from error
    return manifest


def left_out_of(manifest: Manifest) -> tuple[LeftOut, ...]:
    return tuple(LeftOut(**each.model_dump()) for each in manifest.left_out)
