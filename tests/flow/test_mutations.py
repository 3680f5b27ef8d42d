"""The suite notices when a formula is wrong: each mutation of a copy of the package must make its tests fail.

A mutation is one small mistake that somebody could make and a reader could miss.  One that survives means that an
assertion is missing in the tests it names, and there it belongs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
LIMIT = 600.0  # seconds for the test files of one mutation on a busy machine


class Mutation(NamedTuple):
    mistake: str
    file: str
    old: str
    new: str
    test: str  # below tests


# File below src/glocal, its tests, and mistakes: a text that occurs exactly once in the file, and another for it.
# fmt: off
MISTAKES = [
    # Energy and the margin loss
    ("ops/open_scores.py", "open_scores", [
        ("energy with the wrong sign", "-similarity.logsumexp(dim=-1)", "similarity.logsumexp(dim=-1)"),
        ("energy over the queries", "logsumexp(dim=-1)", "logsumexp(dim=0)"),
        ("hinge of known queries reversed", "(e[known] - m_known)", "(m_known - e[known])"),
        ("hinge of unknown queries as eq. 10 prints it", "(m_unknown - e[~known])", "(e[~known] - m_unknown)"),
        ("known and unknown swapped in the margin loss", "    pull = (e[known] - m_known)",
         "    known = ~known\n    pull = (e[known] - m_known)"),
        ("hinge of unknown queries not squared", "(m_unknown - e[~known]).relu().square()",
         "(m_unknown - e[~known]).relu()"),
        ("margin loss sums where it should average", "x.sum() / max(x.numel(), 1)", "x.sum()"),
        ("smallest distance with the wrong sign", "return -logits.amax(dim=-1)", "return logits.amax(dim=-1)"),
        ("entropy with the wrong sign", "return -(log_p.exp() * log_p)", "return (log_p.exp() * log_p)"),
    ]),
    # Similarities and class means
    ("ops/similarity.py", "similarity", [
        ("squared distance with the wrong sign", "return -squared.clamp_min(0)", "return squared.clamp_min(0)"),
        ("cross term of the distance with the wrong sign", "- 2 * q @ p.mT", "+ 2 * q @ p.mT"),
        ("Euclid with the wrong sign", "return -torch.where", "return torch.where"),
        ("class mean divided over the wrong axis", "one_hot.sum(dim=0)", "one_hot.sum(dim=1, keepdim=True)"),
        ("pooling sums where it should average", "maps.mean(dim=(-2, -1))", "maps.sum(dim=(-2, -1))"),
        ("top-k over the query's pixels", "cos.topk(top_k, dim=-1, sorted=False).values.sum(dim=(1, 3))",
         "cos.topk(min(top_k, cos.shape[1]), dim=1, sorted=False).values.sum(dim=(1, 3))"),
        ("best pixel over the query's pixels", "cos.max(dim=-1).values.sum(dim=1)",
         "cos.max(dim=1).values.sum(dim=-1)"),
        ("mean over query pixels where eq. 9 sums", "cos.max(dim=-1).values.sum(dim=1)",
         "cos.max(dim=-1).values.mean(dim=1)"),
        ("top-k summed and not divided by T = k", ".values.sum(dim=(1, 3)) / top_k", ".values.sum(dim=(1, 3))"),
        ("the k least similar pixels", "sorted=False", "largest=False"),
        ("class pixels not normalised", "F.normalize(class_map.flatten(2).mT, dim=-1)", "class_map.flatten(2).mT"),
    ]),
    # Attention, FEAT, SnaTCHer-F
    ("methods/blocks.py", "feat", [
        ("scale of the attention missing", "(affinity / scale).softmax", "affinity.softmax"),
        ("softmax of the attention over the wrong axis", ".softmax(dim=-1)", ".softmax(dim=-2)"),
        ("queries and keys of the attention exchanged", "self.w_qs(x) @ self.w_ks(x).mT",
         "self.w_ks(x) @ self.w_qs(x).mT"),
        ("residual missing", "self.layer_norm(x + self.dropout(mixed))", "self.layer_norm(self.dropout(mixed))"),
        ("LayerNorm missing", "self.layer_norm(x + self.dropout(mixed))", "x + self.dropout(mixed)"),
        ("bias of the output layer missing in the swap", " + self.fc.bias", ""),
    ]),
    ("methods/blocks.py", "gel", [("calibration without batch norm",
        "nn.Identity() if gentle else nn.BatchNorm2d(width)", "nn.Identity()")]),
    ("methods/base.py", "feat", [("cross-entropy averaged over unknown queries too",
        "(label != UNKNOWN).sum().clamp_min(1)", "max(1, len(label))")]),
    ("methods/base.py", "protonet", [("support and query rows exchanged",
        "torch.cat([episode.support, episode.query])", "torch.cat([episode.query, episode.support])")]),
    ("methods/protonet.py", "protonet", [("ProtoNet without its temperature",
        "(query.vec, state.proto) / self.temperature", "(query.vec, state.proto)")]),
    ("methods/feat.py", "feat", [
        ("FEAT without its temperature", "neg_sq_euclidean(query.vec, state.proto) / self.temperature",
         "neg_sq_euclidean(query.vec, state.proto)"),
        ("contrast without the query embeddings", "            terms[\"contrast\"]",
         "            x, label = support.vec, episode.support_label\n            terms[\"contrast\"]"),
        ("contrast with attention across classes", "self.attend(x, same)", "self.attend(x)"),
        ("contrast with the other temperature", "centre) / self.contrast_temperature", "centre) / self.temperature"),
    ]),
    ("methods/snatcher.py", "snatcher", [
        ("SnaTCHer swaps the farthest row", "logits.argmax(dim=-1)", "logits.argmin(dim=-1)"),
        ("SnaTCHer sums one row", ".square().sum(dim=(-2, -1))", ".square().sum(dim=-1)[:, 0]"),
        ("SnaTCHer averages the rows", ".square().sum(dim=(-2, -1))", ".square().sum(dim=-1).mean(dim=-1)"),
        ("SnaTCHer measures from the raw prototypes", "- state.proto).square()", "- state.raw).square()"),
    ]),
    # GEL
    ("methods/gel.py", "gel", [
        ("delay with the wrong sign", "e_pixel + smallest_distance(s_class)", "e_pixel - smallest_distance(s_class)"),
        ("coefficients ignored", "a * e_class + b * e_pixel", "e_class + e_pixel"),
        ("coefficients exchanged", "a * e_class + b * e_pixel", "b * e_class + a * e_pixel"),
        ("task-adaptive coefficients from adapted prototypes", "self.coefficient(raw)", "self.coefficient(proto)"),
        ("ahead trained on the class-wise energy alone", '"ahead": Variant("E", "E"', '"ahead": Variant("E_c", "E"'),
        ("pixel trained on both energies", '"pixel": Variant("E_f", "E_f"', '"pixel": Variant("E", "E_f"'),
        ("weight of the energy loss missing", "self.energy_weight * margin", "margin"),
        ("margins ignored", "episode.known, *self.margins)", "episode.known)"),
        ("known and unknown swapped in the loss", "episode.known, *self.margins)", "~episode.known, *self.margins)"),
        ("prototypes without attention", "proto = self.attend(raw)", "proto = raw"),
        ("temperature missing", "(query.vec, state.proto) / self.temperature", "(query.vec, state.proto)"),
    ]),
    # Metrics
    ("metrics/openset.py", "metrics", [
        ("AUROC with the polarity reversed", "np.argsort(self.score, axis=-1)[..., ::-1]",
         "np.argsort(self.score, axis=-1)"),
        ("ties count as won", "(2 * unknown_above - _steps(unknown_above))", "(2 * unknown_above)"),
        ("FPR95 at the point after 95 %", ">= 0.95", "> 0.95"),
        ("FPR at 90 %", ">= 0.95", ">= 0.90"),
        ("F1 at the true rate one query further", "cut = answers.n_unknown - 1",
         "cut = np.minimum(answers.n_unknown, answers.score.shape[-1] - 1)"),
        ("F1 at the true rate without the ties", "(_entry(answers.above, cut) + answers.n_unknown)",
         "(2 * answers.n_unknown)"),
        ("F1 at a threshold that includes it", "answers.score > threshold", "answers.score >= threshold"),
        ("OSCR that counts wrong names", "& answers.known", "| answers.known"),
    ]),
    ("metrics/summary.py", "metrics", [("interval from the sample's deviation",
        "value.std() / math.sqrt", "value.std(ddof=1) / math.sqrt")]),
    # Data
    ("data/episodes.py", "episodes", [
        ("support and query overlap", "query.append(shuffled[shot : shot + spec.query])",
         "query.append(shuffled[: spec.query])"),
        ("the first unknown class counts as known", "known = own < spec.way", "known = own <= spec.way"),
        ("every task is the same", "np.random.SeedSequence((self.seed, i))", "np.random.SeedSequence((self.seed, 0))"),
    ]),
    ("../glocal.recognizer/images.py", "images", [("resize forgotten", "preprocess.resize or size", "size")]),
    ("types.py", "types", [("normalised with the mean added", "[-m / s for m, s in zip(", "[m / s for m, s in zip(")]),
    ("data/augment.py", "augment", [("crop moves every picture alike",
        "torch.randint(free + 1, (n,), generator=generator)",
        "torch.randint(free + 1, (1,), generator=generator).expand(n)")]),
    # Backbone
    ("backbones/resnet12.py", "backbones_resnet12", [
        ("mean and deviation exchanged", "tuple(mean), tuple(std))", "tuple(std), tuple(mean))"),
        ("shortcut missing", "y += self.downsample(x)", "y += 0"),
        ("DropBlock zeroes only the seed of a block",
         "F.max_pool2d(F.pad(seed, (grow, grow, grow, grow)), block_size, stride=1)",
         "F.pad(seed, (0, grow, 0, grow))"),
        ("DropBlock does not scale up what is left", "maps * (mask * scale)", "maps * mask"),
        ("DropBlock's ramp runs in evaluation too", "        if not self.training or self.drop_rate == 0:\n",
         "        self.step += not self.training\n        if not self.training or self.drop_rate == 0:\n"),
    ]),
    # Training
    ("engine/recipe.py", "recipe", [("rate falls before its milestone",
        "progress >= milestone", "progress >= milestone / 2")]),
    ("engine/loop.py", "loop", [
        ("the worst checkpoint chosen", "metrics[recipe.validation.choose] > best",
         "metrics[recipe.validation.choose] < best or best < 0"),
        ("the last of equal checkpoints chosen", "metrics[recipe.validation.choose] > best",
         "metrics[recipe.validation.choose] >= best"),
        ("checkpoint chosen on test", 'open_dataset(recipe.data.dataset, "val",',
         'open_dataset(recipe.data.dataset, "test",'),
        ("the backbone's own rate ignored", 'part == "backbone" and settings.lr_backbone is not None', "False"),
    ]),
    ("engine/pretrain.py", "loop", [("labels of the four rotations in the wrong order",
        "rows.repeat(self.augment.copies)", "rows.repeat_interleave(self.augment.copies)")]),
    ("engine/pretrain.py", "pretrain_fast", [
        ("a teacher that is not softened", "SOFT = 4.0", "SOFT = 1.0"),
        ("teacher and network swapped", "F.kl_div(soft, said,", "F.kl_div(said, soft,"),
        ("quarters in another order than the pictures", "self.turns(vectors), quarters",
         "self.turns(vectors), quarters.flip(0)"),
    ]),
    ("engine/train.py", "flow/test_step_equivalence", [("the same tasks at every step",
        "self._task(step * n + i)", "self._task(i)")]),
    # As the authors ran it (docs/paper-vs-code.md, "Faithful to the last setting"), in the order of that table
    ("methods/gel.py", "authors_forms", [
        ("energy of maps without its 640", "class_map.flatten(1)) / self.map_temperature", "class_map.flatten(1))"),
        ("energy of maps by vectors", "neg_sq_euclidean(query.flatten(1), class_map.flatten(1))",
         "neg_sq_euclidean(query.mean((2, 3)), class_map.mean((2, 3)))"),
        ("the class branch pools the halved map", "return Views(pool(maps), self.local(maps))",
         "return Views(pool(maps if self.reduce is None else self.reduce(maps)), self.local(maps))"),
    ]),
    ("data/augment.py", "training_pictures", [("training crops from the evaluation's centre crop",
        "return replace(preprocess, resize=None) if self.crop_padding or self.crop_size else preprocess",
        "return preprocess")]),
    ("report/comparable.py", "comparison", [
        ("settings of the method speak not against a comparison", "        if used[key] not in usual_ones:",
         "        if False:"),
    ]),
    ("report/training.py", "comparison", [
        ("RFDNet must be fine-tuned to be comparable", 'PUBLISHED_FROZEN = ("rfdnet",)', "PUBLISHED_FROZEN = ()"),
    ]),
    ("reproduce/scales.py", "reproduce_plans", [("FEAT of the authors' settings augments",
        'AUTHORS_FEAT = ("augment={}", ', "AUTHORS_FEAT = (")]),
    ("reproduce/scale.py", "reproduce_plans", [("--set reaches no recipe",
        "(*overrides, *self.more.get(stage, ()))", "overrides")]),
    ("methods/gel.py", "gel", [("the calibration starts as PyTorch starts it",
        'nn.init.kaiming_normal_(self.calibrate.conv.weight, mode="fan_out", nonlinearity="leaky_relu")', "pass")]),
    ("engine/pretrain.py", "speed_settings", [("bfloat16 reaches the heads",
        "return maps if precision == torch.float32 else maps.float()", "return maps")]),
    ("engine/pretrain.py", "micro_batch", [("parts of a batch weigh as much as the whole",
        "batch.weight * len(images) / len(batch.images)", "batch.weight")]),
    ("engine/train.py", "base_classes", [("banks of base classes keep maps",
        "pooled=large or not frozen", "pooled=False")]),
    ("backbones/resnet12.py", "authors_training", [("DropBlock's ramp is not restarted",
        "            part.step.zero_()\n", "")]),
    ("engine/train.py", "authors_training", [
        ("batch norm's momentum stays", "norm.momentum = settings.norm_momentum", "pass"),
        ("unknown support is left out", " or settings.unknown_support", ""),
    ]),
    ("engine/recipe.py", "authors_training", [("a frozen backbone's ramp is restarted",
        'for key in ("dropblock_ramp", ', "for key in (")]),
    ("methods/gel.py", "flow/test_step_equivalence", [("unknown support does not reach the calibration",
        "torch.cat([episode.support, episode.query, episode.mirror_support])",
        "torch.cat([episode.support, episode.query])")]),
    ("methods/rfdnet.py", "rfdnet", [
        ("RFDNet starts with ten times the noise", "NOISE = 0.001", "NOISE = 0.01"),
        ("RFDNet's linear maps start with a bias", "    nn.init.zeros_(layer.bias)\n", ""),
    ]),
    ("engine/import_weights.py", "import_weights", [("GEL without pixels is taken for FEAT",
        'if named_by_gel and "slf_attn" in heads', 'if False and "slf_attn" in heads')]),
    ("engine/weight_layouts.py", "import_weights", [("GEL of the pixels alone is taken for Ahead Combine",
        '"ahead" if combined else "pixel"', '"ahead"')]),
    ("../glocal.recognizer/images.py", "images", [("banners are cropped before they are resized",
        "        if math.prod(shape) > RESIZED_PIXELS:", "        if max(shape) > 4 * min(shape):")]),
    ("backbones/resnet12.py", "peak_memory", [("the shortcut's sum keeps an old map alive",
        "        y = self.bn3(y)\n        y += self.downsample(x)\n",
        "        y = self.bn3(y) + self.downsample(x)\n")]),
]
# fmt: on
MUTATIONS = [
    Mutation(mistake, file, old, new, f"{test}.py" if "/" in test else f"unit/test_{test}.py")
    for file, test, mistakes in MISTAKES
    for mistake, old, new in mistakes
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its tests, somewhere else."""
    folder = tmp_path_factory.mktemp("mutations")
    for part in ("src", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "docs").symlink_to(ROOT / "docs")  # which tests read and nobody changes
    return folder


def python(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python that imports the copy; without bytecode, which can outlive a change of the same second and length."""
    environment = os.environ | {
        "PYTHONPATH": str(copy / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "GLOCAL_CACHE": str(copy / "cache"),
    }
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT)


def run_tests(copy: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    return python(copy, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests))


def test_every_mutation_names_one_place():
    for mutation in MUTATIONS:
        found = (ROOT / "src" / "glocal" / mutation.file).read_text(encoding="utf-8").count(mutation.old)
        assert found == 1, f"{mutation.file} has {mutation.old!r} {found} times; a mutation must name one place exactly"


def test_the_copy_is_what_the_tests_import(copy: Path):
    where = python(copy, "-c", "import glocal; print(glocal.__file__)").stdout.strip()
    assert Path(where) == copy / "src" / "glocal" / "__init__.py"


def test_the_unmutated_copy_passes(copy: Path):
    done = run_tests(copy, sorted({mutation.test for mutation in MUTATIONS}))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{Path(m.file).stem}: {m.mistake}")
def test_the_mistake_is_noticed(copy: Path, mutation: Mutation):
    path = copy / "src" / "glocal" / mutation.file
    text = path.read_text(encoding="utf-8")
    try:
        path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
        done = run_tests(copy, [mutation.test])
    finally:
        path.write_text(text, encoding="utf-8")
    assert done.returncode != 0, f"survived: {mutation.mistake}; an assertion is missing in {mutation.test}"
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    assert failed, f"no test failed, but the run did: {mutation.mistake} is no working program\n{done.stdout}"
