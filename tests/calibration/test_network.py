"""Whether intervals hold what they promise, on data made by the model that is fitted."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd

TRIALS, ROWS, INPUTS, NOISE = 50, 60, 4, 0.5


def made(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Fifty data sets of a linear model whose weights come from the prior."""
    weights = torch.randn(TRIALS, INPUTS, 1, generator=generator)

    def rows(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(TRIALS, count, INPUTS, generator=generator)
        noise = NOISE * torch.randn(TRIALS, count, generator=generator)
        return x, (x @ weights).squeeze(-1) + noise

    return *rows(ROWS), *rows(200)


@pytest.mark.slow
@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSG(0.1), bd.JSA(0.1)], ids=repr)
def test_ninety_percent_intervals_cover_ninety_percent_over_fifty_repetitions(divergence):
    torch.manual_seed(0)
    x, y, test_x, test_y = made(torch.Generator().manual_seed(1))
    prior = bd.Prior(Normal, loc=0.0, scale=1.0)
    alone = [
        bd.bayesianize(nn.Linear(INPUTS, 1, bias=False), prior, start=0.1) for _ in range(TRIALS)
    ]
    model = bd.stacked(alone)
    likelihood = bd.Gaussian(torch.ones(TRIALS))
    objective = bd.Objective(likelihood, divergence, num_data=ROWS, samples=8)
    parameters = [*model.parameters(), *objective.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=2e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1500)
    for _ in bd.fit(model, objective, [(x, y)], optimizer, epochs=1500, seed=0):
        schedule.step()
    predictive = bd.predict(model, likelihood, test_x, samples=200)
    low, high = predictive.interval(0.9)
    inside = ((low <= test_y) & (test_y <= high)).float().mean(1)
    assert 0.87 <= inside.mean().item() <= 0.93
