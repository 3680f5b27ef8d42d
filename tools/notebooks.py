"""Run the notebooks and keep what they print and draw: ``python tools/notebooks.py docs/notebooks``.

What differs from run to run (times, counters, messages on stderr) is left out, so that a notebook whose results did not
change is the same file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from glocal.common.files import write_text

COMMAND = "python tools/notebooks.py docs/notebooks"
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def executed(path: Path) -> Any:
    """The notebook with the outputs of today, run in a folder of its own."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=1200, coalesce_streams=True, resources=where).execute()
    notebook.metadata = nbformat.from_dict(KERNEL)
    for i, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{i}", nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [_plain(each) for each in cell.outputs if each.get("name") != "stderr"]
    return notebook


def _plain(output: Any) -> Any:
    if "execution_count" in output:
        output.execution_count = None
    if "data" in output and "image/png" in output.data:  # its repr has an address, a picture has also a JPEG
        output.data = nbformat.from_dict({"image/png": output.data["image/png"]})
    if "metadata" in output:
        output.metadata = nbformat.from_dict({})
    return output


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(f"usage: {COMMAND}", file=sys.stderr)
        return 2
    tools = str(Path(__file__).parent.resolve())  # the notebook on photos draws them by scenes.py
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [tools, os.environ.get("PYTHONPATH")]))
    for path in sorted(Path(arguments[0]).glob("*.ipynb")):
        write_text(path, nbformat.writes(executed(path)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
