"""Rate, epochs, strength and alpha of a loss on a data set, by successive halving.

Every loss gets as many candidates, spread evenly over all that it leaves open; KL leaves rate and
epochs. A round trains its candidates on the training part of some splits, as trials of one program
for each number of epochs, and keeps the half with the lowest mean NLL of validation rows; the
splits grow as the candidates shrink. The last four are trained with as many weight draws as the
final networks. The winner trains again on the whole training part of every split, and is scored on
its test rows, which decide nothing within a split.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from reproduction.contenders import CONTENDERS, Contender
from reproduction.item import Tell
from reproduction.regression.rows import Array, Rows, split_rows
from reproduction.regression.training import (
    Choice,
    Protocol,
    draws_per_step,
    listed,
    scores,
    trained,
)

LOSSES = ("kl", "lambda_kl", "js_g", "js_a")
"""Those that are compared by equal searches; the other columns keep their results."""


class Candidate(NamedTuple):
    """What is tried: alpha and strength are left unread where the loss has none."""

    rate: float
    epochs: int
    strength: float
    alpha: float


@dataclass(frozen=True)
class Search:
    """How much is tried.

    Args:
        rounds: how many candidates each round trains, and on how many splits.
        finalists: that are trained with the final number of draws, on all splits.
        draws: weight draws per step before that.
        rates: ends of the learning rates, on a log scale.
        lengths: epochs to choose from.
        strengths: ends of the strengths, on a log scale.
        alphas: ends of alpha.
    """

    rounds: tuple[tuple[int, int], ...] = ((32, 5), (16, 10), (8, 20))
    finalists: int = 4
    draws: int = 10
    rates: tuple[float, float] = (1e-3, 3e-2)
    lengths: tuple[int, ...] = (100, 250, 500)
    strengths: tuple[float, float] = (1e-2, 1e1)
    alphas: tuple[float, float] = (0.01, 0.99)


def candidates(contender: Contender, search: Search, seed: int = 0) -> list[Candidate]:
    """As many for every loss, spread evenly over what it leaves open.

    Examples:
        >>> tried = candidates(CONTENDERS["kl"], Search())
        >>> len(tried), {one.strength for one in tried}
        (32, {1.0})
    """
    count = search.rounds[0][0]
    points = SobolEngine(2 + len(contender.chooses), scramble=True, seed=seed).draw(count).double()
    found = []
    for rate, length, *rest in points.tolist():
        open_ = dict(zip(reversed(contender.chooses), rest, strict=True))
        strength = contender.strength
        if "strength" in open_:
            strength = _on_log(open_["strength"], *search.strengths)
        low, high = search.alphas
        found.append(
            Candidate(
                _on_log(rate, *search.rates),
                search.lengths[int(length * len(search.lengths))],
                strength,
                low + open_.get("alpha", 0.5) * (high - low),
            )
        )
    return found


def _on_log(share: float, low: float, high: float) -> float:
    return float(f"{low * (high / low) ** share:.4g}")


def validated(
    contender: Contender,
    inner: Rows,
    tried: Sequence[Candidate],
    protocol: Protocol,
    samples: int,
    device: torch.device,
) -> Tensor:
    """The NLL of every candidate on the validation rows of every split, (candidates, splits)."""
    splits = len(inner.x)
    found = torch.full((len(tried), splits), math.nan, dtype=torch.float64)
    for length in dict.fromkeys(one.epochs for one in tried):
        at = [place for place, one in enumerate(tried) if one.epochs == length]
        own = [tried[place] for place in at]
        seeds = [*range(splits)] * len(own)
        rows = inner.repeated(len(own), device)
        choice, rates = _spread(own, splits)
        model, likelihood = trained(
            contender, rows, choice, replace(protocol, epochs=length), seeds, samples, rates
        )
        nll = scores(model, likelihood, rows, protocol.test_samples).nll
        found[at] = nll.reshape(len(own), splits)
    return found


def _spread(own: Sequence[Candidate], splits: int) -> tuple[Choice, Tensor]:
    """Alpha, strength and rate of every trial: candidates along the first axis, splits inside."""
    columns = (torch.tensor(part).repeat_interleave(splits) for part in zip(*own, strict=True))
    rate, _, strength, alpha = columns
    return Choice(alpha.float(), strength.float()), rate.float()


def best(nll: Tensor, count: int) -> list[int]:
    """The candidates of the lowest mean NLL, in this order; one with a diverged split is last."""
    mean = torch.where(nll.isfinite(), nll, math.inf).mean(1)
    return mean.argsort(stable=True)[:count].tolist()


class Progress(NamedTuple):
    """The rounds of a search that have ended, and the seconds that they took."""

    rounds: list[dict[str, Any]]
    seconds: float = 0.0


Keep = Callable[[Progress], None]


def chosen(
    contender: Contender,
    inner: Rows,
    protocol: Protocol,
    search: Search,
    device: torch.device,
    tell: Tell = lambda line: None,
    before: Progress = Progress([]),  # noqa: B008
    keep: Keep = lambda progress: None,
) -> tuple[Candidate, list[dict[str, Any]]]:
    """The winner, and what every round tried and found; rounds of an earlier try are not repeated.

    Args:
        contender: the loss.
        inner: rows to train on and to choose by.
        protocol: what all losses share.
        search: how much is tried.
        device: what computes.
        tell: called with a line per round.
        before: what an earlier try has found.
        keep: called with what is found so far after each round.
    """
    tried, told, began = candidates(contender, search), [*before.rounds], time.perf_counter()
    final = draws_per_step(contender)
    rounds = [(count, splits, min(search.draws, final)) for count, splits in search.rounds]
    rounds.append((search.finalists, protocol.trials, final))
    for number, (count, splits, samples) in enumerate(rounds):
        if number == len(told):
            tried = tried[:count]
            tell(f"{len(tried)} candidates on {splits} splits, {samples} draws per step")
            some = Rows(*(part[: min(splits, len(part))] for part in inner))
            nll = validated(contender, some, tried, protocol, samples, device)
            told.append(
                {
                    "splits": len(some.x),
                    "samples": samples,
                    "tried": [one._asdict() for one in tried],
                    "validation_nll": listed(nll.mean(1)),
                }
            )
            keep(Progress(told, before.seconds + time.perf_counter() - began))
        tried = ranked(told[number])
    return tried[0], told


def ranked(told: Mapping[str, Any]) -> list[Candidate]:
    """The candidates of a round, the best first."""
    nll = [math.nan if each is None else each for each in told["validation_nll"]]
    order = best(torch.tensor(nll, dtype=torch.float64).unsqueeze(1), len(nll))
    return [Candidate(**told["tried"][place]) for place in order]


def compute(
    name: str,
    x: Array,
    y: Array,
    protocol: Protocol,
    search: Search,
    device: torch.device,
    tell: Tell = lambda line: None,
    before: Progress = Progress([]),  # noqa: B008
    keep: Keep = lambda progress: None,
) -> dict[str, Any]:
    """The result of one loss on one data set, as it is written to disk.

    Args:
        name: a key of `CONTENDERS`.
        x: features.
        y: target.
        protocol: what all losses share.
        search: how much is tried.
        device: what computes.
        tell: called with a line per round.
        before: the rounds of an earlier try.
        keep: called with the rounds so far after each.
    """
    contender, seeds, began = CONTENDERS[name], list(range(protocol.trials)), time.perf_counter()
    outer, inner = split_rows(x, y, seeds, protocol)
    won, told = chosen(contender, inner, protocol, search, device, tell, before, keep)
    rows, samples = outer.repeated(1, device), draws_per_step(contender)
    choice, rates = _spread([won], protocol.trials)
    model, likelihood = trained(
        contender, rows, choice, replace(protocol, epochs=won.epochs), seeds, samples, rates
    )
    found = scores(model, likelihood, rows, protocol.test_samples)
    bad = (~(found.rmse.isfinite() & found.nll.isfinite())).nonzero().flatten().tolist()
    return {
        "contender": name,
        "shape": list(x.shape),
        "seeds": seeds,
        "protocol": asdict(protocol),
        "search": asdict(search),
        "samples": samples,
        "setting": won._asdict(),
        "rounds": told,
        "rmse": listed(found.rmse),
        "nll": listed(found.nll),
        "noise": listed(likelihood.scale.detach().cpu() * outer.scale),
        "diverged": bad,
        "seconds": before.seconds + time.perf_counter() - began,
    }
