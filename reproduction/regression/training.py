"""The regression experiments of the paper: random 90/10 splits, all trained as one stack.

One hidden layer of 50 ReLU units, prior N(0, I), one learned noise level. Whatever a loss has to
choose (alpha, strength) each split chooses for itself, by the NLL of validation rows inside its own
training part; then it trains anew on the whole training part. Test rows decide nothing.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Normal
from torch.quasirandom import SobolEngine

from bayesdiv.app.nets.mlp import MLP
from bayesdiv.divergence import JSA, UnmodifiedJSA
from bayesdiv.likelihoods.gaussian import Gaussian
from bayesdiv.model.bayesian import Bayesian, bayesianize, stacked
from bayesdiv.model.posteriors.point import Point
from bayesdiv.model.priors import Prior
from bayesdiv.objective.evidence import Evidence
from bayesdiv.objective.objective import Objective
from bayesdiv.prediction import predict
from bayesdiv.training.batches import Batches
from bayesdiv.training.fit import Epoch, fit
from bayesdiv.training.steps import Recorded
from reproduction.contenders import CONTENDERS, Contender
from reproduction.pool import finished
from reproduction.regression.rows import Rows, arrays, split_rows


@dataclass(frozen=True)
class Protocol:
    """What all losses share.

    Args:
        trials: random splits.
        test: share of rows to test on.
        validation: share of the training rows that alpha and strength are chosen on.
        hidden: units of the one hidden layer.
        start: posterior scale to begin with, as a fraction of the prior's.
        batch_size: rows per step.
        learning_rate: of Adam, to begin with; it falls to 0 along half a cosine.
        epochs: passes over the training rows.
        candidates: pairs of alpha and strength that are tried by each loss that has them.
        search_samples: weight draws per step in the search.
        test_samples: weight draws for predictions.
        weakest: the range of strengths searched, on a logarithmic scale.
        strongest: its other end.
    """

    trials: int = 20
    test: float = 0.1
    validation: float = 0.2
    hidden: int = 50
    start: float = 0.01
    batch_size: int = 32
    learning_rate: float = 1e-2
    epochs: int = 500
    candidates: int = 16
    search_samples: int = 10
    test_samples: int = 100
    weakest: float = 1e-2
    strongest: float = 1e1


COLUMNS = (
    *("js_g", "js_a", "kl", "lambda_kl", "weighted_kl", "unmodified_js_g", "unmodified_js_a"),
    *("renyi", "chi", "total_variation", "deterministic"),
)
"""The contenders, in the order of the tables."""


def draws_per_step(contender: Contender) -> int:
    """Those of the paper: 10 for the arithmetic divergences, 100 for the others."""
    if contender.posterior is Point:
        return 1
    return 10 if contender.divergence in (JSA, UnmodifiedJSA) else 100


class Choice(NamedTuple):
    """Alpha and strength of each trial of a stack."""

    alpha: Tensor  # (trials,)
    strength: Tensor  # (trials,)


def candidates(contender: Contender, protocol: Protocol, seed: int = 0) -> Choice:
    """What a search tries: points spread evenly over alpha and the logarithm of strength.

    Every loss that searches gets as many, so that the budgets are equal.
    """
    points = SobolEngine(2, scramble=True, seed=seed).draw(protocol.candidates).double()
    if "alpha" not in contender.chooses:
        points[:, 1] = (torch.arange(protocol.candidates) + 0.5) / protocol.candidates
    low, high = math.log(protocol.weakest), math.log(protocol.strongest)
    strength = (low + (high - low) * points[:, 1]).exp()
    return Choice((0.01 + 0.98 * points[:, 0]).float(), strength.float())


def trained(
    contender: Contender,
    rows: Rows,
    choice: Choice,
    protocol: Protocol,
    seeds: Sequence[int],
    samples: int,
    watch: Callable[[Epoch, Bayesian, Gaussian], None] = lambda *_: None,
) -> tuple[Bayesian, Gaussian]:
    """The stack of all trials after training."""
    trials, num_data, inputs = rows.x.shape
    device = rows.x.device
    prior = Prior(Normal, loc=0.0, scale=1.0)
    alone: dict[int, Bayesian] = {}
    for seed in dict.fromkeys(seeds):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = MLP(inputs, 1, (protocol.hidden,)).build()
        # A point estimate has no scale that could shrink: its Gaussian is the prior's.
        start = 1.0 if contender.posterior is Point else protocol.start
        alone[seed] = bayesianize(network, prior, posterior=contender.posterior, start=start)
    model = stacked([alone[seed] for seed in seeds]).to(device)
    likelihood = Gaussian(torch.ones(trials)).to(device)
    objective: Objective
    if contender.method is not None:
        objective = Evidence(likelihood, contender.method, num_data=num_data, samples=samples)
    else:
        objective = Objective(
            likelihood,
            contender.divergence(choice.alpha.to(device).unsqueeze(1)),
            num_data=num_data,
            strength=choice.strength.to(device),
            samples=samples,
        )
    # A tensor, so that a recorded step sees it change.
    rate = torch.tensor(protocol.learning_rate, device=device)
    parameters = [*model.parameters(), *objective.parameters()]
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.Adam(parameters, lr=rate, capturable=on_gpu, fused=True)
    epochs = fit(
        model,
        objective,
        Batches(rows.x, rows.y, protocol.batch_size, seeds),
        optimizer,
        protocol.epochs,
        seed=0,
        step=Recorded(),
        device=device,
    )
    for epoch in epochs:
        watch(epoch, model, likelihood)
        # Half a cosine from the learning rate to 0: the last epochs average the noise out.
        done = epoch.number / protocol.epochs
        rate.fill_(protocol.learning_rate * 0.5 * (1 + math.cos(math.pi * done)))
    return model, likelihood


class Scores(NamedTuple):
    """Of each trial, in the units of the target; NaN for a trial that diverged."""

    rmse: Tensor
    nll: Tensor


def scores(model: Bayesian, likelihood: Gaussian, rows: Rows, samples: int) -> Scores:
    """Root mean squared error of the predictive mean, and NLL by log-mean-exp over the draws."""
    torch.manual_seed(0)
    predictive = predict(model, likelihood, rows.test_x, samples, batch_size=1024)
    error = (predictive.mean - rows.test_y).square().mean(-1).sqrt() * rows.scale
    nll = -predictive.log_prob(rows.test_y).mean(-1) + rows.scale.log()
    return Scores(error.double().cpu(), nll.double().cpu())


def searched(
    contender: Contender,
    inner: Rows,
    protocol: Protocol,
    seeds: Sequence[int],
    device: torch.device,
) -> tuple[Choice, dict[str, Any]]:
    """Each split's own alpha and strength, and what every candidate came to."""
    tried = candidates(contender, protocol)
    count, trials = protocol.candidates, len(seeds)
    rows = inner.repeated(count, device)
    choice = Choice(*(part.repeat_interleave(trials) for part in tried))
    samples = min(protocol.search_samples, draws_per_step(contender))
    model, likelihood = trained(contender, rows, choice, protocol, [*seeds] * count, samples)
    found = scores(model, likelihood, rows, protocol.test_samples)
    nll = found.nll.reshape(count, trials)
    best = torch.where(nll.isfinite(), nll, math.inf).argmin(0)
    told = {
        "alpha": tried.alpha.tolist() if "alpha" in contender.chooses else None,
        "strength": tried.strength.tolist(),
        "validation_nll": _listed(nll.mean(1)),
        "chosen": best.tolist(),
    }
    return Choice(tried.alpha[best], tried.strength[best]), told


class Job(NamedTuple):
    """One result file: a contender on a data set."""

    data: str
    contender: str
    protocol: Protocol

    def compute(self, device: torch.device) -> dict[str, Any]:
        """The result, as it is written to disk."""
        return compute(self.contender, *arrays(self.data), self.protocol, device=device)


class Trial(NamedTuple):
    """One try of what all losses share, with KL on the validation rows: part of `chosen`."""

    data: str
    protocol: Protocol

    def compute(self, device: torch.device) -> dict[str, Any]:
        """Means over the splits; the NLL of the standardised target, so that sets compare."""
        seeds = list(range(self.protocol.trials))
        _, inner = split_rows(*arrays(self.data), seeds, self.protocol)
        rows = inner.repeated(1, device)
        contender, even = CONTENDERS["kl"], torch.ones(len(seeds))
        model, likelihood = trained(
            contender,
            rows,
            Choice(even / 2, even),
            self.protocol,
            seeds,
            self.protocol.search_samples,
        )
        found = scores(model, likelihood, rows, self.protocol.test_samples)
        nll = found.nll - inner.scale.double().log()
        return {
            "data": self.data,
            "learning_rate": self.protocol.learning_rate,
            "start": self.protocol.start,
            "epochs": self.protocol.epochs,
            "validation_rmse": found.rmse.mean().item(),
            "validation_nll": nll.mean().item(),
        }


def computed(
    jobs: Sequence[Job | Trial], processes: int, device: torch.device
) -> Iterator[tuple[Job | Trial, dict[str, Any]]]:
    """Each job with its result, as they finish."""
    waiting = list(reversed(jobs))

    def following() -> Job | Trial | None:
        return waiting.pop() if waiting else None

    yield from finished(following, partial(_one, device=device), processes)


def _one(job: Job | Trial, device: torch.device) -> dict[str, Any]:
    return job.compute(device)


def compute(
    name: str,
    x: np.ndarray[Any, Any],
    y: np.ndarray[Any, Any],
    protocol: Protocol,
    *,
    device: torch.device,
) -> dict[str, Any]:
    """The result of one contender on one data set, as it is written to disk."""
    contender, seeds = CONTENDERS[name], list(range(protocol.trials))
    began = time.perf_counter()
    outer, inner = split_rows(x, y, seeds, protocol)
    fixed = torch.full((protocol.trials,), 0.5), torch.full((protocol.trials,), contender.strength)
    choice, search = Choice(*fixed), None
    if contender.chooses:
        choice, search = searched(contender, inner, protocol, seeds, device)
    rows = outer.repeated(1, device)
    samples = draws_per_step(contender)
    model, likelihood = trained(contender, rows, choice, protocol, seeds, samples)
    draws = 1 if contender.posterior is Point else protocol.test_samples
    found = scores(model, likelihood, rows, draws)
    bad = (~(found.rmse.isfinite() & found.nll.isfinite())).nonzero().flatten().tolist()
    return {
        "contender": name,
        "shape": list(x.shape),
        "seeds": seeds,
        "protocol": asdict(protocol),
        "samples": samples,
        "alpha": choice.alpha.tolist() if "alpha" in contender.chooses else None,
        "strength": choice.strength.tolist(),
        "search": search,
        "rmse": _listed(found.rmse),
        "nll": _listed(found.nll),
        "noise": _listed(likelihood.scale.detach().cpu() * outer.scale),
        "diverged": bad,
        "seconds": time.perf_counter() - began,
    }


def _listed(values: Tensor) -> list[float | None]:
    """As JSON, which has no NaN."""
    return [value if math.isfinite(value) else None for value in values.tolist()]
