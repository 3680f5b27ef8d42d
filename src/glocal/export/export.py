"""``glocal export``: a recognizer as a folder of ONNX graphs, written only if it gives the same answers."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glocal import __version__
from glocal.export.cost import Agreement, Measured, agreement, exported, on_folder, on_thumbnails
from glocal.export.graphs import trace
from glocal.export.quantize import int8 as quantized
from glocal.recognizer import Recognizer
from glocal.recognizer.gather import Labelled
from glocal.recognizer.support import Bank
from glocal_runtime.errors import DataError, RecipeError, WeightsError
from glocal_runtime.eye import Picture, as_source, take
from glocal_runtime.folder import Contents, Facts, Probes, is_export
from glocal_runtime.graphs import EMBED
from glocal_runtime.images import Pixels
from glocal_runtime.recognizer import Model
from glocal_runtime.support import Bank as PlainBank
from glocal_runtime.support import Support
from glocal_runtime.verify import TOLERANCE

FORMATS = ("onnx",)


@dataclass(frozen=True)
class Exported:
    """What was found out on the way."""

    folder: Path
    precision: str
    bytes: dict[str, int]  # of each graph
    difference: float  # of the probes' scores to those of the file, relative to max(1, |score|)
    measured_on: str  # what the next three come from; "" when nothing was measured
    before: Measured | None = None  # the file
    after: Measured | None = None  # the export
    agreement: Agreement | None = None

    def to_json(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in ("before", "after", "agreement")}
        return {
            "precision": self.precision,
            "bytes": self.bytes,
            "difference": self.difference,
            "measured_on": self.measured_on,
            **{name: None if part is None else part.to_json() for name, part in parts.items()},
        }


def export(
    recognizer: Recognizer, folder: str | Path, *, int8: bool = False, labelled: Labelled | None = None
) -> Exported:
    """Write the folder, or refuse when any score of a probe differs by more than 1e-4 * max(1, |score|).

    ``int8`` is exempt from that and measured instead: on ``labelled`` pictures, else on thumbnails of the support.
    """
    folder = Path(folder)
    check_folder(folder)
    probes = recognizer.contents.probes
    open_score, logits = recognizer.scores(recognizer.embed(probes.images))
    contents = plain_contents(recognizer, open_score, logits)
    model = Model(contents.facts, trace(recognizer.contents.brain.model))
    exact = exported(model, contents)
    difference = max((each.difference for each in exact.verify()), default=0.0)
    if not difference <= TOLERANCE:
        raise WeightsError(
            f"{folder} is not written: the exported graphs score a probe picture {difference:.1e} away from the model, "
            f"more than {TOLERANCE:g} of its score; report this with the versions of torch and onnxruntime"
        )
    before = model
    if int8:
        graphs = model.graphs | {EMBED: quantized(model.graphs[EMBED], calibration_pictures(contents))}
        contents = replace(contents, facts=replace(contents.facts, precision="int8"))
        model = Model(contents.facts, graphs)
        rough = exported(model, contents)
        difference = max((each.difference for each in rough.verify()), default=0.0)
        own_score, own_logits = rough.scores(rough.embed(probes.images))
        contents = replace(
            contents,
            probes=replace(contents.probes, open_score=tuple(own_score), logits=tuple(map(tuple, own_logits))),
        )
    found = Exported(
        folder, contents.facts.precision, {name: len(data) for name, data in model.graphs.items()}, difference, ""
    )
    if labelled is not None:
        theirs, acc_before = on_folder(recognizer, labelled)
        ours, acc_after = on_folder(exported(model, contents), labelled)
        found = replace(
            found,
            measured_on=f"{len(ours.judged)} labelled pictures",
            before=acc_before,
            after=acc_after,
            agreement=agreement(theirs, ours),
        )
    elif int8:
        found = replace(
            found,
            measured_on=f"thumbnails of the {len(contents.support.photos)} support photos, each without itself",
            before=on_thumbnails(before, contents),
            after=on_thumbnails(model, contents),
        )
    contents = replace(contents, facts=replace(contents.facts, report=found.to_json()))
    _write(exported(model, contents), folder)
    return found


def check_folder(folder: Path) -> None:
    """Refuse a place that holds something else, before time is spent."""
    if folder.exists() and not is_export(folder):
        raise DataError(f"{folder} is there already and is no export of glocal; name a new folder, or remove it first")
    above = next(each for each in (folder.absolute().parent, *folder.absolute().parents) if each.exists())
    if not above.is_dir():
        raise DataError(f"{folder} cannot be written: {above} is a file, not a folder; choose another place")


def check_format(name: str) -> None:
    if name not in FORMATS:
        raise RecipeError(f"the format of an export must be one of {', '.join(FORMATS)}, got {name!r}")


def plain_contents(recognizer: Recognizer, open_score: list[float], logits: list[list[float]]) -> Contents:
    """The contents in arrays, with these scores of its probes."""
    contents, method = recognizer.contents, recognizer.contents.brain.model.method
    brain = contents.brain
    facts = Facts(
        brain.name,
        brain.method,
        brain.score,
        method.min_way,
        brain.model.backbone.preprocess,
        brain.score_model,
        version=__version__,
    )
    return Contents(
        facts,
        Support({name: _plain(bank) for name, bank in contents.support.classes.items()}),
        None if contents.unknown is None else _plain(contents.unknown),
        contents.promise,
        contents.decision,
        Probes(contents.probes.images, contents.probes.views.numpy(), tuple(open_score), tuple(map(tuple, logits))),
    )


def calibration_pictures(contents: Contents) -> list[Pixels]:
    """What is left of the support photos, cut as the backbone wants them: the probes, and every thumbnail."""
    files = [*contents.probes.images, *(photo.thumbnail for photo in contents.support.photos)]
    taken = [take(as_source(each), contents.facts.preprocess) for each in files]
    return [each.pixels for each in taken if isinstance(each, Picture)]


def _plain(bank: Bank) -> PlainBank:
    return PlainBank(bank.photos, bank.views.numpy(), bank.signature.numpy())


def _write(recognizer: Any, folder: Path) -> None:
    """A new folder takes the place of an older export only when it is whole."""
    old = folder.with_name(f".{folder.name[:100]}.old")
    fresh = folder.with_name(f".{folder.name[:100]}.new")
    if old.exists() and not folder.exists():  # an export that was interrupted between its two renames
        old.rename(folder)
    for each in (old, fresh):
        shutil.rmtree(each, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        recognizer.save(fresh)
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
    except OSError as error:
        raise DataError(f"{folder} could not be written ({error.strerror or error}); choose another place") from error
    finally:
        for each in (old, fresh):
            shutil.rmtree(each, ignore_errors=True)
