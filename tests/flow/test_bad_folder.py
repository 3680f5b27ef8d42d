"""The folder people really have: photos from a phone and a print shop among damaged, tiny, huge and false ones."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile
from typer.testing import CliRunner

from glocal.cli.main import app
from glocal.data.dataset import ClassDataset
from glocal_runtime.errors import DataError

REASONS = {
    "truncated.jpg": "damaged, truncated",
    "text.png": "not a picture in any format",
    "dot.png": "at least 8 pixels, got 1x1",
    "huge.png": "89,478,485 pixels",
}


def photo(seed: int) -> Image.Image:
    """Smooth colours with a little noise: what JPEG was made for."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:48, 0:64] / 64
    waves = [np.sin(6 * (x * rng.normal() + y * rng.normal()) + rng.normal()) for _ in range(3)]
    pixels = 128 + 80 * np.stack(waves, axis=2) + rng.normal(0, 4, (48, 64, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def write_huge_png(path: Path, side: int) -> None:
    """A complete, valid 1-bit picture of side x side white pixels, compressed row by row."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row, packer = b"\0" + b"\xff" * (side // 8), zlib.compressobj(9)
    data = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b""))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "photos"
    for name in ("mug", "lamp"):
        (root / name).mkdir(parents=True)
        for i in range(3):
            photo(seed_of(name, i)).save(root / name / f"{i}.jpg", quality=92)
    whole = (root / "mug" / "0.jpg").read_bytes()
    (root / "mug" / "truncated.jpg").write_bytes(whole[: len(whole) // 2])
    (root / "mug" / "text.png").write_text("Dear diary, I am not a picture.\n" * 20)
    Image.new("RGB", (1, 1)).save(root / "lamp" / "dot.png")
    write_huge_png(root / "lamp" / "huge.png", 30_000)
    inks = Image.new("CMYK", (64, 48), (255, 0, 0, 0))  # left cyan
    inks.paste((0, 0, 255, 0), (32, 0, 64, 48))  # right yellow
    inks.save(root / "lamp" / "printed.jpg", quality=95)
    upright = Image.new("RGB", (48, 64), "blue")
    upright.paste((255, 255, 0), (0, 0, 48, 32))  # a yellow sky above a blue sea
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: shown right after a quarter turn clockwise
    upright.transpose(Image.Transpose.ROTATE_90).save(root / "mug" / "turned.jpg", quality=95, exif=exif)
    return root


def seed_of(name: str, i: int) -> int:
    return 10 * len(name) + i


def picture(data: ClassDataset, name: str) -> np.ndarray:
    [i] = [i for i in range(len(data)) if Path(data.where(i)).name == name]
    return data.image(i).astype(int)


def near(pixel: np.ndarray, colour: tuple[int, int, int]) -> bool:
    return bool((abs(pixel - np.array(colour)) < 16).all())


def test_without_permission_every_bad_picture_is_named_with_its_reason(folder: Path) -> None:
    with pytest.raises(DataError) as caught:
        ClassDataset.from_folder(folder)
    message = str(caught.value)
    assert "4 pictures that cannot be used" in message
    assert "--skip-bad" in message
    lines = message.splitlines()[1:]
    assert len(lines) == 4
    for name, reason in REASONS.items():
        [line] = [line for line in lines if name in line]
        assert reason in line


def test_with_permission_the_rest_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[tuple[int, int]] = []
    load = ImageFile.ImageFile.load
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: unpacked.append(image.size) or load(image))
    data = ClassDataset.from_folder(folder, skip_bad=True)
    assert (64, 48) in unpacked
    assert (30_000, 30_000) not in unpacked  # refused by its header: nobody's memory was at stake
    assert {Path(bad.where).name for bad in data.skipped} == REASONS.keys()
    for bad in data.skipped:
        assert REASONS[Path(bad.where).name] in bad.reason
    assert dict(zip(data.classes, data.counts.tolist(), strict=True)) == {"mug": 4, "lamp": 4}

    turned = picture(data, "turned.jpg")
    assert turned.shape == (64, 48, 3)
    assert near(turned[5, 24], (255, 255, 0))
    assert near(turned[58, 24], (0, 0, 255))

    printed = picture(data, "printed.jpg")
    assert near(printed[24, 10], (0, 255, 255))
    assert near(printed[24, 54], (255, 255, 0))

    for i in range(3):
        original = np.asarray(photo(seed_of("mug", i))).astype(int)
        [shown] = [data.image(k).astype(int) for k in range(len(data)) if data.where(k).endswith(f"mug/{i}.jpg")]
        assert abs(shown - original).mean() < 6


def test_removing_the_bad_ones_by_hand_gives_the_same_data_set(folder: Path) -> None:
    skipping = ClassDataset.from_folder(folder, skip_bad=True)
    for bad in skipping.skipped:
        Path(bad.where).unlink()
    clean = ClassDataset.from_folder(folder)
    assert clean.skipped == ()
    assert clean.manifest == skipping.manifest


def test_the_command_line_names_them_and_goes_on_when_asked(folder: Path) -> None:
    command = ["evaluate", "embedded-protonet", "--dataset", str(folder), "--split", "all", "--way", "1"]
    command += ["--unknown-way", "1", "--query", "2", "--tasks", "3", "--device", "cpu", "--json"]
    refused = CliRunner().invoke(app, command)
    assert isinstance(refused.exception, DataError)  # main() prints it as a sentence and exits with 2
    used = CliRunner().invoke(app, [*command, "--skip-bad"])
    assert used.exit_code == 0, used.output
    for name, reason in REASONS.items():
        assert any(f"left out {where}" in used.stderr and reason in used.stderr for where in folder.rglob(name)), name
    assert len(json.loads(used.stdout)["skipped"]) == len(REASONS)
