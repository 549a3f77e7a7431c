"""What the tests of faults share: a small table, quick settings."""

import numpy as np
import pandas as pd

QUICK = ["--epochs", "2", "--test_samples", "3", "--members", "1", "--samples", "1"]


def rows(count: int = 60) -> pd.DataFrame:
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, count))
    colour = np.where(random.random(count) > 0.5, "red", "blue")
    y = 2 * a - b + (colour == "red") + 0.1 * random.normal(size=count)
    return pd.DataFrame({"a": a, "b": b, "colour": colour, "y": y})
