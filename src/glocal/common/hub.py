"""Repositories of a hub: that of Hugging Face, or the one that HF_ENDPOINT names.

Nothing is fetched unless a name that begins with ``hf:`` asks for it.  HF_HUB_OFFLINE leaves what the cache has.
"""

from __future__ import annotations

import glob
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from glocal.common.errors import DataError, GlocalError, RecipeError

PREFIX = "hf:"
RECOGNIZER = ".glocal"
NONE = ["-"]  # files that a folder of the cache must have, whichever it has
_NAME = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w.-]+))?", re.ASCII)


class Fetched(NamedTuple):
    folder: Path  # with the files that were asked for
    within: Path  # the folder that links in it may lead to


class Repository:
    """``hf:ORG/NAME`` or ``hf:ORG/NAME@REVISION``."""

    def __init__(self, name: str) -> None:
        match = _NAME.fullmatch(name.removeprefix(PREFIX))
        if match is None or ".." in name:
            raise RecipeError(
                f"a repository of a hub is named hf:ORG/NAME or hf:ORG/NAME@REVISION, got {name[:80]!r}",
                code="no-repository",
            )
        self.name, self.revision = match["name"], match["revision"]

    def fetch(self, choose: Callable[[Sequence[str]], Sequence[str]]) -> Fetched:
        """The files that are chosen of all there are; without a network, of those in the cache."""
        hub = _import_hub()
        where: dict[str, Any] = {"revision": self.revision}
        with self._sentences(hub, "bring its files into a folder in another way and name that"):
            try:
                about = hub.HfApi().model_info(self.name, **where)
            except (hub.errors.OfflineModeIsEnabled, ConnectionError, *_unreached()):
                folder = Path(hub.snapshot_download(self.name, local_files_only=True, allow_patterns=NONE, **where))
                choose([each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()])
            else:
                if not re.fullmatch("[0-9a-f]{40}", about.sha):  # a folder of the cache is named after it
                    raise ValueError(f"it names the commit {about.sha[:80]!r}")
                names = list(choose([each.rfilename for each in about.siblings or ()]))
                patterns = list(map(glob.escape, names))
                folder = Path(hub.snapshot_download(self.name, allow_patterns=patterns, **where))
                if missing := [each for each in names if ".." in each or not (folder / each).is_file()]:
                    raise ValueError(f"it lists {missing[0][:80]!r} and does not give it")
        return Fetched(folder, folder.parents[1])

    def push(self, files: Mapping[str, bytes], message: str, *, private: bool = True) -> str:
        """One commit with these files, to a repository that is made if there is none; its address."""
        hub = _import_hub()
        with self._sentences(hub, "give the file to others in another way"):
            api = hub.HfApi()
            api.create_repo(self.name, exist_ok=True, private=private)
            parts = [hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=data) for name, data in files.items()]
            commit = api.create_commit(self.name, parts, commit_message=message, revision=self.revision)
        return str(commit.commit_url)

    @contextmanager
    def _sentences(self, hub: Any, way_out: str) -> Iterator[None]:
        """What can go wrong on the way, for a user."""
        try:
            yield
        except (hub.errors.RepositoryNotFoundError, hub.errors.RevisionNotFoundError) as error:
            raise DataError(
                f"the hub has no repository {self.name} (revision {self.revision or 'main'}) that is open to you; "
                "check the name, or log in with `hf auth login`",
                code="no-repository",
            ) from error
        except hub.errors.HFValidationError as error:
            raise RecipeError(f"{self.name[:80]!r} cannot name a repository: {error}", code="no-repository") from error
        except GlocalError:
            raise
        except Exception as error:  # what a hub answers may be anything
            line = str(error).strip().partition("\n")[0][:200]
            raise DataError(
                f"the hub did not answer as it should for {self.name} ({line}); try again, log in with "
                f"`hf auth login`, or {way_out}",
                code="no-hub",
            ) from error


def recognizer_of(name: str) -> Path:
    """The file of the recognizer that a repository holds."""

    def choose(names: Sequence[str]) -> list[str]:
        files = [each for each in names if each.endswith(RECOGNIZER)]
        if len(files) != 1:
            raise DataError(f"{name} has {len(files)} {RECOGNIZER} files, and one is needed", code="no-recognizer")
        return files

    [file] = Repository(name).fetch(choose).folder.rglob(f"*{RECOGNIZER}")
    return file


def _unreached() -> tuple[type[Exception], ...]:
    """The errors of a network that is not there, of whichever httpx the hub's package uses."""
    modules = [sys.modules[name] for name in ("httpx", "httpx2") if name in sys.modules]
    return tuple(module.TransportError for module in modules)


def _import_hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ModuleNotFoundError as error:
        raise RecipeError(
            f"names that begin with {PREFIX} need the package {error.name}: pip install 'glocal[hub]'; a folder of the "
            "same files needs none of it",
            code="no-hub-package",
        ) from error
    if not sys.stderr.isatty():
        disable_progress_bars()
    return huggingface_hub
