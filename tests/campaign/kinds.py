"""Every kind of file that is read: how a whole one is made, how it comes to harm, and which command reads it."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import random
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import hostile_archives
import hostile_arrays
import hostile_pickles  # noqa: F401 - these enter their files when imported
from campaign.mutation import as_json, damaged, twisted, twisted_arrays, twisted_recognizer, zipped
from exports import onnx_recognizer
from glocal.research.data.episodes import EpisodeSampler, EpisodeSpec, _checksum
from glocal.research.data.prepared import _checksum as index_checksum
from glocal.research.data.registry import open_dataset
from glocal.research.engine.checkpoint import save_model
from hostile import HOSTILE, PIXELS, RAN, Runs
from photos import recognizer, some, write, write_classes
from serving import tiny_file
from tiny_models import tiny_model

assert hostile_archives
assert hostile_arrays
Case = Callable[[random.Random, Path], list[str]]  # writes a file into the folder, and says how it is read
EVIL = ("../evil.png", "/evil.png", f"zero/{'a' * 300}.png", "a\\b.png", "zero/0.png/x.png")  # names in archives
LINES = (
    f"zero/000.png,{'W' * 20_000}", "/etc/passwd,x", "../../x,y", '"', "a", ",,,", f"zero/000.png,{'é' * 9000}",
    "zero/001.png,\x1b[2J", '"a\nb",c', "\x00,\x00", f"zero,{'a' * 200_000}", "=1+1,x", "zero/000.png,two\t",
)  # fmt: skip
DATA = Path(__file__).parents[1] / "data"
RECIPES = Path(__file__).parents[2] / "src/glocal/research/recipes"


def whole_recognizers(home: Path) -> list[bytes]:
    kinds = [tiny_file(home).read_bytes(), (DATA / "old.glocal").read_bytes()]
    for make in (recognizer, onnx_recognizer):
        make({"zero": 3, "one": 2}).save(home / "seed.glocal")
        kinds.append((home / "seed.glocal").read_bytes())
    return kinds


def recognizers(home: Path) -> Case:
    kinds, asked = whole_recognizers(home), write(home, "one", 7, 8)[0]

    def case(rng: random.Random, folder: Path) -> list[str]:
        file = folder / "x.glocal"
        file.write_bytes(twisted_recognizer(rng, rng.choice(kinds)))
        reads = ["predict", str(file), str(asked), "--json"], ["inspect", str(file), "--verify", "--json"]
        changes = (
            ["threshold", str(file), "--max-false-unknown", "0.1", "--json"],
            ["remove", str(file), "one", "--json"],
        )
        return rng.choice((reads[0], *reads, *changes))

    return case


def checkpoints(home: Path) -> Case:
    save_model(home / "seed.safetensors", tiny_model())
    save_model(home / "gel.safetensors", tiny_model("gel"))
    seeds = [(home / name).read_bytes() for name in ("seed.safetensors", "gel.safetensors")]
    photos = write_classes(home / "photos", ("zero", "one"), 0, 2)

    def case(rng: random.Random, folder: Path) -> list[str]:
        data, file = rng.choice(seeds), folder / "x.safetensors"
        n = int.from_bytes(data[:8], "little")
        if rng.random() < 0.6:  # what the record says, whole in itself
            head = json.loads(data[8 : 8 + n])
            head["__metadata__"]["glocal"] = as_json(twisted(rng, json.loads(head["__metadata__"]["glocal"]))).decode(
                "utf-8", "replace"
            )
            told = json.dumps(head).encode()
            data = struct.pack("<Q", len(told)) + told + data[8 + n :]
        else:
            data = damaged(rng, data)
        file.write_bytes(data)
        return [
            "enroll",
            str(photos),
            "-o",
            str(folder / "out.glocal"),
            "--model",
            str(file),
            "--device",
            "cpu",
            "--json",
        ]

    return case


def exports(home: Path) -> Case:
    asked = write(home, "one", 7, 8)[0]

    def case(rng: random.Random, folder: Path) -> list[str]:
        there = shutil.copytree(DATA / "old-export", folder / "export")
        name = rng.choice(("manifest.json", "manifest.json", *(path.name for path in sorted(there.iterdir()))))
        path, whole = there / name, rng.random() < 0.7
        manifest = json.loads((there / "manifest.json").read_text())
        if name == "manifest.json" and whole:
            path.write_bytes(as_json(twisted(rng, manifest)))
        elif name.endswith(".safetensors") and whole:
            path.write_bytes(twisted_arrays(rng, path.read_bytes()))
            manifest["bank"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
            (there / "manifest.json").write_bytes(as_json(manifest))
        else:
            path.write_bytes(damaged(rng, path.read_bytes()))
            if name in manifest["graphs"]:
                manifest["graphs"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
                (there / "manifest.json").write_bytes(as_json(manifest))
        return ["predict", str(there), str(asked), "--json"]

    return case


def recipes(home: Path) -> Case:
    from glocal.research.engine.recipe import load_recipe

    whole = [load_recipe(name).model_dump(mode="json") for name in ("cifar-fs-cpu-pretrain", "cifar-fs-fast-pretrain")]
    texts = [
        path.read_bytes() for path in sorted((Path(__file__).parents[2] / "src/glocal/research/recipes").glob("*.toml"))
    ]

    def case(rng: random.Random, folder: Path) -> list[str]:
        """Data that are not there: what is read well is refused a moment later, before anything is trained."""
        if rng.random() < 0.6:
            fields = twisted(rng, rng.choice(whole))
            if isinstance(fields, dict) and isinstance(fields.get("data"), dict):
                fields["data"]["dataset"] = "nowhere"
            path, content = folder / "x.json", as_json(fields)
        else:
            path, content = folder / "x.toml", damaged(rng, rng.choice(texts))
            if rng.random() < 0.1:
                content = b"a = " + b"[" * 50_000
        path.write_bytes(content)
        stage = rng.choice(("train", "pretrain"))
        return [stage, str(path), "--out", str(folder / "run"), "--set", "data.dataset=nowhere", "--device", "cpu"]

    return case


def task_lists(home: Path) -> Case:
    data = write_classes(home / "data", ("zero", "one", "two", "three"), 0, 8)
    save_model(home / "seed.safetensors", tiny_model())
    spec = EpisodeSpec(way=2, shot=1, query=2, unknown_way=2, unknown_query=2)
    EpisodeSampler(open_dataset(str(data), "all"), spec).take(3).save(home / "tasks.json")
    record = json.loads((home / "tasks.json").read_text())

    def case(rng: random.Random, folder: Path) -> list[str]:
        path, changed = folder / "tasks.json", twisted(rng, record)
        if isinstance(changed, dict) and rng.random() < 0.8:
            changed.pop("checksum", None)
            changed["checksum"] = _checksum(changed)
        path.write_bytes(as_json(changed) if rng.random() < 0.8 else damaged(rng, as_json(record)))
        dataset = ["--dataset", str(data), "--split", "all", "--device", "cpu", "--workers", "1", "--json"]
        return ["evaluate", str(home / "seed.safetensors"), *dataset, "--tasks-from", str(path)]

    return case


def prepared(home: Path) -> Case:
    from typer.testing import CliRunner

    from glocal.cli.main import app

    source = write_classes(home / "source", ("zero", "one", "two", "three"), 0, 4)
    made = CliRunner().invoke(app, ["data", "prepare", "mine", "--from", str(source), "-o", str(home / "whole")])
    assert made.exit_code == 0, made.output

    def case(rng: random.Random, folder: Path) -> list[str]:
        there = shutil.copytree(home / "whole", folder / "mine")
        index = json.loads((there / "index.json").read_text())
        path = rng.choice([there / "index.json", *sorted(there.iterdir())])
        if path.name == "index.json" and rng.random() < 0.8:
            index["content"] = twisted(rng, index["content"])
            path.write_bytes(as_json(index | {"sha256": index_checksum(index["content"])}))
        else:
            path.write_bytes(damaged(rng, path.read_bytes()))
            split, _, suffix = path.name.partition(".")
            files = index["content"]["splits"].get(split, {}).get("files", {})
            if suffix in files and rng.random() < 0.8:  # whole by its hash
                content = path.read_bytes()
                files[suffix] = {"bytes": len(content), "sha256": files[suffix]["sha256"] and _sha(content)}
                (there / "index.json").write_bytes(as_json(index | {"sha256": index_checksum(index["content"])}))
        verify = ["data", "verify", "mine", str(there), "--deep", "--json"]
        shown = ["data", "show", str(there), "-o", str(folder / "sheet.png"), "--classes", "1", "--json"]
        return rng.choice((verify, shown))

    return case


def npz(home: Path) -> Case:
    def case(rng: random.Random, folder: Path) -> list[str]:
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {"images": np.repeat(PIXELS, 8, axis=0), "labels": np.arange(16) % 4}
        if rng.random() < 0.4:
            name = rng.choice(list(arrays))
            odd = [arrays[name][:-1], arrays[name].astype(np.float64), arrays[name][None], np.array(["a"] * 16)]
            odd += [np.zeros(0), np.array([{}, 1], object), np.array([Runs(folder / "x")], object)]
            arrays[name] = rng.choice(odd)
        rng.choice((np.savez, np.savez_compressed))(buffer, **arrays)
        data = buffer.getvalue()
        (folder / "x.npz").write_bytes(damaged(rng, data) if rng.random() < 0.7 else data)
        return _prepare(folder, "x.npz")

    return case


def pickles(home: Path) -> Case:
    seeds = []
    for name in (each for each in HOSTILE if each.endswith(".pkl")):
        (home / "hostile").mkdir(exist_ok=True)
        HOSTILE[name](home / "hostile" / name)
        content = (home / "hostile" / name).read_bytes()
        if len(content) < 1 << 20:
            seeds.append(content)
    whole = {"data": np.repeat(PIXELS, 8, axis=0), "labels": [i % 4 for i in range(16)]}
    seeds += [pickle.dumps(whole, protocol) for protocol in range(6)]

    def case(rng: random.Random, folder: Path) -> list[str]:
        data = rng.choice(seeds) if rng.random() < 0.8 else pickle.dumps(whole | {"more": Runs(folder / "x")})
        (folder / "x.pkl").write_bytes(damaged(rng, data) if rng.random() < 0.8 else data)
        return _prepare(folder, "x.pkl")

    return case


def class_folders(home: Path) -> dict[str, bytes]:
    return {
        f"{word}/{i}.png": path.read_bytes()
        for word in ("zero", "one", "two", "three")
        for i, path in enumerate(write(home / word, word, 0, 3))
    }


def zips(home: Path) -> Case:
    members = class_folders(home)

    def case(rng: random.Random, folder: Path) -> list[str]:
        some = dict(members)
        for _ in range(rng.choice((0, 1, 3))):
            some[
                rng.choice(("../evil.png", "/evil.png", "zero/" + "a" * 300 + ".png", "a\\b.png", "zero/0.png/x.png"))
            ] = b"x"
        data = zipped(some, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)))
        (folder / "x.zip").write_bytes(damaged(rng, data) if rng.random() < 0.8 else data)
        return _prepare(folder, "x.zip")

    return case


def tars(home: Path) -> Case:
    pictures = class_folders(home)

    def case(rng: random.Random, folder: Path) -> list[str]:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode=rng.choice(("w", "w:gz", "w:bz2", "w:xz"))) as archive:  # type: ignore
            for name, content in pictures.items():
                info = tarfile.TarInfo(name)
                if rng.random() < 0.05:
                    info.type, info.linkname = rng.choice(((tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "../x")))
                    info.name = rng.choice((name, "../evil", "/evil", name + "/x"))
                    archive.addfile(info)
                else:
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
        data = buffer.getvalue()
        name = rng.choice(("x.tar", "x.tar.gz"))
        (folder / name).write_bytes(damaged(rng, data) if rng.random() < 0.8 else data)
        return _prepare(folder, name)

    return case


def csvs(home: Path) -> Case:
    for word in ("zero", "one"):
        write(home / word, word, 0, 4)
    lines = [f"{word}/{i:03d}.png,{word}" for word in ("zero", "one") for i in range(4)]

    def case(rng: random.Random, folder: Path) -> list[str]:
        for word in ("zero", "one"):
            (folder / word).symlink_to(home / word)
        some = list(lines)
        for _ in range(rng.choice((0, 1, 2))):
            some[rng.randrange(len(some))] = rng.choice(LINES)
        data = "\n".join(rng.choice((["filename,label"], [])) + some).encode("utf-8", "surrogatepass")
        (folder / "x.csv").write_bytes(damaged(rng, data) if rng.random() < 0.4 else data)
        sheet = ["-o", str(folder / "sheet.png"), "--classes", "1", "--split", "all"]
        return rng.choice((["data", "show", str(folder / "x.csv"), *sheet], _prepare(folder, "x.csv")))

    return case


def pictures(home: Path) -> Case:
    file, seeds = tiny_file(home), all_pictures()

    def case(rng: random.Random, folder: Path) -> list[str]:
        name = rng.choice(sorted(seeds))
        path = folder / f"x.{name.split('-')[0]}"
        path.write_bytes(damaged(rng, seeds[name]))
        return ["predict", str(file), str(path), "--json"]

    return case


def all_pictures() -> dict[str, bytes]:
    """One of each format and kind that is read."""
    pixels, made = some("one", 0, 1)[0], {}
    grey = pixels[..., 0]
    ways: dict[str, tuple[Image.Image, dict[str, Any]]] = {
        "png-rgb": (Image.fromarray(pixels), {}),
        "png-palette": (Image.fromarray(pixels).quantize(8), {}),
        "png-16": (Image.fromarray(grey.astype(np.uint16) * 257), {}),
        "jpg-rgb": (Image.fromarray(pixels), {}),
        "jpg-progressive": (Image.fromarray(pixels), {"progressive": True}),
        "webp-lossless": (Image.fromarray(pixels), {"lossless": True}),
        "webp-lossy": (Image.fromarray(pixels), {}),
        "gif-p": (Image.fromarray(grey), {}),
        "bmp-rgb": (Image.fromarray(pixels), {}),
        "ppm-rgb": (Image.fromarray(pixels), {}),
        "tif-i": (Image.fromarray(grey.astype(np.int32) - 9), {}),
        "tif-f": (Image.fromarray(grey.astype(np.float32)), {"compression": "tiff_deflate"}),
        "tif-lzw": (Image.fromarray(pixels), {"compression": "tiff_lzw"}),
        "jp2-rgb": (Image.fromarray(pixels), {}),
    }
    formats = {"jpg": "JPEG", "tif": "TIFF", "jp2": "JPEG2000"}
    for name, (image, how) in ways.items():
        buffer, kind = io.BytesIO(), name.split("-")[0]
        try:
            image.save(buffer, formats.get(kind, kind.upper()), **how)
        except (OSError, KeyError):  # a Pillow without that format
            continue
        made[name] = buffer.getvalue()
    return made


def weights(home: Path) -> Case:
    from reference.published import Feat, shaken

    state = shaken(Feat()).state_dict()
    seeds = []
    for new in (True, False):
        torch.save({"params": state}, home / "seed.pth", _use_new_zipfile_serialization=new)
        seeds.append((home / "seed.pth").read_bytes())

    def case(rng: random.Random, folder: Path) -> list[str]:
        data = rng.choice(seeds)
        if rng.random() < 0.3:
            note = rng.choice((Runs(folder / "x"), bytearray(9), {2**70: 1}, [[]], torch.zeros(1).expand(10**9)))
            torch.save({"params": state, "note": note}, folder / "x.pth")
            data = (folder / "x.pth").read_bytes()
        # The first tenth holds the pickle of the old form, the end that of the new one.
        cut = rng.choice((len(data) // 10, len(data)))
        (folder / "x.pth").write_bytes(damaged(rng, data[:cut]) + data[cut:] if rng.random() < 0.8 else data)
        out = ["-o", str(folder / "out.safetensors"), "--dataset", "mini-imagenet", "--json"]
        return ["convert", str(folder / "x.pth"), *out]

    return case


def _prepare(folder: Path, name: str) -> list[str]:
    out = ["-o", str(folder / "out"), "--shares", "2,1,1", "--json"]
    return ["data", "prepare", "mine", "--from", str(folder / name), *out]


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


KINDS: dict[str, Callable[[Path], Case]] = {
    "recognizer": recognizers,
    "checkpoint": checkpoints,
    "export": exports,
    "recipe": recipes,
    "task list": task_lists,
    "prepared data": prepared,
    "npz": npz,
    "pickle": pickles,
    "zip": zips,
    "tar": tars,
    "csv": csvs,
    "picture": pictures,
    "weights (.pth)": weights,
}
MARKER = RAN
