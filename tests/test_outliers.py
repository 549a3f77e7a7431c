"""Scores of unusual rows against SciPy and scikit-learn, and the rate of false alarms."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from scipy.spatial.distance import mahalanobis
from sklearn.covariance import EmpiricalCovariance, LedoitWolf
from torch import nn
from torch.distributions import Categorical, Independent, Normal

import bayesdiv as bd
from bayesdiv import outliers
from bayesdiv.predictive import Predictive


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def classes() -> Predictive:
    return Predictive(Categorical(logits=torch.randn(5, 30, 4, generator=generator()).double()))


def numbers() -> Predictive:
    loc = torch.randn(5, 30, 2, generator=generator()).double()
    scale = torch.rand(5, 30, 2, generator=generator(1)).double() + 0.1
    return Predictive(Independent(Normal(loc, scale), 1))


# --- scores of predictions -----------------------------------------------------------------------


def test_entropy_and_mutual_information_of_classes_agree_with_scipy():
    each = classes().conditional.probs.numpy()
    whole = stats.entropy(each.mean(0), axis=-1)
    np.testing.assert_allclose(outliers.entropy(classes()), whole)
    inner = stats.entropy(each, axis=-1).mean(0)
    np.testing.assert_allclose(outliers.mutual_information(classes()), whole - inner)


def test_entropy_of_numbers_is_that_of_gaussians():
    loc, scale = numbers().conditional.base_dist.loc, numbers().conditional.base_dist.scale
    variance = loc.numpy().var(0) + (scale**2).numpy().mean(0)
    wanted = stats.norm.entropy(scale=np.sqrt(variance)).sum(-1)
    np.testing.assert_allclose(outliers.entropy(numbers()), wanted)


def test_mutual_information_of_numbers_is_that_of_a_gaussian_channel():
    """Of y = f + noise with Gaussian f: the entropy of y less that of the noise."""
    loc, scale = numbers().conditional.base_dist.loc, numbers().conditional.base_dist.scale
    noise = (scale**2).numpy().mean(0)
    total = stats.norm.entropy(scale=np.sqrt(noise + loc.numpy().var(0)))
    wanted = (total - stats.norm.entropy(scale=np.sqrt(noise))).sum(-1)
    np.testing.assert_allclose(outliers.mutual_information(numbers()), wanted)


def test_draws_that_agree_have_no_mutual_information():
    same = Predictive(Normal(torch.ones(3, 4), 1.0))
    assert torch.equal(outliers.mutual_information(same), torch.zeros(4))


# --- the network at its mean ---------------------------------------------------------------------


def network(*, dropout: float = 0.5) -> bd.Bayesian:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 4))
    return bd.bayesianize(layers, bd.FanIn(), start=2.0)


def test_features_are_those_of_the_mean_network_in_evaluation_mode():
    net, x = network().train(), torch.randn(7, 3)
    layout = net.layout.unflatten(net.loc)
    wanted = torch.tanh(x @ layout["0.weight"].mT + layout["0.bias"])
    found = outliers.features(net, x, net.module[1], batch_size=3)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(outliers.features(net, x, net.module[2]), wanted)
    outputs = wanted @ layout["3.weight"].mT + layout["3.bias"]
    torch.testing.assert_close(outliers.features(net, x), outputs)
    assert not found.requires_grad
    assert net.training
    assert net.module[2].training
    assert not net.module[1]._forward_hooks


def test_features_of_another_models_layer_are_refused():
    with pytest.raises(ValueError, match="layer must be a module that the model runs"):
        outliers.features(network(), torch.zeros(2, 3), nn.Tanh())


def test_energy_agrees_with_scipy():
    outputs = 50 * torch.randn(20, 4, generator=generator(), dtype=torch.float64)
    np.testing.assert_allclose(outliers.energy(outputs), -special.logsumexp(outputs, axis=-1))
    single = outputs[:, :1]
    wanted = -np.logaddexp(0, single[:, 0].numpy())
    np.testing.assert_allclose(outliers.energy(single), wanted, atol=1e-15)


def test_mahalanobis_agrees_with_scikit_learn():
    usual = torch.randn(60, 5, generator=generator()) @ torch.randn(5, 5, generator=generator(1))
    unusual = 3 * torch.randn(9, 5, generator=generator(2))
    wanted = LedoitWolf().fit(usual.double().numpy()).mahalanobis(unusual.double().numpy())
    np.testing.assert_allclose(outliers.Mahalanobis.fit(usual)(unusual), wanted, rtol=1e-8)


def test_mahalanobis_takes_the_nearest_class():
    y = torch.randint(3, (400,), generator=generator())
    usual = 20 * y.unsqueeze(-1) + torch.randn(400, 2, generator=generator(1)).double()
    centred = torch.cat([usual[y == c] - usual[y == c].mean(0) for c in range(3)])
    inverse = LedoitWolf(assume_centered=True).fit(centred.numpy()).precision_
    rows = torch.tensor([[0.0, 1.0], [40.0, 41.0], [10.0, 10.0]]).double()
    each = [[mahalanobis(r, usual[y == c].mean(0), inverse) ** 2 for c in range(3)] for r in rows]
    found = outliers.Mahalanobis.fit(usual, y)(rows)
    np.testing.assert_allclose(found, np.min(each, -1), rtol=1e-8)
    assert (found[:2] < 10).all()
    assert found[2] > 50


def test_mahalanobis_is_finite_with_fewer_rows_than_features():
    """Two features never vary: the sample covariance has no inverse."""
    usual = torch.randn(10, 30, generator=generator())
    usual[:, :2] = 1.0
    found = outliers.Mahalanobis.fit(usual)
    assert found(usual).isfinite().all()
    assert (found(usual + 100) > found(usual).max()).all()


def test_with_many_rows_nothing_is_shrunk():
    usual = torch.randn(200_000, 2, generator=generator()).double() * torch.tensor([1.0, 9.0])
    wanted = EmpiricalCovariance().fit(usual.numpy()).mahalanobis(usual[:50].numpy())
    np.testing.assert_allclose(outliers.Mahalanobis.fit(usual)(usual[:50]), wanted, rtol=1e-3)


def test_features_that_cannot_be_measured_are_refused():
    with pytest.raises(ValueError, match="must vary between rows, got the same in all"):
        outliers.Mahalanobis.fit(torch.ones(5, 2))
    with pytest.raises(ValueError, match="features must be finite, of two rows or more, got 1"):
        outliers.Mahalanobis.fit(torch.ones(1, 2))
    with pytest.raises(ValueError, match="features must be finite"):
        outliers.Mahalanobis.fit(torch.full((5, 2), math.nan))


# --- the threshold -------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_false_alarms_are_as_frequent_as_stated(rate):
    """Over calibrations with 39 rows each; the scores are exponential."""
    scores = torch.empty(2000, 139, dtype=torch.float64).exponential_(generator=generator())
    limits = [outliers.Threshold.fit(row[:39], rate) for row in scores]
    found = [
        limit.flags(row[39:]).double().mean().item()
        for limit, row in zip(limits, scores, strict=True)
    ]
    assert abs(np.mean(found) - rate) < 4 * np.std(found) / math.sqrt(2000)


def test_too_few_rows_for_the_rate_flag_nothing():
    limit = outliers.Threshold.fit(torch.zeros(18), false_alarms=0.05)
    assert limit.value == math.inf
    assert not limit.flags(torch.tensor([1e300])).any()
    assert outliers.Threshold.fit(torch.zeros(19), 0.05).flags(torch.tensor([1.0])).all()


def test_a_row_without_a_score_is_flagged():
    limit = outliers.Threshold.fit(torch.zeros(18), false_alarms=0.05)
    assert limit.flags(torch.tensor([math.nan, 0.0])).tolist() == [True, False]


def test_rates_and_scores_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"false_alarms must lie inside \(0, 1\), got 0"):
        outliers.Threshold.fit(torch.zeros(18), 0)
    with pytest.raises(ValueError, match="scores must be numbers, got 1 NaN"):
        outliers.Threshold.fit(torch.tensor([0.0, math.nan]))


def test_what_was_learned_comes_back_from_json():
    for scores in (torch.arange(100.0), torch.zeros(2)):
        before = outliers.Threshold.fit(scores)
        text = json.dumps(before.state(), allow_nan=False)
        assert outliers.Threshold.from_state(json.loads(text)) == before
    distance = outliers.Mahalanobis.fit(torch.randn(20, 3, generator=generator()))
    again = outliers.Mahalanobis.from_state(json.loads(json.dumps(distance.state())))
    rows = torch.randn(5, 3)
    assert torch.equal(again(rows), distance(rows))


def test_a_rate_of_numpy_is_a_rate():
    scores = torch.arange(99.0)
    assert outliers.Threshold.fit(scores, np.float64(0.05)) == outliers.Threshold.fit(scores, 0.05)
