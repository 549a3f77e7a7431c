"""A few small images in the harness's own format, whose brightness gives their class away."""

from pathlib import Path

import numpy as np

from benchmarks.field.data import encoded


def write_toy(folder: Path, images: int = 200) -> Path:
    """A folder as `pack.py` writes it."""
    generator = np.random.default_rng(0)
    content = {}
    for name, count in (("train", images), ("test", 60), ("cifar100", 30), ("mnist", 20)):
        y = generator.integers(0, 10, count).astype(np.uint8)
        noise = generator.integers(0, 60, (count, 3, 32, 32)).astype(np.uint8)
        content[f"x_{name}_0"] = encoded(noise + (19 * y)[:, None, None, None])
        content[f"y_{name}_0"] = y
    folder.mkdir(parents=True)
    np.savez_compressed(folder / "field_0.npz", **content)
    return folder
