"""The columns of the regression tables: what a loss leaves open is chosen by each split for itself.

By the NLL of validation rows inside the split's own training part; then the split trains again on
the whole of it. Test rows decide nothing. Learning rate, epochs and start are shared by all losses.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.quasirandom import SobolEngine

from bayesdiv.model.posteriors import Point
from reproduction.contenders import CONTENDERS, Contender
from reproduction.pool import finished
from reproduction.regression.rows import Array, Rows, arrays, split_rows
from reproduction.regression.training import (
    Choice,
    Protocol,
    draws_per_step,
    listed,
    scores,
    trained,
)


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
        "validation_nll": listed(nll.mean(1)),
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
    x: Array,
    y: Array,
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
        "rmse": listed(found.rmse),
        "nll": listed(found.nll),
        "noise": listed(likelihood.scale.detach().cpu() * outer.scale),
        "diverged": bad,
        "seconds": time.perf_counter() - began,
    }
