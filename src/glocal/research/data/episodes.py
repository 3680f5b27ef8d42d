"""Which images form task i: a pure function of (labels, spec, seed, i).

Tasks name images by their index in a ClassDataset.  That index comes from image content, so a task list means the
same images however the data is packed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from glocal.common.errors import DataError
from glocal.common.files import write_text
from glocal.common.schemas import Record, parsed
from glocal.research.data.dataset import ClassDataset, Indices
from glocal.research.types import UNKNOWN, Episode

TOLERANCE = 0.01  # largest difference of the share of unknown queries from what was asked
ROOM = 0.25  # largest relative difference of the number of queries from that of the balanced task


@dataclass(frozen=True)
class EpisodeSpec:
    """The shape of a task.  ``shot`` is one number, or (least, most) for a number drawn per class."""

    way: int = 5
    shot: int | tuple[int, int] = 1
    query: int = 15  # per known class
    unknown_way: int = 5
    unknown_query: int = 15  # per unknown class

    def __post_init__(self) -> None:
        if not isinstance(self.shot, int):
            if len(self.shot) != 2:
                raise DataError(f"shot must be one number, or two (least, most), got {self.shot}")
            object.__setattr__(self, "shot", (int(self.shot[0]), int(self.shot[1])))
        low, high = self.shot_range
        if low > high:
            raise DataError(f"shot range must run from least to most, got {self.shot}")
        for name, least in {"way": 1, "shot": 1, "query": 1, "unknown_way": 0, "unknown_query": 0}.items():
            if (value := low if name == "shot" else getattr(self, name)) < least:
                raise DataError(f"{name} must be at least {least}, got {value}")

    @property
    def shot_range(self) -> tuple[int, int]:
        """The fewest and the most support images per class."""
        return (self.shot, self.shot) if isinstance(self.shot, int) else self.shot


@dataclass(frozen=True, eq=False)
class Draw:
    """The images of one task as dataset indices, and their labels within the task."""

    support: Indices  # (S,)
    support_label: Indices
    query: Indices  # (Q,)
    query_label: Indices  # UNKNOWN for queries of classes without support
    drawn: tuple[int, ...]  # dataset ids of the classes, known first
    mirror_support: Indices | None = None  # support of the unknown classes, only when asked for
    mirror_support_label: Indices | None = None
    mirror_query_label: Indices | None = None

    def images(self) -> Indices:
        """Every image of the task, each once."""
        parts = [self.support, self.query] + ([] if self.mirror_support is None else [self.mirror_support])
        return np.unique(np.concatenate(parts))

    def episode(self, fetch: Callable[[Indices], Tensor]) -> Episode:
        """Turn indices into tensors; ``fetch`` returns images or maps, one row per index."""
        tensors = {
            name: torch.from_numpy(value) if name.endswith("label") else fetch(value)
            for name, value in vars(self).items()
            if isinstance(value, np.ndarray)
        }
        return Episode(**tensors, drawn=self.drawn)


class EpisodeSampler:
    """``sampler[i]`` never depends on worker count, epoch or what was drawn before.

    ``rows`` restricts it to a part of the images.  ``mirror=True`` also draws support for the unknown classes;
    support and queries stay those of ``mirror=False``.  An image that a class holds twice is drawn as one: a query
    must never be the support image itself.
    """

    def __init__(
        self,
        dataset: ClassDataset,
        spec: EpisodeSpec,
        *,
        seed: int = 0,
        rows: Indices | None = None,
        mirror: bool = False,
    ):
        if seed < 0:
            raise DataError(f"seed must be 0 or more, got {seed}")
        self.dataset, self.spec, self.seed, self.mirror = dataset, spec, seed, mirror
        self._members = [dataset.members(c) for c in range(len(dataset.classes))]
        if rows is not None:
            self._members = [np.intersect1d(members, rows) for members in self._members]
        self._members = [dataset.distinct(members) for members in self._members]
        self._check()

    def __getitem__(self, i: int) -> Draw:
        if i < 0:
            raise IndexError(f"task index must not be negative, got {i}")
        spec, bits = self.spec, np.random.PCG64(np.random.SeedSequence((self.seed, i)))
        drawn = _shuffle(bits, len(self._members))[: spec.way + spec.unknown_way]
        support: list[Indices] = []
        query: list[Indices] = []
        mirror: list[Indices] = []
        low, high = spec.shot_range
        for label, cls in enumerate(drawn.tolist()):
            shot = low + int(bits.random_raw() % (high - low + 1)) if high > low else low
            shuffled = self._members[cls][_shuffle(bits, len(self._members[cls]))]
            if label < spec.way:
                support.append(shuffled[:shot])
                query.append(shuffled[shot : shot + spec.query])
            else:  # the mirrored support comes after the queries, so that asking for it changes nothing else
                query.append(shuffled[: spec.unknown_query])
                mirror.append(shuffled[spec.unknown_query : spec.unknown_query + shot])
        own = _labels(query)
        known = own < spec.way
        return Draw(
            np.concatenate(support),
            _labels(support),
            np.concatenate(query),
            np.where(known, own, UNKNOWN),
            tuple(drawn.tolist()),
            mirror_support=np.concatenate(mirror) if self.mirror else None,
            mirror_support_label=_labels(mirror) if self.mirror else None,
            mirror_query_label=np.where(known, UNKNOWN, own - spec.way) if self.mirror else None,
        )

    def take(self, n: int, start: int = 0, *, keep: bool = True) -> TaskList:
        """Tasks start..start+n-1 as a frozen list; ``keep=False`` draws each whenever it is asked for.

        The tasks are the same, and a list of any length then takes no memory.
        """
        if n < 1:
            raise DataError(f"a task list needs at least 1 task, got {n}")
        tasks = range(start, start + n)
        draws = tuple(map(self.__getitem__, tasks)) if keep else Redrawn(self, tasks)
        return TaskList(draws, self.spec, self.seed, self.dataset.manifest, start)

    def _check(self) -> None:
        """Every class may be drawn as known or as unknown, so each must be large enough for both."""
        spec, shot = self.spec, self.spec.shot_range[1]
        have, want = len(self._members), spec.way + spec.unknown_way
        if have < want:
            raise DataError(
                f"{self.dataset.name} has {have} classes, but a task needs {want} ({spec.way} known + "
                f"{spec.unknown_way} unknown): ask for fewer ways or unknown classes"
            )
        if self.mirror and not spec.unknown_way:
            raise DataError("a mirrored task needs unknown classes, but unknown_way is 0")
        mirrored = shot if self.mirror else 0
        roles = [(shot + spec.query, f"{shot} support + {spec.query} queries")]
        if spec.unknown_way:
            support = f" + {mirrored} mirrored support" if mirrored else ""
            roles.append((mirrored + spec.unknown_query, f"{spec.unknown_query} unknown queries{support}"))
        need, why = max(roles)
        small = sorted((len(m), self.dataset.classes[c]) for c, m in enumerate(self._members) if len(m) < need)
        if small:
            n, name = small[0]
            more = f" ({len(small)} classes are too small)" if len(small) > 1 else ""
            once = " (repeated ones counted once)" if self.dataset.duplicates else ""
            raise DataError(
                f"class {name!r} of {self.dataset.name} has {n} images{once}, but a task needs {need} "
                f"({why}){more}: add images, leave the class out, or ask for fewer"
            )


@dataclass(frozen=True, eq=False)
class Redrawn(Sequence[Draw]):
    """Tasks of a sampler that nobody keeps."""

    sampler: EpisodeSampler
    tasks: range

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, i: Any) -> Any:
        chosen = self.tasks[i]
        return self.sampler[chosen] if isinstance(chosen, int) else Redrawn(self.sampler, chosen)


@dataclass(frozen=True, eq=False)
class TaskList(Sequence[Draw]):
    """Tasks that were drawn once and stay: what every method of a table is measured on."""

    draws: Sequence[Draw]
    spec: EpisodeSpec
    seed: int
    manifest: str  # of the dataset whose indices these are
    start: int = 0

    def __len__(self) -> int:
        return len(self.draws)

    def __getitem__(self, i: Any) -> Any:
        return self.draws[i]

    def images(self) -> Indices:
        """Every image that some task needs, each once: what a feature bank must hold."""
        needed = np.empty(0, np.int64)
        for start in range(0, len(self), 256):  # piece by piece: most images come up again and again
            piece = [draw.images() for draw in self.draws[start : start + 256]]
            needed = np.union1d(needed, np.concatenate(piece))
        return needed

    def fingerprint(self) -> str:
        """Results carry this: equal fingerprints were measured on the same images in the same roles."""
        digest = hashlib.sha256(self.manifest.encode())
        for draw in self.draws:
            for part in (draw.support, draw.support_label, draw.query, draw.query_label):
                digest.update(np.int64(len(part)).tobytes() + part.astype("<i8").tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """One JSON file, written under a temporary name first."""
        record = {
            "format": "glocal-tasks-1",
            "manifest": self.manifest,
            "fingerprint": self.fingerprint(),
            "spec": asdict(self.spec),
            "seed": self.seed,
            "start": self.start,
            "tasks": [
                {name: np.asarray(value).tolist() for name, value in vars(draw).items() if value is not None}
                for draw in self.draws
            ],
        }
        write_text(path, json.dumps(record | {"checksum": _checksum(record)}, separators=(",", ":")))

    @classmethod
    def load(cls, path: str | Path, dataset: ClassDataset) -> TaskList:
        """Read a task list back; refuses one that was drawn from other images or altered since."""

        def refuse(reason: str) -> DataError:
            return DataError(f"{path} is not a task list of this glocal: {reason}; draw it anew with --save-tasks")

        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise DataError(f"task list {path} cannot be read: {error.strerror}") from error
        record = parsed(_TaskFile, content, refuse)
        if record.manifest != dataset.manifest:
            raise DataError(
                f"task list {path} was drawn from other images (manifest {record.manifest[:12]}) than "
                f"{dataset.name} holds (manifest {dataset.manifest[:12]}); draw a new one from this data",
                code="other-data",
            )
        if record.checksum != _checksum(record.model_dump(mode="json", exclude={"checksum"}, exclude_none=True)):
            message = f"task list {path} was altered: its content no longer gives its own checksum; draw it anew"
            raise DataError(message, code="altered")
        try:
            draws = tuple(task.draw(record.spec, dataset) for task in record.tasks)
        except ValueError as error:
            raise refuse(str(error)) from error
        return cls(draws, record.spec, record.seed, record.manifest, record.start)


Row = Annotated[int, Field(ge=0, lt=1 << 40)]  # of the data set
Label = Annotated[int, Field(ge=UNKNOWN, lt=1 << 40)]  # within the task


class _Task(Record):
    """A task as it is written: the parts of a Draw."""

    support: Annotated[list[Row], Field(min_length=1)]
    support_label: list[Row]
    query: Annotated[list[Row], Field(min_length=1)]
    query_label: list[Label]
    drawn: list[Row]
    mirror_support: list[Row] | None = None
    mirror_support_label: list[Row] | None = None
    mirror_query_label: list[Label] | None = None

    def draw(self, spec: EpisodeSpec, dataset: ClassDataset) -> Draw:
        mirror = self.mirror_support or []
        for name, values, end in (
            ("support", self.support, len(dataset)),
            ("query", self.query, len(dataset)),
            ("mirror_support", mirror, len(dataset)),
            ("drawn", self.drawn, len(dataset.classes)),
            ("query_label", self.query_label, spec.way),
            ("mirror_support_label", self.mirror_support_label or [], spec.unknown_way),
            ("mirror_query_label", self.mirror_query_label or [], spec.unknown_way),
        ):
            if max(values, default=0) >= end:
                raise ValueError(f"{name} must be below {end}, got {max(values)}")
        if len(self.drawn) != spec.way + spec.unknown_way or {*self.support_label} != {*range(spec.way)}:
            raise ValueError(f"a task has other classes than {spec.way} known and {spec.unknown_way} unknown")
        lengths: list[tuple[int, list[int] | None]] = [
            (len(self.support), self.support_label),
            (len(self.query), self.query_label),
        ]
        if self.mirror_support is not None:
            lengths += [(len(mirror), self.mirror_support_label), (len(self.query), self.mirror_query_label)]
        if any(label is None or len(label) != n for n, label in lengths):
            raise ValueError("a task has another number of labels than of images")
        arrays = {
            name: np.array(value) for name, value in self.model_dump(exclude={"drawn"}, exclude_none=True).items()
        }
        return Draw(**arrays, drawn=tuple(self.drawn))


class _TaskFile(Record):
    format: Literal["glocal-tasks-1"]
    manifest: str
    fingerprint: str
    spec: EpisodeSpec
    seed: Annotated[int, Field(ge=0)]
    start: Annotated[int, Field(ge=0)]
    tasks: Annotated[list[_Task], Field(min_length=1)]
    checksum: str


def _shuffle(bits: np.random.PCG64, n: int) -> Indices:
    """A permutation of 0..n-1 from raw bits: numpy keeps those stable over versions, Generator methods not."""
    return np.argsort(bits.random_raw(n))  # 64 bits do not repeat, so any way of sorting gives the same


def _labels(parts: Sequence[Indices]) -> Indices:
    return np.repeat(np.arange(len(parts)), [len(part) for part in parts])


def _checksum(record: dict[str, Any]) -> str:
    """Hash of the whole record: the fingerprint leaves out what results do not depend on, like the mirrored side."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def unknown_share(spec: EpisodeSpec) -> float:
    """Unknown queries among all queries of a task."""
    return spec.unknown_way * spec.unknown_query / _queries(spec)


def with_unknown_share(spec: EpisodeSpec, share: float) -> EpisodeSpec:
    """The same classes and about as many queries in all, dealt so that ``share`` of them are unknown.

    The total stays within a quarter of ``(way + unknown_way) * query``.  Among the whole numbers of queries per class
    the nearest share wins, then the nearest total.  Deployment has 1 unknown in 10, or 9 in 10, not one half.

    >>> with_unknown_share(EpisodeSpec(), 0.1)
    EpisodeSpec(way=5, shot=1, query=27, unknown_way=5, unknown_query=3)
    """
    if not 0 < share < 1:
        raise DataError(f"the share of unknown queries must lie between 0 and 1, such as 0.1, got {share}")
    if not spec.unknown_way:
        raise DataError(f"a share of {share} unknown queries needs unknown classes, but unknown_way is 0")
    total = (spec.way + spec.unknown_way) * spec.query
    least, most = total * (1 - ROOM), int(total * (1 + ROOM))
    known, unknown = range(1, most // spec.way + 1), range(1, most // spec.unknown_way + 1)
    dealt = [replace(spec, query=query, unknown_query=other) for query in known for other in unknown]
    fitting = [replace(spec, unknown_query=spec.query), *(each for each in dealt if least <= _queries(each) <= most)]
    best = min(fitting, key=lambda each: (abs(unknown_share(each) - share), abs(_queries(each) - total)))
    if abs(unknown_share(best) - share) > TOLERANCE:
        raise DataError(
            f"with about {total} queries of {spec.way} known and {spec.unknown_way} unknown classes the share of "
            f"unknown queries nearest to {share} is {unknown_share(best):.3f}; ask for more queries per class"
        )
    return best


def _queries(spec: EpisodeSpec) -> int:
    return spec.way * spec.query + spec.unknown_way * spec.unknown_query
