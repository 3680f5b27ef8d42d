"""A first look at photos that are to be enrolled; see ``glocal_runtime.look``."""

from __future__ import annotations

from collections.abc import Sequence

from glocal.recognizer.contents import Probes
from glocal.recognizer.eye import Eye, Source, Unreadable, as_source, take
from glocal.recognizer.support import Bank, on_cpu
from glocal_runtime.look import Progress, probe_images, seen

__all__ = ["Progress", "look", "probes_of"]


def look(
    eye: Eye, sources: Sequence[Source], *, skip_bad: bool = False, progress: Progress | None = None
) -> tuple[Bank, dict[int, Unreadable]]:
    """Bank of the readable photos, and the unreadable ones by their place; without ``skip_bad`` there are none."""
    batches, bad = seen(eye, sources, stored=on_cpu, skip_bad=skip_bad, progress=progress)
    return Bank.of(batches), bad


def probes_of(eye: Eye, sources: Sequence[Source]) -> Probes:
    """A few of the pictures, stored as the backbone saw them, and their views as seen from what is stored."""
    images = probe_images(eye, sources)
    return Probes(images, on_cpu(eye.batch(take(as_source(image), eye.preprocess) for image in images).views))
