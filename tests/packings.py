"""A small instance of every packing of every data set, all made from one set of random pictures per data set.

``PACKINGS`` has "data set: packing" -> a function that writes it below a folder and returns the path to pass on.
Pictures are lossless wherever they are files, whatever their suffix says, so that all packings hold the same pixels.
"""

from __future__ import annotations

import csv
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from glocal.research.data.splits import CIFAR100, SUPERCLASSES, published_classes
from pictures import png, write_file

Pixels = np.ndarray
Content = dict[str, dict[str, Pixels]]  # split -> class -> (n, 32, 32, 3)
Writer = Callable[[Path, Content], Path]
SIDE, PER_CLASS = 32, 3
CLASSES = {"train": 3, "val": 2, "test": 2}
PACKINGS: dict[str, Writer] = {}
NUMBERED = {  # those whose labels say nothing about classes
    "tiered-imagenet: few-shot npz of features and targets",
    "cifar-fs: pickles numbered in no known order",
}


def make_content(dataset: str) -> Content:
    """Some classes of each published split, three pictures each; the first two of the first class are the same."""
    rng = np.random.default_rng([ord(letter) for letter in dataset])
    content: Content = {}
    for split, n in CLASSES.items():
        names = published_classes(dataset)[split][:n]
        content[split] = {name: rng.integers(0, 256, (PER_CLASS, SIDE, SIDE, 3), dtype=np.uint8) for name in names}
    first = next(iter(content["train"].values()))
    first[1] = first[0]
    return content


def packing(*names: str) -> Callable[[Writer], Writer]:
    def enter(write: Writer) -> Writer:
        PACKINGS.update(dict.fromkeys(names, write))
        return write

    return enter


def per_split(*names: str) -> Callable[[Callable[..., None]], Writer]:
    """Enter a function that writes the pictures of one split and their classes, as ``flat`` gives them."""

    def enter(write: Callable[[Path, str, dict[str, Pixels], Pixels, list[str]], None]) -> Writer:
        @packing(*names)
        def every(root: Path, content: Content) -> Path:
            root.mkdir(parents=True)
            for split, classes in content.items():
                write(root, split, classes, *flat(classes))
            return root

        return every

    return enter


def flat(classes: dict[str, Pixels]) -> tuple[Pixels, list[str]]:
    """All pictures of a split and their classes, the classes mixed as nobody would sort them."""
    pictures = np.concatenate([*classes.values()])
    names = [name for name, each in classes.items() for _ in each]
    order = np.random.default_rng(7).permutation(len(names))
    return pictures[order], [names[i] for i in order]


def rows(content: Content) -> Iterator[tuple[str, str, str, Pixels]]:
    """(split, class, file name, pixels) of every picture."""
    for split, classes in content.items():
        for name, pictures in classes.items():
            for i, pixels in enumerate(pictures):
                yield split, name, f"{name}{i:08d}", pixels


def dump(path: Path, value: Any, protocol: int = 2) -> None:
    write_file(path, pickle.dumps(value, protocol=protocol))


def zipped(folder: Path, inside: str = "") -> Path:
    target = folder.with_name(f"{folder.name}.zip")
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, f"{inside}{file.relative_to(folder).as_posix()}")
        archive.writestr("__MACOSX/._x.png", b"litter")
    return target


def tarred(folder: Path, inside: str) -> Path:
    target = folder.with_name(f"{folder.name}.tar.gz")
    with tarfile.open(target, "w:gz") as archive:
        archive.add(folder, arcname=inside)
    return target


@packing(
    "mini-imagenet: class folders by split",
    "cifar-fs: class folders by split",
    "tiered-imagenet: class folders by split",
)
def by_split(root: Path, content: Content) -> Path:
    for split, name, file, pixels in rows(content):
        write_file(root / split / name / f"{file}.png", png(pixels))
    return root


@packing("mini-imagenet: class folders", "cub: class folders", "fc100: class folders")
def by_class(root: Path, content: Content) -> Path:
    for _, name, file, pixels in rows(content):
        write_file(root / name / f"{file}.png", png(pixels))
    return root


@packing("mini-imagenet: images and csv")
def images_and_csv(root: Path, content: Content, suffix: str = "jpg", folder: str = "", *, header: bool = True) -> Path:
    for split in content:
        listed = [(f"{file}.{suffix}", name) for s, name, file, _ in rows(content) if s == split]
        path = root / f"{folder}{split}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([("filename", "label"), *listed] if header else listed)
    for _, _, file, pixels in rows(content):
        write_file(root / "images" / f"{file}.{suffix}", png(pixels))
    return root


@packing("mini-imagenet: five category split pickles")
def category_split(root: Path, content: Content) -> Path:
    """As Python 2 wrote them, numbered through the splits; two of the five are in no published split."""
    number = {name: i for i, name in enumerate(sorted(n for classes in content.values() for n in classes))}
    for part in ("train_phase_train", "train_phase_val", "train_phase_test", "val", "test"):
        split = part.partition("_")[0]
        pictures, names = flat(content[split])
        value = {
            "catname2label": {name: number[name] for name in content[split]},
            "labels": [number[name] for name in names],
            "data": pictures if part == split or part == "train_phase_train" else 255 - pictures,
        }
        dump(root / f"miniImageNet_category_split_{part}.pickle", value, protocol=2)
    return root


@per_split("mini-imagenet: cache pickles")
def cache_pickles(root: Path, split: str, classes: dict[str, Pixels], pictures: Pixels, names: list[str]) -> None:
    rows_of = {name: [i for i, each in enumerate(names) if each == name] for name in classes}
    dump(root / f"mini-imagenet-cache-{split}.pkl", {"image_data": pictures, "class_dict": rows_of}, protocol=4)


@per_split("cifar-fs: CIFAR_FS pickles", "fc100: FC100 pickles")
def cifar_pickles(root: Path, split: str, classes: dict[str, Pixels], pictures: Pixels, names: list[str]) -> None:
    value = {b"data": pictures, b"labels": [CIFAR100.index(name) for name in names]}
    dump(root / f"CIFAR_FS_{split}.pickle", value, protocol=3)


@per_split("cifar-fs: pickles numbered in no known order")
def numbered_pickles(root: Path, split: str, classes: dict[str, Pixels], pictures: Pixels, names: list[str]) -> None:
    number = {name: 90 + i for i, name in enumerate(classes)}  # 90 is rose, of the test split
    dump(root / f"cifar_fs_{split}.pickle", {"data": pictures, "labels": np.array([number[n] for n in names])})


@packing("cifar-fs: data and splits/bertinetto", "fc100: data and splits/bertinetto")
def data_and_lists(root: Path, content: Content) -> Path:
    for _, name, file, pixels in rows(content):
        write_file(root / "data" / name / f"{file}.png", png(pixels))
    for split, classes in content.items():
        write_file(root / "splits" / "bertinetto" / f"{split}.txt", "\n".join([*classes, ""]).encode())
    return root


@packing("cifar-fs: cifar-100-python", "fc100: cifar-100-python")
def cifar100_python(root: Path, content: Content) -> Path:
    """As Python 2 wrote it, every class in both batches; rows are three planes."""
    batches: dict[str, list[tuple[Pixels, int]]] = {"train": [], "test": []}
    for i, (_, name, _, pixels) in enumerate(rows(content)):
        batches["test" if i % PER_CLASS == 0 else "train"].append((pixels, CIFAR100.index(name)))
    for batch, members in batches.items():
        data = np.stack([pixels.transpose(2, 0, 1).reshape(-1) for pixels, _ in members])
        fine = [label for _, label in members]
        dump(root / "cifar-100-python" / batch, {b"data": data, b"fine_labels": fine, b"coarse_labels": fine})
    meta = {b"fine_label_names": [name.encode() for name in CIFAR100], b"coarse_label_names": [*SUPERCLASSES]}
    dump(root / "cifar-100-python" / "meta", meta)
    write_file(root / "cifar-100-python" / "file.txt~", b"as in the original")
    return root


@per_split("tiered-imagenet: npz of images and pickles of labels")
def tiered_npz(root: Path, split: str, classes: dict[str, Pixels], pictures: Pixels, names: list[str]) -> None:
    np.savez(root / f"{split}_images.npz", images=pictures)
    dump(root / f"{split}_labels.pkl", {"labels": names})


@per_split("tiered-imagenet: pickles of PNG and of labels")
def tiered_png(root: Path, split: str, classes: dict[str, Pixels], pictures: Pixels, names: list[str]) -> None:
    """PNG as columns of uint8, as OpenCV gives them; labels with keys in bytes."""
    encoded = [np.frombuffer(png(pixels), np.uint8).reshape(-1, 1) for pixels in pictures]
    dump(root / f"{split}_images_png.pkl", encoded)
    listed = sorted(classes, reverse=True)
    value = {
        b"label_specific": np.array([listed.index(name) for name in names], np.int32),
        b"label_specific_str": [name.encode() for name in listed],
        b"label_general": np.zeros(len(names), np.int32),
        b"label_general_str": [b"animal"],
    }
    dump(root / f"{split}_labels.pkl", value)


@per_split("tiered-imagenet: few-shot npz of features and targets")
def few_shot_npz(root: Path, split: str, classes: dict[str, Pixels], pictures: Pixels, names: list[str]) -> None:
    targets = np.array([[*classes].index(name) for name in names])
    np.savez_compressed(root / f"few-shot-{split}.npz", features=pictures, targets=targets)


@per_split("fc100: few-shot npz of features and targets")
def cifar_few_shot_npz(root: Path, split: str, classes: dict[str, Pixels], pictures: Pixels, names: list[str]) -> None:
    targets = np.array([CIFAR100.index(name) for name in names])
    np.savez(root / f"few-shot-{split}.npz", features=pictures, targets=targets)


@packing("cub: CUB_200_2011")
def cub_official(root: Path, content: Content) -> Path:
    home = root / "CUB_200_2011"
    listed = sorted(name for classes in content.values() for name in classes)
    files, labels = [], []
    for i, (_, name, file, pixels) in enumerate(rows(content), 1):
        write_file(home / "images" / name / f"{file}.jpg", png(pixels))
        files.append(f"{i} {name}/{file}.jpg")
        labels.append(f"{i} {listed.index(name) + 1}")
    classes = [f"{i} {name}" for i, name in enumerate(listed, 1)]
    for list_name, lines in {"images": files, "image_class_labels": labels, "classes": classes}.items():
        write_file(home / f"{list_name}.txt", "\n".join([*lines, ""]).encode())
    write_file(home / "parts" / "parts.txt", b"1 back\n")
    write_file(root / "attributes.txt", b"1 has_bill_shape::curved\n")
    return root


PACKINGS |= {
    "cifar-fs: images and csv without a header": lambda root, content: images_and_csv(
        root, content, "png", "split/", header=False
    ),
    "mini-imagenet: zip of class folders by split": lambda root, content: zipped(by_split(root, content), "wrapper/"),
    "mini-imagenet: tar of images and csv": lambda root, content: tarred(images_and_csv(root, content), "mini"),
    "cifar-fs: zip of class folders by split": lambda root, content: zipped(by_split(root, content)),
    "cifar-fs: zip of CIFAR_FS pickles": lambda root, content: zipped(cifar_pickles(root, content)),
    "cifar-fs: cifar-100-python.tar.gz": lambda root, content: tarred(cifar100_python(root, content), "."),
    "fc100: tar of class folders": lambda root, content: tarred(by_class(root, content), "cifar100"),
    "tiered-imagenet: tar of npz and pickles": lambda root, content: tarred(tiered_npz(root, content), "tiered"),
    "cub: CUB_200_2011.tgz": lambda root, content: tarred(cub_official(root, content), "."),
}
