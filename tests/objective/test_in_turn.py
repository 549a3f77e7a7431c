"""Draws that run in turn: the loss and the gradients of all at once, in the memory of one."""

import copy

import pytest
import torch
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv.objective import objective as module

PRIOR = bd.Prior(Normal, loc=0.0, scale=1.0)
X, Y = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(12)


def network(trials=None):
    torch.manual_seed(1)

    def alone():
        source = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
        return bd.bayesianize(source, PRIOR, start=0.5)

    return bd.stacked([alone() for _ in range(trials)]) if trials else alone()


class Repeated:
    """Stands for the draws of a posterior: always the same six, one after the other."""

    def __init__(self, net):
        shape = (6, *net.loc.shape)
        self.noise = torch.randn(shape, generator=torch.Generator().manual_seed(2))
        self.net, self.at = net, 0

    def __call__(self, samples, dtype=None, seed=None):
        noise = self.noise[self.at : self.at + samples]
        self.at = (self.at + samples) % 6
        return self.net.q().mean + self.net.q().stddev * noise


def gradients(over, trials, monkeypatch):
    net = network(trials)
    scale = torch.full((trials,), 0.5) if trials else 0.5
    objective = bd.Objective(
        bd.Gaussian(scale), bd.JSA(0.3), num_data=20, samples=6, strength=2.0, over=over
    )
    net.draw = Repeated(net)
    monkeypatch.setattr(module, "MeanField", Repeated)  # no posterior is drawn with its total
    x, y = (X.expand(trials, 12, 3), Y.expand(trials, 12)) if trials else (X, Y)
    loss = objective(net, x, y)
    loss.total.backward()
    found = [p.grad for p in (*net.parameters(), *objective.parameters())]
    return [part.detach() for part in loss], found


@pytest.mark.parametrize("trials", [None, 2])
@pytest.mark.parametrize("over", [bd.Looped(), bd.Vectorized(chunk=4), bd.Vectorized(chunk=1)])
def test_loss_and_gradients_are_those_of_all_draws_at_once(over, trials, monkeypatch):
    wanted, slopes = gradients(bd.Vectorized(), trials, monkeypatch)
    found, own = gradients(over, trials, monkeypatch)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(own, slopes, rtol=1e-4, atol=1e-6)


def test_gradients_serve_one_backward_pass_and_are_added_to_those_there():
    net = network()
    objective = bd.Objective(bd.Gaussian(), num_data=12, samples=2, over=bd.Looped())
    loss = objective(net, X, Y).total
    (3 * loss).backward(retain_graph=True)
    once = net.posterior.loc.grad.clone()
    with pytest.raises(RuntimeError, match="one backward pass"):
        loss.backward()
    torch.manual_seed(0)
    objective(net, X, Y).total.backward()
    assert not torch.equal(net.posterior.loc.grad, once)


def test_the_parts_of_such_a_loss_refuse_to_be_differentiated():
    net = network()
    objective = bd.Objective(bd.Gaussian(), num_data=12, samples=2, over=bd.Looped())
    for name in ("nll", "divergence"):
        loss = objective(net, X, Y)
        assert getattr(loss, name).isfinite()
        with pytest.raises(RuntimeError, match=r"only the total .* give over=Vectorized\(\)"):
            (loss.total + getattr(loss, name)).backward()


def with_batch_norm():
    source = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1))
    return bd.bayesianize(source, PRIOR, start=0.5)


def test_the_first_step_of_a_network_that_runs_draw_by_draw_is_like_all_others():
    torch.manual_seed(1)
    net, losses = with_batch_norm(), []
    start = copy.deepcopy(net.state_dict())
    for _ in range(2):
        net.load_state_dict(start)
        objective = bd.Objective(bd.Gaussian(), num_data=12, samples=3)
        optimizer = torch.optim.SGD([*net.parameters(), *objective.parameters()], lr=1e-2)
        epochs = bd.fit(net, objective, bd.Batches(X, Y, 6), optimizer, 2, seed=0)
        losses.append([epoch.loss.total for epoch in epochs])
    assert losses[0] == losses[1]


def test_to_see_how_a_network_is_run_leaves_no_trace():
    class Noisy(nn.Module):
        """Dropout and a count of calls beside weights, for which torch.vmap has rules."""

        def __init__(self):
            super().__init__()
            self.layer, self.dropout = nn.Linear(3, 1), nn.Dropout()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls = self.calls + 1
            return self.layer(self.dropout(x))

    torch.manual_seed(1)
    net, values = bd.bayesianize(Noisy(), PRIOR), []
    objective = bd.Objective(bd.Gaussian(), num_data=12, samples=3)
    for _ in range(2):
        torch.manual_seed(2)
        values.append(objective(net, X, Y).total.item())
    assert values[0] == values[1]
    assert net.module.calls == 2


def test_only_one_draw_is_alive_at_a_time():
    alive, most = 0, 0

    class Watched(nn.Module):
        def forward(self, x):
            return Counted.apply(x)

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            nonlocal alive
            alive -= 1
            return grad

    net = bd.bayesianize(nn.Sequential(nn.Linear(3, 1), Watched()), PRIOR)
    objective = bd.Objective(bd.Gaussian(), num_data=12, samples=5, over=bd.Looped())
    objective(net, X, Y).total.backward()
    assert (alive, most) == (0, 1)


def test_where_the_divergence_needs_the_draws_they_stay_together():
    net = network()
    objective = bd.Objective(
        bd.Gaussian(), num_data=12, samples=3, over=bd.Looped(), estimator=bd.MonteCarlo(3)
    )
    loss = objective(net, X, Y)
    loss.nll.backward(retain_graph=True)  # which in turn would carry no gradient of its own
    loss.divergence.backward()
