"""Write the pages: ``python -m glocal.report.method_pages docs/methods``; results are read from ``docs/results``."""

from __future__ import annotations

import sys
from pathlib import Path

from glocal.report.method_pages import pages
from glocal_runtime.files import write_text


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m glocal.report.method_pages FOLDER, such as docs/methods", file=sys.stderr)
        return 2
    out = Path(arguments[0])
    for name, text in pages(out.resolve().parent / "results").items():
        write_text(out / name, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
