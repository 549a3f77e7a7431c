"""What the estimators say where they have seen nothing: between two clusters, and far away.

    python benchmarks/tables/gap.py

Two clusters in one dimension, 50 rows each, noise .1: the epistemic standard deviation on the
clusters, between them and outside, beside that of a Gaussian process. Two moons: the probability
and the mutual information at a point far away. Prints one line per setting and writes gap.json.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from bayesdiv import BayesianClassifier, BayesianRegressor, FanIn

Floats = NDArray[np.float64]

ON = np.r_[np.linspace(-2, -1, 50), np.linspace(1, 2, 50)][:, None]
BETWEEN = np.linspace(-0.5, 0.5, 50)[:, None]
OUTSIDE = np.r_[np.linspace(-5, -4, 25), np.linspace(4, 5, 25)][:, None]
FAR = np.array([[100.0, -100.0]])
SETTINGS: dict[str, dict[str, Any]] = {
    "one member": {"members": 1},
    "default": {},
    "8 members": {"members": 8},
    "prior twice as wide": {"prior": FanIn(2.0)},
    "prior twice as wide, start .5": {"prior": FanIn(2.0), "start": 0.5},
    "start .5": {"start": 0.5},
}


def clusters(seed: int) -> tuple[Floats, Floats]:
    """Rows of both clusters and their targets."""
    rng = np.random.default_rng(seed)
    x = np.r_[rng.uniform(-2, -1, 50), rng.uniform(1, 2, 50)]
    return x[:, None], np.sin(2 * x) + 0.1 * rng.normal(size=100)


def stds(settings: dict[str, Any], seed: int) -> list[float]:
    """Epistemic standard deviations on the data, between and outside."""
    model = BayesianRegressor(random_state=seed, **settings).fit(*clusters(seed))
    places = (ON, BETWEEN, OUTSIDE)
    return [model.predictive(x).epistemic.sqrt().mean().item() for x in places]


def process(seed: int) -> list[float]:
    """The same of a Gaussian process whose kernel is fitted."""
    kernel = ConstantKernel() * RBF() + WhiteKernel(0.01)
    model = GaussianProcessRegressor(kernel, normalize_y=True).fit(*clusters(seed))
    noise = model.kernel_.k2.noise_level * np.std(clusters(seed)[1]) ** 2
    found = [model.predict(x, return_std=True)[1] ** 2 for x in (ON, BETWEEN, OUTSIDE)]
    return [float(np.sqrt(np.maximum(variance - noise, 0)).mean()) for variance in found]


def moons(settings: dict[str, Any], seed: int) -> list[float]:
    """The larger probability and the mutual information far away, and the accuracy near."""
    x, y = make_moons(200, noise=0.2, random_state=seed)
    model = BayesianClassifier(random_state=seed, **settings).fit(x, y)
    far = model.predictive(FAR)
    return [far.probabilities.max().item(), far.mutual_information.item(), model.score(x, y)]


def main() -> None:
    """Three seeds of each setting."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    found: dict[str, Any] = {}
    gp = np.mean([process(seed) for seed in range(3)], 0).round(3).tolist()
    found["Gaussian process"] = {"gap": gp}
    print("Gaussian process: on, between, outside", gp, flush=True)
    for name, settings in SETTINGS.items():
        gap = np.mean([stds(settings, seed) for seed in range(3)], 0).round(3).tolist()
        far = np.mean([moons(settings, seed) for seed in range(3)], 0).round(3).tolist()
        found[name] = {"gap": gap, "moons": far}
        print(f"{name}: on, between, outside {gap}; moons far {far}", flush=True)
    Path(__file__).with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
