"""Every kind of picture comes out as upright RGB bytes, and every refusal is a sentence."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from glocal.common.errors import DataError
from glocal.recognizer.photos.images import MAX_PIXELS, Room, UnusableImage, decode, fit
from glocal.research.types import Preprocess
from hostile_photos import repeated_scan
from pictures import png_claiming

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (10, 14, 3), dtype=np.uint8)


def encoded(image: Image.Image, format: str = "PNG", **settings: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **settings)
    return buffer.getvalue()


def test_lossless_rgb_is_kept_pixel_for_pixel_from_path_and_bytes(tmp_path: Path) -> None:
    data = encoded(Image.fromarray(COLOUR))
    (tmp_path / "a.png").write_bytes(data)
    for source in (tmp_path / "a.png", data):
        image = decode(source)
        np.testing.assert_array_equal(image, COLOUR)
        assert image.dtype == np.uint8
        assert image.flags.c_contiguous
        assert image.flags.writeable


def test_grey_of_one_eight_and_sixteen_bits() -> None:
    grey = COLOUR[..., 0]
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(grey))), np.stack([grey] * 3, axis=2))
    bits = grey > 127
    expected = np.repeat((bits * 255).astype(np.uint8)[..., None], 3, axis=2)
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(bits))), expected)
    wide = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    for format in ("PNG", "TIFF"):
        np.testing.assert_array_equal(decode(encoded(Image.fromarray(wide), format))[..., 1], wide >> 8)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_alpha_is_laid_on_white(mode: str) -> None:
    pixels = np.zeros((8, 8, len(mode)), dtype=np.uint8)  # black
    pixels[:4, :, -1] = 255  # opaque above, transparent below
    image = decode(encoded(Image.fromarray(pixels)))
    assert (image[:4] == 0).all()
    assert (image[4:] == 255).all()
    pixels[..., -1] = 102  # 40 % of black on white
    assert (decode(encoded(Image.fromarray(pixels))) == 153).all()


def test_transparent_colours_are_white_and_cmyk_has_the_right_ones() -> None:
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 255, 200, 10, 20])
    image.paste(0, (0, 0, 8, 4))
    plain = decode(encoded(image))
    assert (plain[0, 0].tolist(), plain[7, 0].tolist()) == ([0, 0, 255], [200, 10, 20])
    for picture, transparency in ((image, 0), (image, b"\x00\xff"), (image.convert("RGB"), (0, 0, 255))):
        clear = decode(encoded(picture, transparency=transparency))
        assert (clear[0, 0].tolist(), clear[7, 0].tolist()) == ([255, 255, 255], [200, 10, 20])
    image = Image.new("CMYK", (16, 16), (0, 255, 255, 0))  # magenta and yellow ink: red
    red = decode(encoded(image, "JPEG", quality=95)).astype(int)
    assert (abs(red - [255, 0, 0]) < 12).all()


def test_wide_integers_and_floats_are_stretched_and_nothing_clips() -> None:
    wide = (np.arange(64, dtype=np.int32) * 100_000 - 1_000_000).reshape(8, 8)
    image = decode(encoded(Image.fromarray(wide), "TIFF"))[..., 0].ravel()
    assert image[0] == 0
    assert image[-1] == 255
    assert (np.diff(image.astype(int)) >= 4).all()
    flat = np.full((8, 8), -7, dtype=np.int32)
    assert (decode(encoded(Image.fromarray(flat), "TIFF")) == 0).all()
    ramp = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    for scale, expected in ((1, np.rint(ramp * 255)), (200, np.rint(ramp * 200)), (-5000, np.rint((1 - ramp) * 255))):
        image = decode(encoded(Image.fromarray(ramp * np.float32(scale)), "TIFF"))
        assert np.abs(image[..., 2] - expected).max() <= 1
        assert image.max() == (200 if scale == 200 else 255)
    ramp[3, 3] = np.nan
    with pytest.raises(UnusableImage, match="NaN"):
        decode(encoded(Image.fromarray(ramp), "TIFF"))


# How a camera held this way would have stored the upright picture (EXIF 2.3, tag 0x0112): from 1 to 8.
HELD = [COLOUR, COLOUR[:, ::-1], COLOUR[::-1, ::-1], COLOUR[::-1], COLOUR.transpose(1, 0, 2), np.rot90(COLOUR, 1)]
HELD += [COLOUR[::-1, ::-1].transpose(1, 0, 2), np.rot90(COLOUR, -1)]


@pytest.mark.parametrize("format", ["PNG", "TIFF", "WEBP"])
def test_exif_orientation_is_applied_once(format: str) -> None:
    settings = {"lossless": True} if format == "WEBP" else {}
    for orientation, stored in enumerate(HELD, start=1):
        exif = Image.Exif()
        exif[0x0112] = orientation
        data = encoded(Image.fromarray(np.ascontiguousarray(stored)), format, exif=exif, **settings)
        np.testing.assert_array_equal(decode(data), COLOUR, f"orientation {orientation}")


def test_animation_gives_its_first_frame_and_damaged_exif_does_not_cost_the_picture() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    for format in ("GIF", "PNG"):
        image = decode(encoded(frames[0], format, save_all=True, append_images=frames[1:]))
        assert image[0, 0].tolist() == [255, 0, 0]
    data = encoded(Image.fromarray(COLOUR), exif=b"Exif\0\0MM\0*\xff\xff\xff\xff damaged")
    np.testing.assert_array_equal(decode(data), COLOUR)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_truncated_anywhere_is_a_sentence(format: str) -> None:
    noise = RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), format)
    for part in (1, 9, 30, len(data) // 4, len(data) // 2):
        with pytest.raises(UnusableImage, match=r"^cannot use picture half: (damaged|its content)"):
            decode(data[:part], name="half")


def test_what_is_no_picture_is_told_apart_and_postscript_never_interpreted(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "notes.png").write_text("this is not a picture, whatever it is called")
    (tmp_path / "IMG_1.HEIC").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.png")
    for name, words in {
        "empty.jpg": r"empty \(0 bytes\)",
        "notes.png": "not a picture in any format",
        "IMG_1.HEIC": r"HEIC needs pip install 'glocal\[heif\]', or export the photo as JPEG",
        "gone.png": "leads nowhere",
        "absent.png": "does not exist",
        ".": "not a regular file",
        "pipe.png": "not a regular file",
    }.items():
        with pytest.raises(DataError, match=words) as caught:
            decode(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)
    data = encoded(Image.fromarray(COLOUR), "EPS")
    assert Image.open(io.BytesIO(data)).format == "EPS"
    with pytest.raises(UnusableImage, match="not a picture in any format read here"):
        decode(data)


@pytest.mark.parametrize(("side", "words"), [(10_000, "got 10000x10000"), (30_000, ""), (2**31 - 1, "")])
def test_bombs_are_refused_by_their_header(side: int, words: str) -> None:
    """Also where Pillow only warns, whether warnings are errors or not."""
    with pytest.raises(UnusableImage, match="89,478,485 pixels"):
        decode(png_claiming(side, side))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(UnusableImage, match=f"89,478,485 pixels.*{words}"):
            decode(png_claiming(side, side))


def test_a_jpeg_of_many_scans_is_refused_before_it_is_decoded() -> None:
    data = repeated_scan(2000, 1500)
    assert len(data) < 200_000
    with pytest.raises(UnusableImage, match=r"100 scans, this one has 1,506"):
        decode(data)
    assert decode(repeated_scan(64, 90)).shape == (64, 64, 3)


def test_a_jpeg_of_too_many_pixels_is_decoded_at_reduced_size() -> None:
    data = encoded(Image.fromarray(COLOUR).resize((1200, 904)), "JPEG")
    assert decode(data).shape == (904, 1200, 3)
    assert decode(data, max_pixels=400_000).shape == (452, 600, 3)
    assert decode(data, max_pixels=20_000).shape == (113, 150, 3)
    with pytest.raises(UnusableImage, match=r"10,000 pixels.*got 150x113"):
        decode(data, max_pixels=10_000)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_phones_photo_of_108_million_pixels_is_read() -> None:
    assert decode(encoded(Image.new("L", (12_000, 9_000)), "JPEG")).shape == (4_500, 6_000, 3)


def test_no_warning_of_pillow_reaches_the_user(tmp_path: Path) -> None:
    """Of the three, one warns of its size, one of its EXIF block and one of its colours."""
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12"
    (tmp_path / "exif.jpg").write_bytes(encoded(Image.fromarray(COLOUR), "JPEG", exif=exif))
    (tmp_path / "large.jpg").write_bytes(encoded(Image.new("L", (12_000, 9_000)), "JPEG"))
    palette = Image.fromarray(COLOUR).quantize(8)
    (tmp_path / "palette.png").write_bytes(encoded(palette, transparency=bytes(8)))
    program = "import sys; from glocal.recognizer.photos.images import decode; from pathlib import Path\n"
    program += "for name in sys.argv[1:]: decode(Path(name))"
    words = [sys.executable, "-W", "default", "-c", program, *map(str, sorted(tmp_path.iterdir()))]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stderr == ""


def test_own_pixel_limit_and_least_side() -> None:
    assert MAX_PIXELS == Image.MAX_IMAGE_PIXELS
    data = encoded(Image.fromarray(COLOUR))
    assert decode(data, max_pixels=140).shape == (10, 14, 3)
    with pytest.raises(UnusableImage, match=r"139 pixels.*got 14x10"):
        decode(data, max_pixels=139)
    assert decode(encoded(Image.new("L", (8, 8)))).shape == (8, 8, 3)
    for size in ((1, 1), (7, 100), (100, 7)):
        with pytest.raises(UnusableImage, match=f"at least 8 pixels, got {size[0]}x{size[1]}"):
            decode(encoded(Image.new("L", size)))


def test_fit_does_no_more_than_is_asked() -> None:
    image = RNG.integers(0, 256, (32, 32, 3), dtype=np.uint8)
    assert fit(image, Preprocess(32)) is image
    assert fit(image, Preprocess(32, resize=32)) is image
    enlarged = np.asarray(Image.fromarray(image).resize((40, 40), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(fit(image, Preprocess(32, resize=40)), enlarged[4:36, 4:36])
    wide = RNG.integers(0, 256, (32, 50, 3), dtype=np.uint8)
    np.testing.assert_array_equal(fit(wide, Preprocess(32)), wide[:, 9:41])


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    "shape", [(40, 60), (61, 40), (20, 30), (300, 200), (40, 333), (333, 40), (13, 97), (300, 1501)]
)
def test_fit_resizes_the_short_side_then_cuts_the_centre(interpolation: str, shape: tuple[int, int]):
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    short = min(shape)
    scaled = (48 * shape[1] // short, 48 * shape[0] // short)
    whole = np.asarray(Image.fromarray(image).resize(scaled, Image.Resampling[interpolation.upper()]))
    top, left = round((whole.shape[0] - 32) / 2), round((whole.shape[1] - 32) / 2)
    out = fit(image, Preprocess(32, resize=48, interpolation=interpolation))  # type: ignore[arg-type]
    np.testing.assert_array_equal(out, whole[top : top + 32, left : left + 32])
    assert out.flags.c_contiguous


HEIF = """
import io
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

def register_heif_opener():
    print("registered")
    opened = lambda fp, _: PngImageFile(io.BytesIO(fp.read()[12:]))
    Image.register_open("HEIF", opened, lambda start: start[4:12] == b"ftypheic")
"""


def test_heic_is_read_once_its_plugin_is_installed(tmp_path: Path) -> None:
    """A stand-in for pillow_heif, whose files are a mark with a PNG behind it."""
    (tmp_path / "pillow_heif.py").write_text(HEIF)
    (tmp_path / "photo.heic").write_bytes(b"\0\0\0\x18ftypheic" + encoded(Image.fromarray(COLOUR)))
    program = "import sys; from pathlib import Path; from glocal.recognizer.photos.images import decode\n"
    program += "for _ in range(2): print(decode(Path(sys.argv[1])).sum())"
    words = [sys.executable, "-c", program, str(tmp_path / "photo.heic")]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": path})
    assert done.stdout.split() == ["registered", *[str(COLOUR.sum())] * 2]


def test_pictures_that_are_decoded_at_once_share_a_room() -> None:
    room, inside, most = Room(10), [], []
    lock = threading.Lock()

    def use(n: int) -> None:
        with room.room(n):
            with lock:
                inside.append(n)
                most.append(sum(min(each, 10) for each in inside))
            time.sleep(0.002)
            with lock:
                inside.remove(n)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, [3, 4, 5, 10, 99, 1, 2, 6, 7, 8] * 4))
    assert max(most) == 10
    assert len(most) == 40


@pytest.mark.parametrize("mode", ["I", "F", "I;16", "RGBA", "RGB", "LA"])
def test_a_large_picture_takes_a_bounded_number_of_bytes(mode: str) -> None:
    """Of 4 million pixels; that a few bytes can hold as many is why it matters."""
    buffer = io.BytesIO()
    Image.new(mode, (2000, 2000)).save(buffer, "TIFF", compression="tiff_deflate")
    tracemalloc.start()  # numpy tells it of its arrays, Pillow does not
    try:
        decode(buffer.getvalue())
        assert tracemalloc.get_traced_memory()[1] < 4_000_000 * 9
    finally:
        tracemalloc.stop()
