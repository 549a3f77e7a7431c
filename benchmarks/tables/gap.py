"""What the estimators say where they have seen nothing: between two clusters, and far away.

    python -m benchmarks.tables.gap [--seeds 3]

Two clusters in one dimension, 50 rows each, noise .1: the epistemic standard deviation on the
clusters, between them and outside, of one mean-field network, of the ensemble without the term that
knows distances, of the default, of a Gaussian process, and of the exact posterior (gap_hmc.py, from
its file). Two moons: the probability and the mutual information at a point far away. Writes
gap.json and the figure docs/images/gap.png.
"""

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from bayesdiv import BayesianClassifier, BayesianRegressor, Predictive
from bayesdiv import predict as predict_with

Floats = NDArray[np.float64]
Curve = tuple[Floats, Floats]  # mean and epistemic standard deviation

HERE = Path(__file__).parent
GRID = np.linspace(-5, 5, 201)
ON = (np.abs(GRID) >= 1) & (np.abs(GRID) <= 2)
BETWEEN = np.abs(GRID) <= 0.5
OUTSIDE = np.abs(GRID) >= 4
FAR = np.array([[100.0, -100.0]])
ONE, FOUR, OURS = "one mean-field network", "ensemble of four", "the default"
GP, HMC = "Gaussian process", "exact posterior (NUTS)"


def clusters(seed: int) -> tuple[Floats, Floats]:
    """Rows of both clusters and their targets."""
    rng = np.random.default_rng(seed)
    x = np.r_[rng.uniform(-2, -1, 50), rng.uniform(1, 2, 50)]
    return x[:, None], np.sin(2 * x) + 0.1 * rng.normal(size=100)


def without_distances(model: Any, x: Floats) -> Predictive:
    """Predictions in standardised units by the network alone."""
    rows = torch.from_numpy((x - model._columns.loc) / model._columns.scale)
    torch.manual_seed(0)
    return predict_with(model.model_.network, model.likelihood_, rows, 100)


def curves(seed: int) -> dict[str, Curve]:
    """Mean and epistemic standard deviation of each way on the grid."""
    x, y = clusters(seed)
    single = BayesianRegressor(members=1, random_state=seed).fit(x, y)
    model = BayesianRegressor(random_state=seed).fit(x, y)
    found: dict[str, Curve] = {}
    for name, each in ((ONE, single), (FOUR, model)):
        plain = without_distances(each, GRID[:, None])
        loc, scale = each._targets.loc[0], each._targets.scale[0]
        found[name] = (
            loc + scale * plain.mean.numpy(),
            scale * plain.epistemic.sqrt().numpy(),
        )
    whole = model.predictive(GRID[:, None])
    found[OURS] = whole.mean.numpy(), whole.epistemic.sqrt().numpy()
    found[GP] = process(x, y)
    return found


def process(x: Floats, y: Floats) -> Curve:
    """The same of a Gaussian process whose kernel is fitted."""
    kernel = ConstantKernel() * RBF() + WhiteKernel(0.01)
    model = GaussianProcessRegressor(kernel, normalize_y=True).fit(x, y)
    noise = model.kernel_.k2.noise_level * np.std(y) ** 2
    mean, std = model.predict(GRID[:, None], return_std=True)
    return mean, np.sqrt(np.maximum(std**2 - noise, 0))


def exact() -> dict[str, Curve]:
    """That of gap_hmc.py, if it was run."""
    path = HERE / "gap_hmc.json"
    if not path.exists():
        return {}
    saved = json.loads(path.read_text())
    return {HMC: (np.array(saved["mean"]), np.array(saved["std"]))}


def places(curve: Curve) -> list[float]:
    """Mean standard deviations on the data, between and outside."""
    return [float(curve[1][where].mean()) for where in (ON, BETWEEN, OUTSIDE)]


def moons(members: int | None, seed: int) -> dict[str, list[float]]:
    """The larger probability and the mutual information far away, and the accuracy near."""
    x, y = make_moons(200, noise=0.2, random_state=seed)
    model = BayesianClassifier(members=members, random_state=seed).fit(x, y)
    score = model.score(x, y)
    found = {"with distances": model.predictive(FAR), "without": without_distances(model, FAR)}
    return {
        name: [far.probabilities.max().item(), far.mutual_information.item(), score]
        for name, far in found.items()
    }


def draw(found: dict[str, Curve], path: Path) -> None:
    """One panel per way: rows, mean, two epistemic standard deviations on both sides."""
    import matplotlib.pyplot as plt

    x, y = clusters(0)
    figure, axes = plt.subplots(1, len(found), figsize=(3.1 * len(found), 2.8), sharey=True)
    for axis, (name, (mean, std)) in zip(axes, found.items(), strict=True):
        axis.fill_between(GRID, mean - 2 * std, mean + 2 * std, color="#4477aa", alpha=0.25)
        axis.plot(GRID, mean, color="#4477aa")
        axis.plot(x[:, 0], y, ".", color="#222222", markersize=3)
        axis.set(title=name, xlim=(-5, 5), ylim=(-6, 6), xlabel="x")
    axes[0].set_ylabel("mean ± 2 epistemic std")
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Some seeds of each way; the figure shows the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    warnings.simplefilter("ignore", ConvergenceWarning)
    all_curves = [curves(seed) | exact() for seed in seeds]
    gap = {
        name: np.mean([places(each[name]) for each in all_curves], 0).round(3).tolist()
        for name in all_curves[0]
    }
    far: dict[str, Any] = {}
    for members, name in ((1, "one member"), (None, "four members")):
        each = [moons(members, seed) for seed in seeds]
        for way in each[0]:
            far[f"{name}, {way}"] = np.mean([e[way] for e in each], 0).round(3).tolist()
    found = {
        "seeds": len(seeds),
        "on, between, outside": gap,
        "moons: probability, information, accuracy": far,
    }
    (HERE / "gap.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(all_curves[0], HERE.parents[1] / "docs/images/gap.png")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
