"""A small network trained by exact rules and by samples, and the time of a step of a large one."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Normal

from bayesdiv import Auto, MonteCarlo
from bayesdiv.app.nets.images import ResNet
from bayesdiv.app.nets.tables import MLP
from bayesdiv.divergence import JSA, JSG, KL, Divergence, Estimator, Points
from bayesdiv.likelihoods import Classes
from bayesdiv.metrics import accuracy
from bayesdiv.model.bayesian import Bayesian
from bayesdiv.model.bayesianize import bayesianize
from bayesdiv.model.priors import FanIn, Prior
from bayesdiv.objective.objective import Objective
from bayesdiv.prediction import predict
from bayesdiv.training.batches import Batches
from bayesdiv.training.fit import fit
from reproduction.item import Effort, Tell


@dataclass(frozen=True)
class TwoSided(Divergence):
    """JS-A from draws of q and of p, as algorithm 2 takes them, corrected (errata 3 and 4).

        (1-α) E_q[log q - log A'] + α E_p[log p - log A'],   A' = α q + (1-α) p

    Examples:
        >>> q, p = Normal(1.0, 1.0), Normal(0.0, 1.0)
        >>> _ = torch.manual_seed(0)
        >>> found = MonteCarlo(samples=200_000)(TwoSided(0.5), q, p)
        >>> bool((found - JSA(0.5)(q, p)).abs() < 1e-3)
        True
    """

    alpha: float = 0.5

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        """Both expectations as means over their own points."""
        under_q = at_q.mean(at_q.log_q - self._log_mean(at_q))
        under_p = at_p.mean(at_p.log_p - self._log_mean(at_p))
        return (1 - self.alpha) * under_q + self.alpha * under_p

    def _log_mean(self, at: Points) -> Tensor:
        shares = at.log_q.new_tensor([self.alpha, 1 - self.alpha]).log()
        return torch.logaddexp(at.log_q + shares[0], at.log_p + shares[1])


class Way(NamedTuple):
    """A divergence and how it is computed."""

    divergence: Divergence
    estimator: Estimator


ALPHA = 0.5
WAYS: dict[str, Way] = {
    "kl": Way(KL(), MonteCarlo(1)),
    "js_g": Way(JSG(0.1), Auto()),
    "js_a": Way(JSA(ALPHA), Auto()),
    "js_a_sampled": Way(TwoSided(ALPHA), MonteCarlo(1)),
}
"""KL by samples and JS-G in closed form as in the paper; JS-A by our exact rule and by samples."""


@dataclass(frozen=True)
class Size:
    """How much is trained and timed.

    Args:
        seeds: runs of each way.
        epochs: of a run.
        hidden: units of the network that is trained.
        rounds: how often every way is timed.
        steps: that a round takes of each.
        pixels: of the images that the timed network sees.
        width: of that network; 64 is ResNet-18.
        batch: images per step.
    """

    seeds: int = 5
    epochs: int = 40
    hidden: int = 50
    rounds: int = 10
    steps: int = 20
    pixels: int = 224
    width: int = 64
    batch: int = 64


SIZES = {
    Effort.FULL: Size(),
    Effort.QUICK: Size(2, 3, 16, rounds=3, steps=2, pixels=16, width=4, batch=8),
}


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Handwritten digits of scikit-learn: three quarters to train on, one to test on."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.from_numpy(pixels / 16).float(), torch.from_numpy(labels).long()
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    cut = 3 * len(y) // 4
    return x[order[:cut]], y[order[:cut]], x[order[cut:]], y[order[cut:]]


def trained(way: Way, size: Size, seed: int) -> dict[str, Any]:
    """One network on the digits: its losses and its test accuracy."""
    x, y, test_x, test_y = digits()
    torch.manual_seed(seed)
    prior = Prior(Normal, loc=0.0, scale=0.5)
    model = bayesianize(MLP(64, 10, (size.hidden,)).build(), prior, start=0.1)
    objective = Objective(
        Classes(), way.divergence, num_data=len(y), strength=0.1, estimator=way.estimator
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    batches = Batches(x, y, size=64, seed=seed)
    losses = [
        epoch.loss.total
        for epoch in fit(model, objective, batches, optimizer, size.epochs, seed=seed)
    ]
    torch.manual_seed(0)
    reached = float(accuracy(predict(model, Classes(), test_x, 32), test_y))
    return {"seed": seed, "losses": losses, "accuracy": reached}


def compared(names: tuple[str, ...], size: Size, tell: Tell) -> dict[str, list[dict[str, Any]]]:
    """Every way with every seed."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in names:
        for seed in range(size.seeds):
            tell(f"{name}, seed {seed}")
            found.setdefault(name, []).append(trained(WAYS[name], size, seed))
    return found


def timed(
    names: tuple[str, ...], size: Size, device: torch.device, tell: Tell
) -> dict[str, list[float]]:
    """Seconds per step of each way, one number per round; the ways take turns in every round."""
    steps = {name: _step(WAYS[name], size, device) for name in names}
    for step in steps.values():
        _seconds(step, 3, device)  # kernels are chosen
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(size.rounds):
        tell(f"round {number + 1} of {size.rounds}")
        for name, step in steps.items():
            found[name].append(_seconds(step, size.steps, device))
    return found


def _step(way: Way, size: Size, device: torch.device) -> Callable[[], None]:
    """One update of a residual network on images of noise, as a user would write it."""
    torch.manual_seed(0)
    network = ResNet(classes=2, width=size.width).build()
    model: Bayesian = bayesianize(network, FanIn(2**0.5), start=0.05).to(device)
    images = torch.randn(size.batch, 3, size.pixels, size.pixels, device=device)
    labels = torch.arange(size.batch, device=device) % 2
    objective = Objective(
        Classes(), way.divergence, num_data=1000 * size.batch, estimator=way.estimator
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    kind = device.type

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            loss = objective(model, images, labels)
        loss.total.backward()
        optimizer.step()

    return step


def _seconds(step: Callable[[], None], count: int, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    for _ in range(count):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - began) / count


def extra(times: Mapping[str, list[float]], name: str, base: str = "kl") -> list[float]:
    """The time over that of another way less 1, round by round."""
    pairs = zip(times[name], times[base], strict=True)
    return [own / other - 1 for own, other in pairs]
