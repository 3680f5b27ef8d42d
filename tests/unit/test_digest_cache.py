"""The digest cache saves decoding and can do nothing else: not lie, not break, not stand in the way."""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from glocal.research.data import digests
from glocal.research.data.cache import cache_dir
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.digests import _decoder, digest_cache_file
from pictures import Tree, count_decodes, make_tree, write_tree


@pytest.fixture
def tree() -> Tree:
    return make_tree()


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files just written may be trusted."""
    monkeypatch.setattr(digests, "_SETTLED_AFTER", -(10**18))


@pytest.mark.usefixtures("settled")
def test_cache_is_used_and_noticed_stale_per_file(tmp_path: Path, tree: Tree, monkeypatch, own_cache: Path) -> None:
    root = write_tree(tmp_path / "pets", tree)
    decoded = count_decodes(monkeypatch)
    first = ClassDataset.from_folder(root)
    assert len(decoded) == 5
    assert digest_cache_file(root).is_file()
    assert own_cache in digest_cache_file(root).parents
    decoded.clear()
    assert ClassDataset.from_folder(root).manifest == first.manifest
    assert decoded == []

    changed = {"cat/1.png": tree["cat/1.png"] ^ 1}
    write_tree(root, changed)
    os.utime(root / "cat/1.png", ns=(10**18, 10**18 + 1))  # one nanosecond later
    second = ClassDataset.from_folder(root)
    assert len(decoded) == 1
    assert second.manifest != first.manifest
    assert ClassDataset.from_arrays(np.stack([*(tree | changed).values()]), ["c", "c", "c", "d", "d"]).manifest == (
        second.manifest
    )


def test_a_file_that_changed_just_now_is_not_trusted(tmp_path: Path, tree: Tree, monkeypatch) -> None:
    """``write_tree`` sets the time back, as unpacking an archive does; when a file really changed cannot be set."""
    root = write_tree(tmp_path / "pets", tree)
    ClassDataset.from_folder(root)
    decoded = count_decodes(monkeypatch)
    ClassDataset.from_folder(root)
    assert len(decoded) == 5


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"decoder": 3}', "other", "short"])
def test_a_broken_or_foreign_cache_is_ignored_and_rewritten(tmp_path: Path, tree: Tree, monkeypatch, content: str):
    root = write_tree(tmp_path / "pets", tree)
    first = ClassDataset.from_folder(root)
    good = json.loads(digest_cache_file(root).read_text())
    if content == "other":
        content = json.dumps(good | {"decoder": "another"})
    if content == "short":
        content = json.dumps(good | {"digests": dict.fromkeys(good["digests"], "00ff")})
    digest_cache_file(root).write_text(content)
    decoded = count_decodes(monkeypatch)
    assert ClassDataset.from_folder(root).manifest == first.manifest
    assert len(decoded) == 5
    assert json.loads(digest_cache_file(root).read_text()) == good
    assert [path.suffix for path in digest_cache_file(root).parent.iterdir()] == [".json"]


def test_cache_dir_follows_the_environment_and_need_not_be_writable(monkeypatch, tmp_path: Path, tree: Tree):
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "mine"))
    assert cache_dir() == tmp_path / "mine"
    monkeypatch.delenv("GLOCAL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "glocal"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "glocal"
    assert not (tmp_path / "mine").exists()
    (tmp_path / "file").touch()
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path / "file"))  # a file where a folder should be
    assert len(ClassDataset.from_folder(write_tree(tmp_path / "pets", tree))) == 5


@pytest.mark.usefixtures("settled")
def test_a_change_that_keeps_size_and_time_is_noticed(tmp_path: Path, tree: Tree) -> None:
    root = write_tree(
        tmp_path / "pets", {name.replace("png", "bmp").replace("PNG", "bmp"): tree[name] for name in tree}
    )
    first = ClassDataset.from_folder(root)
    size = (root / "cat/1.bmp").stat().st_size
    write_tree(root, {"cat/1.bmp": tree["cat/1.png"] ^ 1})  # sets the same old time again
    assert (root / "cat/1.bmp").stat().st_size == size
    assert ClassDataset.from_folder(root).manifest != first.manifest


def test_a_new_reader_of_heic_makes_remembered_digests_void(monkeypatch) -> None:
    versions = {_decoder()}
    for number in ("1.0", "1.1"):
        monkeypatch.setattr(metadata, "version", lambda name, number=number: number)
        versions.add(_decoder())
    assert len(versions) == 3
