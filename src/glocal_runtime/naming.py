"""What a class may be called.  A name becomes a label in tables, a word in sentences and, in explanations, a file."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from glocal_runtime.errors import DataError

UNKNOWN_NAME = "unknown"  # the answer for every picture of no enrolled class
LONGEST = 200  # characters


def check_class_name(name: str) -> str:
    """The name in composed Unicode, so that the same letters typed on two systems are one name; or a sentence."""
    clean = unicodedata.normalize("NFC", name)
    if not clean.strip() or clean != clean.strip():
        raise DataError(f"a class needs a name without blanks around it, got {name!r}; rename it")
    if len(clean) > LONGEST:
        raise DataError(
            f"the name of a class may have at most {LONGEST} characters, got {len(clean)} ({clean[:30]!r}...); "
            "shorten it"
        )
    if any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in clean):
        raise DataError(f"the name of a class must be one line of printable letters, got {name!r}; rename it")
    if "/" in clean or "\\" in clean or clean in (".", ".."):
        raise DataError(f"the name of a class must not be a path, got {name!r}; leave out slashes, '.' and '..'")
    if clean.casefold() == UNKNOWN_NAME:
        raise DataError(
            f"a class cannot be called {name!r}: that is the answer for pictures of no class; give pictures of other "
            "things with --unknown DIR (unknown=...), they make the threshold better, and rename or move the folder"
        )
    return clean


def check_distinct(names: Iterable[str]) -> None:
    """Refuse names that people, and some file systems, take for the same."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold(), name)
        if other is not name and other == name:
            raise DataError(f"there are two classes called {name!r}; names must differ, rename one")
        if other != name:
            raise DataError(
                f"the classes {other!r} and {name!r} differ only in upper and lower case; merge them or rename one"
            )
