"""Regions of pictures: three files, what is wrong with boxes, and MegaDetector's file with our classes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from glocal.common.errors import DataError
from glocal.recognizer.photos.boxes import Boxes, read_boxes
from glocal.recognizer.photos.images import Preprocess
from glocal.recognizer.photos.sources import Picture, Unreadable, as_source, labelled_regions, regions_of, take

# As https://lila.science/megadetector-output-format has it: an animal, a person, one that is not sure, an image without
# any, one that could not be read, and a video.
MEGADETECTOR: dict[str, Any] = {
    "info": {
        "format_version": "1.6",
        "detector": "MDV5A",
        "detection_completion_time": "2026-05-26 19:11:27",
        "detector_metadata": {"typical_detection_threshold": 0.2, "conservative_detection_threshold": 0.05},
    },
    "detection_categories": {"1": "animal", "2": "person", "3": "vehicle"},
    "images": [
        {
            "file": "cam1/a.png",
            "detections": [
                {"category": "2", "conf": 0.9, "bbox": [0.0, 0.0, 0.1, 0.1]},
                {"category": "1", "conf": 0.926, "bbox": [0.25, 0.5, 0.25, 0.5]},
                {"category": "1", "conf": 0.061, "bbox": [0.0, 0.0, 0.5, 0.5]},
                {"category": "1", "conf": 0.3, "bbox": [0.5, 0.0, 0.5003, 0.25]},
            ],
        },
        {"file": "cam1\\b.png", "detections": []},
        {"file": "cam1/damaged.png", "failure": "Failure image access", "detections": None},
        {
            "file": "cam1/c.mp4",
            "frame_rate": 20,
            "frames_processed": [0, 20],
            "detections": [{"category": "1", "conf": 0.8, "bbox": [0.1, 0.2, 0.3, 0.4], "frame_number": 0}],
        },
    ],
}


def saved(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), "utf-8")
    return path


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def coco(annotations: list[dict[str, Any]], *files: str) -> dict[str, Any]:
    images = [{"id": i, "file_name": name, "width": 80, "height": 40} for i, name in enumerate(files)]
    categories = [{"id": 7, "name": "bolt"}, {"id": 9, "name": "nut"}]
    return {"images": images, "annotations": annotations, "categories": categories}


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """80 x 40 pixels; red is the column and green the row."""
    rows, columns = np.mgrid[0:40, 0:80]
    pixels = np.stack([columns, rows, np.zeros_like(rows)], axis=2).astype(np.uint8)
    path = tmp_path / "photos" / "cam1" / "a.png"
    path.parent.mkdir(parents=True)
    Image.fromarray(pixels).save(path)
    return path


def looked(path: Path, boxes: Boxes) -> dict[str, Picture | Unreadable]:
    sources, _ = regions_of([as_source(path)], boxes)
    taken = [take(source, Preprocess(size=8)) for source in sources]
    return {(each.name if isinstance(each, Picture) else each.path).removeprefix(str(path)): each for each in taken}


def boxes_of(path: Path, boxes: Boxes) -> dict[str, tuple[int, ...]]:
    return {name: tuple(each.region.box) for name, each in looked(path, boxes).items()}  # type: ignore


def test_megadetector_gives_the_sure_animals_in_pixels_and_keeps_their_numbers(picture: Path) -> None:
    file = saved(picture.parents[1] / "md.json", MEGADETECTOR)
    assert boxes_of(picture, read_boxes(file)) == {"#2": (20, 20, 20, 20), "#4": (40, 0, 40, 10)}
    assert set(boxes_of(picture, read_boxes(file, min_confidence=0.05))) == {"#2", "#3", "#4"}
    assert set(boxes_of(picture, read_boxes(file, min_confidence=0.5))) == {"#2"}
    content = {**MEGADETECTOR, "detection_categories": {"1": "dent", "2": "scratch"}}  # no animals: all count
    assert set(boxes_of(picture, read_boxes(saved(file, content)))) == {"#1", "#2", "#4"}


def test_coco_has_pixels_and_labels_but_no_crowds(picture: Path) -> None:
    annotations = [
        {"image_id": 1, "category_id": 9, "bbox": [10, 5, 20, 30]},
        {"image_id": 0, "category_id": 7, "bbox": [1, 1, 2, 2]},
        {"image_id": 1, "category_id": 7, "bbox": [0, 0, 80, 40], "iscrowd": 1},
        {"image_id": 1, "category_id": 7, "bbox": [50.4, 0, 20, 20]},
    ]
    boxes = read_boxes(saved(picture.parents[1] / "coco.json", coco(annotations, "other.png", "a.png")))
    assert boxes_of(picture, boxes) == {"#1": (10, 5, 20, 30), "#2": (50, 0, 20, 20)}
    by_class, regions = labelled_regions(picture.parents[1], boxes)
    assert {name: [each.name for each in some] for name, some in by_class.items()} == {
        "nut": [f"{picture}#1"],
        "bolt": [f"{picture}#2"],
    }
    assert regions.elsewhere == ["other.png"]


def test_a_csv_with_and_without_labels(picture: Path) -> None:
    box = {"path": "cam1/a.png", "x": 10, "y": 5, "width": 20, "height": 30}
    file = written(picture.parents[1] / "boxes.csv", [box | {"label": "fox"}, box | {"label": "elk", "x": 40}])
    by_class, _ = labelled_regions(picture.parents[1], read_boxes(file))
    assert {name: [each.name for each in some] for name, some in by_class.items()} == {
        "fox": [f"{picture}#1"],
        "elk": [f"{picture}#2"],
    }
    other = picture.parents[1] / "cam2" / "b.png"
    other.parent.mkdir()
    other.write_bytes(picture.read_bytes())
    by_class, regions = labelled_regions(picture.parents[1], read_boxes(written(file, [box])))
    assert {name: [each.name for each in some] for name, some in by_class.items()} == {"cam1": [f"{picture}#1"]}
    assert regions.absent == [str(other)]


def test_a_region_is_the_square_around_its_box(picture: Path) -> None:
    box = {"path": "a.png", "x": 30, "y": 13, "width": 7, "height": 14}
    corner, whole = box | {"x": 0, "y": 0}, box | {"x": 0, "y": 0, "width": 80, "height": 40}
    taken = looked(picture, read_boxes(written(picture.parent / "boxes.csv", [box, corner, whole]))).values()
    regions = [each.region for each in taken if isinstance(each, Picture) and each.region]
    image, moved, limited = (region.box.cut(region.read()) for region in regions)
    assert image.shape == (16, 16, 3)  # 14 and the rim
    assert (image[0, 0, :2].tolist(), image[-1, -1, :2].tolist()) == ([26, 12], [41, 27])
    assert moved[0, 0, :2].tolist() == [0, 0]  # into the picture
    assert limited.shape == (40, 80, 3)


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ((10, 10, 0, 5), "its box is empty (x 10 to 10, y 10 to 15 in a picture of 80x40 pixels)"),
        ((10, 10, 5, -3), "its box is empty"),
        ((60, 10, 30, 5), "its box reaches beyond the picture (x 60 to 90"),
        ((-4, 10, 30, 5), "its box reaches beyond the picture"),
    ],
)
def test_a_box_that_is_empty_or_outside_is_a_sentence_about_this_region(
    picture: Path, numbers: tuple[int, ...], sentence: str
) -> None:
    good = dict(zip(("path", "x", "y", "width", "height"), ("a.png", 10, 10, 20, 20), strict=True))
    bad = dict(zip(good, ("a.png", *numbers), strict=True))
    taken = looked(picture, read_boxes(written(picture.parent / "boxes.csv", [bad, good])))
    assert isinstance(taken["#1"], Unreadable)
    assert sentence in taken["#1"].error
    assert isinstance(taken["#2"], Picture)


def megadetector(bbox: Any, *, names: tuple[Any, ...] = ("a.png",), conf: Any = 0.9) -> dict[str, Any]:
    detections = [{"category": "1", "conf": conf, "bbox": bbox}]
    return {**MEGADETECTOR, "images": [{"file": name, "detections": detections} for name in names]}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (megadetector([120, 40, 300, 200]), "shares of width and height, from 0 to 1, got 420"),
        (megadetector([0.1, 0.2, 0.3]), "a box of a.png must be four numbers, got [0.1, 0.2, 0.3]"),
        (megadetector([0.1, 0.2, 0.3, float("nan")]), "must be four numbers"),
        (megadetector([0, 0, 1, 1], names=(5,)), "no file of boxes that can be read"),
        (megadetector([0, 0, 1, 1], names=("a.png", "./a.png")), "a picture twice"),
        (megadetector([0, 0, 1, 1], conf=float("nan")), "must be four numbers"),
        (megadetector([0, 0, 1, 1], conf=10**400), "no file of boxes that can be read"),
        ({"images": []}, "no file of boxes that can be read"),
        ([{"file": "a.png", "detections": []}], "no file of boxes that can be read"),
        (coco([{"image_id": 0, "category_id": 7, "bbox": [0.1, 0.2, 0.5, 0.5]}], "a.png"), "must be pixels"),
        (coco([{"image_id": 5, "category_id": 7, "bbox": [1, 2, 5, 5]}], "a.png"), "no file of boxes that can be read"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(tmp_path: Path, content: Any, sentence: str) -> None:
    with pytest.raises(DataError) as refused:
        read_boxes(saved(tmp_path / "boxes.json", content))
    assert refused.value.code == "boxes"
    assert sentence in str(refused.value)


def test_pictures_and_entries_belong_together(picture: Path) -> None:
    box = {"path": "a.png", "x": 1, "y": 1, "width": 9, "height": 9}
    boxes = read_boxes(written(picture.parent / "boxes.csv", [box]))
    with pytest.raises(DataError, match=r"it names .a\.png. once"):
        boxes.of([str(picture), "cam2/a.png"])
    with pytest.raises(DataError, match=r"none of the pictures given is in it \(its first is 'a.png'"):
        boxes.of(["cam2/b.png"])


def test_classes_are_written_into_megadetectors_file(tmp_path: Path) -> None:
    content = json.loads(json.dumps(MEGADETECTOR))
    content["images"][0]["detections"][0]["classifications"] = [["5", 0.9]]
    content |= {"classification_categories": {"5": "human"}, "classification_category_descriptions": {"5": "homo"}}
    boxes = read_boxes(saved(tmp_path / "md.json", content))
    answers = {
        "photos/cam1/a.png#2": {"fox": 0.2, "elk": 0.1, "unknown": 0.7},
        "photos/cam1/a.png#4": {"fox": 0.9, "elk": 0.0995, "unknown": 0.0005},
    }
    result = boxes.classified(answers, "glocal 12")
    one, two, three, four = result["images"][0]["detections"]
    assert result["classification_categories"] == {"0": "fox", "1": "elk", "2": "unknown"}
    assert two == content["images"][0]["detections"][1] | {"classifications": [["2", 0.7], ["0", 0.2], ["1", 0.1]]}
    assert four["classifications"] == [["0", 0.9], ["1", 0.0995]]
    assert "classifications" not in one
    assert three == content["images"][0]["detections"][2]
    assert result["images"][1:] == content["images"][1:]
    assert result["info"].items() > content["info"].items()
    assert result["info"]["classifier"] == "glocal 12"
    assert "classification_category_descriptions" not in result
    assert "classifications" in content["images"][0]["detections"][0]  # what was read is as it was
