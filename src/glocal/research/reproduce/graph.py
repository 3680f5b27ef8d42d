"""What a reproduction is made of, as a graph: runs that start from each other, and the tests of what they made.

A step leaves files in the folder of the reproduction and nothing else, and does nothing when they are there.  So the
same graph can be worked off in order, by several processes that share the folder, by the processes of torchrun that do
every step together, or by Ray; a step that died is done again and goes on from its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from glocal.research.reproduce.measurement import measure
from glocal.research.reproduce.plans import Line, lines_of
from glocal.research.reproduce.runs import Run, Settings, ensure_run, folder_of
from glocal.research.reproduce.scale import Scale


class Step(Protocol):
    def needs(self) -> Sequence[Step]:
        """What must be done before."""

    def do(self, how: Settings, *, wait: bool = True) -> bool:
        """False when another process is at it and ``wait`` is False."""


@dataclass(frozen=True)
class RunStep:
    """Pre-training, FEAT, or a head."""

    run: Run

    def needs(self) -> Sequence[Step]:
        return [RunStep(self.run.init)] if isinstance(self.run.init, Run) else []

    def do(self, how: Settings, *, wait: bool = True) -> bool:
        return ensure_run(self.run, how, wait=wait) is not None


@dataclass(frozen=True)
class MeasureStep:
    """Test tasks of one data set and shot: the rows that all tables and figures read."""

    dataset: str
    shot: int
    lines: tuple[Line, ...]
    seeds: int = 1  # trainings of every run

    def runs(self) -> list[Run]:
        """Each once, all of a seed before the next."""
        return list(dict.fromkeys(line.run.seeded(seed) for seed in range(self.seeds) for line in self.lines))

    def needs(self) -> Sequence[Step]:
        return [RunStep(run) for run in self.runs()]

    def do(self, how: Settings, *, wait: bool = True) -> bool:
        folders = {run: folder_of(run, how.runs) for run in self.runs()}
        measure(self.dataset, self.shot, self.lines, folders, replace(how, seeds=self.seeds))
        return True


def tests_of(names: Iterable[str], scale: Scale, datasets: Iterable[str], seeds: int) -> list[MeasureStep]:
    """One per data set and shot."""
    needed: dict[tuple[str, int], list[Line]] = {}
    for dataset in datasets:
        for name in names:
            for shot, lines in lines_of(name, scale, dataset).items():
                needed.setdefault((dataset, shot), []).extend(lines)
    return [MeasureStep(dataset, shot, tuple(lines), seeds) for (dataset, shot), lines in sorted(needed.items())]


def in_order(goals: Iterable[Step]) -> list[Step]:
    """All steps that these take, each once, none before what it needs."""
    found: dict[Step, None] = {}

    def add(step: Step) -> None:
        if step not in found:
            for before in step.needs():
                add(before)
            found[step] = None

    for goal in goals:
        add(goal)
    return list(found)


def work_off(steps: Sequence[Step], how: Settings) -> None:
    """One after the other; what another process is at is left for last, and what needs it."""
    done: set[Step] = set()
    waiting = list(steps)
    while waiting:
        busy = []
        for step in waiting:
            if done.issuperset(step.needs()) and step.do(how, wait=False):
                done.add(step)
            else:
                busy.append(step)
        if len(busy) == len(waiting):
            next(step for step in busy if done.issuperset(step.needs())).do(how)
        waiting = busy
