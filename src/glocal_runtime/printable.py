"""Text of strangers, for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """File names need not be Unicode, and may hold control characters that move a cursor."""
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in clean)
