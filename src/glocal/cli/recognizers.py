"""Commands on a .glocal file that is there: inspect, threshold, classes, add, remove, rename, undo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli.console import bars, check_there, rate_meter, show
from glocal.cli.options import Device, Json, RecognizerFile, SkipBad
from glocal.cli.printing import describe, summary, tell, threshold_lines, trade_off_lines
from glocal.common.errors import RecipeError
from glocal.common.words import counted, printable

if TYPE_CHECKING:
    from glocal.recognizer.diagnosis.advice import Finding
    from glocal.recognizer.recognizer import Recognizer

ClassName = Annotated[str, typer.Argument(metavar="CLASS", help="The class.")]


def classes(file: RecognizerFile, json: Json = False) -> None:
    """List the classes of a recognizer and their photos."""
    from glocal.recognizer.file import read_manifest

    photos = {each["name"]: [photo["name"] for photo in each["photos"]] for each in read_manifest(file)["classes"]}
    lines = [(name, counted(len(names), "photo")) for name, names in photos.items()]
    show(photos, as_json=json, otherwise=lambda: _columns(lines))


def add(
    file: RecognizerFile,
    name: Annotated[str | None, typer.Argument(metavar="CLASS", help="The class.")] = None,
    photos: Annotated[list[Path] | None, typer.Argument(help="Photos, and folders of photos.")] = None,
    unknown: Annotated[
        list[Path] | None, typer.Option(help="Photos, or a folder, of other things: known unknowns.")
    ] = None,
    skip_bad: SkipBad = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Add a class, photos to a class that is there, or known unknowns with --unknown."""
    from glocal.common.errors import RecipeError
    from glocal.recognizer.support import check_class_name

    if (name is None) != (not photos) or (name is None and not unknown):
        raise RecipeError("name a class and its photos, or known unknowns with --unknown", code="nothing-given")
    name = name and check_class_name(name)  # a refusal leaves no history behind
    check_there(*(photos or []), *(unknown or []))
    with changing(file, device) as (recognizer, save), bars() as progress:
        findings = []
        if name is not None:
            grow = recognizer.add_photos if name in recognizer.classes else recognizer.add_class
            findings += grow(name, photos or [], skip_bad=skip_bad, progress=rate_meter(progress, "add"))
        if unknown:
            findings += recognizer.add_unknown(unknown, skip_bad=skip_bad, progress=rate_meter(progress, "add"))
        save(f"photos added to {name or 'the known unknowns'}", recognizer.save)
    _show(recognizer, file, findings, json)


def remove(file: RecognizerFile, name: ClassName, device: Device = "auto", json: Json = False) -> None:
    """Remove a class."""
    with changing(file, device) as (recognizer, save):
        findings = recognizer.remove_class(name)
        save(f"class {name} removed", recognizer.save)
    _show(recognizer, file, findings, json)


def rename(
    file: RecognizerFile,
    name: ClassName,
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Rename a class."""
    with changing(file, device) as (recognizer, save):
        findings = recognizer.rename_class(name, new_name)
        save(f"class {name} renamed to {new_name}", recognizer.save)
    _show(recognizer, file, findings, json)


def undo(file: RecognizerFile, json: Json = False) -> None:
    """Take back the last change, on this line or on the page; again, the one before."""
    from glocal.common.files import check_recognizer
    from glocal.serve.history import go_back

    check_recognizer(file)
    label = go_back(file)
    show({"file": str(file), "undone": label}, as_json=json, otherwise=lambda: f"{file}: undone: {label}")


def threshold(
    file: RecognizerFile,
    set_: Annotated[float | None, typer.Option("--set", help="Set it by hand; kept when classes change.")] = None,
    target_rate: Annotated[
        float | None, typer.Option(help="Compute it for this share of known photos called unknown.")
    ] = None,
    with_unknown: Annotated[
        float | None, typer.Option(help="The share that known unknowns may raise --target-rate to.")
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="LABELLED",
            help="Compute it with labelled pictures as for check; if they hold unknown/, the target rate too.",
        ),
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Show the threshold and its target rate, or change it."""
    check_there(from_)
    if set_ is not None and from_ is not None:
        raise RecipeError("a threshold is set by hand or computed from labelled pictures; give one of the two")
    change = any(each is not None for each in (set_, target_rate, with_unknown, from_))
    with changing(file, device, wanted=change) as (recognizer, save):
        if from_ is not None:
            target_rate = _learned(recognizer, from_, target_rate)
            if with_unknown is None and recognizer.contents.promise.with_unknown is not None:
                with_unknown = target_rate  # as in the trade-off that it was chosen from
        if change:
            recognizer.set_threshold(set_, target_rate=target_rate, with_unknown=with_unknown)
            save("threshold set", recognizer.save)
    show(recognizer.threshold.to_json(), as_json=json, otherwise=lambda: "\n".join(threshold_lines(recognizer)))


def _learned(recognizer: Recognizer, labelled: Path, target: float | None) -> float | None:
    """The target rate that is asked for, or the best one for the labelled pictures, which are learned."""
    from glocal.recognizer.diagnosis.check import best_target, check, learn, trade_off

    with bars() as progress:
        checked = check(recognizer, labelled, progress=rate_meter(progress, "check"))
    learn(recognizer, checked)
    checked = replace(checked, trade_off=trade_off(recognizer, checked))
    for line in trade_off_lines(checked):
        tell(line)
    if target is not None or (best := best_target(checked)) is None:
        return target or recognizer.contents.promise.target_rate
    return best


def inspect(
    file: RecognizerFile,
    verify: Annotated[
        bool, typer.Option("--verify", help="Score the probe pictures again: same answers on this machine?")
    ] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Show what is in a file; --verify proves that this machine gives the same answers."""
    from glocal.recognizer.file import read_manifest
    from glocal.recognizer.recognizer import Recognizer

    manifest = read_manifest(file)
    encoder, head, classes = manifest["model"]["encoder"], manifest["model"]["head"], manifest["classes"]
    result = {key: value for key, value in manifest.items() if key != "measured"}
    lines = [
        ("written by", f"glocal {manifest['version']}, schema {manifest['schema_version']}"),
        ("identity", manifest["identity"]),
        ("encoder", ", ".join([encoder["name"], *(each["graph"][:16] for each in encoder["members"])])),
        ("head", f"{head.get('name', head['kind'])}, open score {head['open_score']}"),
        ("photos", ", ".join(f"{each['preprocess']['size']} pixels" for each in encoder["members"]) or "none: vectors"),
        ("classes", f"{len(classes)} with {counted(sum(len(each['photos']) for each in classes), 'photo')}"),
    ]
    if manifest["unknown"]:
        lines.append(("known unknowns", counted(len(manifest["unknown"]), "photo")))
    recognizer = Recognizer.load(file, device=device)
    outlook = recognizer.outlook()
    result["outlook"] = outlook.to_json()
    lines = [("outlook", outlook.lines()[0]), *(("", line) for line in outlook.lines()[1:]), *lines]
    first, *more = threshold_lines(recognizer)
    lines += [("threshold", first.removeprefix("threshold ")), *(("", line) for line in more)]
    failed = False
    if verify:
        probes = recognizer.verify()
        failed = not all(each.same for each in probes)
        result["verified"] = [vars(each) | {"same": each.same} for each in probes]
        worst = max((each.difference for each in probes), default=0.0)
        verdict = "NOT the same answers" if failed else "the same answers as where it was made"
        lines.append(("verified", f"{verdict}: {counted(len(probes), 'probe')}, largest difference {worst:.1e}"))
    show(result, as_json=json, otherwise=lambda: _columns(lines))
    if failed:
        raise typer.Exit(1)


@contextmanager
def changing(
    file: Path, device: str, *, wanted: bool = True
) -> Iterator[tuple[Recognizer, Callable[[str, Callable[[Path], None]], None]]]:
    """A recognizer, and what writes it under a label, so that it can be undone."""
    from glocal.recognizer.file import check_target, read_manifest
    from glocal.recognizer.recognizer import Recognizer
    from glocal.serve.history import keeping

    read_manifest(file)  # nothing is written beside a file that is none of ours
    check_target(file)
    with keeping(file) if wanted else nullcontext(lambda label, save: None) as save:
        yield Recognizer.load(file, device=device), save


def _show(recognizer: Recognizer, file: Path, findings: list[Finding], json: bool) -> None:
    for finding in findings:
        tell(f"check-up: {finding}")
    result = summary(recognizer, file) | {"findings": [each.to_json() for each in findings]}
    show(result, as_json=json, otherwise=lambda: f"{file}: {describe(recognizer)}")


def _columns(rows: list[tuple[str, str]]) -> str:
    width = max((len(printable(name)) for name, _ in rows), default=0)
    return "\n".join(f"{printable(name):<{width}}  {printable(value)}" for name, value in rows)
