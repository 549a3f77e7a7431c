"""One number on the logits or on the posterior's scales: against SciPy's minimum, and saved."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Normal

import bayesdiv as bd
from bayesdiv import metrics
from bayesdiv.calibration import Spread, Temperature
from bayesdiv.predictive import Predictive

dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def too_sure(dtype: torch.dtype = torch.float64, factor: float = 3.0) -> tuple[Predictive, Tensor]:
    """Logits of two draws, `factor` times as large as they should be."""
    generator = torch.Generator().manual_seed(0)
    true = 2 * torch.randn(3000, 4, generator=generator, dtype=dtype)
    y = true.softmax(-1).multinomial(1, generator=generator).squeeze(-1)
    noise = 0.2 * torch.randn(2, 3000, 4, generator=generator, dtype=dtype)
    return Predictive(Categorical(logits=factor * (true + noise))), y


@dtypes
@pytest.mark.parametrize("factor", [0.2, 1.0, 3.0, 20.0])
def test_the_temperature_is_the_minimum_that_scipy_finds(factor, dtype):
    predictive, y = too_sure(dtype, factor)
    logits = predictive.conditional.logits.double().numpy()

    def nll(log_value: float) -> float:
        chosen = special.log_softmax(logits / math.exp(log_value), -1)[:, range(len(y)), y]
        return -np.mean(special.logsumexp(chosen, 0) - math.log(2))

    wanted = math.exp(optimize.minimize_scalar(nll, bounds=(-4, 4), method="bounded").x)
    found = Temperature.fit(predictive, y).value
    assert found == pytest.approx(wanted, rel=1e-3)
    assert found == pytest.approx(factor, rel=0.1)


def test_a_temperature_lowers_the_likelihood_loss_and_the_calibration_error():
    predictive, y = too_sure()
    after = Temperature.fit(predictive, y)(predictive)
    assert metrics.nll(after, y) < 0.7 * metrics.nll(predictive, y)
    assert metrics.ece(after, y) < 0.3 * metrics.ece(predictive, y)
    assert after.conditional.logits.dtype == torch.float64


def test_a_temperature_serves_a_binary_likelihood():
    predictive = Predictive(Bernoulli(logits=torch.full((2, 100), 5.0)))
    y = (torch.arange(100) < 80).long()
    after = Temperature.fit(predictive, y)(predictive)
    assert isinstance(after.conditional, Bernoulli)
    assert after.probabilities[0, 1].item() == pytest.approx(0.8, abs=1e-4)


def test_classes_without_any_error_meet_the_lowest_temperature():
    predictive = Predictive(Bernoulli(logits=torch.full((1, 9), 1.0)))
    assert Temperature.fit(predictive, torch.ones(9)).value == pytest.approx(0.01, rel=1)


def test_a_temperature_refuses_numbers_no_rows_and_other_labels():
    with pytest.raises(ValueError, match="needs targets that are classes, got numbers"):
        Temperature.fit(Predictive(Normal(torch.zeros(1, 3), 1.0)), torch.zeros(3))
    with pytest.raises(ValueError, match="at least one held-out row to choose a number on, got 0"):
        Temperature.fit(Predictive(Bernoulli(logits=torch.zeros(1, 0))), torch.zeros(0))
    with pytest.raises(ValueError, match="labels must be integers from 0 to 1, got 2"):
        Temperature.fit(Predictive(Bernoulli(torch.full((1, 1), 0.5))), torch.tensor([2]))


def linear(scale: float, posterior: object = bd.MeanField) -> bd.Bayesian:
    """One weight of mean 1.5."""
    source = nn.Linear(1, 1, bias=False)
    nn.init.constant_(source.weight, 1.5)
    return bd.bayesianize(
        source, bd.Prior(Normal, loc=0.0, scale=scale), start=1.0, posterior=posterior
    )


@pytest.mark.parametrize("posterior", [bd.MeanField, bd.LowRank(1), bd.FullRank()], ids=repr)
@pytest.mark.parametrize("true", [0.3, 2.5])
def test_the_spread_undoes_a_posterior_of_the_wrong_width(true, posterior):
    """The weight's scale is 0.4; the rows were made with one `true` times as wide."""
    torch.manual_seed(0)
    x = 3 * torch.randn(4000, 1)
    y = 1.5 * x[:, 0] + (1 + (true * 0.4 * x[:, 0]) ** 2).sqrt() * torch.randn(4000)
    likelihood = bd.Gaussian(1.0)

    def nll(factor: float) -> float:
        width = np.sqrt(1 + (factor * 0.4 * x[:, 0].numpy()) ** 2)
        return -stats.norm.logpdf(y, 1.5 * x[:, 0], width).mean()

    wanted = optimize.minimize_scalar(nll, bounds=(0.01, 10), method="bounded").x
    found = Spread.fit(linear(0.4, posterior), likelihood, x, y, samples=500).factor
    assert found == pytest.approx(wanted, rel=0.1)


def test_a_spread_moves_draws_along_the_line_to_the_mean():
    net = linear(0.4)
    weights = bd.draw_weights(net, 50)
    (moved,) = Spread(2.0)(net, weights)
    torch.testing.assert_close(moved - 1.5, 2 * (weights[0] - 1.5))
    (still,) = Spread(0.0)(net, weights)
    torch.testing.assert_close(still, torch.full_like(still, 1.5))
    short = tuple(drawn.bfloat16() for drawn in weights)
    assert Spread(2.0)(net, short)[0].dtype == torch.bfloat16


def test_draws_of_an_ensemble_move_along_the_line_to_the_mean_of_their_own_member():
    net = linear(0.4, bd.Ensemble(members=3, redraw=lambda loc: loc + 100 * torch.randn(1)))
    weights = bd.draw_weights(net, 6)
    means = net.posterior.each.mean.repeat(2, 1)
    (moved,) = Spread(0.5)(net, weights)
    torch.testing.assert_close(moved - means, 0.5 * (weights[0] - means))
    assert (moved - means).abs().max() < 2
    with pytest.raises(ValueError, match="draws must be a multiple of the 3 members, got 5"):
        Spread(0.5)(net, bd.draw_weights(net, 5))


def test_a_spread_leaves_the_model_as_it_was():
    net = linear(0.4)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    Spread.fit(net, bd.Gaussian(0.2), torch.ones(5, 1), torch.ones(5), samples=5, batch_size=2)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_a_spread_needs_random_weights_and_rows():
    with pytest.raises(ValueError, match="a spread needs a model with random weights, got none"):
        Spread.fit(nn.Linear(1, 1), bd.Gaussian(), torch.ones(5, 1), torch.ones(5))
    with pytest.raises(ValueError, match="at least one held-out row"):
        Spread.fit(linear(1.0), bd.Gaussian(), torch.ones(0, 1), torch.ones(0))


def test_saved_numbers_come_back_from_json():
    for before in (Temperature(1.7), Spread(0.25)):
        assert type(before).from_state(json.loads(json.dumps(before.state()))) == before


def test_a_spread_is_fitted_to_an_ensemble_of_any_number_of_members():
    net = bd.bayesianize(nn.Linear(2, 1), bd.FanIn(), posterior=bd.Ensemble(4))
    found = Spread.fit(net, bd.Gaussian(), torch.randn(10, 2), torch.randn(10))
    assert 0.01 <= found.factor <= 10.1
