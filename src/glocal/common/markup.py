"""HTML in small: text that cannot become markup, tables and pictures; for reports and for what notebooks show."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Markup that is ready to be placed in a page; a plain ``str`` is text."""

    __slots__ = ()


def text(value: object) -> Html:
    """Escape for element content and for quoted attributes; half characters of broken file names become '?'."""
    return Html(escape(str(value).encode("utf-8", "replace").decode("utf-8")))


def placed(value: object) -> Html:
    """Markup as it is, anything else as text."""
    return value if isinstance(value, Html) else text(value)


def data_uri(picture: bytes, kind: str) -> str:
    """``kind`` as in ``image/png``."""
    return f"data:{kind};base64,{base64.b64encode(picture).decode()}"


def small_picture(picture: bytes, kind: str, *, alt: str, height: int) -> Html:
    """A picture inside the page, ``height`` pixels tall."""
    return Html(f'<img src="{data_uri(picture, kind)}" alt="{text(alt)}" style="height:{height}px;display:inline">')


def rows_table(head: Sequence[object], rows: Iterable[Sequence[object]], *, caption: str = "") -> Html:
    """The first column names its row."""
    top = "".join(f'<th scope="col" style="text-align:left">{placed(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{placed(first)}</th>'
        + "".join(f'<td style="text-align:left">{placed(cell)}</td>' for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    heading = f'<caption style="text-align:left">{text(caption)}</caption>' if caption else ""
    return Html(f"<table>{heading}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>")
