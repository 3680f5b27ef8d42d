"""A stand-in for the endpoint of a hub, on 127.0.0.1: repositories are folders.  It stops with its block."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import glocal

COMMIT = "a" * 40
SOURCE = Path(glocal.__file__).parents[1]


class Hub(ThreadingHTTPServer):
    """Answers what huggingface_hub asks: lists, files and commits."""

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.root, self.asked = root, list[str]()
        self.made: dict[str, Any] = {}  # what repositories were made with
        self.lies: dict[str, Any] = {}  # what is put over the description of a repository

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind, parts = self.path.split("?")[0], self.path.split("?")[0].strip("/").split("/")
        if kind == "/api/repos/create":
            fields = json.loads(body)
            name = f"{fields['organization']}/{fields['name']}" if fields.get("organization") else fields["name"]
            (self.server.root / name).mkdir(parents=True, exist_ok=True)
            self.server.made[name] = fields
            self._send({"url": f"{self.server.address}/{name}", "id": name})
        elif kind == "/api/validate-yaml":
            self._send({"errors": [], "warnings": []})
        elif "preupload" in parts:
            files = json.loads(body)["files"]
            self._send({"files": [{**each, "uploadMode": "regular", "shouldIgnore": False} for each in files]})
        else:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    place = self.server.root / parts[2] / parts[3] / line["value"]["path"]
                    place.write_bytes(base64.b64decode(line["value"]["content"]))
            self._send(
                {
                    "commitUrl": f"{self.server.address}/{parts[2]}/{parts[3]}/commit/{COMMIT}",
                    "commitOid": COMMIT,
                    "success": True,
                }
            )

    def _answer(self) -> None:
        self.server.asked.append(self.path)
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts[0] == "api" and len(parts) > 3 and (folder := self.server.root / parts[2] / parts[3]).is_dir():
            files = {each.relative_to(folder).as_posix(): each for each in folder.rglob("*") if each.is_file()}
            if "tree" in parts:
                every = [(name, _oid(file), file.stat().st_size) for name, file in files.items()]
                self._send([{"type": "file", "path": name, "oid": oid, "size": size} for name, oid, size in every])
            else:
                names = [{"rfilename": name} for name in files]
                about = {"id": "/".join(parts[2:4]), "sha": COMMIT, "siblings": names, "private": False}
                self._send(about | self.server.lies)
        elif "resolve" in parts and (file := self.server.root.joinpath(*parts[:2], *parts[4:])).is_file():
            self._send(file.read_bytes(), {"ETag": f'"{_oid(file)}"', "X-Repo-Commit": COMMIT})
        else:
            self._send({"error": "not found"}, {"X-Error-Code": "RepoNotFound"}, status=404)

    def _send(self, content: Any, headers: dict[str, str] | None = None, *, status: int = 200) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        about = {"Content-Length": str(len(data)), "Content-Type": "application/json", **(headers or {})}
        for name, value in about.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *words: Any) -> None:
        """Nothing on the screen."""


def _oid(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()


@contextmanager
def hub(root: Path) -> Iterator[Hub]:
    """Of the repositories root/ORG/NAME."""
    server = Hub(root)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def python(home: Path, code: str, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: huggingface_hub reads its settings once.  Without HF_ENDPOINT nothing is reached."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    env |= {"HF_HOME": str(home), "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_DISABLE_XET": "1"}
    env["PYTHONPATH"] = str(SOURCE)
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, env=env | more, capture_output=True, text=True, timeout=120)
