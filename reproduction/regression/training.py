"""The networks of the regression experiments: all splits, or all tries of a search, as one stack.

One hidden layer of 50 ReLU units, prior N(0, I), one learned noise level.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from bayesdiv.app.nets.tables import MLP
from bayesdiv.divergence import JSA, UnmodifiedJSA
from bayesdiv.likelihoods import Gaussian
from bayesdiv.model.bayesian import Bayesian, stacked
from bayesdiv.model.bayesianize import bayesianize
from bayesdiv.model.posteriors import Point
from bayesdiv.model.priors import Prior
from bayesdiv.objective.objective import Objective
from bayesdiv.prediction import predict
from bayesdiv.training.batches import Batches
from bayesdiv.training.fit import fit
from bayesdiv.training.steps import Recorded
from reproduction.contenders import Contender
from reproduction.evidence import Evidence
from reproduction.regression.rows import Rows


@dataclass(frozen=True)
class Protocol:
    """What all losses share.

    Args:
        trials: random splits.
        test: share of rows to test on.
        validation: share of the training rows that alpha and strength are chosen on.
        hidden: units of the one hidden layer.
        start: initial posterior scale, as a fraction of the prior's.
        batch_size: rows per step.
        learning_rate: initial rate of Adam; it falls to 0 along half a cosine.
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


def trained(
    contender: Contender,
    rows: Rows,
    choice: Choice,
    protocol: Protocol,
    seeds: Sequence[int],
    samples: int,
    rates: Tensor | None = None,
) -> tuple[Bayesian, Gaussian]:
    """The stack of all trials after training.

    Args:
        contender: the loss.
        rows: of every trial.
        choice: alpha and strength of every trial.
        protocol: what all share; its epochs are those of all trials.
        seeds: of every trial, for weights and order.
        samples: weight draws per step.
        rates: initial learning rates, (trials,); None is that of the protocol for all.
    """
    trials, num_data, inputs = rows.x.shape
    device = rows.x.device
    if rates is None:
        rates = torch.full((trials,), protocol.learning_rate)
    rates = rates.to(device)
    model = _networks(contender, protocol, inputs, seeds).to(device)
    likelihood = Gaussian(torch.ones(trials)).to(device)
    objective = _objective(contender, likelihood, choice, num_data, samples)
    optimizer = PerTrial([*model.parameters(), *objective.parameters()], rates)
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
        # Half a cosine from the learning rate to 0: the last epochs average the noise out.
        done = epoch.number / protocol.epochs
        optimizer.rates.copy_(rates * 0.5 * (1 + math.cos(math.pi * done)))
    return model, likelihood


def _networks(
    contender: Contender, protocol: Protocol, inputs: int, seeds: Sequence[int]
) -> Bayesian:
    """One network per trial; equal seeds start from equal weights."""
    prior = Prior(Normal, loc=0.0, scale=1.0)
    alone: dict[int, Bayesian] = {}
    for seed in dict.fromkeys(seeds):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = MLP(inputs, 1, (protocol.hidden,)).build()
        # A point estimate has no scale that could shrink: its Gaussian is the prior's.
        start = 1.0 if contender.posterior is Point else protocol.start
        alone[seed] = bayesianize(network, prior, posterior=contender.posterior, start=start)
    return stacked([alone[seed] for seed in seeds])


def _objective(
    contender: Contender, likelihood: Gaussian, choice: Choice, num_data: int, samples: int
) -> Objective:
    if contender.method is not None:
        return Evidence(likelihood, contender.method, num_data=num_data, samples=samples)
    device = next(likelihood.parameters()).device
    return Objective(
        likelihood,
        contender.divergence(choice.alpha.to(device).unsqueeze(1)),
        num_data=num_data,
        strength=choice.strength.to(device),
        samples=samples,
    )


class PerTrial(torch.optim.Adam):
    """Adam with a learning rate for every trial of a stack, the first axis of every parameter.

    Its update is proportional to the rate, so that a step with a common one is scaled.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], rates: Tensor) -> None:
        on_gpu = rates.device.type == "cuda"
        super().__init__(parameters, lr=COMMON, capturable=on_gpu, fused=True)
        self.rates = rates.clone()  # changed in place, so that a recorded step sees it

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update."""
        held = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        before = [parameter.clone() for parameter in held]
        loss = super().step(closure)
        for parameter, old in zip(held, before, strict=True):
            share = (self.rates / COMMON).reshape(-1, *(1,) * (parameter.dim() - 1))
            parameter.copy_(old + share * (parameter - old))
        return loss


COMMON = 1e-2  # the rate that the steps of all trials are scaled from


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


def listed(values: Tensor) -> list[float | None]:
    """As JSON, which has no NaN."""
    return [value if math.isfinite(value) else None for value in values.tolist()]
