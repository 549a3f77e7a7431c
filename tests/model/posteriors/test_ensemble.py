"""Several posteriors side by side: apart at the start, alone in learning, one in predicting."""

import math

import pytest
import torch
from scipy import stats
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv.model.posteriors import shuffled
from reproduction.evidence import ELBO, Evidence

STANDARD = bd.Prior(Normal, loc=0.0, scale=1.0)
X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
Y = X.sum(-1)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))


def ensemble(prior=STANDARD, **choice):
    return bd.bayesianize(network(), prior, posterior=bd.Ensemble(**choice))


def member(net, index):
    """One member as a network of its own."""
    posterior = bd.MeanField(net.posterior.each.loc[index], net.posterior.each.scale[index])
    alone = bd.bayesianize(network(), STANDARD)
    alone.posterior = posterior
    return alone


def test_members_start_apart_and_keep_the_sizes_of_each_tensor():
    net, source = ensemble(members=3), network()
    starts = [net.layout.unflatten(loc) for loc in net.posterior.each.loc.detach()]
    for name, weight in source.named_parameters():
        assert torch.equal(starts[0][name], weight)
        for other in starts[1:]:
            assert torch.equal(other[name].flatten().sort()[0], weight.flatten().sort()[0])
    assert not torch.equal(starts[1]["0.weight"], starts[0]["0.weight"])
    assert not torch.equal(starts[1]["0.weight"], starts[2]["0.weight"])


def test_the_way_members_start_is_a_choice():
    together = ensemble(members=3, redraw=lambda weights: weights).posterior.each.loc
    assert torch.equal(together[0], together[2])
    assert shuffled(torch.ones(4)).tolist() == [1.0] * 4


def test_draws_go_round_the_members():
    net = ensemble(members=4)
    with torch.no_grad():
        net.posterior.each.loc.copy_(torch.arange(4.0).unsqueeze(-1).expand(4, 26))
        net.posterior.each.rho.fill_(-20)
    drawn = net.posterior.rsample(8).mean(-1).round()
    assert drawn.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    rest = net.posterior.rsample(6).mean(-1).round()
    assert rest[:4].tolist() == [0, 1, 2, 3]
    assert rest[4] != rest[5]
    torch.manual_seed(0)
    singles = torch.stack([net.posterior.rsample(1).mean().round() for _ in range(400)])
    counts = torch.bincount(singles.long(), minlength=4)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_the_density_is_that_of_the_mixture():
    net = ensemble(members=3)
    drawn = net.posterior.rsample(6).detach()
    loc, scale = (x.detach().numpy() for x in (net.posterior.each.loc, net.posterior.each.scale))
    each = stats.norm(loc, scale).logpdf(drawn.numpy()[:, None]).sum(-1)
    wanted = torch.from_numpy(each).logsumexp(-1) - math.log(3)
    assert torch.allclose(net.posterior.log_prob(drawn).double(), wanted, rtol=1e-4)
    assert torch.allclose(net.q().log_prob(drawn).double(), wanted, rtol=1e-4)


def test_an_ensemble_of_points_has_no_density():
    net = ensemble(members=3, of=bd.Point)
    with pytest.raises(ValueError, match="an ensemble of points has no density: make it of Mean"):
        net.posterior.log_prob(net.posterior.rsample(3))
    objective = Evidence(bd.Gaussian(), ELBO(), num_data=12, samples=3)
    with pytest.raises(ValueError, match="an ensemble of points has no density"):
        objective(net, X, Y)
    assert bd.Objective(bd.Gaussian(), num_data=12, samples=3)(net, X, Y).total.isfinite()


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSA(0.3), bd.JSG(0.2)], ids=repr)
def test_every_member_learns_as_it_would_alone(divergence):
    net = ensemble(members=3)
    objective = bd.Objective(bd.Gaussian(), divergence, num_data=12, samples=6)
    (weights,) = bd.draw_weights(net, 6)
    noise = (weights.reshape(2, 3, -1) - net.posterior.each.loc) / net.posterior.each.scale
    loss = objective.given(net, (weights,), X, Y)
    loss.total.backward()
    losses = []
    for index in range(3):
        alone = member(net, index)
        own = alone.posterior.loc + alone.posterior.scale * noise[:, index].detach()
        losses.append(objective.given(alone, (own,), X, Y))
        losses[-1].total.backward()
        # The loss is the mean over members, so each has its share of the gradient.
        for name in ("loc", "rho"):
            ours = 3 * getattr(net.posterior.each, name).grad[index]
            wanted = getattr(alone.posterior, name).grad
            assert torch.allclose(ours, wanted, rtol=1e-3, atol=1e-4)
    for part in ("total", "nll", "divergence"):
        wanted = torch.stack([getattr(one, part) for one in losses]).mean()
        assert torch.allclose(getattr(loss, part), wanted, rtol=1e-4)


def test_predictions_are_those_of_the_mixture():
    net = ensemble(members=3)
    torch.manual_seed(0)
    predictive = bd.predict(net, bd.Gaussian(), X, samples=30_000)
    torch.manual_seed(1)
    means = [bd.predict(member(net, k), bd.Gaussian(), X, 10_000).mean for k in range(3)]
    assert torch.allclose(predictive.mean, torch.stack(means).mean(0), atol=0.02)


def test_small_groups_of_draws_still_reach_all_members_equally(monkeypatch):
    from bayesdiv import prediction

    monkeypatch.setattr(prediction, "CACHE", 1)
    net = ensemble(members=4)
    asked = []
    monkeypatch.setattr(
        net.posterior, "rsample", lambda s, *_: asked.append(s) or torch.zeros(s, 26)
    )
    bd.predict(net, bd.Gaussian(), X, samples=20)
    assert asked == [4] * 5


def test_at_its_mean_it_is_its_first_member():
    net, source = ensemble(members=3), network()
    with bd.at_mean(net):
        assert torch.equal(net(X), source(X))


@pytest.mark.parametrize("of", [bd.MeanField, bd.Point, bd.LowRank(rank=1)], ids=repr)
def test_an_ensemble_trains_and_is_saved(of):
    net = ensemble(bd.FanIn(), members=3, of=of)
    objective = bd.Objective(bd.Gaussian(), num_data=12, samples=3)
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=1e-2)
    epochs = bd.fit(net, objective, bd.Batches(X, Y, 6), optimizer, 40, seed=0)
    losses = [epoch.loss.total for epoch in epochs]
    assert losses[-1] < losses[0]
    other = ensemble(bd.FanIn(), members=3, of=of)
    other.load_state_dict(net.state_dict())
    torch.manual_seed(0)
    before = bd.predict(net, bd.Gaussian(), X, 6).mean
    torch.manual_seed(0)
    assert torch.equal(bd.predict(other, bd.Gaussian(), X, 6).mean, before)


def test_ensembles_stack():
    stack = bd.stacked([ensemble(members=3), ensemble(members=3)])
    assert bd.draw_weights(stack, 6)[0].shape == (6, 2, 26)
    objective = bd.Objective(bd.Gaussian(torch.ones(2)), bd.JSA(0.3), num_data=12, samples=3)
    (weights,) = bd.draw_weights(stack, 3)
    loss = objective.each(stack, (weights,), torch.stack([X, X]), torch.stack([Y, Y]))
    assert loss.divergence.shape == (2,)


def test_bounds_on_the_evidence_take_the_mixture_s_density():
    net = ensemble(members=3)
    objective = Evidence(bd.Gaussian(), ELBO(), num_data=12, samples=6)
    (weights,) = bd.draw_weights(net, 6)
    loss = objective.given(net, (weights,), X, Y)
    believed = stats.norm(0, 1).logpdf(weights.detach().numpy()).sum(-1)
    wanted = (net.posterior.log_prob(weights).detach().numpy() - believed).mean()
    assert loss.divergence.item() == pytest.approx(wanted, rel=1e-4)


def test_an_ensemble_of_no_members_is_refused():
    with pytest.raises(ValueError, match="members must be at least 1, got 0"):
        bd.Ensemble(members=0)
