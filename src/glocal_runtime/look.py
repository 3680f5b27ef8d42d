"""A first look at photos that are to be enrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from glocal_runtime.errors import DataError
from glocal_runtime.eye import AnyEye, Batch, Source, Unreadable, take
from glocal_runtime.support import png

Progress = Callable[[int, int], None]  # (done, total)
PROBES = 4
NAMED_BAD = 8  # bad photos listed in an error; the rest is counted


def seen(
    eye: AnyEye[Any],
    sources: Sequence[Source],
    *,
    stored: Callable[[Any], Any],
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> tuple[list[Batch[Any]], dict[int, Unreadable]]:
    """The readable photos, views ``stored`` at once, and the others by their place; there are none but by skip_bad."""
    batches: list[Batch[Any]] = []
    bad: dict[int, Unreadable] = {}
    done = 0
    for batch in eye.batches(sources):
        bad |= {done + i: each for i, each in enumerate(batch.pictures) if isinstance(each, Unreadable)}
        done += len(batch.pictures)
        batches.append(Batch(batch.readable, stored(batch.views)))
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
    return batches, bad


def probe_images(eye: AnyEye[Any], sources: Sequence[Source]) -> tuple[bytes, ...]:
    """A few of the pictures as PNG, as the backbone saw them."""
    step = max(1, len(sources) // PROBES)
    taken = [take(source, eye.preprocess) for source in sources[::step][:PROBES]]
    return tuple(png(each.pixels) for each in taken if not isinstance(each, Unreadable))
