"""Regions of pictures: what a detector found, or what a person drew.

A region is a photo from then on.  It is named after its picture and its place in the file: ``picture.jpg#3``.  Three
files are read: the results of MegaDetector (shares of width and height), COCO (pixels), and a CSV with the columns
path, x, y, width, height (pixels) and perhaps label and confidence.
"""

from __future__ import annotations

import copy
import csv
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
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


@dataclass(frozen=True)
class Drawn:
    """A box as the file has it."""

    number: int  # among those of its picture, from 1
    x: float
    y: float
    width: float
    height: float
    shares: bool  # of the picture's width and height, not pixels
    label: str = ""

    def within(self, image: Pixels, name: str) -> Box:
        """The box in pixels of the picture, or a sentence about it."""
        high, wide = image.shape[:2]
        across, down = (wide, high) if self.shares else (1, 1)
        left, right = self.x * across, (self.x + self.width) * across
        top, bottom = self.y * down, (self.y + self.height) * down
        given = f"x {left:.6g} to {right:.6g}, y {top:.6g} to {bottom:.6g} in a picture of {wide}x{high} pixels"
        if right - left <= 0 or bottom - top <= 0:
            raise UnusableImage(name, f"its box is empty ({given}); draw it again or leave it out")
        x, y = max(1.0, SLACK * wide), max(1.0, SLACK * high)
        if left < -x or top < -y or right > wide + x or bottom > high + y:
            raise UnusableImage(
                name, f"its box reaches beyond the picture ({given}); use the picture that the boxes were made for"
            )
        left, top = min(max(0, round(left)), wide - 1), min(max(0, round(top)), high - 1)
        right, bottom = min(max(left + 1, round(right)), wide), min(max(top + 1, round(bottom)), high)
        return Box(int(left), int(top), int(right - left), int(bottom - top))


@dataclass(frozen=True)
class Boxes:
    """A file of boxes."""

    path: Path
    pictures: Mapping[str, tuple[Drawn, ...]]  # by the picture's name in the file; none where nothing was detected
    megadetector: Mapping[str, Any] | None = None  # all that a file of MegaDetector's holds

    @property
    def labelled(self) -> bool:
        """Whether the file says what its boxes show."""
        return any(each.label for some in self.pictures.values() for each in some)

    def entry(self, picture: str) -> str | None:
        """The name that the file has for a picture: the path of the picture ends with it."""
        parts = _plain(os.path.abspath(picture)).split("/")
        ends = ("/".join(parts[i:]) for i in range(len(parts)))
        return next((end for end in ends if end in self.pictures), None)

    def of(self, pictures: Iterable[str]) -> Regions:
        """The boxes of each of these pictures; pictures that the file does not name have none."""
        claimed: dict[str, str] = {}
        boxes: dict[str, tuple[Drawn, ...]] = {}
        absent: list[str] = []
        for picture in pictures:
            entry = self.entry(picture)
            if entry is None:
                absent.append(picture)
                continue
            if claimed.setdefault(entry, picture) != picture:
                raise self._refusal(
                    f"it names {entry!r} once, which is {claimed[entry]} as well as {picture}; give the pictures of "
                    "one folder, the one that the boxes were made for"
                )
            boxes[picture] = self.pictures[entry]
        if not claimed:
            first = next(iter(self.pictures), None)
            named = "it names no picture" if first is None else f"its first is {first!r}"
            raise self._refusal(
                f"none of the pictures given is in it ({named}, the first given {next(iter(absent), 'none')}); "
                "name the folder that its paths begin in"
            )
        return Regions(boxes, absent, [each for each in self.pictures if each not in claimed])

    def classified(self, answers: Mapping[str, Mapping[str, float]], classifier: str) -> dict[str, Any]:
        """What MegaDetector wrote, with our classes.

        ``answers`` are the probabilities by the name of a region.  Viewers show the first classification of a
        detection, which is the most probable.
        """
        if self.megadetector is None:
            raise self._refusal("classes can be written into the results of MegaDetector alone; write a --csv instead")
        content = copy.deepcopy(dict(self.megadetector))
        places = {_plain(each["file"]): each["detections"] or [] for each in content["images"] if "detections" in each}
        for detections in places.values():
            for detection in detections:  # those of another classifier have other numbers
                detection.pop("classifications", None)
        classes = list(dict.fromkeys(label for each in answers.values() for label in each))
        for name, shares in answers.items():
            picture, _, number = name.rpartition("#")
            ordered = sorted(shares.items(), key=lambda pair: -pair[1])
            places[self.entry(picture) or ""][int(number) - 1]["classifications"] = [
                [str(classes.index(label)), round(share, 4)] for label, share in ordered if share >= 0.001
            ]
        content["classification_categories"] = {str(i): name for i, name in enumerate(classes)}
        content.pop("classification_category_descriptions", None)
        now = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        content["info"] = content["info"] | {"classifier": classifier, "classification_completion_time": now}
        return content

    def _refusal(self, why: str) -> DataError:
        return DataError(f"{self.path}: {why}", code="boxes")


class Regions(NamedTuple):
    """Boxes by picture, and what the file and the pictures do not share."""

    boxes: Mapping[str, tuple[Drawn, ...]]
    absent: list[str]  # pictures that the file does not name
    elsewhere: list[str]  # pictures of the file that were not given


def read_boxes(path: Path, *, min_confidence: float = MIN_CONFIDENCE) -> Boxes:
    """Read a file of boxes; those below the confidence are left out, but count for the numbers of the others."""
    if not 0 <= min_confidence <= 1:
        raise DataError(f"--min-confidence must lie between 0 and 1, got {min_confidence:g}", code="boxes")
    try:
        if path.suffix.lower() == ".csv":
            content, shares, rows = None, False, list(map(_checked, _from_csv(path)))
        else:
            content = json.loads(path.read_bytes())
            shares, reader = _format(content)
            rows = list(map(_checked, reader(content)))
    except OSError as error:
        raise DataError(f"{path}: it cannot be read ({error.strerror}); check the path", code="boxes") from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, csv.Error) as error:
        raise DataError(
            f"{path}: no file of boxes that can be read ({shown(error)}); it must be MegaDetector's results, COCO, or "
            f"a CSV with the columns {', '.join(COLUMNS)}",
            code="boxes",
        ) from error
    pictures: dict[str, list[Drawn]] = {}
    for picture, numbers, confidence, label in rows:
        some = pictures.setdefault(picture, [])
        if numbers is not None:
            some.append(Drawn(len(some) + 1, *numbers, shares=shares, label=label))
            if confidence < min_confidence:
                some[-1] = Drawn(0, *numbers, shares=shares)
    boxes = {name: tuple(each for each in some if each.number) for name, some in pictures.items()}
    _check_unit(path, [each for some in boxes.values() for each in some], shares)
    result = Boxes(path, boxes, content if shares else None)
    if result.labelled and (bare := next((n for n, some in boxes.items() if not all(e.label for e in some)), None)):
        raise DataError(f"{path}: a box of {bare} has no label, and others have; give each one a label", code="boxes")
    return result


_Four: TypeAlias = "tuple[float, float, float, float]"  # x, y, width, height
_Row: TypeAlias = "tuple[str, _Four | None, float, str]"  # picture, numbers, confidence, label
SURE = 1.0  # a box that a person drew


def _format(content: Any) -> tuple[bool, Callable[[Any], Iterator[_Row]]]:
    """Whether it holds shares, and its reader."""
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        raise ValueError("it has no list of images")
    if "detection_categories" in content:
        return True, _from_megadetector
    if "annotations" in content:
        return False, _from_coco
    raise ValueError("it has neither detection_categories nor annotations")


def _from_megadetector(content: dict[str, Any]) -> Iterator[_Row]:
    """https://lila.science/megadetector-output-format, up to version 1.6."""
    float(content["info"]["format_version"])
    categories = content["detection_categories"]
    wanted = {key for key, name in categories.items() if name == ANIMAL} or set(categories)
    names = Counter(_plain(str(image["file"])) for image in content["images"])
    if twice := [name for name, n in names.items() if n > 1]:
        raise ValueError(f"it has {twice[0]} twice")
    for image in content["images"]:
        picture = image["file"]
        yield picture, None, SURE, ""
        for detection in image.get("detections") or ():  # none where the picture could not be read
            sure = float(detection["conf"]) if detection["category"] in wanted else -1.0
            yield picture, _four(detection["bbox"], picture), sure, ""


def _from_coco(content: dict[str, Any]) -> Iterator[_Row]:
    labels = {each["id"]: str(each["name"]) for each in content["categories"]}
    pictures = {each["id"]: each["file_name"] for each in content["images"]}
    yield from ((picture, None, SURE, "") for picture in pictures.values())
    for each in content["annotations"]:
        picture = pictures[each["image_id"]]
        if not each.get("iscrowd"):  # many things in one box
            yield picture, _four(each["bbox"], picture), float(each.get("score", SURE)), labels[each["category_id"]]


def _from_csv(path: Path) -> Iterator[_Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        if not {*COLUMNS} <= {*(reader.fieldnames or ())}:
            raise ValueError(f"its columns are {', '.join(reader.fieldnames or ('none',))}")
        for row in reader:
            numbers = _four([float(row[name]) for name in COLUMNS[1:]], row["path"])
            yield row["path"], numbers, float(row.get("confidence") or SURE), (row.get("label") or "").strip()


def _checked(row: _Row) -> _Row:
    picture, numbers, confidence, label = row
    if not isinstance(picture, str) or not is_number(confidence):
        raise ValueError(f"a picture needs a name and its boxes finite confidences, got {shown(picture)}, {confidence}")
    return _plain(picture), numbers, confidence, label


def _four(numbers: Any, picture: str) -> _Four:
    if not isinstance(numbers, list) or len(numbers) != 4 or not all(map(is_number, numbers)):
        raise ValueError(f"a box of {picture} must be four numbers, got {shown(numbers)}")
    x, y, width, height = map(float, numbers)
    return x, y, width, height


def _check_unit(path: Path, boxes: list[Drawn], shares: bool) -> None:
    """Refuse pixels or percent where shares belong, and shares where pixels belong."""
    ends = [max(each.x + each.width, each.y + each.height) for each in boxes]
    if shares and (wrong := [end for end in ends if end > 2]):  # what is beyond the picture by less is told of one box
        unit = "percent" if max(wrong) <= 100 else "pixels"
        raise DataError(
            f"{path}: its boxes must be shares of width and height, from 0 to 1, got {max(wrong):g}, which looks like "
            f"{unit}; divide by {'100' if unit == 'percent' else 'the size of the picture, or save as COCO'}",
            code="boxes",
        )
    if not shares and boxes and max(ends) <= 1:
        raise DataError(
            f"{path}: its boxes must be pixels, and none ends beyond {max(ends):g}, which looks like shares of width "
            "and height; multiply by the size of the picture",
            code="boxes",
        )


def _plain(name: str) -> str:
    return name.replace("\\", "/").removeprefix("./")
