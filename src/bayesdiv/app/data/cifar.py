"""CIFAR-10 and CIFAR-100, read from the files that their authors publish."""

import io
import pickle
import tarfile
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdiv.app.data.downloads import data_folder, fetch
from bayesdiv.app.data.images import FOLDS, Images
from bayesdiv.app.data.splits import DataError, ensure

_SHAPE = (3, 32, 32)
_ARRAY = np.empty(0).__reduce__()[0]  # what makes an array of what a pickle holds


class _Set(NamedTuple):
    """What a published set is made of."""

    name: str
    folder: str
    archive_md5: str
    meta: str
    kind: str  # what stands before the keys of labels and of their names
    files: tuple[str, ...]  # with images, those of the test last

    @property
    def archive(self) -> str:
        return f"{self.name.lower()}-python.tar.gz"


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, FOLDS + 1))
_MD5 = "c58f30108f718f92721af3b95e74349a", "eb9058c3a382ffc7106e4002c42a8d85"
_CIFAR10 = _Set(
    "CIFAR-10", "cifar-10-batches-py", _MD5[0], "batches.meta", "", (*_BATCHES, "test_batch")
)
_CIFAR100 = _Set("CIFAR-100", "cifar-100-python", _MD5[1], "meta", "fine_", ("train", "test"))


def cifar10(source: str | Path | None = None) -> Images:
    """CIFAR-10 (Krizhevsky 2009): 60,000 images of 32 by 32 pixels, ten classes.

    Fold k validates on data_batch_k and trains on the other four, as in the paper.

    Args:
        source: the folder cifar-10-batches-py, the archive cifar-10-python.tar.gz, or a folder with
            one of them. None looks in $BAYESDIV_DATA, then downloads the archive (170 MB) once.

    Examples:
        >>> cifar10("nowhere")
        Traceback (most recent call last):
        bayesdiv.app.data.splits.DataError: CIFAR-10 must be a folder or ...
    """
    return _read(_CIFAR10, source)


def cifar100(source: str | Path | None = None) -> Images:
    """CIFAR-100: 60,000 images of a hundred fine classes, otherwise like `cifar10`.

    Fold k validates on the k-th fifth of the training images and trains on the rest.

    Examples:
        >>> cifar100("nowhere")
        Traceback (most recent call last):
        bayesdiv.app.data.splits.DataError: CIFAR-100 must be a folder or ...
    """
    return _read(_CIFAR100, source)


def _read(kind: _Set, source: str | Path | None) -> Images:
    path = _found(kind, source)
    held = _held(kind, path)
    for name in (*kind.files, kind.meta):
        ensure(name in held, f"{path} must hold the {kind.name} file {name}, got none")
    names = _unpickled(held[kind.meta], f"{path}/{kind.meta}").get(f"{kind.kind}label_names")
    if not isinstance(names, list) or not names:
        raise DataError(f"{path}/{kind.meta} must hold class names as a list, got none")
    labels = f"{kind.kind}labels"
    parts = [_batch(held[name], f"{path}/{name}", labels, len(names)) for name in kind.files]
    images, numbers = (torch.from_numpy(np.concatenate(each)) for each in zip(*parts, strict=True))
    *train, test = [len(part[1]) for part in parts]
    if len(train) == 1:  # one file: five equal parts of it
        train = [len(part) for part in np.array_split(np.arange(train[0]), FOLDS)]
    batch = torch.arange(1, FOLDS + 2).remainder(FOLDS + 1)  # the test images come last
    batch = batch.repeat_interleave(torch.tensor([*train, test]))
    return Images(images, numbers, tuple(map(_text, names)), batch, kind.name)


def _found(kind: _Set, source: str | Path | None) -> Path:
    """The folder or archive that a user named or has in the data folder, else the download."""
    around = data_folder() if source is None else Path(source)
    if around is not None:
        whole = around.is_file() or around.name == kind.folder or (around / kind.meta).is_file()
        for place in (around,) if whole else (around / kind.folder, around / kind.archive):
            if place.exists():
                return place
    if source is not None:
        why = "which has neither" if Path(source).is_dir() else "which does not exist"
        rule = f"{kind.name} must be a folder or an archive, got {source}, {why}"
        remedy = f"name {kind.folder} or {kind.archive}, or a folder with one of them"
        raise DataError(f"{rule}: {remedy}")
    url = f"https://www.cs.toronto.edu/~kriz/{kind.archive}"
    return fetch(url, f"md5:{kind.archive_md5}", kind.archive)


def _held(kind: _Set, path: Path) -> dict[str, bytes]:
    """The files of a set in memory: nothing is written, so no name in an archive can do harm."""
    wanted = (*kind.files, kind.meta)
    if path.is_dir():
        return {name: (path / name).read_bytes() for name in wanted if (path / name).is_file()}
    found = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                place = PurePosixPath(member.name)
                ours = place.parent.name == kind.folder and place.name in wanted
                if ours and member.isfile() and (content := archive.extractfile(member)):
                    found[place.name] = content.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} must be a whole .tar.gz archive, got: {error}") from None
    return found


class _Unpickler(pickle.Unpickler):
    """Reads numbers, text, lists, dicts and arrays; a pickle could name any function to call."""

    _allowed: Mapping[str, Any] = {
        "numpy.core.multiarray._reconstruct": _ARRAY,
        "numpy._core.multiarray._reconstruct": _ARRAY,
        "numpy.ndarray": np.ndarray,
        "numpy.dtype": np.dtype,
        "_codecs.encode": str.encode,  # how Python 3 writes bytes into old pickles
    }

    def find_class(self, module: str, name: str) -> Any:
        """What a name in the file stands for."""
        if f"{module}.{name}" not in self._allowed:
            raise DataError(f"asks for {module}.{name}: not a CIFAR file")
        return self._allowed[f"{module}.{name}"]


def _unpickled(content: bytes, file: str) -> dict[str, Any]:
    try:
        found = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        return {_text(key): value for key, value in found.items()}
    except DataError as error:
        raise DataError(f"{file} {error}") from None
    except Exception as error:  # whatever a damaged file makes the reader stumble over
        raise DataError(f"{file} is truncated or damaged: {error}") from None


def _batch(content: bytes, file: str, key: str, classes: int) -> tuple[Any, NDArray[np.int64]]:
    """Images and labels of one file."""
    found = _unpickled(content, file)
    data, labels = found.get("data", 0), found.get(key, ())
    pixels = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 2
    rows = pixels and len(data) and data.shape[1] == prod(_SHAPE)
    ensure(rows, f"{file} must hold 'data', rows of {prod(_SHAPE)} bytes: not a CIFAR file")
    whole = isinstance(labels, list) and all(label in range(classes) for label in labels)
    rule = f"{file} must hold {key!r}, a number from 0 to {classes - 1} for each of {len(data)} "
    ensure(whole and len(labels) == len(data), f"{rule}images: not a CIFAR file")
    return data.reshape(-1, *_SHAPE), np.array(labels, dtype=np.int64)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
