"""One picture asked of PyTorch and of an export: seconds and memory, in turns, so that other load meets both alike.

    python benchmarks/export.py [--model photos-fast] [--pictures 40] [--threads 1] [--data DIR]

Each side runs in a process of its own with one recognizer of ten classes, as a program that answers one picture at a
time would: decode, embed, judge.  The two take turns picture by picture, and so does the int8 export.  Time of the
processor is told beside that of the clock: other load moves it less.  Memory is the largest resident set (Linux).
The photos are those of ``caltech-photos`` below GLOCAL_DATA; without them, noise.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES, SHOTS = 10, 5
WARM_UP = 3


def photos(data: Path | None, scratch: Path, n: int) -> list[Path]:
    if data is not None and data.is_dir():
        return sorted(data.glob("*/*.jpg"))[:n]
    rng = np.random.default_rng(0)
    paths = [scratch / f"{i}.png" for i in range(n)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (240, 300, 3), dtype=np.uint8)).save(path)
    return paths


def serve(kind: str, place: str, threads: int) -> None:
    """The child: loads, then answers one path per line with the seconds it took and its score."""
    start = time.perf_counter()
    if kind == "torch":
        import torch

        torch.set_num_threads(threads)
    from glocal.recognizer import Recognizer

    who = Recognizer.load(place, device="cpu", workers=1, threads=threads)
    print(json.dumps({"load": time.perf_counter() - start}), flush=True)
    for line in sys.stdin:
        start, busy = time.perf_counter(), time.process_time()
        [answer] = who.predict(line.strip())
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
        found = {"seconds": seconds, "cpu": busy, "score": answer.open_score, "MiB": largest_memory()}
        print(json.dumps(found), flush=True)


def largest_memory() -> float:
    """MiB; not from getrusage, which begins with what the parent of a process had."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


class Side:
    def __init__(self, kind: str, place: Path, threads: int) -> None:
        self.kind = kind
        command = [sys.executable, __file__, "--serve", kind, str(place), "--threads", str(threads)]
        env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.load = self._read()["load"]
        self.found: list[dict[str, float]] = []

    def ask(self, path: Path) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        self.found.append(self._read())

    def close(self) -> None:
        self._process.communicate()

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        found: dict[str, float] = json.loads(self._process.stdout.readline())
        return found

    def median(self, what: str) -> float:
        return statistics.median(each[what] for each in self.found[WARM_UP:])


def main() -> None:
    home = os.environ.get("GLOCAL_DATA")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="photos-fast")
    parser.add_argument("--pictures", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--data", type=Path, default=Path(home) / "caltech-photos" if home else None)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(*asked.serve, asked.threads)
        return

    from glocal.recognizer import Recognizer
    from glocal.research.convert.onnx import export

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        paths = photos(asked.data, place, CLASSES * SHOTS + asked.pictures)
        groups = [paths[i * SHOTS : (i + 1) * SHOTS] for i in range(CLASSES)]
        who = Recognizer.enroll({f"{i}": some for i, some in enumerate(groups)}, model=asked.model, device="cpu")
        who.save(place / "torch.glocal")
        export(who, place / "float32.glocal")
        export(who, place / "int8.glocal", int8=True)
        kinds = {kind: place / f"{kind}.glocal" for kind in ("torch", "float32", "int8")}
        sides = [Side(kind, where, asked.threads) for kind, where in kinds.items()]
        for path in paths[CLASSES * SHOTS :]:
            for side in sides:
                side.ask(path)
        torch_side = sides[0]
        print(f"{asked.model}, {asked.pictures} pictures one at a time, threads {asked.threads}, {CLASSES} classes")
        for side in sides:
            memory = max(each["MiB"] for each in side.found)
            pairs = zip(side.found, torch_side.found, strict=True)
            off = max(abs(a["score"] - b["score"]) / max(1, abs(b["score"])) for a, b in pairs)
            wall, cpu = (1e3 * side.median(what) for what in ("seconds", "cpu"))
            of_torch = [side.median(what) / torch_side.median(what) for what in ("seconds", "cpu")]
            print(
                f"{side.kind:8} {wall:7.1f} ms ({of_torch[0]:.2f} of torch), {cpu:7.1f} ms of CPU ({of_torch[1]:.2f})"
                f"   {memory:5.0f} MiB   load {side.load:.1f} s   scores differ by {off:.1e}"
            )
            side.close()


if __name__ == "__main__":
    main()
