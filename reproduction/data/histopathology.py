"""Breast histopathology patches (IDC), read from the public folder, or from a cache.

The set (Janowczyk and Madabhushi 2016, Cruz-Roa et al. 2014) has 277,524 patches of 50 by 50 pixels
from slides of 279 patients: class 1 shows invasive ductal carcinoma, class 0 does not.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bayesdiv.app.data.splits import DataError
from reproduction.data.patches import CLASSES, Patches

FOLDER = "IDC_regular_ps50_idx5"
CACHE = "histopathology.npz"
_SIDE = 50
_NAME = re.compile(r"(?P<patient>.+)_idx5_x\d+_y\d+_class(?P<label>[01])\.png")
_AT_A_TIME = 256  # files a thread reads before it hands them over
_ADDRESS = "kaggle.com/datasets/paultimothymooney/breast-histopathology-images"


def read_patches(folder: str | Path | None = None, *, cache: str | Path | None = None) -> Patches:
    """All patches of the public folder, PATIENT/CLASS/PATIENT_idx5_xX_yY_classCLASS.png.

    The whole set takes minutes to read and 2 GB of memory.

    Args:
        folder: the one with the patients' folders, or the one around it. None is
            IDC_regular_ps50_idx5 in $BAYESDIV_DATA. There is no address to download from without
            an account: the set is "Breast Histopathology Images" by Paul Mooney on Kaggle.
        cache: a folder to keep the arrays in, which the next call takes if names and sizes of the
            files are still the same.

    Examples:
        >>> read_patches("nowhere")
        Traceback (most recent call last):
        bayesdiv.app.data.splits.DataError: histopathology must be a folder of ...
    """
    files = _listed(_root(_named(folder)))
    if cache is None:
        return _decoded(files)
    path, source = Path(cache) / CACHE, _fingerprint(files)
    if path.is_file():
        try:
            patches, known = _loaded(path)
        except DataError:
            known = ""  # damaged: written again
        if known == source:
            return patches
    patches = _decoded(files)
    _save(patches, path, source)
    return patches


def save_patches(patches: Patches, file: str | Path) -> None:
    """Write patches as one .npz file, for `load_patches`: whole or not at all."""
    _save(patches, Path(file), "")


def load_patches(file: str | Path) -> Patches:
    """Patches from a file of `save_patches`, or from a cache; nothing is ever unpickled.

    This needs neither the folder nor Pillow, so it serves to bring the set to another machine.

    Examples:
        >>> load_patches("nowhere.npz")
        Traceback (most recent call last):
        bayesdiv.app.data.splits.DataError: nowhere.npz does not exist
    """
    return _loaded(Path(file))[0]


class _File(NamedTuple):
    path: str
    patient: str
    label: int
    size: int


def _named(folder: str | Path | None) -> Path:
    """The folder that is named by the user or by the environment."""
    if folder is not None:
        return Path(folder)
    from bayesdiv.app.data.downloads import data_folder

    around = data_folder()
    if around is None:
        raise DataError(
            f"histopathology must be given as a folder, got none: get it from {_ADDRESS}, which "
            "asks for an account, and unpack it"
        )
    return around / FOLDER


def _root(folder: Path) -> Path:
    """The folder of the patients' folders: this one, or the only such one inside it."""
    if not folder.is_dir():
        raise _no_patches(folder, "which is no folder")
    # The archive on Kaggle has the patients both at its top and one folder deeper: take one.
    if _has_patients(folder):
        return folder
    inside = [child for child in sorted(folder.iterdir()) if child.is_dir()]
    found = [child for child in inside if _has_patients(child)]
    if len(found) != 1:
        raise _no_patches(folder, f"which has {len(found)} such folders inside")
    return found[0]


def _has_patients(folder: Path) -> bool:
    return any((child / name).is_dir() for child in folder.iterdir() for name in ("0", "1"))


def _no_patches(folder: Path, why: str) -> DataError:
    return DataError(
        f"histopathology must be a folder of PATIENT/CLASS/*.png, got {folder}, {why}: get it from "
        f"{_ADDRESS}, which asks for an account, and unpack it"
    )


def _listed(root: Path) -> list[_File]:
    """All patches of a folder, in the order of their names."""
    found = []
    for patient in _folders(root):
        for group in _folders(patient.path):
            with os.scandir(group.path) as entries:
                pngs = [entry for entry in entries if _is_png(entry.name)]
            found += [_file(entry, patient.name, group.name) for entry in pngs]
    if not found:
        raise _no_patches(root, "which has no .png files there")
    return sorted(found)


def _is_png(name: str) -> bool:
    return name.lower().endswith(".png") and not name.startswith(".")


def _folders(path: str | Path) -> list["os.DirEntry[str]"]:
    with os.scandir(path) as entries:
        return sorted((entry for entry in entries if entry.is_dir()), key=lambda entry: entry.name)


def _file(entry: "os.DirEntry[str]", patient: str, group: str) -> _File:
    told = _NAME.fullmatch(entry.name)
    if told is None or (told["patient"], told["label"]) != (patient, group):
        raise DataError(
            f"a patch must be named {patient}_idx5_xX_yY_class{group}.png, as its folders are, got "
            f"{entry.path}"
        )
    return _File(entry.path, patient, int(group), entry.stat().st_size)


def _fingerprint(files: list[_File]) -> str:
    """Names and sizes in a few letters: other files have others."""
    lines = "\n".join(f"{Path(file.path).name} {file.size}" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def _decoded(files: list[_File]) -> Patches:
    """Pixels of all files, read by several threads."""
    images = np.empty((len(files), 3, _SIDE, _SIDE), np.uint8)
    kept: list[_File] = []
    groups = [files[start : start + _AT_A_TIME] for start in range(0, len(files), _AT_A_TIME)]
    pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
    try:
        with _bar(len(files)) as advance:
            for group, found in zip(groups, pool.map(_pixels_of_all, groups), strict=True):
                for file, pixels in zip(group, found, strict=True):
                    if pixels is not None:
                        images[len(kept)] = pixels
                        kept.append(file)
                advance(len(group))
    finally:
        pool.shutdown(cancel_futures=True)  # or an error would wait for all the other files
    if not kept:
        raise DataError(f"patches must have {_SIDE}×{_SIDE} pixels, got smaller ones only")
    patients = sorted({file.patient for file in kept})
    place = {patient: index for index, patient in enumerate(patients)}
    return Patches(
        torch.from_numpy(images[: len(kept)]),
        torch.tensor([file.label for file in kept]),
        torch.tensor([place[file.patient] for file in kept]),
        tuple(patients),
        skipped=len(files) - len(kept),
    )


def _pixels_of_all(files: list[_File]) -> list[NDArray[np.uint8] | None]:
    return [_pixels(file.path) for file in files]


def _pixels(path: str) -> NDArray[np.uint8] | None:
    """One patch, (3, 50, 50); None where it is smaller, at the border of a slide."""
    from PIL import Image

    try:
        with Image.open(path, formats=("PNG",)) as image:
            if max(image.size) > _SIDE:  # before a pixel is read: a small file can hold a huge one
                raise DataError(
                    f"a patch must have at most {_SIDE}×{_SIDE} pixels, got "
                    f"{image.width}×{image.height} in {path}"
                )
            if min(image.size) < _SIDE:
                return None
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    except DataError:
        raise
    except Exception as error:  # whatever a damaged file makes the reader stumble over
        raise DataError(f"{path} is not a readable .png file: {error}") from None


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, gone at the end; gives what moves it on."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn("reading patches"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.advance(task, done)


def _save(patches: Patches, path: Path, source: str) -> None:
    arrays = {
        "images": patches.images.cpu().numpy(),
        "labels": patches.labels.cpu().numpy(),
        "patient": patches.patient.cpu().numpy(),
        "patients": np.array(patches.patients),
        "skipped": np.array(patches.skipped),
        "source": np.array(source),
    }
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"{path} could not be written: {error.strerror or error}") from None


def _loaded(path: Path) -> tuple[Patches, str]:
    """Patches of a file, and what they were read from."""
    if not path.is_file():
        raise DataError(f"{path} does not exist")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            arrays = dict(found)
        images, labels, patient = (arrays[key] for key in ("images", "labels", "patient"))
        patients = tuple(map(str, arrays["patients"]))
        skipped, source = int(arrays["skipped"]), str(arrays["source"])
    except Exception as error:  # whatever a damaged file makes the reader stumble over
        raise DataError(f"{path} is not a complete file of patches: {error}") from None
    _check_arrays(path, images, labels, patient, patients)
    images, labels, patient = (torch.from_numpy(array) for array in (images, labels, patient))
    return Patches(images, labels, patient, patients, skipped), source


def _check_arrays(
    path: Path,
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    patient: NDArray[np.int64],
    patients: tuple[str, ...],
) -> None:
    if images.dtype != np.uint8 or images.shape[1:] != (3, _SIDE, _SIDE):
        raise DataError(
            f"{path} must hold uint8 images of 3×{_SIDE}×{_SIDE}, got {images.dtype} {images.shape}"
        )
    for name, values, most in (
        ("labels", labels, len(CLASSES)),
        ("patient", patient, len(patients)),
    ):
        if values.dtype != np.int64 or values.shape != images.shape[:1]:
            raise DataError(f"{path} must hold one of {name} for each of {len(images)} patches")
        if values.size and not 0 <= values.min() <= values.max() < most:
            raise DataError(f"{name} in {path} must lie between 0 and {most - 1}")
