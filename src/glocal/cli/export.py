"""``glocal export``: a recognizer for machines without PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glocal.cli.console import Device, Json, show
from glocal.cli.practical import RecognizerFile
from glocal.cli.printing import printable

if TYPE_CHECKING:
    from glocal.export.onnx import Exported, Measured


def export(
    file: RecognizerFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="The .glocal file to write.")],
    format_: Annotated[str, typer.Option("--format", help="Of the graphs: onnx.")] = "onnx",
    int8: Annotated[bool, typer.Option("--int8", help="8-bit convolutions, and what they cost in accuracy.")] = False,
    labelled: Annotated[
        Path | None,
        typer.Option("--check", help="Compare file and export on a folder of pictures per class, and unknown/."),
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Write a .glocal file that answers without PyTorch: numpy, Pillow and onnxruntime are all it needs."""
    from glocal_runtime.errors import RecipeError
    from glocal_runtime.file import check_target
    from glocal_runtime.recognizer import Recognizer

    if format_ != "onnx":
        raise RecipeError(f"the format of an export must be onnx, got {format_!r}")
    check_target(out)
    try:
        from glocal.export.onnx import export as run
    except ImportError as error:
        raise RecipeError(f"glocal export needs {error.name}: pip install 'glocal[onnx]'") from error

    found = run(Recognizer.load(file, device=device), out, int8=int8, labelled=labelled)
    show({"file": str(out), **found.to_json()}, as_json=json, otherwise=lambda: printable(_report(out, found)))


def _report(out: Path, found: Exported) -> str:
    size = sum(found.bytes.values()) / 2**20
    lines = [f"{out}: {found.precision}, graphs of {size:.1f} MiB"]
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
    return "\n".join([*lines, f"Next, also where torch is not installed: glocal predict {out} PHOTO"])


def _rates(measured: Measured) -> str:
    acc = "-" if measured.acc is None else f"{100 * measured.acc:.2f} %"
    auroc = "-" if measured.auroc is None else f"{100 * measured.auroc:.2f} %"
    return f"ACC {acc}, AUROC {auroc}"
