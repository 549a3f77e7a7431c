"""CIFAR-10 and CIFAR-100, read from the files that their authors publish."""

import hashlib
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
from bayesdiv.app.data.splits import DataError

_SHAPE = (3, 32, 32)
_ARRAY = np.empty(0).__reduce__()[0]  # what makes an array of what a pickle holds


class _Set(NamedTuple):
    """What a published set is made of."""

    name: str
    folder: str
    archive: str
    archive_md5: str
    meta: str
    labels: str  # key of the labels in a batch
    names: str  # key of the class names in the meta file
    md5: Mapping[str, str]  # of the files with images, those of the test last

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.md5, self.meta)


_CIFAR10 = _Set(
    name="CIFAR-10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    archive_md5="c58f30108f718f92721af3b95e74349a",
    meta="batches.meta",
    labels="labels",
    names="label_names",
    md5={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
)
_CIFAR100 = _Set(
    name="CIFAR-100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    archive_md5="eb9058c3a382ffc7106e4002c42a8d85",
    meta="meta",
    labels="fine_labels",
    names="fine_label_names",
    md5={"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
)


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
    """CIFAR-100 (Krizhevsky 2009): 60,000 images of 32 by 32 pixels, a hundred fine classes.

    Fold k validates on the k-th fifth of the training images and trains on the rest.

    Args:
        source: as for `cifar10`, with the names cifar-100-python and cifar-100-python.tar.gz.

    Examples:
        >>> cifar100("nowhere")
        Traceback (most recent call last):
        bayesdiv.app.data.splits.DataError: CIFAR-100 must be a folder or ...
    """
    return _read(_CIFAR100, source)


def _read(kind: _Set, source: str | Path | None) -> Images:
    path = _found(kind) if source is None else _given(kind, Path(source))
    files = _from_archive(kind, path) if path.is_file() else _from_folder(kind, path)
    for name in kind.files:
        if name not in files:
            raise DataError(f"{path} must hold the {kind.name} file {name}, got none")
    classes = _class_names(kind, files[kind.meta], f"{path}/{kind.meta}")
    parts = [_batch(kind, files[name], f"{path}/{name}", len(classes)) for name in kind.md5]
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Images(
        torch.from_numpy(images),
        torch.from_numpy(labels),
        classes,
        torch.from_numpy(_batches([len(part[1]) for part in parts])),
        kind.name,
        _notes(kind, files),
    )


def _batches(sizes: list[int]) -> NDArray[np.int64]:
    """For each image its batch, 0 for the test images, which come last."""
    *train, test = sizes
    if len(train) == 1:  # one file: five equal parts of it
        train = [len(part) for part in np.array_split(np.arange(train[0]), FOLDS)]
    return np.repeat(np.array([*range(1, FOLDS + 1), 0]), [*train, test])


def _notes(kind: _Set, files: Mapping[str, bytes]) -> tuple[str, ...]:
    """A sentence on files that are not the published ones, byte for byte."""
    other = [
        name
        for name, published in kind.md5.items()
        if hashlib.md5(files[name], usedforsecurity=False).hexdigest() != published
    ]
    if not other:
        return ()
    return (
        f"{len(other)} of {len(kind.md5)} {kind.name} files differ from the published ones, so "
        f"images or folds may differ: {', '.join(other)}",
    )


def _given(kind: _Set, path: Path) -> Path:
    """The folder or archive that a user has named."""
    found = path if path.is_file() else _inside(kind, path)
    if found is not None:
        return found
    got = f"{path}, which has neither" if path.is_dir() else f"{path}, which does not exist"
    raise DataError(
        f"{kind.name} must be a folder or an archive, got {got}: name {kind.folder} or "
        f"{kind.archive}, or a folder with one of them"
    )


def _found(kind: _Set) -> Path:
    """The folder or archive in the user's data folder, else the archive, downloaded."""
    folder = data_folder()
    found = None if folder is None else _inside(kind, folder)
    url = f"https://www.cs.toronto.edu/~kriz/{kind.archive}"
    return found or fetch(url, f"md5:{kind.archive_md5}", kind.archive)


def _inside(kind: _Set, folder: Path) -> Path | None:
    if folder.name == kind.folder or (folder / kind.meta).is_file():
        return folder if folder.is_dir() else None
    places = (folder / kind.folder, folder / kind.archive)
    return next((place for place in places if place.exists()), None)


def _from_folder(kind: _Set, folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in kind.files if (folder / name).is_file()}


def _from_archive(kind: _Set, path: Path) -> dict[str, bytes]:
    """The files of a set in memory: nothing is written, so no name in an archive can do harm."""
    found = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                place = PurePosixPath(member.name)
                ours = place.parent.name == kind.folder and place.name in kind.files
                if ours and member.isfile() and (content := archive.extractfile(member)):
                    found[place.name] = content.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} must be a whole .tar.gz archive, got: {error}") from None
    return found


class _Unpickler(pickle.Unpickler):
    """Reads numbers, text, lists, dicts and arrays; whatever else a file asks for is refused.

    A pickle can name any function of the machine to be called. Here only those are found that make
    an array from a shape, a type and bytes.
    """

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
    except DataError as error:
        raise DataError(f"{file} {error}") from None
    except Exception as error:  # whatever a damaged file makes the reader stumble over
        raise DataError(f"{file} is truncated or damaged: {error}") from None
    if not isinstance(found, dict):
        raise DataError(f"{file} must hold a dict, got {type(found).__name__}: not a CIFAR file")
    return {_text(key): value for key, value in found.items()}


def _batch(
    kind: _Set, content: bytes, file: str, classes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images and labels of one file."""
    found = _unpickled(content, file)
    data, labels = found.get("data"), found.get(kind.labels)
    if not isinstance(data, np.ndarray):
        raise DataError(f"{file} must hold an array of images as 'data', got {_type(data)}")
    if data.dtype != np.uint8:
        raise DataError(f"{file} must hold pixels of type uint8, got {data.dtype}")
    if len(data) == 0 or data.shape[1:] != (prod(_SHAPE),):
        raise DataError(f"{file} must hold images of {prod(_SHAPE)} numbers, got {data.shape}")
    if not isinstance(labels, list) or any(type(label) is not int for label in labels):
        raise DataError(f"{file} must hold a list of numbers as {kind.labels!r}, got others")
    if len(labels) != len(data):
        raise DataError(f"{file} must have one label per image, got {len(labels)} of {len(data)}")
    wrong = [label for label in labels if not 0 <= label < classes]
    if wrong:
        raise DataError(f"labels in {file} must lie between 0 and {classes - 1}, got {wrong[0]}")
    return data.reshape(-1, *_SHAPE), np.array(labels, dtype=np.int64)


def _class_names(kind: _Set, content: bytes, file: str) -> tuple[str, ...]:
    names = _unpickled(content, file).get(kind.names)
    if not isinstance(names, list) or not names:
        raise DataError(f"{file} must hold class names as {kind.names!r}, got {_type(names)}")
    return tuple(map(_text, names))


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _type(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
