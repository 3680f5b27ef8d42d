"""A first look at photos that are to be enrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from glocal.errors import DataError
from glocal.recognizer.contents import Probes, png
from glocal.recognizer.eye import Batch, Eye, Source, Unreadable, as_source, take
from glocal.recognizer.support import Bank, on_cpu

Progress = Callable[[int, int], None]  # (done, total)
PROBES = 4
NAMED_BAD = 8  # bad photos listed in an error; the rest is counted


def look(
    eye: Eye, sources: Sequence[Source], *, skip_bad: bool = False, progress: Progress | None = None
) -> tuple[Bank, dict[int, Unreadable]]:
    """Bank of the readable photos, and the unreadable ones by their place; without ``skip_bad`` there are none."""
    batches: list[Batch] = []
    bad: dict[int, Unreadable] = {}
    done = 0
    for batch in eye.batches(sources):
        bad |= {done + i: each for i, each in enumerate(batch.pictures) if isinstance(each, Unreadable)}
        done += len(batch.pictures)
        batches.append(Batch(batch.readable, on_cpu(batch.views)))
        if progress is not None:
            progress(done, len(sources))
    if bad and not skip_bad:
        named = list(bad.values())[:NAMED_BAD]
        lines = [f"  {each.path}: {each.error}" for each in named]
        lines += [f"  and {len(bad) - NAMED_BAD} more"] if len(bad) > NAMED_BAD else []
        raise DataError(
            f"{len(bad)} of {len(sources)} photos cannot be used; mend or remove them, or leave them out with "
            "skip_bad=True (--skip-bad):\n" + "\n".join(lines)
        )
    return Bank.of(batches), bad


def probes_of(eye: Eye, sources: Sequence[Source]) -> Probes:
    """A few of the pictures, stored as the backbone saw them, and their views as seen from what is stored."""
    step = max(1, len(sources) // PROBES)
    taken = [take(source, eye.preprocess) for source in sources[::step][:PROBES]]
    images = tuple(png(each.pixels) for each in taken if not isinstance(each, Unreadable))
    return Probes(images, on_cpu(eye.batch(take(as_source(image), eye.preprocess) for image in images).views))
