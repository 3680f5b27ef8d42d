"""Processes that look at photos, each with a pipe of its own: one that dies takes nothing with it but its batches.

A decoder can crash, memory can run out, somebody can kill a process.  Its batches are done again by another process,
alone; a batch that ends a second process is divided, and a photo that ends one by itself becomes an error in the
results.  So a photo is blamed after two tries at least, and only for what happened while nothing else was going on.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import connection, get_context
from typing import Any

import pyarrow as pa

from glocal.bulk.look import Look, error_rows
from glocal.common.errors import DataError, GlocalError
from glocal.common.memory import keep_freed_memory
from glocal.recognizer.photos.sources import Picture, Unreadable

AHEAD = 2  # batches that a process has: one it looks at, one it reads
TRIES = 2
TICK = 10.0  # seconds between looks at who is stuck
PATIENCE = 900.0  # seconds without an answer after which a process is taken for stuck
STARTS = 3  # processes in a row that end before they have loaded the model
DEATHS = 20  # from which on there must be more finished batches than deaths


@dataclass(frozen=True)
class Task:
    """A stretch of one part, from row ``at`` on."""

    part: int
    at: int
    uris: tuple[str, ...]
    tries: int = 0  # processes that ended with it


@dataclass
class _Member:
    process: Any
    pipe: connection.Connection
    ready: bool = False
    tasks: deque[Task] = field(default_factory=deque)
    since: float = field(default_factory=time.monotonic)  # the last sign of life, or of new work


class Crew:
    """``make`` loads what a process looks with; ``threads`` is how many a process computes with, and reads with."""

    def __init__(self, make: Callable[[], Look], size: int, *, threads: int = 1) -> None:
        self._make, self._threads = make, threads
        self._context = get_context("spawn")  # a fork of a process with threads may hang
        self._schema: pa.Schema | None = None
        self._maker = ""
        self._failed_starts = self._deaths = self._finished = 0
        self._again: deque[Task] = deque()  # the next one first
        self._all_taken = False
        self._members = [self._start() for _ in range(size)]

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, pa.RecordBatch]]:
        """Every task once, or its pieces, in the order in which they are done; tasks are taken as they are needed."""
        fresh = iter(tasks)
        self._again.clear()
        self._all_taken = False
        while True:
            for member in self._members:
                self._hand_out(member, fresh)
            if self._all_taken and not self._again and not any(member.tasks for member in self._members):
                return
            for member, message in self._messages():
                if isinstance(message, BaseException):
                    yield from self._died(member)
                elif isinstance(message, pa.RecordBatch):
                    self._finished += 1
                    yield member.tasks.popleft(), message
                else:
                    self._schema, self._maker = message
                    member.ready, self._failed_starts = True, 0

    def close(self) -> None:
        for member in self._members:
            member.pipe.close()
            member.process.kill()
            member.process.join()
        self._members.clear()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _start(self) -> _Member:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs, self._make, self._threads), daemon=True)
        process.start()
        theirs.close()  # now its end is closed when it ends, however it ends
        return _Member(process, ours)

    def _hand_out(self, member: _Member, fresh: Iterator[Task]) -> None:
        while member.ready and len(member.tasks) < AHEAD:
            suspect = any(task.tries for task in member.tasks)
            if suspect or (self._again and member.tasks):
                return  # what may end a process is looked at alone
            task = self._again.popleft() if self._again else next(fresh, None)
            if task is None:
                self._all_taken = True
                return
            if not member.tasks:
                member.since = time.monotonic()
            member.tasks.append(task)
            with suppress(OSError):  # it has just died, which its end of the pipe will say
                member.pipe.send(task.uris)

    def _messages(self) -> Iterator[tuple[_Member, Any]]:
        waiting: dict[Any, _Member] = {member.pipe: member for member in self._members}
        for pipe in connection.wait(list(waiting), timeout=TICK):
            member = waiting[pipe]
            member.since = time.monotonic()
            try:
                message = member.pipe.recv()
            except (EOFError, OSError) as error:
                message = error
            if isinstance(message, GlocalError):
                raise message  # nothing that another process could do better
            yield member, message
        for member in self._members:
            if (member.tasks or not member.ready) and time.monotonic() - member.since > PATIENCE:
                member.process.kill()

    def _died(self, member: _Member) -> Iterator[tuple[Task, pa.RecordBatch]]:
        member.process.join()
        member.pipe.close()
        code = member.process.exitcode
        why = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        self._deaths += 1
        self._failed_starts += not member.ready
        if self._failed_starts >= STARTS or self._deaths >= max(DEATHS, self._finished):
            raise DataError(
                f"the processes that look at photos keep ending ({why}); if memory ran out, use fewer --workers; "
                "what is finished stays, continue with --resume",
                code="workers-die",
            )
        self._members[self._members.index(member)] = self._start()
        for task in member.tasks:
            blamed = replace(task, tries=task.tries + 1)
            if blamed.tries < TRIES:
                self._again.appendleft(blamed)
            elif len(task.uris) > 1:
                one_by_one = (replace(task, at=task.at + i, uris=(uri,), tries=1) for i, uri in enumerate(task.uris))
                self._again.extendleft(one_by_one)
            else:
                said = f"it ended {TRIES} processes that looked at it ({why}); leave it out"
                yield task, error_rows(self._schema, task.uris, said, self._maker)


def _work(pipe: connection.Connection, make: Callable[[], Look], threads: int) -> None:
    """In the process: read the photos of the next batch while the network looks at this one."""
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # torch reads it when it is imported, which is below
    keep_freed_memory()
    try:
        look = make()
        pipe.send((look.schema, look.maker))
        with ThreadPoolExecutor(max(2, threads)) as pool:
            ahead: deque[tuple[Sequence[str], list[Future[Picture | Unreadable]]]] = deque()
            while True:
                while not ahead or (len(ahead) < AHEAD and pipe.poll()):
                    uris = pipe.recv()
                    ahead.append((uris, [pool.submit(look.take, uri) for uri in uris]))
                uris, pictures = ahead.popleft()
                pipe.send(look.rows(uris, [each.result() for each in pictures]))
    except GlocalError as error:
        with suppress(OSError):
            pipe.send(GlocalError(str(error), code=error.code))  # some kinds are made from more than a sentence
    except (EOFError, BrokenPipeError, KeyboardInterrupt):  # whoever asked is gone
        os._exit(0)
