"""Pictures from files: a folder per class, or a table with a column of paths."""

import itertools
import math
import os
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdiv.app.data.files import Written, read_text
from bayesdiv.app.data.images import AT_A_TIME, FOLDS, Images, gathered, room
from bayesdiv.app.data.splits import ensure
from bayesdiv.app.data.table import known_column

if TYPE_CHECKING:
    from pandas import DataFrame
    from PIL.Image import Image as Picture

# Decoders that only decode: others of Pillow start programs.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
SIZE = 64
PICTURE, CLASS = "picture", "class"  # columns of what a folder holds
MOST_FOLDERS = 10_000  # inside one; whoever names / shall not wait for all of a disk
MOST_PIXELS = 50_000_000  # of a picture, looked at before it is decoded


class Read(NamedTuple):
    """Pictures as bytes, (pictures, 3, size, size), and for each what hindered it, or nothing."""

    x: Tensor
    problems: list[str]


def folder(path: Path, size: int | None = None, *, skip_broken: bool = False) -> Images:
    """The pictures of a folder with one folder per class; broken ones may be left out.

    Each is scaled until its shorter side has `size` pixels, 64 if None, and its middle is taken.
    """
    return _labelled(path, *listed(path), CLASS, size, skip_broken)


def listed(path: Path) -> tuple[list[Path], list[str]]:
    """The pictures below the class folders of a folder, in order, and the class of each."""
    kinds = sorted(each for each in path.iterdir() if each.is_dir() and each.name[0] != ".")
    found = [(file, kind.name) for kind in kinds for file in below(kind)]
    rule = "a folder of pictures must hold one folder per class, two at least with pictures in them"
    got = f"{path} with {len(found)} pictures in {len(kinds)} folders"
    ensure(len({name for _, name in found}) > 1, f"{rule}, got {got}")
    return [file for file, _ in found], [name for _, name in found]


def below(path: Path) -> list[Path]:
    """All pictures in a folder and those inside it; links to folders are not followed."""
    places = list(itertools.islice(os.walk(path), MOST_FOLDERS + 1))
    rule = f"a folder of pictures must hold at most {MOST_FOLDERS:,} folders, got more in {path}"
    few = len(places) <= MOST_FOLDERS
    ensure(few, f"{rule}: name the folder that holds the pictures")
    found = (Path(place, name) for place, _, names in places for name in names)
    ours = (each for each in found if each.suffix.lower() in ENDINGS and each.name[0] != ".")
    return sorted(file for file in ours if file.is_file())


def of_table(
    frame: "DataFrame", column: str, target: str, path: Path, size: int | None, *, skip_broken: bool
) -> Images:
    """The pictures whose paths, from the folder of the table on, stand in a column of it."""
    for name in (column, target):
        known_column(name, frame, path.name)
        whole = frame[name].notna().all()
        ensure(whole, f"no value may be missing, got a missing one in column {name!r}")
    files = [path.parent / str(name) for name in frame[column]]
    return _labelled(path, files, [*map(str, frame[target])], target, size, skip_broken)


def new(
    path: Path, column: str | None, size: int, written: Written | None = None
) -> tuple["DataFrame", str, Read]:
    """The pictures of a folder or of a table's column: rows, their separator, and the pixels."""
    import pandas as pd

    if not path.is_dir():
        single = path.suffix.lower() in ENDINGS
        ensure(not single, f"{path} is a single picture: give a folder or a table of paths")
        frame, separator = read_text(path, written)
        rule = f"a run on images cannot predict a table without a column {PICTURE!r} of paths"
        told = f"{rule}, got {path.name}: name a folder of pictures"
        ensure(column is not None or PICTURE in frame, told)
        names = frame[known_column(column or PICTURE, frame, path.name)]
        return frame, separator, decoded([path.parent / str(name) for name in names], size)
    files = below(path)
    ensure(files, f"{path} must hold pictures ({', '.join(ENDINGS)}), got none")
    inside = [file.relative_to(path) for file in files]
    frame = pd.DataFrame({PICTURE: map(str, inside)})
    if all(len(each.parts) > 1 for each in inside):
        frame[CLASS] = [each.parts[0] for each in inside]
    return frame, ",", decoded(files, size)


def _labelled(
    path: Path, files: list[Path], names: list[str], target: str, size: int | None, skip: bool
) -> Images:
    """Pictures with the names of their classes; broken ones may be left out."""
    read = decoded(files, SIZE if size is None else size)
    broken = [problem for problem in read.problems if problem]
    why = next(iter(broken), "")
    ensure(skip or not broken, f"{why}: repair or remove it, or give --skip_broken")
    none = len(broken) == len(files)
    ensure(not none, f"{path.name} must have a picture that can be read, got: {why}")
    good = [k for k, problem in enumerate(read.problems) if not problem]
    x = gathered(read.x, torch.tensor(good)) if broken else read.x
    classes = sorted({names[k] for k in good})
    labels = torch.tensor([classes.index(names[k]) for k in good])
    notes = (f"pictures left out, as they cannot be read: {len(broken)}",) if broken else ()
    above = path if path.is_dir() else path.parent
    inside = tuple(files[k].as_posix().removeprefix(f"{above.as_posix()}/") for k in good)
    # Six like parts of every class at random: 0 is tested on, 1 to 5 are the folds.
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    order = order[labels[order].argsort(stable=True)]
    first = torch.searchsorted(labels[order], labels[order])
    # The fewest pictures of a class are all trained on in the first fold.
    place = (torch.arange(len(labels)) - first + 2) % (FOLDS + 1)
    batch = torch.empty_like(place).index_put_((order,), place)
    return Images(x, labels, tuple(classes), batch, path.name, notes, target, inside)


def decoded(files: Sequence[Path], size: int) -> Read:
    """The pixels of these files, decoded by several threads into memory or, if large, a file."""
    from rich.progress import track

    from bayesdiv.app.console import errors
    from bayesdiv.app.extra import require

    require("PIL")
    ensure(8 <= size <= 1024, f"size must lie between 8 and 1024 pixels, got {size}")
    x = room(len(files), size)
    problems: list[str] = []
    parts = [files[k : k + AT_A_TIME] for k in range(0, len(files), AT_A_TIME)]
    with warnings.catch_warnings(), ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("ignore")  # of Pillow, on sizes that are checked and odd metadata
        done: Iterable[Any] = pool.map(lambda part: [_pixels(file, size) for file in part], parts)
        quiet = len(files) < 1000 or not errors.is_terminal
        for found in track(done, "reading pictures", len(parts), console=errors, disable=quiet):
            for pixels, problem in found:
                x[len(problems)] = pixels
                problems.append(problem)
    return Read(torch.from_numpy(x), problems)


def _pixels(file: Path, size: int) -> tuple[NDArray[np.uint8] | int, str]:
    """A picture as (3, size, size), white where it is transparent, and what is wrong with it."""
    from PIL import Image, ImageOps

    try:
        with Image.open(file, formats=FORMATS) as opened:
            if math.prod(opened.size) > MOST_PIXELS:
                return 0, f"{file} must have at most {MOST_PIXELS:,} pixels, got {opened.size}"
            opened.draft("RGB", (2 * size, 2 * size))  # a large JPEG is decoded smaller
            picture: Picture = ImageOps.exif_transpose(opened)
            if picture.mode == "F":
                raise ValueError("its pixels must be whole numbers of 8 or 16 bits")
            if picture.mode.startswith("I"):  # 16 bits
                levels = np.asarray(picture).clip(0, 65535) // 257
                picture = Image.fromarray(levels.astype(np.uint8))
            elif "A" in picture.mode or "transparency" in picture.info:
                picture = picture.convert("RGBA")
                white = Image.new("RGBA", picture.size, "white")
                picture = Image.alpha_composite(white, picture)
            fitted = ImageOps.fit(picture.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
        return np.asarray(fitted).transpose(2, 0, 1), ""
    except Exception as error:  # whatever a damaged file makes the decoder stumble over
        line = " ".join(str(error).split())[:200] or type(error).__name__
        return 0, f"{file} cannot be read as a picture: {line}"
