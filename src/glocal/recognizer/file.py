"""The ``.glocal`` file: one zip, no pickle, replaced as a whole.

    manifest.json           classes, model, hashes, threshold and how it came about (manifest.py)
    model.safetensors       the checkpoint; without the weights of a backbone that comes with a package
    support.safetensors     views and signatures of the support photos, the known unknowns and the probes
    thumbnails/0.jpg ...    of every support photo, then of the known unknowns
    probes/0.png ...        pictures whose scores are in the manifest

What is read is believed to come from a stranger: names, sizes and shapes are checked before they are used.
"""

from __future__ import annotations

import hashlib
import itertools
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as tensor_bytes
from torch import Tensor

from glocal.data.archives import Limits, archive_kind, open_zip_member, zip_entries
from glocal.recognizer.brain import brain_from_bytes
from glocal.recognizer.contents import Contents, Probes
from glocal.recognizer.manifest import Manifest, PhotoPart, left_out_of, manifest_of, parse_manifest
from glocal.recognizer.support import Bank, Photo, Support, join
from glocal.recognizer.twins import CELLS
from glocal.types import Views
from glocal_runtime.decision import Decision, Promise
from glocal_runtime.errors import DataError, GlocalError
from glocal_runtime.files import replacing
from glocal_runtime.threshold import Threshold

SUFFIX = ".glocal"
MANIFEST, MODEL, SUPPORT = "manifest.json", "model.safetensors", "support.safetensors"
LIMITS = Limits(member=16 << 30, total=64 << 30)
SMALL = Limits(member=256 << 20)  # of a manifest or a picture
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # no time of day in the file: the same recognizer is the same bytes


def write_contents(path: Path, contents: Contents) -> None:
    banks = [*contents.support.classes.values(), *([contents.unknown] if contents.unknown is not None else [])]
    views = {"photo": join([bank.views for bank in banks]), "probe": contents.probes.views}
    tensors = {f"{kind}.vec": each.vec for kind, each in views.items()}
    tensors |= {f"{kind}.local": each.local for kind, each in views.items() if each.local is not None}
    tensors["photo.signature"] = torch.cat([bank.signature for bank in banks])
    large = {
        MODEL: contents.brain.checkpoint,
        SUPPORT: tensor_bytes({name: each.contiguous().clone() for name, each in tensors.items()}),
    }
    manifest = manifest_of(contents, {name: hashlib.sha256(data).hexdigest() for name, data in large.items()})
    pictures = [photo.thumbnail for bank in banks for photo in bank.photos]
    members = {
        MANIFEST: manifest.model_dump_json(indent=1).encode(),
        **large,
        **{f"thumbnails/{i}.jpg": data for i, data in enumerate(pictures)},
        **{f"probes/{i}.png": data for i, data in enumerate(contents.probes.images)},
    }
    check_target(path)
    try:
        with replacing(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
            for name, data in members.items():
                archive.writestr(zipfile.ZipInfo(name, LONG_AGO), data)
    except OSError as error:
        raise DataError(
            f"{path} could not be written ({error.strerror or error}); what was there before is unchanged, "
            "free some space or choose another place"
        ) from error


def check_target(path: Path) -> None:
    """Refuse a place where nothing can be written, before minutes are spent on what is to be written there."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file, such as {path / 'parts'}{SUFFIX}")
    above = next(each for each in (path.parent, *path.parent.parents) if each.exists())
    if not above.is_dir():
        raise DataError(f"{path} cannot be written: {above} is a file, not a folder; choose another place")


def read_contents(path: Path) -> Contents:
    with _Members(path) as members:
        return _contents(path, members)


def _contents(path: Path, members: _Members) -> Contents:
    manifest = parse_manifest(members.read(MANIFEST, SMALL), str(path))
    checkpoint, packed = (members.verified(name, manifest) for name in (MODEL, SUPPORT))
    try:
        tensors = parse_tensors(packed)
    except (SafetensorError, ValueError, TypeError) as error:
        raise DataError(f"{path} is damaged: {SUPPORT} cannot be read ({error}); copy it again") from error
    n_aside = len(manifest.unknown or [])
    sizes = [len(each.photos) for each in manifest.classes] + [n_aside]
    signature = _rows(path, tensors, "photo.signature", sum(sizes), (CELLS * CELLS,))
    views = _views(path, tensors, "photo", sum(sizes))
    thumbnails = [members.read(f"thumbnails/{i}.jpg", SMALL) for i in range(sum(sizes))]
    photos = [*itertools.chain.from_iterable(each.photos for each in manifest.classes), *(manifest.unknown or [])]
    banks = _cut(photos, thumbnails, views, signature, sizes)
    probes = Probes(
        tuple(members.read(f"probes/{i}.png", SMALL) for i in range(len(manifest.probes))),
        _views(path, tensors, "probe", len(manifest.probes)),
        tuple(each.open_score for each in manifest.probes),
        tuple(tuple(each.logits) for each in manifest.probes),
    )
    try:
        brain = brain_from_bytes(manifest.model.name, checkpoint, score=manifest.model.open_score)
    except GlocalError as error:
        raise type(error)(f"the model in {path} cannot be used: {error}") from error
    if brain.eye_sha256 != manifest.model.backbone_sha256:
        raise DataError(
            f"{path} was made with other backbone weights than those on this machine; "
            f"install the package version it was made with (glocal {manifest.version})"
        )
    names = [each.name for each in manifest.classes]
    threshold = Threshold.from_json(manifest.threshold)
    if threshold.per_class is not None and len(threshold.per_class) != len(names):
        raise DataError(f"{path} is damaged: {len(threshold.per_class)} thresholds for {len(names)} classes")
    if len(set(names)) != len(names):
        raise DataError(f"{path} is damaged: it names a class twice")
    left = left_out_of(manifest)
    outside = any(e.photo >= manifest.n_photos or max(e.label, e.nearest) >= len(names) for e in left)
    if outside or any(len(each.logits) != len(names) for each in manifest.probes):
        raise DataError(f"{path} is damaged: its scores do not belong to its {len(names)} classes; copy it again")
    return Contents(
        brain,
        Support(dict(zip(names, banks, strict=False))),
        banks[-1] if n_aside else None,
        Promise(manifest.promise.max_false_unknown, manifest.promise.per_class),
        Decision(threshold, left, dict(manifest.usual)),
        probes,
    )


def read_manifest(path: Path) -> Manifest:
    """The manifest alone, in a moment."""
    with _Members(path) as members:
        return parse_manifest(members.read(MANIFEST, SMALL), str(path))


class _Members:
    """The members of a zip that a stranger may have packed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.is_dir():
            raise DataError(f"{path} is a folder; name a {SUFFIX} file that `glocal enroll` wrote")
        if not path.is_file():
            raise DataError(f"{path}: there is no such file; `glocal enroll FOLDER -o {path}` makes one")
        if archive_kind(path) != "zip":
            raise DataError(f"{path} is not a recognizer of glocal, or one that was cut short or damaged")
        try:
            self._entries = {entry.filename: entry for entry in zip_entries(path)}
        except DataError as error:
            raise DataError(f"{path} is damaged or was cut short; copy it again ({error})") from error
        if MANIFEST not in self._entries:
            raise DataError(f"{path} is a zip, but not a recognizer of glocal: it has no {MANIFEST}")
        self._archive = zipfile.ZipFile(path)

    def __enter__(self) -> _Members:
        return self

    def __exit__(self, *failure: object) -> None:
        self._archive.close()

    def read(self, name: str, limits: Limits = LIMITS) -> bytes:
        if name not in self._entries:
            raise DataError(f"{self._path} is damaged: {name} is missing; copy it again")
        entry = self._entries[name]
        try:
            with open_zip_member(self._path, self._archive, entry, limits) as stream:
                return stream.read()
        except DataError as error:
            raise DataError(f"{self._path} is damaged; copy it again ({error})") from error

    def verified(self, name: str, manifest: Manifest) -> bytes:
        data = self.read(name)
        if hashlib.sha256(data).hexdigest() != manifest.sha256.get(name):
            raise DataError(f"{self._path} is damaged: {name} is not what was written; copy it again")
        return data


def _views(path: Path, tensors: Mapping[str, Tensor], kind: str, n: int) -> Views:
    vec = tensors.get(f"{kind}.vec")
    local = tensors.get(f"{kind}.local")
    if vec is None or vec.ndim != 2 or len(vec) != n or not vec.is_floating_point() or not vec.isfinite().all():
        raise DataError(f"{path} is damaged: its views do not belong to its {n} photos; copy it again")
    if local is not None and (local.ndim != 4 or len(local) != n or not local.is_floating_point()):
        raise DataError(f"{path} is damaged: its local views do not belong to its {n} photos; copy it again")
    return Views(vec, local)


def _rows(path: Path, tensors: Mapping[str, Tensor], name: str, n: int, shape: tuple[int, ...]) -> Tensor:
    found = tensors.get(name)
    if found is None or tuple(found.shape) != (n, *shape) or found.dtype != torch.uint8:
        raise DataError(f"{path} is damaged: {name} does not belong to its {n} photos; copy it again")
    return found


def _cut(
    photos: Sequence[PhotoPart], thumbnails: Sequence[bytes], views: Views, signature: Tensor, sizes: Sequence[int]
) -> list[Bank]:
    """One bank per entry of ``sizes``, of consecutive photos."""
    banks, start = [], 0
    for size in sizes:
        rows = slice(start, start + size)
        kept = tuple(Photo(p.name, p.digest, t) for p, t in zip(photos[rows], thumbnails[rows], strict=True))
        banks.append(Bank(kept, views.rows(rows), signature[rows]))
        start += size
    return banks
