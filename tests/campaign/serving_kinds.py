"""The same through the server: files that it opens, and pictures that it is sent; no answer above 499."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaign.kinds import all_pictures, whole_recognizers
from campaign.mutation import as_json, damaged, twisted, twisted_arrays, twisted_recognizer
from glocal.common.errors import GlocalError
from glocal.serve.app import create_app
from glocal.serve.security import Settings
from glocal.serve.workspace import Workspace
from serving import PAGE, tiny_file, uploads

Case = Callable[[random.Random, Path], str]
LOOKS = (
    "/state",
    "/health",
    "/threshold",
    "/threshold/preview?max_false_unknown=0.1",
    "/review",
    "/export/results.csv",
)


def client(file: Path) -> Any:
    from starlette.testclient import TestClient  # here: to import it is a warning with some versions of httpx

    app = create_app(Workspace(file, device="cpu", workers=1), Settings())
    return TestClient(app, base_url="http://localhost", headers=PAGE, raise_server_exceptions=False)


def used(asking: Any) -> str:
    """Everything a page does with it."""
    answers = [asking.post("/predict", files=uploads("one", 3, 5)), *map(asking.get, LOOKS)]
    if answers[0].status_code == 200:
        for each in answers[0].json()["answers"]:
            answers.append(asking.get(f"/queries/{each['id']}/overlay"))
    state = answers[1].json() if answers[1].status_code == 200 else {"classes": []}
    for each in state["classes"][:2]:
        answers += [asking.get(photo["thumbnail"]) for photo in each["photos"][:1]]
        answers.append(asking.post("/photos", data={"class": each["name"]}, files=uploads("six", 1, 2)))
    answers.append(asking.post("/undo"))
    bad = [f"{each.request.url.path} {each.status_code}" for each in answers if each.status_code >= 500]
    if bad:
        return f"wrong: {bad}"
    return "read" if answers[0].status_code == 200 else f"refused: {answers[0].status_code}"


def recognizers(home: Path) -> Case:
    kinds = whole_recognizers(home)

    def case(rng: random.Random, folder: Path) -> str:
        """Served from the start, or put in the place of a good one that is served."""
        file, data = folder / "x.glocal", rng.choice(kinds)
        start = rng.random() < 0.7
        file.write_bytes(twisted_recognizer(rng, data) if start else kinds[0])
        try:
            with client(file) as asking:
                if not start:
                    file.write_bytes(twisted_recognizer(rng, data))
                    changed = asking.put("/threshold", json={"value": 1.0})
                    if changed.status_code >= 500:
                        return f"wrong: {changed.status_code} after it was replaced"
                return used(asking)
        except GlocalError as error:
            return f"refused: {error.code}"

    return case


def histories(home: Path) -> Case:
    """Journal, copies and remembered pictures that somebody else wrote."""
    with client(tiny_file(home)) as asking:
        asking.patch("/classes/one", json={"name": "uno"}).raise_for_status()
        asking.post("/predict", files=uploads("one", 0, 4)).raise_for_status()
    whole = {path.relative_to(home): path.read_bytes() for path in home.rglob("*") if path.is_file()}

    def case(rng: random.Random, folder: Path) -> str:
        for path, data in whole.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        name = rng.choice(sorted(path for path in whole if ".history" in path.parts[0]))
        target = folder / name
        if name.suffix == ".json" and rng.random() < 0.7:
            target.write_bytes(as_json(twisted(rng, json.loads(target.read_text()))))
        elif name.suffix == ".safetensors" and rng.random() < 0.7:
            target.write_bytes(with_about(target.read_bytes(), twisted_arrays(rng, target.read_bytes())))
        else:
            target.write_bytes(damaged(rng, target.read_bytes()))
        try:
            with client(folder / "digits.glocal") as asking:
                return used(asking)
        except GlocalError as error:
            return f"refused: {error.code}"

    return case


def with_about(old: bytes, new: bytes) -> bytes:
    """The arrays of ``new`` with the record that ``old`` carries beside its own."""
    n, m = (int.from_bytes(each[:8], "little") for each in (old, new))
    table = json.loads(new[8 : 8 + m]) | {"__metadata__": json.loads(old[8 : 8 + n])["__metadata__"]}
    head = json.dumps(table).encode()
    return len(head).to_bytes(8, "little") + head + new[8 + m :]


def pictures(home: Path) -> Case:
    asking = client(tiny_file(home))
    asking.__enter__()  # for as long as the process lives
    seeds = all_pictures()

    def case(rng: random.Random, folder: Path) -> str:
        name = rng.choice(sorted(seeds))
        answer = asking.post("/predict?remember=false", files={"images": ("x", damaged(rng, seeds[name]))})
        if answer.status_code >= 500:
            return f"wrong: {answer.status_code}"
        if answer.status_code != 200:
            return f"refused: {answer.status_code}"
        return "read" if answer.json()["answers"][0]["ok"] else "refused: picture"

    return case


SERVED: dict[str, Callable[[Path], Case]] = {
    "recognizer, served": recognizers,
    "history, served": histories,
    "picture, sent": pictures,
}
