"""Quantiles by fixed steps, against SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import nn
from torch.distributions import Gamma, LogNormal, Normal, Poisson, StudentT

from bayesdiv.calibration import Levels
from bayesdiv.predictive import Predictive
from bayesdiv.quantiles import in_fixed_steps
from bayesdiv.serving.graph import Served

LOC = torch.tensor([[-1.0, 0.0, 3.0], [0.5, 0.0, -2.0]], dtype=torch.float64)
SCALE = torch.tensor([[0.1, 1.0, 2.0], [0.3, 1.0, 5.0]], dtype=torch.float64)
RATE = torch.tensor([[0.1, 3.0, 2000.0], [0.3, 5.0, 1500.0]], dtype=torch.float64)
FAMILIES = {
    "normal": (Normal(LOC, SCALE), stats.norm(LOC.numpy(), SCALE.numpy())),
    "t4": (StudentT(4.0, LOC, SCALE), stats.t(4.0, LOC.numpy(), SCALE.numpy())),
    "t1": (StudentT(1.0, LOC, SCALE), stats.t(1.0, LOC.numpy(), SCALE.numpy())),
    "lognormal": (
        LogNormal(LOC / 4, SCALE / 5),
        stats.lognorm(SCALE.numpy() / 5, scale=np.exp(LOC.numpy() / 4)),
    ),
    "gamma": (Gamma(RATE, SCALE), stats.gamma(RATE.numpy(), scale=1 / SCALE.numpy())),
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("probability", [0.005, 0.3, 0.95])
def test_quantiles_of_a_mixture_are_scipys(name, probability):
    ours, theirs = FAMILIES[name]
    found = in_fixed_steps(ours, [probability])[0]
    low, high = theirs.ppf(probability).min(0), theirs.ppf(probability).max(0)
    for column in range(3):

        def excess(at: float, column: int = column) -> float:
            return float(theirs.cdf(at)[:, column].mean() - probability)

        wanted = low[column]
        if high[column] > low[column]:
            wanted = optimize.brentq(excess, low[column], high[column], xtol=1e-12)
        spread = np.subtract(*theirs.ppf([[[0.95]], [[0.05]]]))[:, column].max()
        assert abs(found[column].item() - wanted) < 1e-5 * spread


@pytest.mark.parametrize("probability", [0.05, 0.5, 0.95])
def test_quantiles_of_counts_are_the_least_that_reach_the_probability(probability):
    found = in_fixed_steps(Poisson(RATE), [probability])[0]
    counts = np.arange(3000)[:, None, None]
    reached = stats.poisson(RATE.numpy()).cdf(counts).mean(1) >= probability
    assert found.tolist() == reached.argmax(0).tolist()


class Given(nn.Module):
    """A likelihood with any given distribution."""

    def __init__(self, made):
        super().__init__()
        self.made = made

    def forward(self, outputs):
        return self.made(outputs)


@pytest.mark.parametrize(
    ("made", "exact"),
    [(lambda f: Gamma(f.exp(), 2.0), False), (lambda f: Poisson(f.exp()), True)],
    ids=["gamma", "counts"],
)
@pytest.mark.parametrize("level", [0.6, 0.999])
def test_conformal_ends_of_bounded_targets_are_those_of_the_calibration(made, exact, level):
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(3, 40, generator=generator, dtype=torch.float64)
    predictive = Predictive(made(outputs))
    torch.manual_seed(0)
    y = predictive.conditional.sample()[0]
    levels = Levels.fit(predictive, y)
    served = Served(Given(made), level, calibration=(levels.kept(level),))
    found = served(outputs, torch.tensor([0.0, 1.0], dtype=torch.float64))
    ends = torch.stack([found["conformal_low"], found["conformal_high"]])
    wanted = torch.stack(levels(predictive).interval(level))
    if level > 40 / 41:
        assert ends.isinf().all()
        assert wanted.isinf().all()
    else:
        slack = 0 if exact else 1e-5  # 24 bisections; counts are found exactly
        assert ((ends[0] - slack <= y) & (y <= ends[1] + slack)).sum() >= math.ceil(41 * level)
        assert torch.allclose(ends, wanted.round() if exact else wanted, rtol=1e-5, atol=1e-5)
