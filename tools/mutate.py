"""Change the code of formulas and decisions, one place at a time, and count the changes that tests notice.

    python tools/mutate.py [NUMBER]

It works in a clone of the last commit, in build/mutate, on a sample of 200 changes unless another number is given.
Changes of annotations, which nothing evaluates, and of the words of an error do not count.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import sklearn  # noqa: F401 - so that a child has it
import torch
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parents[1]
PROPERTIES = ("property/test_ops_properties.py", "property/test_metrics_properties.py")
METHODS = ("conformance", "unit/test_method_settings.py", "unit/test_transductive.py", "unit/test_centred.py")
HEADS = ("heads", "ridge", "leave_one_out", "threshold", "photos_gel", "recognise", "recognizer", "recognizer_check")
TESTS = {  # folder -> tests that must notice, beside those named like the file
    "src/glocal/research/ops": ("unit/test_similarity.py", *PROPERTIES, "unit/test_early_stage.py", *METHODS),
    "src/glocal/research/metrics": ("unit/test_metrics.py", PROPERTIES[1], "unit/test_comparison.py"),
    "src/glocal/research/methods": ("unit/test_authors_forms.py", "unit/test_snatcher.py", *METHODS),
    "src/glocal/recognizer/heads": tuple(f"unit/test_{name}.py" for name in HEADS),
    "src/glocal/recognizer/calibration": tuple(f"unit/test_{name}.py" for name in reversed(HEADS)),
}
SECONDS = 300


def places(file: Path) -> list[tuple[Path, str, int]]:
    """Where a file can be changed: operator and its number among its places."""
    nodes = list(ast_nodes(get_ast(file.read_text("utf-8"))))
    every = []
    for name in operator_names():
        if not get_operator(name).arguments():
            operator = get_operator(name)()
            count = sum(1 for node in nodes for _ in operator.mutation_positions(node))
            every += [(file, name, i) for i in range(count)]
    return every


def changed(file: Path, operator: str, place: int) -> str | None:
    """The text of the file with that change, or None where it computes the same or is no Python."""
    text = file.read_text("utf-8")
    try:
        after = mutate_code(text, get_operator(operator)(), place)
        return after if after and _computed(after) != _computed(text) else None
    except SyntaxError:
        return None


def _computed(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc.args = []
    return ast.dump(tree)


def noticed(file: Path, clone: Path) -> bool:
    own = f"unit/test_{file.stem}.py"
    rest = TESTS[file.parent.relative_to(clone).as_posix()]
    tests = [name for name in dict.fromkeys((own, *rest, "unit/test_doctests.py")) if (clone / "tests" / name).exists()]
    child = os.fork()  # torch is imported once, what it tests anew
    if child:
        return os.waitpid(child, 0)[1] != 0
    signal.alarm(SECONDS)
    os.chdir(clone)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    sys.path[:0] = [str(clone / "src"), str(clone / "models/src")]
    options = ["-x", "-q", "-p", "no:cacheprovider", "-k", "not its_graphs"]
    os._exit(pytest.main([*options, *(f"tests/{name}" for name in tests)]))


def main(number: int = 200) -> None:
    clone = ROOT / "build/mutate"
    shutil.rmtree(clone, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    torch.set_num_threads(1)
    for folder in TESTS:
        if noticed(clone / folder / "__init__.py", clone):
            sys.exit(f"the tests of {folder} fail without any change")
    every = [each for folder in TESTS for file in sorted((clone / folder).glob("*.py")) for each in places(file)]
    random.Random(0).shuffle(every)
    count = done = 0
    for file, operator, place in every:
        text = changed(file, operator, place)
        if text is None:
            continue
        file.write_text(text, "utf-8")
        seen, done = noticed(file, clone), done + 1
        count += seen
        if not seen:
            print(subprocess.run(["git", "diff", "-U0"], cwd=clone, capture_output=True, text=True).stdout)
        subprocess.run(["git", "checkout", "-q", "."], cwd=clone, check=True)
        print(f"{count} of {done} changes noticed, {count / done:.1%}", flush=True)
        if done == number:
            return


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
