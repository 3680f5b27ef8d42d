"""Commands for photos without a label: groups of unknown ones, and which to label next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli.console import bars, check_there, rate_meter, show
from glocal.cli.options import Device, Json, RecognizerFile
from glocal.cli.printing import tell
from glocal.common.errors import DataError, RecipeError
from glocal.common.files import check_recognizer
from glocal.common.words import counted

if TYPE_CHECKING:
    import numpy as np

    from glocal.recognizer.prediction import Prediction
    from glocal.recognizer.recognizer import Answered, Recognizer

PhotoFolders = Annotated[list[Path], typer.Argument(metavar="PHOTOS...", help="Folders of photos, and photos.")]
ENDING = ".glocal"


def group(
    file: RecognizerFile,
    photos: PhotoFolders,
    out: Annotated[Path, typer.Option("--out", "-o", help="A new folder: 01/, 02/, ..., singles/, a sheet, a CSV.")],
    link: Annotated[bool, typer.Option("--link", help="Link to the photos instead of copying them.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Put unknown photos into groups of the same thing, which can become classes."""
    check_there(*photos)
    check_recognizer(file)
    from glocal.bulk.group_folder import check_new, write_groups
    from glocal.recognizer.groups import Unknowns
    from glocal.recognizer.recognizer import Recognizer

    check_new(out)
    recognizer, unknowns, asked = Recognizer.load(file, device=device), Unknowns(), 0
    for batch, answers in _answered(recognizer, photos, "group"):
        unknowns.add(batch, answers)
        asked += len(answers)
    if not unknowns.answers:
        raise DataError(
            f"none of the {counted(asked, 'photo')} is called unknown, so there is nothing to group; "
            f"a stricter threshold calls more unknown: glocal threshold {shlex.quote(str(file))} --target-rate 0.1",
            code="nothing-unknown",
        )
    groups = unknowns.groups(recognizer.contents.support)
    names = write_groups(groups, out, link=link)
    result = {
        "photos": asked,
        "unknown": len(unknowns.answers),
        "groups": {name: [each.path for each in some] for name, some in zip(names, groups, strict=False)},
        "singles": [some[0].path for some in groups if len(some) == 1],
    }
    show(result, as_json=json, otherwise=lambda: _sentence(file, out, asked, groups, names))


def _sentence(file: Path, out: Path, asked: int, groups: list[list[Prediction]], names: list[str]) -> str:
    unknown = sum(map(len, groups))
    line = f"{out}: {unknown} of {counted(asked, 'photo')} unknown, in {counted(len(names), 'group')}"
    line += f" and {counted(len(groups) - len(names), 'single')}"
    if names:
        line += f'\nNext: glocal add {shlex.quote(str(file))} "NAME" {shlex.quote(str(out / names[0]))}'
    return line


def suggest(
    photos: Annotated[
        list[Path],
        typer.Argument(metavar="[FILE] PHOTOS...", help="A .glocal file, if there is one, and folders of photos."),
    ],
    n: Annotated[int, typer.Option("-n", min=1, help="How many photos to name.")] = 10,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Name the photos to label next; without a FILE, those to begin with."""
    file = photos[0] if photos[0].suffix == ENDING else None
    photos = photos[file is not None :]
    if not photos:
        raise RecipeError(f"name a folder of photos to choose from, after {file}", code="nothing-given")
    check_there(*photos)
    if file is None:
        paths = _covering(photos, n, device)
        rows: list[dict[str, object]] = [{"path": path} for path in paths]
    else:
        check_recognizer(file)
        answers = _helpful(file, photos, n, device)
        rows = [{"path": each.path, "label": each.label, "probability": each.probability} for each in answers]
        paths = [f"{each.path}  ({each.label}, {100 * each.probability:.0f} %)" for each in answers]
    show(rows, as_json=json, otherwise=lambda: "\n".join(paths))


def _helpful(file: Path, photos: list[Path], n: int, device: str) -> list[Prediction]:
    import numpy as np

    from glocal.recognizer.prediction import Prediction
    from glocal.recognizer.recognizer import Recognizer

    recognizer = Recognizer.load(file, device=device)
    answers: list[Prediction] = []
    vec: list[np.ndarray] = []
    for batch, some in _answered(recognizer, photos, "suggest"):
        answers += [each for each in some if isinstance(each, Prediction)]
        vec.append(batch.features.vec)
    return [answers[i] for i in recognizer.rank(answers, np.concatenate(vec), n)]


def _covering(photos: list[Path], n: int, device: str) -> list[str]:
    import numpy as np

    from glocal.recognizer.batches import Embedder
    from glocal.recognizer.model import DEFAULT, build_model
    from glocal.recognizer.photos.sources import sources_of
    from glocal.recognizer.suggest import choose

    embedder = Embedder(build_model(DEFAULT, device=device).encoder)
    names: list[str] = []
    vec: list[np.ndarray] = []
    sources = sources_of(photos)
    with bars() as progress:
        update = rate_meter(progress, "suggest")
        for batch in embedder.batches(sources):
            names += [each.name for each in batch.readable]
            vec.append(batch.features.vec)
            update(len(names), len(sources))
    if not names:
        raise _nothing_readable(len(sources))
    return [names[i] for i in choose(np.concatenate(vec), n)]


def _answered(recognizer: Recognizer, photos: list[Path], title: str) -> Iterator[Answered]:
    """Batches with a bar; unreadable photos are left out with a line each."""
    from glocal.recognizer.photos.sources import Unreadable, sources_of

    sources = sources_of(photos)
    done = readable = 0
    with bars() as progress:
        update = rate_meter(progress, title)
        for part in recognizer.batches(sources):
            for each in part.answers:
                if isinstance(each, Unreadable):
                    tell(f"left out {each.path}: {each.error}")
            done += len(part.answers)
            readable += len(part.batch.readable)
            update(done, len(sources))
            yield part
    if not readable:
        raise _nothing_readable(len(sources))


def _nothing_readable(n: int) -> DataError:
    return DataError(f"none of the {counted(n, 'photo')} can be read; name a folder of pictures", code="no-photos")
