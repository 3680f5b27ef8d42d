"""What a recognizer keeps of its photos: their features by class, a thumbnail, and a way to know them again.

A signature is a picture in 16 x 16 grey cells.  Two pictures are near duplicates when their signatures correlate:
another size, JPEG quality or brightness leaves that at 0.99 and more.  Two photos of one object stay well below.
"""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt
from PIL import Image

from glocal.common.errors import DataError
from glocal.common.words import listed
from glocal.recognizer.features import Features, Labels, join
from glocal.recognizer.photos.images import Pixels

UNKNOWN_NAME = "unknown"  # the answer for every picture of no enrolled class
LONGEST = 200  # characters of a name
THUMBNAIL = 112  # pixels a side
CELLS = 16
NEAR = 0.99  # correlation
_UNPRINTED = ("Cc", "Cf", "Cs", "Zl", "Zp")  # Unicode: control, format (zero width, bidi), surrogate, line, paragraph
_INVISIBLE = "\u034f\u115f\u1160\u2800\u3164\uffa0"  # of other categories
# Cyrillic and Greek letters that look like Latin ones.
_LATIN = str.maketrans("АВЕЅІЈКМНОРСТУХаеѕіјорсухԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧονρ", "ABESIJKMHOPCTYXaesijopcyxqwABEZHIKMNOPTYXovp")


@dataclass(frozen=True)
class Photo:
    name: str  # the file it came from
    digest: str  # of its pixels as the encoder sees them
    thumbnail: bytes  # JPEG


@dataclass(frozen=True)
class Bank:
    """K photos of one class, or of the known unknowns; row i of every array belongs to photo i.

    Maps are rounded to half precision when they come in, not when they are saved.  So a recognizer that was saved and
    loaded gives the same answers.
    """

    photos: tuple[Photo, ...]
    features: Features  # as ``Features.stored`` leaves them
    signature: Pixels  # (K, 256)

    def __len__(self) -> int:
        return len(self.photos)

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(photo.digest for photo in self.photos)

    @classmethod
    def join(cls, some: Sequence[Bank]) -> Bank:
        photos = tuple(photo for each in some for photo in each.photos)
        features = join([each.features for each in some])
        return cls(photos, features, np.concatenate([each.signature for each in some]))

    def rows(self, keep: slice | Sequence[int]) -> Bank:
        """Of a slice nothing is copied."""
        if isinstance(keep, slice):
            return Bank(self.photos[keep], self.features.rows(keep), self.signature[keep])
        pick = np.array(keep, dtype=np.int64)
        return Bank(tuple(self.photos[i] for i in keep), self.features.rows(pick), self.signature[pick])


@dataclass(frozen=True)
class Support:
    """The photos of all classes in one bank, class by class."""

    names: tuple[str, ...]
    shots: list[int]  # photos of each class
    bank: Bank

    def __post_init__(self) -> None:
        for name in self.names:
            check_class_name(name)
        check_distinct(self.names)

    @classmethod
    def of(cls, classes: Mapping[str, Bank]) -> Support:
        return cls(tuple(classes), [len(bank) for bank in classes.values()], Bank.join(list(classes.values())))

    @cached_property
    def classes(self) -> dict[str, Bank]:
        """The rows of each class, which are no copies."""
        ends = zip(accumulate(self.shots), self.shots, strict=True)
        rows = (self.bank.rows(slice(end - n, end)) for end, n in ends)
        return dict(zip(self.names, rows, strict=True))

    @property
    def photos(self) -> tuple[Photo, ...]:
        return self.bank.photos

    @cached_property
    def class_of(self) -> Labels:
        """(S,) the class of each photo."""
        return np.repeat(np.arange(len(self.names)), self.shots)

    def having(self, name: str) -> str:
        """The name as it is enrolled, or a sentence that names the classes there are."""
        wanted = check_class_name(name)
        if wanted not in self.names:
            raise DataError(f"there is no class {name!r}; the classes are {listed(self.names)}", code="no-class")
        return wanted

    def with_class(self, name: str, bank: Bank) -> Support:
        """With the class, at the end when it is new."""
        return Support.of({**self.classes, check_class_name(name): bank})

    def without(self, name: str) -> Support:
        name = self.having(name)
        if len(self.names) == 1:
            raise DataError(
                f"{name!r} is the only class; a recognizer needs at least one, add another first", code="last-class"
            )
        return Support.of({each: bank for each, bank in self.classes.items() if each != name})

    def without_photo(self, digest: str) -> tuple[str, Support]:
        """The class that had the photo, and the classes without it."""
        for name, bank in self.classes.items():
            rest = [i for i, photo in enumerate(bank.photos) if photo.digest != digest]
            if len(rest) < len(bank):
                if not rest:
                    raise DataError(
                        f"this is the only photo of class {name!r}; remove the class, or add a photo first",
                        code="last-photo",
                    )
                return name, Support.of({**self.classes, name: bank.rows(rest)})
        raise DataError(f"there is no support photo {digest[:12]!r}; it may have been removed before", code="no-photo")

    def renamed(self, old: str, new: str) -> Support:
        old, new = self.having(old), check_class_name(new)
        if new in self.names and new != old:
            raise DataError(
                f"there is a class {new!r} already; remove it first, or choose another name", code="class-exists"
            )
        return replace(self, names=tuple(new if each == old else each for each in self.names))


def composed(name: str) -> str:
    """In composed Unicode: the same letters typed on two systems are one name."""
    return unicodedata.normalize("NFC", name)


def check_class_name(name: str) -> str:
    """The name as it is kept, or a sentence.  It becomes a label in tables, a word in sentences and a file name."""
    clean = composed(name)
    if not clean.strip() or clean != clean.strip():
        raise _bad_name(f"a class needs a name without blanks around it, got {name!r}; rename it")
    if len(clean) > LONGEST:
        raise _bad_name(
            f"the name of a class may have at most {LONGEST} characters, got {len(clean)} ({clean[:30]!r}...); "
            "shorten it"
        )
    if any(unicodedata.category(letter) in _UNPRINTED or letter in _INVISIBLE for letter in clean):
        raise _bad_name(f"the name of a class must be one line of visible letters, got {name!a}; rename it")
    if "/" in clean or "\\" in clean or clean in (".", ".."):
        raise _bad_name(f"the name of a class must not be a path, got {name!r}; leave out slashes, '.' and '..'")
    if clean.casefold() == UNKNOWN_NAME:
        raise _bad_name(
            f"a class cannot be called {name!r}: pictures of no class get that answer; "
            "give other things with --unknown DIR (unknown=...) or in a folder unknown/"
        )
    return clean


def _bad_name(sentence: str) -> DataError:
    return DataError(sentence, code="class-name")


def check_distinct(names: Iterable[str]) -> None:
    """Refuse names that people, and some file systems, take for the same."""
    earlier: dict[str, str] = {}
    for name in names:
        plain = unicodedata.normalize("NFKC", name).translate(_LATIN)
        letters = "".join(letter for letter in plain if not "\ufe00" <= letter <= "\ufe0f")  # variants of a sign
        key = " ".join(letters.casefold().split())
        other = earlier.get(key)
        if other == name:
            raise DataError(
                f"there are two classes called {name!r}; names must differ, rename one", code="same-class-name"
            )
        if other is not None:
            alike = f"{other!a} and {name!a} look the same"
            if other.casefold() == name.casefold():
                alike = f"{other!r} and {name!r} differ only in upper and lower case"
            raise DataError(f"the classes {alike}; merge them or rename one", code="same-class-name")
        earlier[key] = name


def signature(pixels: Pixels) -> Pixels:
    """(H, W, 3) -> (256,) mean grey of each cell."""
    grey = Image.fromarray(pixels).convert("L")
    cells: Pixels = np.asarray(grey.resize((CELLS, CELLS), Image.Resampling.BOX)).reshape(-1)
    return cells


def correlation(some: Pixels, others: Pixels) -> npt.NDArray[np.float32]:
    """Signatures (A, 256) and (B, 256) -> (A, B) in [-1, 1]; pictures of a single grey are like no other."""
    a, b = (_centred(each) for each in (some, others))
    return a @ b.T


def _centred(signatures: Pixels) -> npt.NDArray[np.float32]:
    moved = signatures.astype(np.float32)
    moved -= moved.mean(axis=1, keepdims=True)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True).clip(1e-6)
    return moved


def thumbnail(pixels: Pixels) -> bytes:
    """(size, size, 3) -> a small JPEG of the part that the encoder sees."""
    image = Image.fromarray(pixels)
    if image.width > THUMBNAIL:
        image = image.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()
