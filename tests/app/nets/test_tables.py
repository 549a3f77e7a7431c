"""Networks for tables away from their training rows."""

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree
from sklearn.datasets import make_moons
from torch import nn

import bayesdiv as bd
from bayesdiv.app.nets.tables import Away

SLOPES = torch.tensor([[2.0, -0.5]])


def linear(outputs=1, scale=1e-6):
    layer = nn.Linear(2, outputs)
    with torch.no_grad():
        layer.weight.copy_(SLOPES.expand(outputs, 2))
    return bd.bayesianize(layer, bd.FanIn(), start=scale)


@pytest.fixture
def rows():
    return torch.randn(300, 2, generator=torch.Generator().manual_seed(3))


def test_distances_count_in_units_of_the_network_s_slopes(rows):
    away = Away(linear(), 2, places=300)
    away.settle(rows)
    assert torch.allclose(away.slopes, SLOPES[0].abs(), rtol=1e-3)
    new = 3 * torch.randn(50, 2, generator=torch.Generator().manual_seed(4))
    scaled = rows.double().numpy() * [2.0, 0.5]
    tree = cKDTree(scaled)
    reach = np.quantile(tree.query(scaled, k=2)[0][:, 1], 0.99)
    wanted = np.maximum(tree.query(new.double().numpy() * [2.0, 0.5])[0] - reach, 0)
    assert np.allclose(away.excess(new).squeeze(-1).numpy(), wanted, rtol=1e-2, atol=1e-3)
    assert (away.excess(rows) == 0).all()


def test_of_many_rows_some_are_kept_and_the_others_find_the_usual_distance(rows):
    away = Away(linear(), 2, places=4000)
    many = torch.randn(4000, 2, generator=torch.Generator().manual_seed(5))
    away.settle(many)
    assert away.places.shape == (500, 2)
    assert 0.97 < (away.excess(many) == 0).float().mean() < 1.0


def test_the_spread_of_predictions_grows_by_the_slope_per_distance(rows):
    net = Away(linear(), 2, places=300)
    net.settle(rows)
    far = torch.tensor([[10.0, 0.0], [20.0, 0.0], [40.0, 0.0]])
    torch.manual_seed(0)
    spread = bd.predict(net, bd.Gaussian(), far, samples=4000).epistemic.sqrt()
    assert torch.allclose(spread, net.excess(far).squeeze(-1), rtol=0.05)
    assert torch.allclose(spread.diff(), 2.0 * torch.tensor([10.0, 20.0]), rtol=0.05)


def test_an_even_number_of_draws_moves_no_mean(rows):
    net = Away(linear(), 2, places=300)
    net.settle(rows)
    far = torch.tensor([[10.0, 0.0]])
    found = bd.predict(net, bd.Gaussian(), far, samples=10)
    with bd.at_mean(net):
        assert torch.allclose(found.mean, net.eval()(far).squeeze(-1), rtol=1e-3)
    assert found.epistemic > 1


def test_a_network_in_training_is_left_as_it_is(rows):
    away = Away(linear(), 2, places=300)
    away.settle(rows)
    far = torch.full((1, 2), 50.0)
    with bd.at_mean(away):
        assert torch.equal(away.train()(far), away.network(far))
    before = away.size.posterior.loc.clone()
    objective = bd.Objective(bd.Gaussian(), bd.JSA(0.3), num_data=300)
    optimizer = torch.optim.Adam([*away.parameters(), *objective.parameters()], lr=0.1)
    for _ in bd.fit(away, objective, bd.Batches(rows, rows[:, 0], 64), optimizer, 2, seed=0):
        pass
    assert torch.equal(away.size.posterior.loc, before)


def test_only_outputs_that_say_where_a_target_lies_are_shifted(rows):
    away = Away(linear(outputs=6), 2, places=300, targets=1, locations=3).eval()
    away.settle(rows)
    far = torch.full((1, 2), 50.0)
    torch.manual_seed(0)
    plain = away.network(far)
    torch.manual_seed(0)
    shift = (away(far) - plain).detach()
    assert torch.allclose(shift[0, :3], shift[0, :1].expand(3), rtol=1e-3)
    assert shift[0, 0].abs() > 1
    assert (shift[0, 3:].abs() < 0.01).all()


def test_it_goes_through_its_state(rows):
    one, two = (Away(linear(scale=0.1), 2, places=300) for _ in range(2))
    one.settle(rows)
    two.load_state_dict(one.state_dict())
    assert torch.equal(one.excess(5 * rows), two.excess(5 * rows))


def test_estimators_are_less_sure_between_clusters_and_far_away():
    rng = np.random.default_rng(0)
    x = np.r_[rng.uniform(-2, -1, 50), rng.uniform(1, 2, 50)]
    y = np.sin(2 * x) + 0.1 * rng.normal(size=100)
    model = bd.BayesianRegressor(epochs=30, members=2, random_state=0).fit(x[:, None], y)
    places = [[-1.5, 1.5], [-0.2, 0.2], [-4.0, 4.0], [-8.0, 8.0]]
    on, between, outside, farther = (
        model.predictive(np.array(place)[:, None]).epistemic.sqrt().mean().item()
        for place in places
    )
    assert between > 2 * on
    assert farther > outside > between


def test_a_class_far_away_is_not_certain():
    x, y = make_moons(200, noise=0.2, random_state=0)
    model = bd.BayesianClassifier(epochs=30, members=2, random_state=0).fit(x, y)
    far = model.predictive([[100.0, -100.0]])
    assert far.probabilities.max() < 0.95
    assert far.mutual_information > 0.1
    assert model.score(x, y) > 0.9
