"""Fetch onnxruntime-web from the npm registry when the package is built, and keep what a page needs of it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "onnxruntime-web@1.30.0"
SHA512 = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
SCRIPT, WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"


class RuntimeHook(BuildHookInterface):
    """Writes src/glocal_web/runtime."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        runtime = Path(self.root) / "src/glocal_web/runtime"
        if (runtime / SCRIPT).exists():
            return
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            [packed] = Path(folder).glob("*.tgz")
            if base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode() != SHA512:
                raise RuntimeError(f"{PACKAGE} is not what it was when glocal-web was made; do not use it")
            with tarfile.open(packed) as archive:
                script, wasm = (archive.extractfile(f"package/dist/{name}").read() for name in (SCRIPT, WASM))
        runtime.mkdir(exist_ok=True)
        (runtime / "ort.wasm.gz").write_bytes(gzip.compress(wasm, mtime=0))  # a page unpacks it: 4 MB instead of 14
        (runtime / SCRIPT).write_bytes(script)  # last: it says that all is there
