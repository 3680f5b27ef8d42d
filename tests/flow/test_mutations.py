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
    file: str  # below src/glocal
    old: str  # occurs exactly once in it
    new: str
    tests: tuple[str, ...]  # below tests


def unit(*names: str) -> tuple[str, ...]:
    return tuple(f"unit/test_{name}.py" for name in names)


OPEN_SCORES, SIMILARITY = "ops/open_scores.py", "ops/similarity.py"
BASE, BLOCKS, FEAT = "methods/base.py", "methods/blocks.py", "methods/feat.py"
SNATCHER, GEL, PROTONET = "methods/snatcher.py", "methods/gel.py", "methods/protonet.py"
OPENSET, SUMMARY = "metrics/openset.py", "metrics/summary.py"
EPISODES, IMAGES, AUGMENT = "data/episodes.py", "../glocal_runtime/images.py", "data/augment.py"
RESNET12 = "backbones/resnet12.py"
COMPARABLE, SCALES, RFDNET = "report/comparable.py", "reproduce/scales.py", "methods/rfdnet.py"
RECIPE, LOOP, PRETRAIN, TRAIN = "engine/recipe.py", "engine/loop.py", "engine/pretrain.py", "engine/train.py"

# fmt: off
MUTATIONS = [
    # Energy and the margin loss
    Mutation("energy with the wrong sign", OPEN_SCORES,
             "-similarity.logsumexp(dim=-1)", "similarity.logsumexp(dim=-1)", unit("open_scores")),
    Mutation("energy over the queries", OPEN_SCORES, "logsumexp(dim=-1)", "logsumexp(dim=0)", unit("open_scores")),
    Mutation("hinge of known queries reversed", OPEN_SCORES,
             "(e[known] - m_known)", "(m_known - e[known])", unit("open_scores")),
    Mutation("hinge of unknown queries as eq. 10 prints it", OPEN_SCORES,
             "(m_unknown - e[~known])", "(e[~known] - m_unknown)", unit("open_scores")),
    Mutation("known and unknown swapped in the margin loss", OPEN_SCORES,
             "    pull = (e[known] - m_known)", "    known = ~known\n    pull = (e[known] - m_known)",
             unit("open_scores")),
    Mutation("hinge of unknown queries not squared", OPEN_SCORES,
             "(m_unknown - e[~known]).relu().square()", "(m_unknown - e[~known]).relu()", unit("open_scores")),
    Mutation("margin loss sums where it should average", OPEN_SCORES,
             "x.sum() / max(x.numel(), 1)", "x.sum()", unit("open_scores")),
    Mutation("smallest distance with the wrong sign", OPEN_SCORES,
             "return -logits.amax(dim=-1)", "return logits.amax(dim=-1)", unit("open_scores")),
    Mutation("entropy with the wrong sign", OPEN_SCORES,
             "return -(log_p.exp() * log_p)", "return (log_p.exp() * log_p)", unit("open_scores")),

    # Similarities and class means
    Mutation("squared distance with the wrong sign", SIMILARITY,
             "return -squared.clamp_min(0)", "return squared.clamp_min(0)", unit("similarity")),
    Mutation("cross term of the distance with the wrong sign", SIMILARITY,
             "- 2 * q @ p.mT", "+ 2 * q @ p.mT", unit("similarity")),
    Mutation("Euclid with the wrong sign", SIMILARITY, "return -torch.where", "return torch.where", unit("similarity")),
    Mutation("class mean divided over the wrong axis", SIMILARITY,
             "one_hot.sum(dim=0)", "one_hot.sum(dim=1, keepdim=True)", unit("similarity")),
    Mutation("pooling sums where it should average", SIMILARITY,
             "maps.mean(dim=(-2, -1))", "maps.sum(dim=(-2, -1))", unit("similarity")),
    Mutation("top-k over the query's pixels", SIMILARITY,
             "cos.topk(top_k, dim=-1, sorted=False).values.sum(dim=(1, 3))",
             "cos.topk(min(top_k, cos.shape[1]), dim=1, sorted=False).values.sum(dim=(1, 3))", unit("similarity")),
    Mutation("best pixel over the query's pixels", SIMILARITY,
             "cos.max(dim=-1).values.sum(dim=1)", "cos.max(dim=1).values.sum(dim=-1)", unit("similarity")),
    Mutation("mean over query pixels where eq. 9 sums", SIMILARITY,
             "cos.max(dim=-1).values.sum(dim=1)", "cos.max(dim=-1).values.mean(dim=1)", unit("similarity")),
    Mutation("top-k summed and not divided by T = k", SIMILARITY,
             ".values.sum(dim=(1, 3)) / top_k", ".values.sum(dim=(1, 3))", unit("similarity")),
    Mutation("the k least similar pixels", SIMILARITY, "sorted=False", "largest=False", unit("similarity")),
    Mutation("class pixels not normalised", SIMILARITY,
             "F.normalize(class_map.flatten(2).mT, dim=-1)", "class_map.flatten(2).mT", unit("similarity")),

    # Attention, FEAT, SnaTCHer-F
    Mutation("scale of the attention missing", BLOCKS, "(affinity / scale).softmax", "affinity.softmax", unit("feat")),
    Mutation("softmax of the attention over the wrong axis", BLOCKS,
             ".softmax(dim=-1)", ".softmax(dim=-2)", unit("feat")),
    Mutation("queries and keys of the attention exchanged", BLOCKS,
             "self.w_qs(x) @ self.w_ks(x).mT", "self.w_ks(x) @ self.w_qs(x).mT", unit("feat")),
    Mutation("residual missing", BLOCKS,
             "self.layer_norm(x + self.dropout(mixed))", "self.layer_norm(self.dropout(mixed))", unit("feat")),
    Mutation("LayerNorm missing", BLOCKS,
             "self.layer_norm(x + self.dropout(mixed))", "x + self.dropout(mixed)", unit("feat")),
    Mutation("bias of the output layer missing in the swap", BLOCKS, " + self.fc.bias", "", unit("feat")),
    Mutation("calibration without batch norm", BLOCKS,
             "nn.Identity() if gentle else nn.BatchNorm2d(width)", "nn.Identity()", unit("gel")),
    Mutation("cross-entropy averaged over unknown queries too", BASE,
             "(label != UNKNOWN).sum().clamp_min(1)", "max(1, len(label))", unit("feat")),
    Mutation("support and query rows exchanged", BASE,
             "torch.cat([episode.support, episode.query])", "torch.cat([episode.query, episode.support])",
             unit("protonet")),
    Mutation("ProtoNet without its temperature", PROTONET,
             "(query.vec, state.proto) / self.temperature", "(query.vec, state.proto)", unit("protonet")),
    Mutation("FEAT without its temperature", FEAT, "neg_sq_euclidean(query.vec, state.proto) / self.temperature",
             "neg_sq_euclidean(query.vec, state.proto)", unit("feat")),
    Mutation("contrast without the query embeddings", FEAT, "            terms[\"contrast\"]",
             "            x, label = support.vec, episode.support_label\n            terms[\"contrast\"]",
             unit("feat")),
    Mutation("contrast with attention across classes", FEAT, "self.attend(x, same)", "self.attend(x)", unit("feat")),
    Mutation("contrast with the other temperature", FEAT,
             "centre) / self.contrast_temperature", "centre) / self.temperature", unit("feat")),
    Mutation("SnaTCHer swaps the farthest row", SNATCHER,
             "logits.argmax(dim=-1)", "logits.argmin(dim=-1)", unit("snatcher")),
    Mutation("SnaTCHer sums one row", SNATCHER,
             ".square().sum(dim=(-2, -1))", ".square().sum(dim=-1)[:, 0]", unit("snatcher")),
    Mutation("SnaTCHer averages the rows", SNATCHER,
             ".square().sum(dim=(-2, -1))", ".square().sum(dim=-1).mean(dim=-1)", unit("snatcher")),
    Mutation("SnaTCHer measures from the raw prototypes", SNATCHER,
             "- state.proto).square()", "- state.raw).square()", unit("snatcher")),

    # GEL
    Mutation("delay with the wrong sign", GEL,
             "e_pixel + smallest_distance(s_class)", "e_pixel - smallest_distance(s_class)", unit("gel")),
    Mutation("coefficients ignored", GEL, "a * e_class + b * e_pixel", "e_class + e_pixel", unit("gel")),
    Mutation("coefficients exchanged", GEL, "a * e_class + b * e_pixel", "b * e_class + a * e_pixel", unit("gel")),
    Mutation("task-adaptive coefficients from adapted prototypes", GEL,
             "self.coefficient(raw)", "self.coefficient(proto)", unit("gel")),
    Mutation("ahead trained on the class-wise energy alone", GEL,
             '"ahead": Variant("E", "E"', '"ahead": Variant("E_c", "E"', unit("gel")),
    Mutation("pixel trained on both energies", GEL,
             '"pixel": Variant("E_f", "E_f"', '"pixel": Variant("E", "E_f"', unit("gel")),
    Mutation("weight of the energy loss missing", GEL, "self.energy_weight * margin", "margin", unit("gel")),
    Mutation("margins ignored", GEL, "episode.known, *self.margins)", "episode.known)", unit("gel")),
    Mutation("known and unknown swapped in the loss", GEL,
             "episode.known, *self.margins)", "~episode.known, *self.margins)", unit("gel")),
    Mutation("prototypes without attention", GEL, "proto = self.attend(raw)", "proto = raw", unit("gel")),
    Mutation("temperature missing", GEL,
             "(query.vec, state.proto) / self.temperature", "(query.vec, state.proto)", unit("gel")),

    # Metrics
    Mutation("AUROC with the polarity reversed", OPENSET,
             "np.argsort(self.score, axis=-1)[..., ::-1]", "np.argsort(self.score, axis=-1)", unit("metrics")),
    Mutation("ties count as won", OPENSET,
             "(2 * unknown_above - _steps(unknown_above))", "(2 * unknown_above)", unit("metrics")),
    Mutation("FPR95 at the point after 95 %", OPENSET, ">= 0.95", "> 0.95", unit("metrics")),
    Mutation("FPR at 90 %", OPENSET, ">= 0.95", ">= 0.90", unit("metrics")),
    Mutation("F1 at the true rate one query further", OPENSET,
             "cut = answers.n_unknown - 1", "cut = np.minimum(answers.n_unknown, answers.score.shape[-1] - 1)",
             unit("metrics")),
    Mutation("F1 at the true rate without the ties", OPENSET,
             "(_entry(answers.above, cut) + answers.n_unknown)", "(2 * answers.n_unknown)", unit("metrics")),
    Mutation("F1 at a threshold that includes it", OPENSET,
             "answers.score > threshold", "answers.score >= threshold", unit("metrics")),
    Mutation("OSCR that counts wrong names", OPENSET, "& answers.known", "| answers.known", unit("metrics")),
    Mutation("interval from the sample's deviation", SUMMARY,
             "value.std() / math.sqrt", "value.std(ddof=1) / math.sqrt", unit("metrics")),

    # Data
    Mutation("support and query overlap", EPISODES,
             "query.append(shuffled[shot : shot + spec.query])", "query.append(shuffled[: spec.query])",
             unit("episodes")),
    Mutation("the first unknown class counts as known", EPISODES,
             "known = own < spec.way", "known = own <= spec.way", unit("episodes")),
    Mutation("every task is the same", EPISODES,
             "np.random.SeedSequence((self.seed, i))", "np.random.SeedSequence((self.seed, 0))", unit("episodes")),
    Mutation("resize forgotten", IMAGES, "preprocess.resize or size", "size", unit("images")),
    Mutation("normalised with the mean added", "types.py",
             "[-m / s for m, s in zip(", "[m / s for m, s in zip(", unit("types")),
    Mutation("crop moves every picture alike", AUGMENT, "torch.randint(free + 1, (n,), generator=generator)",
             "torch.randint(free + 1, (1,), generator=generator).expand(n)", unit("augment")),

    # Backbone
    Mutation("mean and deviation exchanged", RESNET12,
             "tuple(mean), tuple(std))", "tuple(std), tuple(mean))", unit("backbones_resnet12")),
    Mutation("shortcut missing", RESNET12, "y += self.downsample(x)", "y += 0", unit("backbones_resnet12")),
    Mutation("DropBlock zeroes only the seed of a block", RESNET12,
             "F.max_pool2d(F.pad(seed, (grow, grow, grow, grow)), block_size, stride=1)",
             "F.pad(seed, (0, grow, 0, grow))", unit("backbones_resnet12")),
    Mutation("DropBlock does not scale up what is left", RESNET12,
             "maps * (mask * scale)", "maps * mask", unit("backbones_resnet12")),
    Mutation("DropBlock's ramp runs in evaluation too", RESNET12,
             "        if not self.training or self.drop_rate == 0:\n",
             "        self.step += not self.training\n        if not self.training or self.drop_rate == 0:\n",
             unit("backbones_resnet12")),

    # Training
    Mutation("rate falls before its milestone", RECIPE,
             "progress >= milestone", "progress >= milestone / 2", unit("recipe")),
    Mutation("the worst checkpoint chosen", LOOP,
             "metrics[recipe.validation.choose] > best", "metrics[recipe.validation.choose] < best or best < 0",
             unit("loop")),
    Mutation("the last of equal checkpoints chosen", LOOP,
             "metrics[recipe.validation.choose] > best", "metrics[recipe.validation.choose] >= best", unit("loop")),
    Mutation("checkpoint chosen on test", LOOP,
             'open_dataset(recipe.data.dataset, "val",', 'open_dataset(recipe.data.dataset, "test",', unit("loop")),
    Mutation("the backbone's own rate ignored", LOOP,
             'part == "backbone" and settings.lr_backbone is not None', "False", unit("loop")),
    Mutation("labels of the four rotations in the wrong order", PRETRAIN,
             "self.labels[rows].repeat(self.augment.copies)",
             "self.labels[rows].repeat_interleave(self.augment.copies)", unit("loop")),
    Mutation("the same tasks at every step", TRAIN,
             "self._task(step * n + i)", "self._task(i)", ("flow/test_step_equivalence.py",)),
    # As the authors ran it (docs/paper-vs-code.md, "Faithful to the last setting"), in the order of that table
    Mutation("energy of maps without its 640", GEL,
             "class_map.flatten(1)) / self.map_temperature", "class_map.flatten(1))", unit("authors_forms")),
    Mutation("energy of maps by vectors", GEL,
             "neg_sq_euclidean(query.flatten(1), class_map.flatten(1))",
             "neg_sq_euclidean(query.mean((2, 3)), class_map.mean((2, 3)))", unit("authors_forms")),
    Mutation("the class branch pools the halved map", GEL,
             "return Views(pool(maps), self.local(maps))",
             "return Views(pool(maps if self.reduce is None else self.reduce(maps)), self.local(maps))",
             unit("authors_forms")),
    Mutation("training crops from the evaluation's centre crop", AUGMENT,
             "return replace(preprocess, resize=None) if self.crop_padding or self.crop_size else preprocess",
             "return preprocess", unit("training_pictures")),
    Mutation("settings of the method speak not against a comparison", COMPARABLE,
             "        if used[key] not in usual_ones:", "        if False:", unit("comparison")),
    Mutation("RFDNet must be fine-tuned to be comparable", COMPARABLE,
             'PUBLISHED_FROZEN = ("rfdnet",)', "PUBLISHED_FROZEN = ()", unit("comparison")),
    Mutation("FEAT of the authors' settings augments", SCALES,
             'AUTHORS_FEAT = ("augment={}", ', "AUTHORS_FEAT = (", unit("reproduce_plans")),
    Mutation("--set reaches no recipe", SCALES.replace("scales", "scale"),
             "(*overrides, *self.more.get(stage, ()))", "overrides", unit("reproduce_plans")),
    Mutation("the calibration starts as PyTorch starts it", GEL,
             'nn.init.kaiming_normal_(self.calibrate.conv.weight, mode="fan_out", nonlinearity="leaky_relu")',
             "pass", unit("gel")),
    Mutation("bfloat16 reaches the heads", PRETRAIN,
             "return maps if precision == torch.float32 else maps.float()", "return maps", unit("speed_settings")),
    Mutation("parts of a batch weigh as much as the whole", PRETRAIN,
             "(batch.weight * len(images) / len(batch.images))", "batch.weight", unit("micro_batch")),
    Mutation("banks of base classes keep maps", TRAIN,
             "pooled=large or not frozen", "pooled=False", unit("base_classes")),
    Mutation("DropBlock's ramp is not restarted", RESNET12, "            part.step.zero_()\n", "",
             unit("authors_training")),
    Mutation("batch norm's momentum stays", TRAIN,
             "norm.momentum = settings.norm_momentum", "pass", unit("authors_training")),
    Mutation("unknown support is left out", TRAIN,
             'settings.unknown_support and settings.backbone == "fine-tuned"', "False", unit("authors_training")),
    Mutation("RFDNet starts with ten times the noise", RFDNET, "NOISE = 0.001", "NOISE = 0.01", unit("rfdnet")),
    Mutation("RFDNet's linear maps start with a bias", RFDNET,
             "    nn.init.zeros_(layer.bias)\n", "", unit("rfdnet")),
    Mutation("GEL without pixels is taken for FEAT", "engine/import_weights.py",
             'if named_by_gel and "slf_attn" in heads', 'if False and "slf_attn" in heads', unit("import_weights")),
    Mutation("banners are cropped before they are resized", IMAGES,
             "        if math.prod(shape) > RESIZED_PIXELS:", "        if max(shape) > 4 * min(shape):",
             unit("images")),
    Mutation("the shortcut's sum keeps an old map alive", RESNET12,
             "        y = self.bn3(y)\n        y += self.downsample(x)\n",
             "        y = self.bn3(y) + self.downsample(x)\n", unit("peak_memory")),
]
# fmt: on


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its tests, somewhere else."""
    folder = tmp_path_factory.mktemp("mutations")
    for part in ("src", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
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
    done = run_tests(copy, sorted({test for mutation in MUTATIONS for test in mutation.tests}))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{Path(m.file).stem}: {m.mistake}")
def test_the_mistake_is_noticed(copy: Path, mutation: Mutation):
    path = copy / "src" / "glocal" / mutation.file
    text = path.read_text(encoding="utf-8")
    try:
        path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
        done = run_tests(copy, mutation.tests)
    finally:
        path.write_text(text, encoding="utf-8")
    assert done.returncode != 0, f"survived: {mutation.mistake}; an assertion is missing in {mutation.tests}"
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    assert failed, f"no test failed, but the run did: {mutation.mistake} is no working program\n{done.stdout}"
