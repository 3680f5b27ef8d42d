"""Images for a backbone: from dataset indices to uint8 tensors of its size, and what training does to them.

Every random number of an augmentation comes from the generator that is passed in.  So the same (seed, step) gives the
same pixels on every run and after every restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor

from glocal.common.errors import DataError, RecipeError
from glocal.common.schemas import Record
from glocal.recognizer.photos.images import fit
from glocal.recognizer.photos.sources import made_ahead
from glocal.research.data.dataset import ClassDataset, Indices
from glocal.research.data.prepared import MappedImages
from glocal.research.types import Preprocess

HELD_UP_TO = 1 << 30  # bytes of pixels; a prepared split that needs more is read from its files again and again


class ImageLoader:
    """``loader(indices)`` gives uint8 (B, 3, size, size).  The number of workers never changes the result.

    Workers are threads: Pillow and numpy release the interpreter while they decode and resize.  ``verify`` refuses a
    image whose content changed since the data set was opened.
    """

    def __init__(self, dataset: ClassDataset, preprocess: Preprocess, *, workers: int = 2, verify: bool = False):
        self.dataset, self.preprocess, self.workers, self.verify = dataset, preprocess, max(1, workers), verify

    def __call__(self, indices: Indices) -> Tensor:
        with ThreadPoolExecutor(self.workers) as pool:
            return self._stack(list(pool.map(self._one, indices.tolist())))

    def hold(self, indices: Indices) -> Tensor | ReadThrough:
        """The images for training, which asks for each of them many times: the same pixels either way.

        They are decoded once and stay in memory.  Those of a prepared data set that would take more than ``HELD_UP_TO``
        bytes are read through the memory map, each whenever it is asked for.
        """
        mapped = isinstance(self.dataset.source, MappedImages)
        if mapped and len(indices) * 3 * self.preprocess.size**2 > HELD_UP_TO:
            return ReadThrough(self, indices)
        return self(indices)

    def batches(self, indices: Indices, size: int) -> Iterator[tuple[Indices, Tensor]]:
        """Batches in order; the next one is decoded while the caller works on this one."""
        if size < 1:
            raise DataError(f"batch size must be at least 1, got {size}")
        made = made_ahead(self._one, indices.tolist(), size, workers=self.workers)
        for at, images in zip(range(0, len(indices), size), made, strict=True):
            yield indices[at : at + size], self._stack(images)

    def _one(self, i: int) -> npt.NDArray[np.uint8]:
        return fit(self.dataset.same_image(i) if self.verify else self.dataset.image(i), self.preprocess)

    def _stack(self, images: list[npt.NDArray[np.uint8]]) -> Tensor:
        """NHWC arrays -> an NCHW view of them, that is channels-last memory: what convolutions on a CPU like best."""
        if not images:
            return torch.empty(0, 3, self.preprocess.size, self.preprocess.size, dtype=torch.uint8)
        return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)


def on_device(images: Tensor, device: torch.device) -> Tensor:
    """On a GPU the copy comes from pinned memory and nobody waits for it."""
    if device.type != "cuda":
        return images.to(device)
    return images.pin_memory().to(device, non_blocking=True)


class ReadThrough:
    """Row i is image ``indices[i]``, read when it is asked for."""

    def __init__(self, loader: ImageLoader, indices: Indices) -> None:
        self._loader, self._indices = loader, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self._loader(self._indices[rows.numpy()])


T = TypeVar("T")


class Ahead(Generic[T]):
    """``ahead(i)`` is ``make(i)``; meanwhile a thread makes ``make(i + stride)``, unless that reaches ``end``.

    ``make`` must be a pure function of i.  The last result is kept: asking for it again costs nothing.

    >>> squares = Ahead(lambda i: i * i, end=10)
    >>> squares(3), squares(4), squares(4), squares(9)
    (9, 16, 16, 81)
    """

    def __init__(self, make: Callable[[int], T], *, end: int, stride: int = 1):
        self._make, self._end, self._stride = make, end, stride
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._now: tuple[int, T] | None = None
        self._next: tuple[int, Future[T]] | None = None

    def __call__(self, i: int) -> T:
        if self._now is not None and self._now[0] == i:
            return self._now[1]
        expected = self._next is not None and self._next[0] == i
        made = self._next[1].result() if expected and self._next is not None else self._make(i)
        self._now, following = (i, made), i + self._stride
        self._next = (following, self._thread.submit(self._make, following)) if following < self._end else None
        return made


GREY = (0.299, 0.587, 0.114)  # luma of ITU-R 601, as Pillow has it


class Augment(Record):
    """What training does to a picture, in this order: random crop, flip, colour jitter, rotation."""

    crop_padding: int = Field(0, ge=0)  # pixels put around a picture before a window is cut out at a random place
    crop_size: int | None = Field(None, ge=1)  # side of that window; None: as large as the picture was
    flip: bool = False  # left and right changed, in half of the cases
    rotate: Literal["none", "one", "four"] = "none"  # one random quarter turn per picture, or all four of each
    jitter: float = Field(0.0, ge=0, lt=1)  # brightness, contrast and saturation, each by a factor of 1 ± this at most

    def source(self, preprocess: Preprocess) -> Preprocess:
        """How images are prepared before: a random crop takes the image as stored, border and all.

        ``resize`` and the centre crop after it are for evaluation, and for training that does not crop by itself.
        An image of another shape or size than the backbone's is still brought to it.
        """
        return replace(preprocess, resize=None) if self.crop_padding or self.crop_size else preprocess

    @property
    def copies(self) -> int:
        """How many images come out for each that goes in."""
        return 4 if self.rotate == "four" else 1

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """uint8 (B, 3, H, W) -> uint8 (B, 3, H', W'), the upright batch first of (4B, 3, H', W') when rotate is "four".

        H' = W' = crop_size, or H and W.  A switched-off part draws no random numbers.  Those that are drawn come from
        ``generator``, which is on the CPU, whatever device the images are on.
        """
        if self.crop_padding or self.crop_size:
            images = random_crop(images, self.crop_padding, generator, self.crop_size)
        if self.flip:
            half = torch.rand(len(images), generator=generator) < 0.5
            images = torch.where(half.to(images.device).view(-1, 1, 1, 1), images.flip(-1), images)
        if self.jitter:
            images = colour_jitter(images, self.jitter, generator)
        if self.rotate == "none":
            return images
        if self.rotate == "four":
            return turn(images.repeat(4, 1, 1, 1), torch.arange(4).repeat_interleave(len(images)))
        return turn(images, torch.randint(4, (len(images),), generator=generator))


def random_crop(images: Tensor, padding: int, generator: Generator, size: int | None = None) -> Tensor:
    """Zero-pad by ``padding`` and cut one window per image, a square of side ``size`` or of the old size."""
    n, _, h, w = images.shape
    height, width = (h, w) if size is None else (size, size)
    room = (h + 2 * padding - height, w + 2 * padding - width)
    if min(room) < 0:
        raise RecipeError(f"augment.crop_size = {size} is more than images of {h} x {w} padded by {padding} have")
    corner = torch.stack([torch.randint(free + 1, (n,), generator=generator) for free in room])
    return window(F.pad(images, [padding] * 4), corner, (height, width))


def window(images: Tensor, corner: Tensor, size: tuple[int, int]) -> Tensor:
    """Cut (B, C, h, w) out of (B, C, H, W), its upper left corner (2, B) given per image."""
    rows = corner[0].view(-1, 1, 1) + torch.arange(size[0]).view(1, -1, 1)  # (B, h, 1)
    columns = corner[1].view(-1, 1, 1) + torch.arange(size[1]).view(1, 1, -1)  # (B, 1, w)
    image = torch.arange(len(images)).view(-1, 1, 1)
    rows, columns, image = (index.to(images.device) for index in (rows, columns, image))
    return images.permute(0, 2, 3, 1)[image, rows, columns].permute(0, 3, 1, 2)


def shift(images: Tensor, down: int, right: int) -> Tensor:
    """Move every image, repeating its border."""
    reach = max(abs(down), abs(right))
    if not reach:
        return images
    padded = F.pad(images.float(), [reach] * 4, mode="replicate").to(images.dtype)
    h, w = images.shape[-2:]
    return padded[..., reach - down : reach - down + h, reach - right : reach - right + w]


def turn(images: Tensor, quarters: Tensor) -> Tensor:
    """Rotate image b by quarters[b] * 90 degrees; images must be square."""
    h, w = images.shape[-2:]
    if h != w:
        raise RecipeError(f"quarter turns need square images, got {h} x {w}")
    out, quarters = images.clone(), quarters.to(images.device)
    for k in (1, 2, 3):
        out[quarters == k] = images[quarters == k].rot90(k, (-2, -1))
    return out


def colour_jitter(images: Tensor, strength: float, generator: Generator) -> Tensor:
    """Brightness, contrast, saturation: blend with black, with the mean grey, with the grey image."""
    factor = 1 + strength * (2 * torch.rand(3, len(images), 1, 1, 1, generator=generator) - 1)
    factor, weight = factor.to(images.device), torch.tensor(GREY, device=images.device).view(1, 3, 1, 1)
    x = (images.float() * factor[0]).clamp(0, 255)
    mean = (x * weight).sum(1, keepdim=True).mean((-2, -1), keepdim=True)
    x = (mean + (x - mean) * factor[1]).clamp(0, 255)
    grey = (x * weight).sum(1, keepdim=True)
    x = (grey + (x - grey) * factor[2]).clamp(0, 255)
    return x.round().to(torch.uint8)
