"""Images in memory: five folds, pixels as numbers, noise drawn once; and pictures from files."""

import itertools
import math
import os
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdiv.app.data.splits import Part, Splits, ensure
from bayesdiv.app.data.table import known_column
from bayesdiv.app.tasks.classification import Classification

if TYPE_CHECKING:
    from pandas import DataFrame
    from PIL.Image import Image as Picture

    from bayesdiv.app.data.files import Written

FOLDS = 5  # the paper's runs
_WHITE = 255
AT_A_TIME = 1024  # images whose noise is held in float32 at once
CEILING = 2 << 30  # bytes of images that are held in memory; more lie in a file
# Decoders that only decode: others of Pillow start programs.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
SIZE = 64
PICTURE, CLASS = "picture", "class"  # columns of what a folder holds
MOST_FOLDERS = 10_000  # inside one; whoever names / shall not wait for all of a disk
MOST_PIXELS = 50_000_000  # of a picture, looked at before it is decoded


@dataclass(frozen=True, eq=False)
class Images:
    """Images of some classes, each with the batch of its set that it came in.

    Examples:
        >>> pixels = torch.zeros(6, 3, 32, 32, dtype=torch.uint8)
        >>> images = Images(pixels, torch.zeros(6).long(), ("cat",), torch.arange(6), "cats")
        >>> [len(part.x) for part in images.fold(2).parts]
        [4, 1, 1]
    """

    images: Tensor  # (N, 3, height, width), uint8 as read; floats once `noisy`
    labels: Tensor  # (N,) indices of `classes`, int64
    classes: tuple[str, ...]
    batch: Tensor  # (N,) from 1 to 5 for what is trained or validated on, 0 for the test images
    name: str  # of the set
    notes: tuple[str, ...] = ()  # sentences on what is not as published
    target: str = ""  # what the classes are called
    files: tuple[str, ...] = ()  # of each, below the folder of the data; or none

    def fold(self, number: int) -> Splits:
        """Run `number` of five, as in the paper: batch `number` validates, the other four train."""
        check_fold(number)
        test, validation = self.batch == 0, self.batch == number
        rows = [mask.nonzero().squeeze(1) for mask in (~(test | validation), validation, test)]
        rule = f"some class must have {FOLDS + 1} pictures or more, so that every part has some"
        most = f"{self.labels.bincount().max()} in the largest of {len(self.classes)} classes"
        ensure(all(map(len, rows)), f"{rule}, got {most} of {self.name}")
        parts = [Part(gathered(self.images, some), self.labels[some]) for some in rows]
        files = tuple(self.files[k] for k in rows[2].tolist()) if self.files else ()
        about = (None, self.name, self.target, self.notes, (), files)
        return Splits(parts[0], parts[1], parts[2], Classification(self.classes), *about)

    def noisy(
        self,
        noise: float,
        seed: int = 0,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> "Images":
        """Pixels in [0, 1] plus Gaussian noise, p/255 + noise·ε with ε ~ N(0, 1), drawn once.

        The paper adds it at the size the images come in, before they are resized, and does not
        clip. A seed gives the same noise whatever the device and, but for rounding, the type.
        Taken before `fold`, every fold, loss and epoch sees an image with the same noise.
        """
        rule = "noise must be a finite standard deviation of at least 0"
        ensure(0 <= noise < math.inf, f"{rule}, got {noise}")
        rule = "images must be uint8, pixels from 0 to 255"
        ensure(self.images.dtype == torch.uint8, f"{rule}, got {self.images.dtype}")
        generator = torch.Generator().manual_seed(seed)
        found = torch.empty(self.images.shape, dtype=dtype, device=device or self.images.device)
        for start in range(0, len(found), AT_A_TIME):
            some = self.images[start : start + AT_A_TIME].float() / _WHITE
            if noise > 0:
                # Drawn on the CPU, since other devices have random numbers of their own.
                some += noise * torch.randn(some.shape, generator=generator).to(some.device)
            found[start : start + AT_A_TIME] = some
        labels, batch = self.labels.to(found.device), self.batch.to(found.device)
        return replace(self, images=found, labels=labels, batch=batch)


def room(shape: Sequence[int]) -> NDArray[np.uint8]:
    """An array for images of this shape; beyond the ceiling it lies in a file without a name."""
    if math.prod(shape) <= CEILING:
        return np.zeros(shape, np.uint8)
    with tempfile.TemporaryFile() as file:  # its mapping outlives it
        return np.memmap(file, np.uint8, "w+", shape=tuple(shape))


def gathered(x: Tensor, rows: Tensor) -> Tensor:
    """Some images as their own tensor, in memory or, if they are many bytes, in a file."""
    if x.dtype != torch.uint8 or x.is_cuda:
        return x[rows]
    return torch.index_select(x, 0, rows, out=torch.from_numpy(room((len(rows), *x.shape[1:]))))


def check_fold(number: int) -> None:
    """Complain of a fold that is not one of the five."""
    ensure(1 <= number <= FOLDS, f"fold must lie between 1 and {FOLDS}, got {number}")


def folder(path: Path, size: int | None = None, *, skip_broken: bool = False) -> Images:
    """The pictures of a folder with one folder per class, scaled to `size` pixels, 64 if None."""
    found = {file: file.relative_to(path).parts[0] for file in below(path) if file.parent != path}
    rule = "a folder of pictures must hold one folder per class, two at least with pictures in them"
    got = f"{path} with {len(found)} pictures in {len(set(found.values()))} folders"
    ensure(len(set(found.values())) > 1, f"{rule}, got {got}")
    return _labelled(path, list(found), list(found.values()), CLASS, size, skip_broken)


def below(path: Path) -> list[Path]:
    """All pictures in a folder and those inside it, none of them hidden; only classes are links."""
    begun = [path, *(each for each in path.iterdir() if each.is_symlink() and each.is_dir())]
    walked = itertools.chain.from_iterable(map(os.walk, begun))
    places = list(itertools.islice(walked, MOST_FOLDERS + 1))
    rule = f"a folder of pictures must hold at most {MOST_FOLDERS:,} folders, got more in {path}"
    few = len(places) <= MOST_FOLDERS
    ensure(few, f"{rule}: name the folder that holds the pictures")
    found = (Path(place, name) for place, _, names in places for name in names)
    ours = (each for each in found if each.suffix.lower() in ENDINGS)
    shown = (file for file in ours if "/." not in f"/{file.relative_to(path).as_posix()}")
    return sorted(file for file in shown if file.is_file())


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
    path: Path, column: str | None, size: int, written: "Written | None" = None
) -> tuple["DataFrame", str, tuple[Tensor, list[str]]]:
    """The pictures of a folder or of a table's column: rows, their separator, and the pixels."""
    import pandas as pd

    from bayesdiv.app.data.files import read_text

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
    import pandas as pd

    x, problems = decoded(files, SIZE if size is None else size)
    broken = [problem for problem in problems if problem]
    why = next(iter(broken), "")
    ensure(skip or not broken, why, ": repair or remove it, or give --skip_broken")
    good = [k for k, problem in enumerate(problems) if not problem]
    ensure(good, f"{path.name} must have a picture that can be read, got: {why}")
    x = gathered(x, torch.tensor(good)) if broken else x
    classes, labels = np.unique([names[k] for k in good], return_inverse=True)
    notes = (f"pictures left out, as they cannot be read: {len(broken)}",) if broken else ()
    above = path if path.is_dir() else path.parent
    inside = tuple(files[k].as_posix().removeprefix(f"{above.as_posix()}/") for k in good)
    # Six like parts of every class at random: 0 is tested on, 1 to 5 are the folds.
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).numpy()
    place = pd.Series(labels[order], order).groupby(labels[order]).cumcount().sort_index()
    # The fewest pictures of a class are all trained on in the first fold.
    batch = torch.from_numpy((place.to_numpy() + 2) % (FOLDS + 1))
    about = (tuple(classes.tolist()), batch, path.name, notes, target, inside)
    return Images(x, torch.from_numpy(labels), *about)


def decoded(files: Sequence[Path], size: int) -> tuple[Tensor, list[str]]:
    """The pixels of files, (files, 3, size, size), and for each what hindered it, or nothing."""
    from rich.progress import track

    from bayesdiv.app.console import errors
    from bayesdiv.app.extra import require

    require("PIL")
    ensure(8 <= size <= 1024, f"size must lie between 8 and 1024 pixels, got {size}")
    x = room((len(files), 3, size, size))
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
    return torch.from_numpy(x), problems


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
                picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
            fitted = ImageOps.fit(picture.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
        return np.asarray(fitted).transpose(2, 0, 1), ""
    except Exception as error:  # whatever a damaged file makes the decoder stumble over
        line = " ".join(str(error).split())[:200] or type(error).__name__
        return 0, f"{file} cannot be read as a picture: {line}"
