"""``glocal export``: a recognizer for machines without PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli.console import Device, Json, show
from glocal.cli.practical import RecognizerFile
from glocal.cli.printing import printable

if TYPE_CHECKING:
    from glocal.export.cost import Measured
    from glocal.export.export import Exported


def export(
    file: RecognizerFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")],
    format_: Annotated[str, typer.Option("--format", help="Of the graphs: onnx.")] = "onnx",
    int8: Annotated[bool, typer.Option("--int8", help="8-bit convolutions, and what they cost in accuracy.")] = False,
    labelled: Annotated[
        Path | None,
        typer.Option("--check", help="Compare file and export on a folder of pictures per class, and unknown/."),
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Write a folder that answers without PyTorch: numpy, Pillow and onnxruntime are all it needs."""
    from glocal.recognizer import Recognizer
    from glocal_runtime.errors import RecipeError

    try:
        from glocal.export.export import check_folder, check_format
        from glocal.export.export import export as run
    except ImportError as error:
        raise RecipeError(f"glocal export needs {error.name}: pip install 'glocal[onnx]'") from error

    check_format(format_)
    check_folder(out)
    found = run(Recognizer.load(file, device=device), out, int8=int8, labelled=labelled)
    show({"folder": str(out), **found.to_json()}, as_json=json, otherwise=lambda: printable(_words(found)))


def _words(found: Exported) -> str:
    size = sum(found.bytes.values()) / 2**20
    lines = [f"{found.folder}: {found.precision}, graphs of {size:.1f} MiB"]
    lines.append(f"probes: largest difference {found.difference:.1e} of max(1, |score|) to the file")
    if found.before is not None and found.after is not None:
        lines.append(f"on {found.measured_on}:")
        lines += [f"  file    {_rates(found.before)}", f"  export  {_rates(found.after)}"]
    if (same := found.agreement) is not None:
        near = f", {same.at_threshold} of the others at the threshold" if same.same_label < same.pictures else ""
        lines.append(
            f"  the same label on {same.same_label} of {same.pictures}{near}; "
            f"largest difference {same.largest_difference:.1e}"
        )
    return "\n".join(
        [*lines, f"Next, also where only the folder is: python -m glocal_runtime predict {found.folder} PHOTO"]
    )


def _rates(measured: Measured) -> str:
    acc = "-" if measured.acc is None else f"{100 * measured.acc:.2f} %"
    auroc = "-" if measured.auroc is None else f"{100 * measured.auroc:.2f} %"
    return f"ACC {acc}, AUROC {auroc}"
