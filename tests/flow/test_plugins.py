"""Plugins outside the repository: a package with entry points, and a single file; both train, evaluate and compare."""

from __future__ import annotations

import json

import pytest

from plugin_site import Site
from refusal import one_sentence

SHAPE = ["--way", "2", "--query", "3", "--tasks", "3", "--device", "cpu"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("plugins"))


def test_a_package_trains_evaluates_compares_and_is_listed(site: Site) -> None:
    run = site.home / "lab-run"
    code, _, err = site("train", "lab-train", "--out", run, "--device", "cpu", "--json")
    assert code == 0, err
    code, out, err = site("evaluate", run, "--dataset", "noise", *SHAPE, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["method"], found["dataset"]) == ("lab", "noise")
    metrics = found["metrics"]
    assert metrics["misnamed"]["mean"] == pytest.approx(1 - metrics["acc"]["mean"]), "the metric of the package"
    names = [f"lab={run}", f"again={run}:entropy"]
    code, out, err = site("compare", *names, "--dataset", "noise", "--shots", "1", *SHAPE, "--json")
    assert code == 0, err
    assert [row["name"] for row in json.loads(out)["tables"][0]["rows"]] == ["lab", "again"]

    code, out, err = site("list", "--json")
    listed = json.loads(out)
    assert code == 0
    for kind, name in (("methods", "lab"), ("backbones", "tiny"), ("datasets", "noise"), ("metrics", "misnamed")):
        assert name in listed[kind]
        assert listed["plugins"][kind] == {name: "other-lab 1.5"}
    assert listed["plugins"]["recipes"] == {"lab-train": "other-lab 1.5"}
    assert "broken" not in listed["methods"]
    assert err.count("\n") == 1, "one sentence about the plugin that cannot be imported"
    assert "'broken' of other-lab 1.5" in err
    assert "no_such_module_anywhere" in err

    said = site("train", "lab-train", "--out", site.home / "no", "--set", "method.name=broken")
    assert said[0] == 2
    assert "the plugin 'broken' of other-lab 1.5 (glocal.methods) cannot be used" in said[2]
    said = site("evaluate", run, "--dataset", "embedded", *SHAPE, plugins=False)
    one_sentence(said, "'tiny'", "install its package, or give its file with --import")


def test_a_single_file_trains_evaluates_compares_and_is_listed(site: Site) -> None:
    mine, run, data = ["--import", site.home / "mine.py"], site.home / "mine-run", str(site.home / "noise")
    settings = ["method.name=mine", 'backbone={name = "conv4", width = 4, image_size = 16}', f"data.dataset={data}"]
    overrides = [word for setting in settings for word in ("--set", setting)]
    recipe = site.home / "site" / "other_lab" / "recipes" / "lab-train.toml"
    code, _, err = site(*mine, "train", recipe, *overrides, "--out", run, "--device", "cpu", plugins=False)
    assert code == 0, err
    code, out, err = site(*mine, "compare", run, "embedded-gel", "--dataset", data, "--shots", "1", *SHAPE, "--json",
                          plugins=False)  # fmt: skip
    assert code == 0, err
    assert [each["method"] for each in json.loads(out)["models"]] == ["mine", "frozen-gel"]
    code, out, err = site(*mine, "list", plugins=False)
    assert (code, err) == (0, "")
    assert "mine (from mine.py)" in " ".join(out.split())
    one_sentence(site("evaluate", run, "--dataset", data, *SHAPE, plugins=False), "'mine'", "--import")


def test_a_file_that_cannot_be_imported_is_one_sentence(site: Site) -> None:
    (site.home / "bad.py").write_text("1 / 0\n")
    for name, part in (("bad.py", "ZeroDivisionError"), ("absent.py", "no such file"), ("json.py", "rename the file")):
        if name == "json.py":
            (site.home / name).write_text("")
        one_sentence(site("--import", site.home / name, "list"), part)
