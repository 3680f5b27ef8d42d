"""``with refused("too-few-classes"): ...``: an error of ours with that code, whatever its wording; and its sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from glocal.common.errors import GlocalError


@contextmanager
def refused(code: str, *words: str) -> Iterator[None]:
    """``words`` that the sentence must contain: names and numbers that came in, not its wording."""
    with pytest.raises(GlocalError) as caught:
        yield
    assert caught.value.code == code, f"code {caught.value.code!r}: {caught.value}"
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"


def one_sentence(said: tuple[int, str, str], *words: str) -> None:
    """What the command line said (exit code, output, errors) is a refusal: one line, with these words."""
    code, out, err = said
    assert (code, out, err[:8], err.count("\n")) == (2, "", "glocal: ", 1), (out, err)
    for word in words:
        assert word in err, f"{word!r} is not in: {err}"
