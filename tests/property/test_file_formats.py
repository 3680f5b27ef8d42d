"""A file that was damaged or made up is refused with a sentence, or it is read as something whole and finite."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from glocal.cli.main import app
from glocal.common.errors import GlocalError
from glocal.research.data import open_dataset
from glocal.research.data.dataset import ClassDataset
from glocal.research.data.episodes import EpisodeSampler, EpisodeSpec, TaskList
from glocal.research.data.prepare import prepare
from glocal.research.engine.checkpoint import load_model, save_model, write_checkpoint
from glocal.research.engine.recipe import load_recipe
from packings import PACKINGS, make_content
from tiny_models import tiny_model

RECIPES = Path(__file__).parents[2] / "src/glocal/research/recipes"
SPEC = EpisodeSpec(way=2, shot=1, query=2, unknown_way=1, unknown_query=2)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["../x", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)
many = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def damages(draw: st.DrawFn, content: bytes) -> bytes:
    """The content with a stretch of it cut out, replaced or repeated."""
    start = draw(st.integers(0, len(content)))
    stop = draw(st.integers(start, min(len(content), start + 64)) | st.just(len(content)))
    return content[:start] + draw(st.binary(max_size=16) | st.just(2 * content[start:stop])) + content[stop:]


@st.composite
def made_up(draw: st.DrawFn, record: Any) -> Any:
    """The record with one value, at any depth, replaced, dropped or added."""
    if not (isinstance(record, dict | list) and record) or draw(st.integers(0, 9)) == 0:
        return draw(VALUES)
    changed = record.copy()
    key = draw(st.sampled_from(sorted(record) if isinstance(record, dict) else range(len(record))))
    action = draw(st.sampled_from(["inside", "inside", "inside", "drop", "add"]))
    if action == "inside":
        changed[key] = draw(made_up(record[key]))
    elif action == "drop":
        del changed[key]
    elif isinstance(record, dict):
        changed[draw(st.text(max_size=8))] = draw(VALUES)
    else:
        changed.insert(key, draw(VALUES))
    return changed


def checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, content: Any) -> Path:
    path.write_bytes(json.dumps(content).encode("ascii"))
    return path


@given(st.data())
@many
def test_recipe(tmp_path: Path, data: st.DataObject) -> None:
    source = data.draw(st.sampled_from(sorted(RECIPES.glob("*.toml"))))
    path = tmp_path / "recipe.toml"
    if data.draw(st.booleans()):
        path.write_bytes(data.draw(damages(source.read_bytes())))
    else:
        path = write_json(tmp_path / "recipe.json", data.draw(made_up(tomllib.loads(source.read_text()))))
    try:
        recipe = load_recipe(path)
    except GlocalError:
        return
    again = load_recipe(write_json(tmp_path / "again.json", recipe.model_dump(mode="json")))
    assert again == recipe


@pytest.fixture(scope="module")
def pictures() -> ClassDataset:
    images = np.arange(24 * 192, dtype=np.uint32).astype(np.uint8).reshape(24, 8, 8, 3)
    images[:, 0, 0, 0] = np.arange(24)
    return ClassDataset.from_arrays(images, np.arange(24) % 4)


@given(st.data())
@many
def test_task_list(tmp_path: Path, pictures: ClassDataset, data: st.DataObject) -> None:
    path = tmp_path / "tasks.json"
    EpisodeSampler(pictures, SPEC).take(2).save(path)
    record = json.loads(path.read_text())
    del record["checksum"]
    if data.draw(st.booleans()):
        path.write_bytes(data.draw(damages(path.read_bytes())))
    elif isinstance(changed := data.draw(made_up(record)), dict):
        write_json(path, changed | {"checksum": checksum(changed)})
    try:
        tasks = TaskList.load(path, pictures)
    except GlocalError:
        return
    for task in tasks:
        episode = task.episode(lambda rows: torch.from_numpy(np.stack([pictures.image(i) for i in rows])))
        assert episode.n_way == tasks.spec.way


@given(st.data())
@many
def test_checkpoint(tmp_path: Path, data: st.DataObject) -> None:
    path, model = tmp_path / "model.safetensors", tiny_model("gel")
    if data.draw(st.booleans()):
        save_model(path, model)
        path.write_bytes(data.draw(damages(path.read_bytes())))
    elif isinstance(record := data.draw(made_up(model.record)), dict):
        write_checkpoint(path, model.tensors(), record)
    else:
        path.write_bytes(struct.pack("<Q", 2) + b"{}")
    try:
        loaded = load_model(path)
    except GlocalError:
        return
    assert loaded.tensors().keys() == model.tensors().keys()
    for name, value in model.tensors().items():
        torch.testing.assert_close(loaded.tensors()[name], value, rtol=0, atol=0)


@pytest.fixture(scope="module")
def prepared(home: Path, dataset: Path) -> Path:
    done = CliRunner().invoke(app, ["data", "prepare", "mine", "--from", str(dataset), "-o", str(home / "prepared")])
    assert done.exit_code == 0, done.output
    return home / "prepared"


@given(st.data())
@many
def test_prepared_data(tmp_path: Path, prepared: Path, data: st.DataObject) -> None:
    folder = tmp_path / "data"
    folder.mkdir(exist_ok=True)
    for file in prepared.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    index = json.loads((folder / "index.json").read_text())
    if data.draw(st.booleans()):
        file = folder / data.draw(st.sampled_from(sorted(file.name for file in prepared.iterdir())))
        file.write_bytes(data.draw(damages(file.read_bytes())))
    else:
        write_json(folder / "index.json", data.draw(made_up(index)))
    try:
        opened = open_dataset(str(folder), "test")
        images = [opened.image(i) for i in range(len(opened))]
    except GlocalError:
        return
    assert all(image.dtype == np.uint8 and image.ndim == 3 for image in images)
    assert len(opened.classes) > max(opened.label)


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("layouts")
    return {
        form: write(home / str(i), make_content(form.partition(":")[0]))
        for i, (form, write) in enumerate(PACKINGS.items())
    }


@given(st.data())
@many
def test_published_layout(tmp_path: Path, layouts: dict[str, Path], data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(sorted(layouts)))
    given_as = layouts[form]
    source = tmp_path / given_as.name
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    shutil.copytree(given_as, source) if given_as.is_dir() else shutil.copy(given_as, source)
    file = data.draw(st.sampled_from(sorted(path for path in [source, *source.rglob("*")] if path.is_file())))
    file.write_bytes(data.draw(damages(file.read_bytes())))
    try:
        index = prepare(tmp_path / "out", form.partition(":")[0], source)
    except GlocalError:
        assert [path.name for path in tmp_path.iterdir()] == [source.name]
        return
    for split in index.splits:
        opened = open_dataset(str(tmp_path / "out"), split)
        assert all(opened.same_image(i).dtype == np.uint8 for i in range(len(opened)))
