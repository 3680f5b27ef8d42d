"""``glocal data``: what data sets there are, and from whatever people have of them to the form the package reads."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.console import bars, check_free, show, stages
from glocal.cli.options import Force, Json, SkipBad
from glocal.cli.printing import tell
from glocal.common.errors import DataError
from glocal.common.words import counted

if TYPE_CHECKING:
    from glocal.research.data.prepared import PreparedIndex
    from glocal.research.data.splits import Entry
    from glocal.research.data.verify import Verdict

data = typer.Typer(
    help="List, prepare, verify and show data sets.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Name = Annotated[str, typer.Argument(help="A data set of `glocal data list`, or a name of your own.")]
MARKS = {"ok": "✓", "note": "•", "problem": "✗"}


@data.command("list")
def list_(json: Json = False) -> None:
    """Data sets by name: classes, images, source, terms, and what you have to do."""
    from dataclasses import asdict

    from glocal.research.data.splits import CATALOGUE

    here = {name: _state(name) for name in CATALOGUE}
    plain = [{**asdict(entry), "images": entry.images, "here": here[name]} for name, entry in CATALOGUE.items()]
    show(
        plain,
        as_json=json,
        otherwise=lambda: "\n\n".join(_entry_lines(CATALOGUE[name], here[name]) for name in CATALOGUE),
    )


@data.command()
def prepare(
    name: Name,
    source: Annotated[Path, typer.Option("--from", help="Folder, zip or tar that you have.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="New folder; NAME below GLOCAL_DATA.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="How classes without a split are divided.")] = 0,
    shares: Annotated[str, typer.Option(help="Their shares for train, val and test.")] = "60,16,24",
    skip_bad: SkipBad = False,
    json: Json = False,
) -> None:
    """Recognise what you have of a data set and convert it once; stopped, the same command goes on."""
    from glocal.research.data.prepare import prepare as run

    _refuse_ready(name)
    target, parts = _folder(name, "--out DIR") if out is None else out, _shares(shares)
    with bars() as progress:
        report = stages(progress)
        try:
            index = run(
                target,
                name,
                source,
                seed=seed,
                shares=parts,
                skip_bad=skip_bad,
                progress=lambda split, done, *, total: report(split, done, total),
            )
        except KeyboardInterrupt:
            if progress is not None:
                progress.stop()
            typer.echo(f"glocal: stopped; nothing is in {target} yet, the same command goes on from here", err=True)
            raise typer.Exit(130) from None
    for bad in (each for record in index.splits.values() for each in record.skipped):
        tell(f"left out {bad.where}: {bad.reason}")
    plain = _prepared(target, index)
    show(plain, as_json=json, otherwise=lambda: _prepared_lines(target, index))


@data.command()
def verify(
    name: Name,
    folder: Annotated[Path | None, typer.Argument(help="The prepared folder; NAME below GLOCAL_DATA.")] = None,
    json: Json = False,
) -> None:
    """Compare a prepared data set with what is published; exit code 1 when something is wrong with it."""
    from glocal.research.data.verify import verify as run

    if folder is None:
        _refuse_ready(name)
    where = _folder(name, "DIR") if folder is None else folder
    verdict = run(where, name)
    show(verdict.to_json(), as_json=json, otherwise=lambda: _verdict_lines(verdict))
    if verdict.problems:
        raise typer.Exit(1)


@data.command("show")
def show_(
    dataset: Annotated[str, typer.Argument(help="A data set by name, or a folder, zip or CSV of classes.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The image to write, a .png.")],
    classes: Annotated[int | None, typer.Option(min=1, help="How many classes, a row each; 5 if there are.")] = None,
    per_class: Annotated[int, typer.Option(min=1, help="How many images of each.")] = 8,
    split: Annotated[str, typer.Option(help="train, val or test; all for a folder that is not divided.")] = "train",
    seed: Annotated[int, typer.Option(min=0, help="Which classes and images.")] = 0,
    skip_bad: SkipBad = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Draw a contact sheet: some images of some classes, with their names."""
    from glocal.research.data import open_dataset
    from glocal.research.report.contact_sheet import contact_sheet

    if out.suffix.lower() != ".png":
        raise DataError(f"a contact sheet is a PNG image, so its name must end in .png, got {out.name}")
    check_free(out, force)
    images = open_dataset(dataset, split, skip_bad=skip_bad)
    for bad in images.skipped:
        tell(f"left out {bad.where}: {bad.reason}")
    names = contact_sheet(images, out, classes=classes, per_class=per_class, seed=seed)
    plain = {"sheet": str(out), "dataset": images.name, "classes": names}
    show(plain, as_json=json, otherwise=lambda: f"{out}: {', '.join(names)} of {images.name}")


def _folder(name: str, instead: str) -> Path:
    from glocal.research.data.splits import canonical_name

    home = os.environ.get("GLOCAL_DATA")
    if not home:
        raise DataError(
            f"data set {name!r} has its place below GLOCAL_DATA, which is not set; set it, or say {instead}"
        )
    if Path(name).name != name:
        raise DataError(f"a data set below GLOCAL_DATA has a plain name, got {name!r}; rename it, or say {instead}")
    return Path(home) / canonical_name(name)


def _refuse_ready(name: str) -> None:
    """Data sets that the package makes or reads by rules of their own have no prepared form."""
    from glocal.research.data import DATASETS
    from glocal.research.data.splits import CATALOGUE

    if name in DATASETS:
        todo = f" ({CATALOGUE[name].todo})" if name in CATALOGUE else ""
        raise DataError(f"{name} is opened by its name as it is{todo}; there is no prepared form of it")


def _shares(text: str) -> tuple[float, float, float]:
    try:
        train, val, test = (float(part) for part in text.split(","))
    except ValueError:
        train = val = test = -1.0
    total = train + val + test
    if not (train > 0 and min(val, test) >= 0 and total < float("inf")):
        raise DataError(
            f"--shares must be three numbers for train, val and test, such as 60,16,24 or 80,0,20, got {text!r}"
        )
    return train / total, val / total, test / total


def _state(name: str) -> str:
    from glocal.research.data.prepared import is_prepared

    home = os.environ.get("GLOCAL_DATA")
    if home and is_prepared(Path(home) / name):
        return "prepared"
    if home and (Path(home) / name).exists():
        return "a folder as it came"
    return "in the package" if name == "embedded" else "no"


def _entry_lines(entry: Entry, here: str) -> str:
    classes = " / ".join(str(part.classes) for part in entry.parts.values())
    images = " / ".join(f"{part.images:,}" for part in entry.parts.values())
    rows = {
        "classes": f"{classes} (train / val / test)",
        "images": images,
        "from": f"{entry.source}; {entry.home}",
        "terms": entry.terms,
        "to do": entry.todo,
        "here": here,
    }
    lines = [f"  {title:<10}{text}" for title, text in rows.items()]
    return "\n".join([f"{entry.name}: {entry.title}, {entry.size}", *lines])


def _prepared(target: Path, index: PreparedIndex) -> dict[str, Any]:
    splits = {
        split: {
            "classes": len(record.classes),
            "images": record.total,
            "manifest": record.manifest,
            "skipped": [bad._asdict() for bad in record.skipped],
        }
        for split, record in index.splits.items()
    }
    return {
        "folder": str(target),
        "name": index.name,
        "packing": index.packing,
        "variant": index.variant,
        "splits": splits,
    }


def _prepared_lines(target: Path, index: PreparedIndex) -> str:
    lines = [f"{target}: prepared from {index.packing}"]
    for split, record in index.splits.items():
        skipped = f", {len(record.skipped)} left out" if record.skipped else ""
        lines.append(f"  {split:<6} {len(record.classes):>4} classes {record.total:>8,} images{skipped}")
    return "\n".join([*lines, f"Next: glocal data verify {index.name} {shlex.quote(str(target))}"])


def _verdict_lines(verdict: Verdict) -> str:
    lines = [f"{verdict.name} in {verdict.folder}, prepared from {verdict.packing}"]
    lines += [f"  {MARKS[each.severity]} {each.severity:<8}{each.about:<9}{each.text}" for each in verdict.findings]
    result = "nothing wrong" if not verdict.problems else counted(verdict.problems, "problem")
    return "\n".join([*lines, f"{verdict.name}: {result}"])
