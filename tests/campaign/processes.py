"""``glocal serve`` as a process that imports nothing anew, and disks where this machine lets a test mount some."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from apart import PROCESSES

PATIENCE = 120.0  # seconds for a start on a busy machine


@dataclass(frozen=True)
class Served:
    process: ForkServerProcess
    address: str
    log: Path

    def said(self) -> str:
        return self.log.read_text(errors="replace")


@contextmanager
def serving(file: Path, *, descriptors: int | None = None) -> Iterator[Served]:
    """Killed at the end if it is still there."""
    log = Path(os.environ.get("TMPDIR", "/tmp")) / f"glocal-campaign-{os.getpid()}-{time.monotonic_ns()}.log"
    log.touch()
    process = PROCESSES.Process(target=_serve, args=(str(file), str(log), descriptors))
    process.start()
    try:
        until = time.monotonic() + PATIENCE
        while "open http://" not in log.read_text():
            assert process.is_alive(), log.read_text()
            assert time.monotonic() < until
            time.sleep(0.02)
        address = log.read_text().split("open ")[1].split()[0].rstrip("/")
        yield Served(process, address, log)
    finally:
        process.kill()
        process.join()
        log.unlink()


def _serve(file: str, log: str, descriptors: int | None) -> None:
    from tiny_runs import run_cli

    if descriptors is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    os.environ["OMP_NUM_THREADS"] = "1"
    run_cli(("serve", file, "--port", "0", "--device", "cpu"), log, os.environ.get("GLOCAL_CACHE", ""), 1.0)


def mounted(*arguments: str) -> None:
    """Skips where nothing can be mounted."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()[:80]}")


@contextmanager
def small_disk(at: Path, size: str) -> Iterator[Path]:
    at.mkdir()
    mounted("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at))
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


@contextmanager
def image_disk(image: Path, at: Path) -> Iterator[Path]:
    """A file as a disk: what is not yet on the disk is not in the file, so a copy of it is a power cut."""
    at.mkdir(exist_ok=True)
    mounted("-o", "loop", str(image), str(at))
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)
