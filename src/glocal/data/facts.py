"""What was published about each data set, so that pictures somebody has can be held against it.

Pictures of one published name go around in several forms.  Which one was used moves accuracy by points, so every form
has its consequence here, and ``verify`` says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["FACTS", "Facts", "Part", "Variant"]

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Part:
    """One split as published."""

    classes: int
    images: int


@dataclass(frozen=True)
class Variant:
    """A form in which the pictures go around."""

    words: str
    consequence: str  # for comparing numbers
    side: int | None = None  # pixels of every picture, None when they differ


@dataclass(frozen=True)
class Facts:
    name: str
    title: str
    parts: Mapping[str, Part]
    size: str  # of the pictures, in words
    source: str  # project or paper
    home: str  # public page
    terms: str
    todo: str  # what a user has to do to have it
    per_class: int | None = None  # pictures of every class, None when they differ
    variants: Mapping[str, Variant] = field(default_factory=dict)
    class_list: str | None = None  # the published split that says which class belongs where
    repeats: tuple[int, int] | None = None  # pictures published more than once: groups within splits, and across

    @property
    def images(self) -> int:
        return sum(part.images for part in self.parts.values())


def _parts(classes: tuple[int, int, int], images: tuple[int, int, int]) -> dict[str, Part]:
    return {split: Part(c, n) for split, c, n in zip(SPLITS, classes, images, strict=True)}


_IMAGENET_TERMS = "ImageNet's terms of access: research and teaching, not to be passed on"
_CIFAR_TERMS = "no licence stated; cite Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images"
_AS_PUBLISHED_32 = Variant(
    "CIFAR-100's own 32 px pixels",
    "the pixels everybody uses: numbers compare when the resizing before the backbone is the same "
    "(GEL: 40 px, centre 32; TANE: none)",
    32,
)

_ALL = (
    Facts(
        name="mini-imagenet",
        title="miniImageNet",
        parts=_parts((64, 16, 20), (38_400, 9_600, 12_000)),
        per_class=600,
        class_list="mini-imagenet",
        size="84 px, or original size",
        source="Vinyals et al. 2016, Matching Networks; split of Ravi and Larochelle 2017",
        home="https://www.image-net.org",
        terms=_IMAGENET_TERMS,
        todo="glocal data prepare mini-imagenet --from PATH, any packing you have",
        variants={
            "original-jpeg": Variant(
                "original-size JPEG",
                "numbers compare with papers that read the JPEG files and resize once (FEAT, SnaTCHer, GEL: short side "
                "92, centre 84); those measured on 84 px pictures come out lower, so do not put both into one table",
            ),
            "84px-pickle": Variant(
                "84 px pickles",
                "the pictures were shrunk to 84 px before you got them: numbers compare with papers that used these "
                "pickles, and lose up to four points against those measured on original-size JPEG; with resize 92 they "
                "are enlarged and cut, so set resize to none",
                84,
            ),
            "cache-pickle": Variant(
                "cache pickles (image_data, class_dict)",
                "shrunk to 84 px by another program than the category-split pickles, so the pixels are not theirs: "
                "numbers compare with papers that used the cache files, and lose up to four points against those "
                "measured on original-size JPEG",
                84,
            ),
            "84px-files": Variant(
                "84 px picture files",
                "files, but shrunk to 84 px before you got them, often saved as JPEG twice: numbers lose up to four "
                "points against those measured on original-size JPEG; say in a table which ones you used",
                84,
            ),
        },
    ),
    Facts(
        name="tiered-imagenet",
        title="tieredImageNet",
        parts=_parts((351, 97, 160), (448_695, 124_261, 206_209)),
        class_list="tiered-imagenet",
        size="84 px",
        source="Ren et al. 2018, Meta-Learning for Semi-Supervised Few-Shot Classification",
        home="https://www.image-net.org",
        terms=_IMAGENET_TERMS,
        todo="glocal data prepare tiered-imagenet --from PATH, any packing you have",
        variants={
            "84px-png": Variant(
                "84 px PNG pictures in pickles",
                "the authors' pixels, decoded with red first: numbers compare without resizing before the backbone; a "
                "model trained on the npz arrays, which keep OpenCV's blue first, sees other colours here",
                84,
            ),
            "84px-array": Variant(
                "84 px arrays (npz)",
                "the authors' pixels, in OpenCV's order of colours, blue first, as published programs read them: "
                "numbers compare without resizing before the backbone; a model trained on the PNG pictures sees other "
                "colours here",
                84,
            ),
            "84px-pickle": Variant(
                "84 px pickles",
                "repacked by somebody: numbers compare without resizing before the backbone if the pixels are the "
                "authors', which their manifests tell",
                84,
            ),
            "84px-files": Variant(
                "84 px picture files",
                "shrunk or repacked by somebody: numbers compare without resizing before the backbone if the pixels "
                "are the authors', which their manifests tell",
                84,
            ),
            "original-jpeg": Variant(
                "original-size JPEG",
                "sharper than the 84 px pictures of the authors: papers on tieredImageNet used those, so numbers "
                "measured on this form come out higher and do not compare",
            ),
        },
    ),
    Facts(
        name="cifar-fs",
        title="CIFAR-FS",
        parts=_parts((64, 16, 20), (38_400, 9_600, 12_000)),
        per_class=600,
        class_list="cifar-fs",
        size="32 px",
        source="Bertinetto et al. 2019, Meta-Learning with Differentiable Closed-Form Solvers, from CIFAR-100",
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        terms=_CIFAR_TERMS,
        todo="glocal data prepare cifar-fs --from PATH; CIFAR-100's own cifar-100-python will do",
        variants={"32px": _AS_PUBLISHED_32},
        repeats=(11, 15),
    ),
    Facts(
        name="fc100",
        title="FC100",
        parts=_parts((60, 20, 20), (36_000, 12_000, 12_000)),
        per_class=600,
        class_list="fc100",
        size="32 px",
        source="Oreshkin et al. 2018, TADAM, from CIFAR-100, split by superclass",
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        terms=_CIFAR_TERMS,
        todo="glocal data prepare fc100 --from PATH; CIFAR-100's own cifar-100-python will do",
        variants={"32px": _AS_PUBLISHED_32},
    ),
    Facts(
        name="cub",
        title="CUB-200-2011",
        # Pictures of each of the 200 classes, as the published list of images has them, added up over the split.
        parts=_parts((100, 50, 50), (5_885, 2_950, 2_953)),
        class_list="cub",
        size="original size, about 500 px",
        source="Wah et al. 2011; split of Chen et al. 2019, A Closer Look at Few-shot Classification",
        home="https://www.vision.caltech.edu/datasets/cub_200_2011",
        terms="non-commercial research and teaching; rights in the photos stay with their owners",
        todo="glocal data prepare cub --from CUB_200_2011, or the folder images inside",
        variants={
            "original-jpeg": Variant(
                "original-size JPEG, not cut",
                "numbers compare with papers that use whole photos; those that first cut out the bird by its bounding "
                "box (FEAT, DeepEMD) come out higher, and their split is another one",
            ),
        },
    ),
    Facts(
        name="embedded",
        title="Embedded glyphs and digits",
        parts=_parts((297, 51, 10), (17_820, 3_060, 1_797)),
        size="32 px",
        source="drawn with matplotlib's fonts; test: Alpaydin and Kaynak 1998, digits inside scikit-learn",
        home="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
        terms="digits: CC BY 4.0; fonts: free licences of DejaVu, STIX and Computer Modern",
        todo="nothing: pip install 'glocal[demo]' and use it by name",
    ),
    Facts(
        name="caltech-photos",
        title="Caltech photos",
        parts=_parts((60, 15, 25), (1_680, 420, 700)),
        per_class=28,
        size="short side 224 px",
        source="a part of Caltech-101: Fei-Fei, Fergus and Perona 2004",
        home="https://data.caltech.edu/records/mzrjq-6wc02",
        terms="Caltech-101: CC BY 4.0; rights in the photos stay with their owners",
        todo="nothing to prepare: one folder per class in caltech-photos below GLOCAL_DATA",
        repeats=(0, 0),
    ),
    Facts(
        name="tiered-64",
        title="tieredImageNet classes at 64 px",
        parts=_parts((61, 17, 45), (12_200, 3_400, 9_000)),
        per_class=200,
        class_list="tiered-imagenet",
        size="64 px",
        source="the classes of tieredImageNet that exist at 64 px, in tieredImageNet's split",
        home="https://www.image-net.org",
        terms=_IMAGENET_TERMS,
        todo="usable as train, val and test folders below GLOCAL_DATA; glocal data prepare tiered-64 makes it faster",
        variants={
            "64px": Variant("64 px picture files", "not tieredImageNet: compare only with numbers measured on it", 64)
        },
        repeats=(1, 0),
    ),
)

FACTS: Mapping[str, Facts] = {facts.name: facts for facts in _ALL}
