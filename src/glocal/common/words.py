"""Words for people: a number with its noun, a list cut short, and what a misspelt name was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

FEW = 8  # names that fit into a sentence
NAMED = 5  # of a list that may be long; the others are counted


def counted(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}{'es' if what.endswith(('s', 'ch')) else 's'}"


def listed(names: Sequence[str], most: int = NAMED) -> str:
    """The first of them; the others are counted."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def bad_pictures(bad: Sequence[tuple[str, str]]) -> str:
    """Where and why, a line each; how to go on without them."""
    lines = [f"  {where}: {why}" for where, why in bad[:FEW]]
    lines += [f"  and {len(bad) - FEW} more"] if len(bad) > FEW else []
    way_out = "mend or remove them, or leave them out with skip_bad=True (--skip-bad):"
    return "\n".join([way_out, *lines])


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was most likely meant, if any is near; large and small letters count the same."""
    names = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(name.casefold(), names, n=1)
    if not near and len(name) > 2:  # "photos" for "photos-fast" is far by letters
        near = [each for each in names if each.startswith(name.casefold())][:1]
    return names[near[0]] if near else None


def meant(name: str, known: Iterable[str], *, see: str = "") -> str:
    """As in "did you mean 'gel'?"; without one that is near, all names if they are few, else where they are listed."""
    names = list(known)
    near = nearest(name, names)
    if near is not None:
        return f"did you mean {near!r}?"
    if see and len(names) > FEW:
        return f"`{see}` shows the {len(names)} there are"
    return f"there is {', '.join(names) or 'none'}"


def printable(text: str) -> str:
    """File names need not be Unicode, and may hold control characters that move a cursor."""
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in clean)
