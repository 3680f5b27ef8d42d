"""Regions of pictures: what a detector found, or what a person drew.

A region is a photo from then on.  It is named after its picture and its place in the file: ``picture.jpg#3``.
MegaDetector's results hold shares of width and height; COCO and a CSV hold pixels.
"""

from __future__ import annotations

import copy
import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from glocal.common.errors import DataError
from glocal.common.validation import is_number, shown
from glocal.recognizer.photos.images import MIN_SIDE, Pixels, UnusableImage

MIN_CONFIDENCE = 0.2  # what MegaDetector 5 recommends; a box without a confidence counts in any case
RIM = 8 / 7  # of a photo its middle is encoded: around a box is kept what encoders cut off
SLACK = 0.01  # of a side: a box may reach beyond the picture so far, as rounded ones do
ANIMAL = "animal"  # a file of MegaDetector that has this category is about these boxes; people and cars stay out
COLUMNS = ("path", "x", "y", "width", "height")


class Box(NamedTuple):
    """Pixels of the upright picture."""

    x: int
    y: int
    width: int
    height: int

    def __str__(self) -> str:
        return " ".join(map(str, self))

    def cut(self, image: Pixels) -> Pixels:
        """The square around the box with a rim, moved into the picture where it would reach beyond it."""
        side = max(MIN_SIDE, round(max(self.width, self.height) * RIM))
        rows = _around(self.y + self.height / 2, side, image.shape[0])
        columns = _around(self.x + self.width / 2, side, image.shape[1])
        return np.ascontiguousarray(image[rows, columns])


def _around(centre: float, side: int, whole: int) -> slice:
    start = min(max(0, round(centre - side / 2)), max(0, whole - side))
    return slice(start, start + side)


class Drawn(NamedTuple):
    """A box as the file has it."""

    x: float
    y: float
    width: float
    height: float
    shares: bool = False  # of the picture's width and height, not pixels
    confidence: float = 1.0
    label: str = ""

    def within(self, image: Pixels, name: str) -> Box:
        """The box in pixels of the picture, or a sentence about it."""
        size = np.array(image.shape[1::-1])  # width, height
        start = np.array(self[:2]) * (size if self.shares else 1)
        end = start + np.array(self[2:4]) * (size if self.shares else 1)
        slack = np.maximum(1, SLACK * size)
        given = "x {:.6g} to {:.6g}, y {:.6g} to {:.6g} in a picture of {}x{} pixels".format(
            start[0], end[0], start[1], end[1], *size
        )
        if (end <= start).any():
            raise UnusableImage(name, f"its box is empty ({given}); draw it again or leave it out")
        if (start < -slack).any() or (end > size + slack).any():
            raise UnusableImage(
                name, f"its box reaches beyond the picture ({given}); use the picture that the boxes were made for"
            )
        start = np.clip(start.round().astype(int), 0, size - 1)
        end = np.clip(end.round().astype(int), start + 1, size)
        return Box(*start.tolist(), *(end - start).tolist())


class Regions(NamedTuple):
    """Boxes by picture and number, and what the file and the pictures do not share."""

    boxes: Mapping[str, Mapping[int, Drawn]]
    absent: list[str]  # pictures that the file does not name
    elsewhere: list[str]  # pictures of the file that were not given


@dataclass(frozen=True)
class Boxes:
    """A file of boxes."""

    path: Path
    pictures: Mapping[str, Mapping[int, Drawn]]  # by the picture's name in the file, and by number from 1
    megadetector: Mapping[str, Any] | None = None  # all that a file of MegaDetector's holds

    @property
    def labelled(self) -> bool:
        """Whether the file says what its boxes show."""
        return any(box.label for some in self.pictures.values() for box in some.values())

    def entry(self, picture: str) -> str | None:
        """The name that the file has for a picture: the path of the picture ends with it."""
        parts = _plain(os.path.abspath(picture)).split("/")
        ends = ("/".join(parts[i:]) for i in range(len(parts)))
        return next((end for end in ends if end in self.pictures), None)

    def of(self, pictures: Iterable[str]) -> Regions:
        """The boxes of each of these pictures; pictures that the file does not name have none."""
        claimed: dict[str, str] = {}
        absent: list[str] = []
        for picture in pictures:
            entry = self.entry(picture)
            if entry is None:
                absent.append(picture)
            elif claimed.setdefault(entry, picture) != picture:
                raise self.refusal(
                    f"it names {entry!r} once, which is {claimed[entry]} as well as {picture}; give the pictures of "
                    "one folder, the one that the boxes were made for"
                )
        if not claimed:
            raise self.refusal(
                f"none of the pictures given is in it (its first is {next(iter(self.pictures), None)!r}, the first "
                f"given {next(iter(absent), None)!r}); name the folder that its paths begin in"
            )
        boxes = {picture: self.pictures[entry] for entry, picture in claimed.items()}
        return Regions(boxes, absent, [each for each in self.pictures if each not in claimed])

    def classified(self, answers: Mapping[str, Mapping[str, float]], classifier: str) -> dict[str, Any]:
        """What MegaDetector wrote, with our classes; ``answers`` are the probabilities by the name of a region.

        Viewers show the first classification of a detection, which is the most probable.
        """
        if self.megadetector is None:
            raise self.refusal("classes can be written into the results of MegaDetector alone; write a --csv instead")
        content = copy.deepcopy(dict(self.megadetector))
        classes = list(dict.fromkeys(label for each in answers.values() for label in each))
        named = [(*name.rpartition("#")[::2], each) for name, each in answers.items()]
        shares_of = {(self.entry(picture), int(number)): each for picture, number, each in named}
        for image in content["images"]:
            for number, detection in enumerate(image.get("detections") or (), 1):
                detection.pop("classifications", None)  # those of another classifier have other numbers
                if shares := shares_of.get((_plain(image["file"]), number)):
                    detection["classifications"] = [
                        [str(classes.index(label)), round(share, 4)]
                        for label, share in sorted(shares.items(), key=lambda pair: -pair[1])
                        if share >= 0.001
                    ]
        content["classification_categories"] = {str(i): name for i, name in enumerate(classes)}
        content.pop("classification_category_descriptions", None)
        now = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        content["info"] |= {"classifier": classifier, "classification_completion_time": now}
        return content

    def refusal(self, why: str) -> DataError:
        return DataError(f"{self.path}: {why}", code="boxes")


def read_boxes(path: Path, *, min_confidence: float = MIN_CONFIDENCE) -> Boxes:
    """Read a file of boxes; those below the confidence are left out, but count for the numbers of the others."""
    if not 0 <= min_confidence <= 1:
        raise DataError(f"--min-confidence must lie between 0 and 1, got {min_confidence:g}", code="boxes")
    drawn: dict[str, list[Drawn]] = {}
    megadetector = None
    try:
        if path.suffix.lower() == ".csv":
            rows = _from_csv(path)
        elif "detection_categories" in (content := json.loads(path.read_bytes())):
            rows, megadetector = _from_megadetector(content), content
        else:
            rows = _from_coco(content)
        for picture, box in rows:
            drawn.setdefault(_plain(picture), []).extend([] if box is None else [box])
    except OSError as error:
        raise DataError(f"{path}: it cannot be read ({error.strerror}); check the path", code="boxes") from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, csv.Error) as error:
        raise DataError(
            f"{path}: no file of boxes that can be read ({shown(error)}); it must be "
            f"MegaDetector's results, COCO, or a CSV with the columns {', '.join(COLUMNS)}",
            code="boxes",
        ) from error
    sure = {
        name: {number: box for number, box in enumerate(some, 1) if box.confidence >= min_confidence}
        for name, some in drawn.items()
    }
    boxes = Boxes(path, sure, megadetector)
    _check_unit(boxes)
    return boxes


_Rows: TypeAlias = "Iterator[tuple[str, Drawn | None]]"  # each picture, and each of its boxes


def _from_megadetector(content: dict[str, Any]) -> _Rows:
    """https://lila.science/megadetector-output-format, up to version 1.6."""
    float(content["info"]["format_version"])
    categories, images = content["detection_categories"], content["images"]
    wanted = {key for key, name in categories.items() if name == ANIMAL} or set(categories)
    if len({_plain(image["file"]) for image in images}) < len(images):
        raise ValueError("it has a picture twice")
    for image in images:
        yield image["file"], None
        for detection in image.get("detections") or ():  # none where the picture could not be read
            confidence = float(detection["conf"]) if detection["category"] in wanted else -1.0
            yield _drawn(image["file"], detection["bbox"], confidence, shares=True)


def _from_coco(content: dict[str, Any]) -> _Rows:
    labels = {each["id"]: str(each["name"]) for each in content["categories"]}
    pictures = {each["id"]: each["file_name"] for each in content["images"]}
    yield from ((picture, None) for picture in pictures.values())
    for each in content["annotations"]:
        if not each.get("iscrowd"):  # many things in one box
            confidence, label = float(each.get("score", 1)), labels[each["category_id"]]
            yield _drawn(pictures[each["image_id"]], each["bbox"], confidence, label)


def _from_csv(path: Path) -> _Rows:
    with path.open(encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file, strict=True):
            confidence, label = float(row.get("confidence") or 1), (row.get("label") or "").strip()
            yield _drawn(row["path"], [float(row[name]) for name in COLUMNS[1:]], confidence, label)


def _drawn(
    picture: str, numbers: Any, confidence: float, label: str = "", *, shares: bool = False
) -> tuple[str, Drawn]:
    if not isinstance(numbers, list) or len(numbers) != 4 or not all(map(is_number, [*numbers, confidence])):
        raise ValueError(f"a box of {picture} must be four numbers, got {shown(numbers)}, confidence {confidence}")
    x, y, width, height = map(float, numbers)
    return picture, Drawn(x, y, width, height, shares, confidence, label)


def _check_unit(boxes: Boxes) -> None:
    """Refuse pixels or percent where shares belong, and shares where pixels belong."""
    drawn = [box for some in boxes.pictures.values() for box in some.values()]
    if not drawn:
        return
    shares, end = drawn[0].shares, max(max(box.x + box.width, box.y + box.height) for box in drawn)
    if shares and end > 2:  # what is beyond the picture by less is an error of one region
        raise boxes.refusal(
            f"its boxes must be shares of width and height, from 0 to 1, got {end:g}; divide percent by 100, "
            "pixels by width and height"
        )
    if not shares and end <= 1:
        raise boxes.refusal(
            f"its boxes must be pixels, and none ends beyond {end:g}; multiply shares by the size of the picture"
        )


def _plain(name: str) -> str:
    return name.replace("\\", "/").removeprefix("./")
