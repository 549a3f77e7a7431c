"""Why JS wins: the paper says that it regularises more than KL, so its gap should be smaller.

The gap is training less validation accuracy after the last epoch. The pull is how hard the loss
draws the means of the trained weights to the prior, λ|∂D/∂m|, in nats per unit of the weight; runs
since 0.2.0 record it. For all runs it follows from the settings how hard the loss pulls at the
start of training, as a share of the pull of KL at strength 1.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.distributions import Normal

from reproduction.contenders import CONTENDERS, JS, THREE, title
from reproduction.images.comparing import FINAL_GAP, Run, ahead, average, by_fold, everyone
from reproduction.images.drawing import COLOURS, STYLES, boxes, demand, dress, finished, panels
from reproduction.images.plans import NOISE
from reproduction.images.running import Requirement
from reproduction.verdict import Comparison, Verdict, judged

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = (*THREE, "lambda_kl")
# Gaps are of validation rows, which differ from fold to fold.
NEEDS = Requirement(("cifar10-folds", "histopathology-folds", "cifar100-folds"), SHOWN, measures=())


class Setup(NamedTuple):
    """An experiment whose gaps are compared.

    Args:
        title: as it is shown.
        experiments: whose results; the first that has any.
        noise: of its images.
        claimed: the losses of which the paper says that their gap is below that of KL.
    """

    title: str
    experiments: tuple[str, ...]
    noise: float | None
    claimed: tuple[str, ...]

    def told(self, results: Path) -> dict[str, list[dict[str, Any]]]:
        """All runs, by loss."""
        every = (everyone(results, name, SHOWN, self.noise) for name in self.experiments)
        return next(filter(None, every), {})


SETUPS = (
    Setup(f"CIFAR-10, noise {NOISE:g}", ("cifar10",), NOISE, JS),
    Setup("histopathology", ("histopathology",), None, JS),
    # Of JS-G the paper says here that KL regularises more.
    Setup("CIFAR-100, noise 0.5", ("cifar100-folds", "cifar100"), 0.5, ("js_a",)),
)


def draw(results: Path, out: Path) -> list[Path]:
    """The gaps of the losses, and the pull on their weights where runs recorded it."""
    told = {setup.title: _ended(results, setup) for setup in SETUPS}
    known = {name: runs for name, runs in told.items() if runs}
    demand(bool(known), results)
    figure, (left, right) = panels(2, (13, 5.2))
    gaps = {
        where: {name: list(by_fold(each, FINAL_GAP).values()) for name, each in runs.items()}
        for where, runs in known.items()
    }
    boxes(left, gaps)
    left.set(ylabel="training less validation accuracy", title="Gap after the last epoch")
    recorded = any(mean_pull(each) is not None for runs in known.values() for each in runs.values())
    (_pulls if recorded else _expected)(right, known)
    return finished(figure, "Which loss regularises more", results, out / "mechanism.svg")


def _ended(results: Path, setup: Setup) -> dict[str, list[Run]]:
    told = setup.told(results)
    ended = {name: [run for run in runs if run["at_end"]] for name, runs in told.items()}
    return {name: list(runs) for name, runs in ended.items() if runs}


def _pulls(axes: "Axes", told: Mapping[str, Mapping[str, Sequence[Run]]]) -> None:
    """Bars of the mean pull."""
    known = [
        (where, name, pull)
        for where, runs in told.items()
        for name, each in runs.items()
        if (pull := mean_pull(each)) is not None
    ]
    for at, (_, name, pull) in enumerate(known):
        axes.bar(at, pull, color=COLOURS[name])
    axes.set_xticks(range(len(known)), labels=[f"{title(n)}\n{where}" for where, n, _ in known])
    axes.set(ylabel="nats per unit of weight", title="Mean pull λ|∂D/∂m| on the trained weights")
    axes.set_yscale("log")
    dress(axes)


def _expected(axes: "Axes", told: Mapping[str, Mapping[str, Sequence[Run]]]) -> None:
    """Curves of the pull that follows from the settings of the first experiment, over the scale."""
    where, every = next(iter(told.items()))
    scales = torch.logspace(-2, 0, 41).tolist()
    for name, runs in every.items():
        setting = runs[0]["setting"]
        pulls = [expected_pull(setting, scale) for scale in scales]
        axes.plot(scales, pulls, color=COLOURS[name], ls=STYLES[name], lw=2)
        axes.plot(setting["start"], expected_pull(setting), "o", color=COLOURS[name])
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="posterior scale over prior scale; dots: at the start",
        ylabel="over the pull of KL at strength 1",
        title=f"Pull on a mean, by the settings for {where}",
    )
    dress(axes)


def expected_pull(setting: Mapping[str, Any], scale: float | None = None) -> float:
    """λ|∂D/∂m| over |∂KL/∂m| for a mean that lies one prior scale from that of the prior.

    Args:
        setting: of a run.
        scale: of the posterior, as a fraction of the prior's; None is that of the start.

    Examples:
        >>> expected_pull({"contender": "lambda_kl", "strength": 0.1, "alpha": None}, 0.3)
        0.1
    """
    at = setting["start"] if scale is None else scale
    slope = _slope(setting["contender"], setting["alpha"] or 0.0, at)
    return float(setting["strength"]) * slope


@lru_cache(maxsize=1024)
def _slope(contender: str, alpha: float, scale: float) -> float:
    """|∂D/∂m| at m = 1, where that of KL is 1, for the prior N(0, 1)."""
    loc, one = torch.ones((), dtype=torch.float64, requires_grad=True), torch.ones(()).double()
    apart = CONTENDERS[contender].divergence(alpha)(Normal(loc, scale * one), Normal(0 * one, one))
    (slope,) = torch.autograd.grad(apart, loc)
    return float(slope.abs())


def mean_pull(runs: Sequence[Run]) -> float | None:
    """The mean over folds of the mean pull over weights; None where no run recorded it."""
    found = [run["at_end"]["pull"]["mean"] for run in runs if "pull" in (run["at_end"] or {})]
    return fmean(found) if found else None


def verdict(results: Path) -> Verdict:
    """Whether the gap of the JS losses is smaller than that of KL, as more regularisation implies.

    Each comparison uses the folds that both have; the gap of λKL and the pulls are shown too, as
    runs recorded them and as the settings give them at the start. The paper states no figures for
    KL against JS.
    """
    claims, beside = [], []
    for setup in SETUPS:
        told = setup.told(results)
        for name in setup.claimed:
            less = ahead(told.get("kl", ()), told.get(name, ()), FINAL_GAP)
            if less is not None:
                said = f"gap of {title(name)} below KL on {setup.title}"
                claims.append(Comparison(said, less))
        less = ahead(told.get("kl", ()), told.get("lambda_kl", ()), FINAL_GAP)
        if less is not None:
            beside.append(Comparison(f"gap of λKL below KL on {setup.title}", less).text)
        beside += [
            f"gap of {title(name)} {100 * average(runs, FINAL_GAP):.1f} points on {setup.title}"
            + _pulled(runs)
            for name, runs in told.items()
        ]
        beside += [
            f"pull of {title(name)} at the start {expected_pull(runs[0]['setting']):.2g} times "
            f"that of KL on {setup.title}"
            for name, runs in told.items()
            if name != "kl"
        ]
    wanted = sum(len(setup.claimed) for setup in SETUPS)
    lacks = NEEDS.lacks(results)
    if not any(", pull" in sentence for sentence in beside):
        lacks.append("the pull on trained weights")
    return judged(claims, wanted=wanted, beside=beside, missing=lacks)


def _pulled(runs: Sequence[Run]) -> str:
    pull = mean_pull(runs)
    return "" if pull is None else f", pull {pull:.3g}"
