"""Bounds on the evidence, on a conjugate model whose evidence and posterior are known."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd
from reproduction.evidence import (
    ELBO,
    ChiVI,
    Evidence,
    Method,
    RenyiVI,
    TotalVariationVI,
)

NOISE = 0.5


class Conjugate:
    """y = w x + noise with one weight, w ~ N(0, 1): posterior and evidence in closed form."""

    def __init__(self, rows: int = 6) -> None:
        generator = np.random.default_rng(0)
        self.x = generator.normal(size=rows)
        self.y = 0.7 * self.x + NOISE * generator.normal(size=rows)
        precision = 1 + self.x @ self.x / NOISE**2
        self.loc, self.scale = self.x @ self.y / NOISE**2 / precision, precision**-0.5
        cover = np.outer(self.x, self.x) + NOISE**2 * np.eye(rows)
        self.log_evidence = stats.multivariate_normal(np.zeros(rows), cover).logpdf(self.y)

    @property
    def posterior(self):
        return stats.norm(self.loc, self.scale)

    def objective(self, method: Method, samples: int) -> Evidence:
        likelihood = bd.Gaussian(scale=NOISE).double()
        return Evidence(likelihood, method, num_data=len(self.x), samples=samples)

    def model(self, loc: float, scale: float) -> bd.Bayesian:
        net = bd.bayesianize(
            nn.Linear(1, 1, bias=False).double(),
            bd.Prior(Normal, loc=0.0, scale=1.0).double(),
        )
        with torch.no_grad():
            net.posterior.loc.fill_(loc)
            net.posterior.rho.fill_(math.log(math.expm1(scale)))
        return net

    def loss(self, method: Method, loc: float, scale: float, samples: int) -> torch.Tensor:
        x, y = torch.tensor(self.x).unsqueeze(1), torch.tensor(self.y)
        loss = self.objective(method, samples)(self.model(loc, scale), x, y)
        return loss.total * len(self.x)

    def exact(self, method: Method, loc: float, scale: float) -> float:
        """The value with endless draws, by integration."""
        q, p = stats.norm(loc, scale), self.posterior
        grid = (min(loc - 12 * scale, self.loc - 12 * self.scale), 12 * scale + abs(loc) + 6)
        integral = lambda f: integrate.quad(f, *grid, limit=500, epsabs=1e-12)[0]  # noqa: E731
        if isinstance(method, RenyiVI):
            a = method.alpha
            mass = integral(lambda w: np.exp(a * q.logpdf(w) + (1 - a) * p.logpdf(w)))
            return -(self.log_evidence + np.log(mass) / (1 - a))
        if isinstance(method, ChiVI):
            m = method.order
            mass = integral(lambda w: np.exp(m * p.logpdf(w) + (1 - m) * q.logpdf(w)))
            return self.log_evidence + np.log(mass) / m
        if isinstance(method, TotalVariationVI):
            return integral(lambda w: 0.5 * abs(p.pdf(w) - q.pdf(w)))
        kl = integral(lambda w: q.pdf(w) * (q.logpdf(w) - p.logpdf(w)))
        return -self.log_evidence + kl


METHODS = [ELBO(), RenyiVI(0.5), RenyiVI(2.0), ChiVI(2.0), TotalVariationVI()]


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_at_the_true_posterior_every_draw_gives_the_evidence(method):
    model = Conjugate()
    loss = model.loss(method, model.loc, model.scale, samples=7).item()
    wanted = {ChiVI: model.log_evidence, TotalVariationVI: 0.0}.get(
        type(method), -model.log_evidence
    )
    assert loss == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_with_many_draws_it_is_the_exact_value(method):
    torch.manual_seed(0)
    model = Conjugate()
    loc, scale = model.loc + 0.1, 1.3 * model.scale
    loss = model.loss(method, loc, scale, samples=200_000).item()
    assert loss == pytest.approx(model.exact(method, loc, scale), abs=0.02)


@pytest.mark.parametrize("method", [RenyiVI(0.5), ChiVI(2.0)], ids=repr)
@pytest.mark.parametrize("samples", [10, 100])
def test_the_bias_at_the_draws_used_is_that_of_a_logarithm_of_a_mean(method, samples):
    """E[log mean] = log E - Var/(2 S E²) + O(S^-2), with moments by integration."""
    torch.manual_seed(1)
    model = Conjugate()
    loc, scale = model.loc + 0.05, 1.1 * model.scale
    power = 1 - method.alpha if isinstance(method, RenyiVI) else method.order
    q, p = stats.norm(loc, scale), model.posterior
    first, second = (
        integrate.quad(
            lambda w, k=k: np.exp(k * power * p.logpdf(w) + (1 - k * power) * q.logpdf(w)),
            model.loc - 3,
            model.loc + 3,
            limit=500,
        )[0]
        for k in (1, 2)
    )
    bias = -(second / first**2 - 1) / (2 * samples * power)
    bias = -bias if isinstance(method, RenyiVI) else bias
    objective, net = model.objective(method, samples), model.model(loc, scale)
    x = torch.tensor(model.x).unsqueeze(1)
    with torch.no_grad():
        found = torch.stack(
            [objective(net, x, torch.tensor(model.y)).total for _ in range(2000)]
        ) * len(model.x)
    error = found.std().item() / math.sqrt(len(found))
    away = found.mean().item() - model.exact(method, loc, scale)
    assert away == pytest.approx(bias, abs=5 * error + 0.1 * abs(bias))


def test_total_variation_is_biased_by_less_than_a_hundredth_at_a_hundred_draws():
    torch.manual_seed(2)
    model = Conjugate()
    loc, scale = model.loc + 0.1, 1.3 * model.scale
    method = TotalVariationVI()
    with torch.no_grad():
        found = torch.stack([model.loss(method, loc, scale, samples=100) for _ in range(1000)])
    assert found.mean().item() == pytest.approx(model.exact(method, loc, scale), abs=0.01)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_gradients_are_those_of_the_exact_value(method):
    torch.manual_seed(3)
    model = Conjugate()
    loc, scale = model.loc + 0.1, 1.2 * model.scale
    net, objective = model.model(loc, scale), model.objective(method, 400_000)
    x = torch.tensor(model.x).unsqueeze(1)
    (objective(net, x, torch.tensor(model.y)).total * len(model.x)).backward()
    step = 1e-4
    by_loc = (model.exact(method, loc + step, scale) - model.exact(method, loc - step, scale)) / (
        2 * step
    )
    by_scale = (model.exact(method, loc, scale + step) - model.exact(method, loc, scale - step)) / (
        2 * step
    )
    assert net.posterior.loc.grad.item() == pytest.approx(by_loc, rel=0.05, abs=0.02)
    chain = 1 - math.exp(-scale)  # of softplus
    assert net.posterior.rho.grad.item() == pytest.approx(by_scale * chain, rel=0.05, abs=0.02)


@pytest.mark.parametrize("alpha", [1.0, 1 - 1e-9, 1 + 1e-5])
def test_renyi_at_order_one_is_the_elbo(alpha):
    log_ratio = torch.randn(50, 3, dtype=torch.float64) * 20 - 100
    close = RenyiVI(alpha).value(log_ratio)
    torch.testing.assert_close(close, ELBO().value(log_ratio), rtol=0, atol=5e-3)


def test_renyi_stays_finite_when_one_draw_dominates():
    log_ratio = torch.tensor([-1e4, -2e4, -3e4], requires_grad=True)
    RenyiVI(0.5).value(log_ratio).backward()
    assert bool(log_ratio.grad.isfinite().all())


@pytest.mark.parametrize("method", [ChiVI(), TotalVariationVI()], ids=repr)
def test_the_noise_follows_the_mean_nll_where_the_loss_is_no_lower_bound(method):
    torch.manual_seed(4)
    model = Conjugate()
    objective, net = model.objective(method, 20), model.model(0.5, 0.3)
    x, y = torch.tensor(model.x).unsqueeze(1), torch.tensor(model.y)
    torch.manual_seed(5)
    objective(net, x, y).total.backward()
    torch.manual_seed(5)
    plain = bd.Objective(bd.Gaussian(scale=NOISE).double(), num_data=len(y), samples=20)
    plain(net, x, y).nll.backward()
    torch.testing.assert_close(objective.likelihood.rho.grad, plain.likelihood.rho.grad)


def test_a_stack_gives_each_trial_the_loss_it_would_have_alone():
    model = Conjugate()
    nets = [model.model(0.3, 0.2), model.model(0.6, 0.4)]
    x, y = torch.tensor(model.x).unsqueeze(1), torch.tensor(model.y)
    objective = model.objective(RenyiVI(0.5), 9)
    together = bd.stacked(nets)
    torch.manual_seed(6)
    (weights,) = bd.draw_weights(together, 9)  # (9, 2, 1)
    stack = objective.each(together, (weights,), torch.stack([x, x]), torch.stack([y, y]))
    for index, net in enumerate(nets):
        alone = objective.each(net, (weights[:, index],), x, y)
        for one, many in zip(alone, stack, strict=True):
            torch.testing.assert_close(many[index], one)


@pytest.mark.parametrize("family", [bd.FullRank(), bd.LowRank(rank=1), bd.MeanField], ids=repr)
def test_the_ratio_of_a_draw_takes_the_joint_density_of_its_weights(family):
    torch.manual_seed(0)
    x, y = torch.randn(5, 3).double(), torch.randn(5).double()
    linear = nn.Linear(3, 1, bias=False).double()
    net = bd.bayesianize(linear, bd.Prior(Normal, loc=0.0, scale=1.0), posterior=family, start=0.5)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    objective = Evidence(bd.Gaussian(NOISE).double(), RenyiVI(0.5), num_data=5, samples=4)
    (weights,) = bd.draw_weights(net, 4)
    loss = objective.each(net, (weights,), x, y)
    q, w = net.q(), weights.detach().numpy()
    covariance = q.covariance_matrix if q.event_shape else q.variance.diag()
    own = stats.multivariate_normal(q.mean.detach().numpy(), covariance.detach().numpy())
    believed = stats.norm(0, 1).logpdf(w).sum(-1)
    data = stats.norm(w @ x.numpy().T, NOISE).logpdf(y.numpy()).sum(-1)
    ratios = data + believed - own.logpdf(w)  # (4,)
    wanted = -2 * np.log(np.exp(0.5 * ratios).mean()) / 5
    assert loss.total.shape == ()
    assert loss.total.item() == pytest.approx(wanted, rel=1e-6)
    assert loss.divergence.item() == pytest.approx((own.logpdf(w) - believed).mean(), rel=1e-6)


@pytest.mark.parametrize("method", [ChiVI(), TotalVariationVI(), RenyiVI(0.5)], ids=repr)
def test_joint_posteriors_learn_by_every_method(method):
    torch.manual_seed(0)
    net = bd.bayesianize(nn.Linear(3, 1), bd.FanIn(), posterior=bd.FullRank())
    objective = Evidence(bd.Gaussian(NOISE), method, num_data=5, samples=6)
    objective(net, torch.randn(5, 3), torch.randn(5)).total.backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in net.parameters())


def test_methods_refuse_what_they_are_not_defined_for():
    with pytest.raises(ValueError, match="alpha must be finite and at least 0, got -1"):
        RenyiVI(-1)
    with pytest.raises(ValueError, match="order must be finite and above 1, got 1"):
        ChiVI(1)
    with pytest.raises(ValueError, match="samples must be at least 2"):
        Evidence(bd.Gaussian(), ChiVI(), num_data=3, samples=1)
    objective = Evidence(bd.Gaussian(), ELBO(), num_data=3)
    with pytest.raises(ValueError, match="the model must be Bayesian"):
        objective(nn.Linear(1, 1), torch.zeros(3, 1), torch.zeros(3))
