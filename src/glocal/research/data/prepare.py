"""Preparing a data set: which layout a folder has, which class belongs where, and all of it written, or nothing.

Two layouts give the same manifest when their pixels and classes are the same.  CIFAR-FS and FC100 hold CIFAR-100's
32 px pixels in every layout.  miniImageNet's pickles of 84 px were made by others from the JPEG files, each with its
own resizing.  tieredImageNet's npz arrays hold blue, green, red, as OpenCV does; its PNG files decode to red, green,
blue.  Pixels are taken as they are.  Zips and tars are unpacked by the standard library before anything in them is
read.

The work is done in a hidden folder beside the target and renamed at the end:

    .<name>.preparing/lock         held while preparing
    .<name>.preparing/unpacked-*/  what an archive holds
    .<name>.preparing/data/        the prepared form

The index of the prepared form lists the splits that are finished.  The system frees the lock when its holder dies.
A process that is killed or stopped with Ctrl-C leaves that folder.  The next one with the same job goes on after the
last finished split, one with another job starts anew.  A process that fails leaves nothing.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from glocal import __version__
from glocal.common.errors import DataError
from glocal.common.files import sync
from glocal.common.words import printable
from glocal.recognizer.photos.folders import walk
from glocal.research.data.array_layouts import arrays, cifar100_batches, joined
from glocal.research.data.layouts import (
    SPLITS,
    WHOLE,
    Content,
    Part,
    class_folders,
    csv_per_split,
    cub,
    inner_folder,
    listed_classes,
)
from glocal.research.data.prepared import (
    PreparedIndex,
    Sample,
    is_prepared,
    read_index,
    read_tables,
    write_index,
    write_split,
)
from glocal.research.data.splits import (
    CIFAR100,
    PUBLISHED,
    canonical_name,
    check_disjoint,
    published_classes,
    seeded_split,
)

LAYOUTS = (cifar100_batches, csv_per_split, arrays, listed_classes, cub, class_folders)  # the first that fits
CIFAR = ("cifar-fs", "fc100")


class Progress(Protocol):
    def __call__(self, split: str, done: int, *, total: int) -> None: ...


def prepare(
    target: str | Path,
    name: str,
    source: str | Path,
    *,
    seed: int = 0,
    shares: tuple[float, float, float] = (0.6, 0.16, 0.24),
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> PreparedIndex:
    """Write the prepared form of the data set ``name`` to ``target``, which must not exist.

    ``source`` is a folder, a zip or a tar.  ``seed`` and ``shares`` as for ``recognise``.  ``skip_bad`` leaves out
    images that cannot be used instead of refusing them.
    """
    target, source = Path(target).absolute(), Path(source)
    work = work_folder(target)
    data = work / "data"
    with _working(target, work, name):
        content = recognise(name, unpacked(source, work), seed=seed, shares=shares)
        job = f"{signature(source)} {content.dataset} {content.words} {seed} {shares} {skip_bad} {__version__}"
        job = hashlib.sha256(job.encode()).hexdigest()
        index = _continued(data, job) or PreparedIndex(
            name=content.dataset,
            packing=content.words,
            variant=content.variant,
            created_by=f"glocal {__version__}",
            job=job,
            splits={},
        )
        for split, samples in content.splits.items():
            report = None if progress is None else partial(progress, split, total=content.counts[split])
            if split not in index.splits:
                record = write_split(data, split, samples(), skip_bad=skip_bad, progress=report)
                index = index.model_copy(update={"splits": {**index.splits, split: record}})
                write_index(data, index)
            elif report is not None:
                report(index.splits[split].total)
        sync(data)
        os.rename(data, target)
        sync(target.parent)
        shutil.rmtree(work, ignore_errors=True)
    return index


def work_folder(target: str | Path) -> Path:
    """Where ``prepare`` works until ``target`` is complete; it stays behind only when the process was stopped."""
    target = Path(target).absolute()
    return target.with_name(f".{target.name}.preparing")


@contextmanager
def _working(target: Path, work: Path, name: str) -> Iterator[None]:
    """Alone in the work folder, which goes when the work fails."""
    _refuse_existing(target)
    try:
        work.mkdir(parents=True, exist_ok=True)
        with FileLock(work / "lock", timeout=0):
            try:
                _refuse_existing(target)  # another process may just have finished it
                yield
            except Exception:  # not KeyboardInterrupt: what a person stopped may go on later
                shutil.rmtree(work, ignore_errors=True)
                raise
    except Timeout:
        raise DataError(f"another process is preparing {target}; wait until it is done", code="busy") from None
    except OSError as error:
        raise DataError(
            f"data set {name!r} cannot be prepared in {target} ({error.strerror or error}); "
            "free some space or choose another folder, nothing of it was left behind"
        ) from error


def _continued(data: Path, job: str) -> PreparedIndex | None:
    """What an earlier process finished of the same job; without it an empty folder to start in."""
    try:
        index = read_index(data)
        if index.job == job:
            for split, record in index.splits.items():
                read_tables(data, split, record)
            for cut_short in data.glob(".*.partial"):  # a process that was killed in the middle of a file
                cut_short.unlink()
            return index
    except DataError:
        pass
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    return None


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        what = "holds a prepared data set already" if is_prepared(target) else "exists already"
        raise DataError(f"{target} {what} and is not overwritten; remove it or choose another folder", code="exists")


MOST_FILES = 4_000_000  # tieredImageNet as files has 779,165
MOST_BYTES = 256 << 30
MOST_GROWTH = 200  # times the size of the archive; images are packed already ...
GROWTH_FROM = 64 << 20  # ... but few of them may be black
_DAMAGE = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
)


def unpacked(source: Path, home: Path) -> Path:
    """The folder ``source``, or what a zip or tar of that name unpacks to in ``home``; unpacked once."""
    if source.is_dir():
        return source
    if not source.is_file():
        raise DataError(f"{source}: there is no such file or folder; name what the data set is in")
    target = home / f"unpacked-{signature(source)[:16]}"
    if not target.is_dir():
        partial = home / "unpacking"
        shutil.rmtree(partial, ignore_errors=True)
        try:
            with _opened(source) as archive:
                _unpack(archive, partial, source)
        except _DAMAGE as error:
            if isinstance(error, DataError) or getattr(error, "errno", None) is not None:
                raise  # the disk failed, not the archive
            what = " ".join(str(error).split())[:150] or type(error).__name__
            raise DataError(f"{source}: cannot be unpacked ({what}); copy it again, or unpack it yourself") from error
        partial.rename(target)
    return target


def signature(path: Path) -> str:
    """Hash of the names, sizes and times of change of a file, or of all files in a folder."""
    files = (
        [os.path.join(parent, name) for parent, _, names in walk(path) for name in names] if path.is_dir() else [path]
    )
    digest = hashlib.sha256(os.fsencode(path.absolute()))
    for file in files:
        status = os.stat(file) if os.path.exists(file) else os.lstat(file)  # a link that leads nowhere is refused later
        digest.update(os.fsencode(file) + f"\0{status.st_size} {status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _opened(source: Path) -> zipfile.ZipFile | tarfile.TarFile:
    if source.suffix.lower() != ".npz":  # a zip, but of arrays
        if zipfile.is_zipfile(source):
            return zipfile.ZipFile(source)
        if tarfile.is_tarfile(source):
            return tarfile.open(source)
    raise DataError(f"{source}: neither a folder nor a zip or tar; name the folder that the file lies in")


def _unpack(archive: Any, folder: Path, source: Path) -> None:
    folder.mkdir(parents=True)
    if isinstance(archive, zipfile.ZipFile):  # it leaves out "..", drives and links by itself
        for member in _bounded(archive.infolist(), "file_size", source):
            archive.extract(member, folder)
    else:
        for member in _bounded(archive, "size", source):
            archive.extract(member, folder, filter="data")


def _bounded(members: Iterable[Any], size: str, source: Path) -> Iterator[Any]:
    """The members of an archive, until there are too many of them or of their bytes."""
    allowed = min(MOST_BYTES, max(GROWTH_FROM, MOST_GROWTH * source.stat().st_size))
    total = 0
    for count, member in enumerate(members, 1):
        total += getattr(member, size)
        if count > MOST_FILES or total > allowed:
            raise DataError(
                f"{source}: it unpacks to more than {MOST_FILES:,} files or {allowed:,} bytes; unpack it yourself"
            )
        yield member


@dataclass(frozen=True)
class Recognised:
    """A data set that can be read."""

    dataset: str  # "mini-imagenet", "cifar-fs", ... or the given own name
    words: str  # the layout
    splits: Mapping[str, Callable[[], Iterator[Sample]]]
    counts: Mapping[str, int]  # images per split
    variant: str = "own"  # which known variant of the pixels


@dataclass(frozen=True)
class _Split:
    part: Part
    names: Mapping[str, str]  # label -> class name

    def samples(self) -> Iterator[Sample]:
        for sample in self.part.samples(self.names.keys()):
            yield sample._replace(class_name=self.names[sample.class_name])


def recognise(
    name: str, folder: Path, *, seed: int = 0, shares: tuple[float, float, float] = (0.6, 0.16, 0.24)
) -> Recognised:
    """How to read the data set ``name`` from ``folder``.

    A published name gives the published splits.  Any other name is one's own data: divided as the folders are, or its
    classes dealt to train, val and test by ``seed`` in ``shares``.
    """
    root, dataset = inner_folder(folder), canonical_name(name)
    content = next(filter(None, (layout(root) for layout in LAYOUTS)))
    names, note = _class_names(content, dataset)
    splits, more = _published(content, names, dataset) if dataset in PUBLISHED else _own(content, names, seed, shares)
    for each in (name for split in splits.values() for name in split.names.values()):
        if each != printable(each):
            raise DataError(f"class {printable(each)!r} has a name that is not printable Unicode; rename it")
    check_disjoint({split: dict.fromkeys(each.names.values()) for split, each in splits.items()})
    return Recognised(
        dataset=dataset,
        words="; ".join(filter(None, [content.words, note, more])),
        splits={split: each.samples for split, each in splits.items()},
        counts={split: sum(each.part.counts[label] for label in each.names) for split, each in splits.items()},
        variant=_variant(dataset, content),
    )


def _variant(dataset: str, content: Content) -> str:
    """Pixels of one variant can be compared; those of two cannot."""
    if dataset not in PUBLISHED:
        return "own"
    if content.kind == "cache-pickle":
        return content.kind
    if dataset in CIFAR:
        return "mixed-sizes" if content.side is None else f"{content.side}px"
    return "original-jpeg" if content.side is None else f"{content.side}px-{content.kind}"


def _class_names(content: Content, dataset: str) -> tuple[dict[str, dict[str, str]], str]:
    """Split -> label -> class name, and what is to be said when names are made up."""
    labels = {split: [*part.counts] for split, part in content.parts.items()}
    same = {split: {label: _spelled(label, dataset) for label in each} for split, each in labels.items()}
    if dataset not in PUBLISHED or not all(label.isdigit() for each in labels.values() for label in each):
        return same, ""
    if dataset in CIFAR and all(int(label) < len(CIFAR100) for each in labels.values() for label in each):
        named = {split: {label: CIFAR100[int(label)] for label in each} for split, each in labels.items()}
        for published in map(published_classes, CIFAR):
            if all(set(each.values()) <= set(published.get(split, ())) for split, each in named.items()):
                return named, ""
    made_up = {split: {label: f"{split}-{int(label):03d}" for label in each} for split, each in labels.items()}
    return made_up, "labels are bare numbers in no defined order, so classes are called by split and number"


def _spelled(label: str, dataset: str) -> str:
    """CIFAR-100's classes are written with spaces, hyphens or capitals too."""
    plain = label.lower().replace(" ", "_").replace("-", "_")
    return plain if dataset in CIFAR and plain in CIFAR100 else label


def _published(content: Content, names: Mapping[str, Mapping[str, str]], dataset: str) -> tuple[dict[str, _Split], str]:
    """The published splits: by the published list where classes are called as in it, else as they are divided."""
    published = published_classes(dataset)
    listed = {name for classes in published.values() for name in classes}
    every = {name for each in names.values() for name in each.values()}
    strange = sorted(every - listed)
    note = ""
    if every & listed:
        if strange and dataset != "tiered-imagenet":  # which is whole classes of ImageNet, so ImageNet contains it
            _refuse_class(strange[0], dataset)
        note = f"{len(strange)} classes that {dataset} does not have were left out" if strange else ""
        name_of = {label: name for each in names.values() for label, name in each.items()}
        whole = joined([*content.parts.values()])
        chosen = {
            split: {label: name for label, name in name_of.items() if name in classes}
            for split, classes in published.items()
        }
        splits = {split: _Split(whole, each) for split, each in chosen.items() if each}
    else:
        numbered = all(name.startswith(f"{split}-") for split, each in names.items() for name in each.values())
        if WHOLE in names or not (numbered or dataset == "tiered-imagenet"):
            _refuse_class(strange[0], dataset)
        for split, each in names.items():
            if len(each) > len(published[split]):
                raise DataError(
                    f"split {split!r} of {dataset} has {len(published[split])} classes, and here are {len(each)}; "
                    "this is another data set, give it a name of its own"
                )
        splits = {split: _Split(content.parts[split], each) for split, each in names.items()}
    here = {split: len(splits[split].names) if split in splits else 0 for split in published}
    short = ", ".join(f"{n} of {len(published[split])} {split}" for split, n in here.items())
    whole_set = all(n == len(published[split]) for split, n in here.items())
    return splits, "; ".join(filter(None, [note, "" if whole_set else f"only {short} classes"]))


def _refuse_class(name: str, dataset: str) -> None:
    raise DataError(
        f"class {name!r} is not one of the classes of {dataset}; check what the folder holds, or give it its own name"
    )


def _own(
    content: Content, names: Mapping[str, Mapping[str, str]], seed: int, shares: tuple[float, float, float]
) -> tuple[dict[str, _Split], str]:
    """As the folders are divided, or classes dealt to splits by a seed."""
    if WHOLE not in names:
        return {split: _Split(content.parts[split], each) for split, each in names.items()}, ""
    dealt = seeded_split(names[WHOLE], _class_counts(len(names[WHOLE]), shares), seed=seed)
    splits = {split: _Split(content.parts[WHOLE], {name: name for name in classes}) for split, classes in dealt.items()}
    sizes = "/".join(str(len(classes)) for classes in dealt.values())
    return splits, f"classes divided {sizes} by seed {seed}"


def _class_counts(n: int, shares: tuple[float, float, float]) -> dict[str, int]:
    """How many of n classes each split gets: shares rounded down, what is left to the largest remainders."""
    if len(shares) != 3 or min(shares) < 0 or shares[0] <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise DataError(f"shares of train, val and test must be three numbers that add up to 1, got {shares}")
    wanted = {split: share * n for split, share in zip(SPLITS, shares, strict=True) if share > 0}
    if n < len(wanted):
        raise DataError(f"{n} classes cannot be divided into {', '.join(wanted)}; give more classes or fewer shares")
    counts = {split: max(1, int(share)) for split, share in wanted.items()}
    while sum(counts.values()) != n:
        step = 1 if sum(counts.values()) < n else -1
        gaps = {split: step * (wanted[split] - n) for split, n in counts.items() if n + step > 0}
        counts[max(gaps, key=gaps.__getitem__)] += step
    return counts
