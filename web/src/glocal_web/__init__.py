"""onnxruntime-web for pages that `glocal export --web` writes; data only."""

from pathlib import Path

__version__ = "0.1.0"
RUNTIME = Path(__file__).parent / "runtime"  # ort.wasm.bundle.min.mjs and ort.wasm.gz
