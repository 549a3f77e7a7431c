"""How many of the draws count in the rival bounds of the tables, before and after training.

A bound weights its draws by v = softmax(c ℓ) with ℓ = log p(data, w) - log q(w), see
`reproduction.evidence`: c is 1-α for Rényi-VI, the order for χ-VI, and 1 for TV-VI. The effective
number of draws is 1/Σ v². Where it is 1, one draw decides the gradient, however many are taken.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from bayesdiv.app import runs
from bayesdiv.draws import draw_weights, draws
from bayesdiv.likelihoods import Gaussian
from bayesdiv.model.bayesian import Bayesian
from bayesdiv.model.posteriors import Posterior
from reproduction.contenders import CONTENDERS
from reproduction.hardware import hardware
from reproduction.item import Tell, stamp
from reproduction.regression.rows import Array, Rows, arrays, split_rows
from reproduction.regression.training import Choice, Protocol, draws_per_step, scores, trained

PLACE = Path("regression", "effective_draws.json")
POWERS = {"renyi": 0.5, "chi": 2.0, "total_variation": 1.0}
"""c of each bound, as its contender is set."""
SETS = ("yacht", "boston_housing", "real_estate")
SPLITS = 2


@torch.no_grad()
def effective(
    model: Bayesian, likelihood: Gaussian, rows: Rows, power: float, samples: int
) -> Tensor:
    """1/Σ v² over the draws, for each network of a stack, on all its training rows."""
    torch.manual_seed(0)
    weights = draw_weights(model, samples)
    fitted = likelihood(draws(model, rows.x, weights)).log_prob(rows.y).sum(-1)  # (S, trials)
    (drawn,) = weights
    posterior = cast(Posterior, model.posterior)
    ratio = fitted + model.p().log_prob(drawn).sum(-1) - posterior.log_prob(drawn)
    shares: Tensor = (power * ratio).softmax(0)
    return shares.square().sum(0).reciprocal()


def measured(name: str, x: Array, y: Array, protocol: Protocol) -> dict[str, Any]:
    """One bound on one set: at the start, and after the training of the tables."""
    contender, seeds = CONTENDERS[name], list(range(protocol.trials))
    outer, _ = split_rows(x, y, seeds, protocol)
    rows = outer.repeated(1, torch.device("cpu"))
    samples, ones = draws_per_step(contender), torch.ones(protocol.trials)
    told: dict[str, Any] = {"samples": samples}
    # A rate of almost 0 leaves the network where it starts.
    start = replace(protocol, epochs=1, learning_rate=1e-12)
    for when, wanted in (("before", start), ("after", protocol)):
        model, likelihood = trained(contender, rows, Choice(ones, ones), wanted, seeds, samples)
        found = effective(model, likelihood, rows, POWERS[name], samples)
        told[when] = {
            "effective": found.tolist(),
            "rmse": scores(model, likelihood, rows, protocol.test_samples).rmse.tolist(),
        }
    return told


def compute(
    results: Path, protocol: Protocol, tell: Tell, data: Sequence[str] = SETS
) -> dict[str, Any]:
    """All bounds on some sets, on the CPU: minutes. What was written before is read."""
    path = results / PLACE
    if path.exists():
        return dict(runs.read_json(path))
    protocol, began = replace(protocol, trials=SPLITS), time.perf_counter()
    found: dict[str, dict[str, Any]] = {}
    for each in data:
        for name in POWERS:
            found.setdefault(each, {})[name] = measured(name, *arrays(each), protocol)
            tell(
                f"{each} with {CONTENDERS[name].title}: {time.perf_counter() - began:.0f} s so far"
            )
    told = {
        **stamp(),
        "torch": torch.__version__,
        "hardware": hardware(torch.device("cpu")),
        "protocol": asdict(protocol),
        "seconds": time.perf_counter() - began,
        "each": found,
    }
    runs.write_json(path, told)
    return told
