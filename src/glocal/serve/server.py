"""What the routes share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Header
from starlette.responses import Response

from glocal.recognizer import Recognizer
from glocal.recognizer.eye import Source
from glocal.serve.batcher import Batcher, Full, Result
from glocal.serve.metrics import Metrics
from glocal.serve.problems import Json, busy, empty
from glocal.serve.settings import Settings
from glocal.serve.snapshot import Snapshot, plain_findings
from glocal.serve.workspace import Changed, Workspace

IfMatch = Annotated[
    str | None, Header(alias="If-Match", description="The version that the change is meant for; 409 when it is another")
]


@dataclass
class Server:
    workspace: Workspace
    settings: Settings
    batcher: Batcher
    metrics: Metrics = field(default_factory=Metrics)
    _changes: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="glocal-change")
    )
    _waiting: int = 0

    async def change(self, change: Callable[..., Changed], *args: Any, **kwargs: Any) -> Response:
        """In a thread of its own, after those that came before."""
        if self._waiting >= self.settings.limits.changes:
            raise busy("too many changes at once", 2)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            done = await loop.run_in_executor(self._changes, lambda: change(*args, **kwargs))
        finally:
            self._waiting -= 1
        self.metrics.count("changes_total")
        body = {"version": done.version, "findings": plain_findings(done.findings), "message": done.message}
        return Json(body, headers={"ETag": f'"{done.version}"'})

    async def look(self, recognizer: Recognizer, sources: Sequence[Source]) -> list[Result]:
        """Answers from the batcher."""
        try:
            waiting = self.batcher.submit(recognizer, sources)
        except Full as full:
            raise busy("too many pictures at once", full.seconds) from None
        try:
            async with asyncio.timeout(self.settings.limits.answer_seconds):
                return await asyncio.wrap_future(waiting)
        except TimeoutError:
            raise busy("the pictures were not answered in time", self.batcher.retry_after()) from None

    def enrolled(self) -> tuple[Snapshot, Recognizer]:
        """The current snapshot, which must have classes."""
        now = self.workspace.snapshot
        if now.recognizer is None:
            raise empty()
        return now, now.recognizer

    def close(self) -> None:
        """Finish what was accepted."""
        self.batcher.close()
        self._changes.shutdown()
        self.workspace.close()
