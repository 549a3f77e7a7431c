"""Totals of a divergence in one pass, the posterior given by rho, and draws."""

import copy
import math

import pytest
import torch
from torch.distributions import Distribution, Normal, kl_divergence
from torch.nn.functional import softplus

import bayesdiv as bd
from bayesdiv.compute import backend, blocks, inplace, native, table
from bayesdiv.compute.backend import draw, prepare
from bayesdiv.divergence import UnmodifiedJSA, closed_form
from bayesdiv.divergence.gaussian import BLOCK, SoftplusNormal

DIVERGENCES = [
    bd.KL(),
    bd.ReverseKL(),
    bd.WeightedKL(0.3),
    bd.JSG(0.3),
    bd.JSG(0.9),
    bd.JSA(0.3),
    bd.JSA(0.97),
    UnmodifiedJSA(0.3),
]
PRIOR = Normal(torch.tensor(0.1), torch.tensor(0.5), validate_args=False)


def weights(*shape, narrow=False, dtype=torch.float32):
    """Parameters whose scales lie on both sides of the prior's, or all below it."""
    generator = torch.Generator().manual_seed(0)
    loc = torch.randn(shape, generator=generator, dtype=dtype)
    rho = torch.randn(shape, generator=generator, dtype=dtype) - (5.0 if narrow else 0.5)
    return loc.requires_grad_(), rho.clamp(max=-2.0 if narrow else 9.0).detach().requires_grad_()


def by_total(divergence, loc, rho, prior=PRIOR, estimator=None):
    q = SoftplusNormal(loc, rho)
    value = prepare(estimator or bd.Auto(), divergence, q, prior).total(q, prior)
    return value, *torch.autograd.grad(value.sum(), (loc, rho))


def in_double(divergence, loc, rho, prior=PRIOR):
    """Torch's own chain rule through the exact rule, one value per weight, all in double."""
    loc, rho = (x.detach().double().requires_grad_() for x in (loc, rho))
    p = Normal(prior.loc.double(), prior.scale.double())
    value = bd.Exact(nodes=96)(divergence, Normal(loc, softplus(rho)), p).sum(-1)
    return value, *torch.autograd.grad(value.sum(), (loc, rho))


def assert_equal(ours, wanted, dtype, gradient=1e-3):
    value, *gradients = ours
    tolerance = 1e-5 if dtype == torch.float32 else 1e-6
    assert value.dtype == dtype
    torch.testing.assert_close(value.double(), wanted[0], rtol=tolerance, atol=1e-3)
    for one, two in zip(gradients, wanted[1:], strict=True):
        torch.testing.assert_close(one.double(), two, rtol=2e-3, atol=gradient)


# The sum and its gradients -------------------------------------------------------------------


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_sum_and_its_gradients_are_those_of_the_exact_rule(divergence, narrow, dtype):
    loc, rho = weights(5000, narrow=narrow, dtype=dtype)
    prior = Normal(PRIOR.loc.to(dtype), PRIOR.scale.to(dtype))
    assert_equal(
        by_total(divergence, loc, rho, prior), in_double(divergence, loc, rho, prior), dtype
    )


def test_the_sum_of_kl_is_that_of_torch():
    loc, rho = weights(5000, narrow=True)
    wanted = kl_divergence(Normal(loc.double(), softplus(rho.double())), PRIOR).sum()
    assert by_total(bd.KL(), loc, rho)[0].item() == pytest.approx(wanted.item(), rel=1e-6)


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
def test_a_prior_for_each_weight_is_served(divergence):
    loc, rho = weights(5000, narrow=True)
    generator = torch.Generator().manual_seed(1)
    prior = Normal(
        torch.randn(5000, generator=generator), torch.rand(5000, generator=generator) + 0.3
    )
    assert_equal(
        by_total(divergence, loc, rho, prior), in_double(divergence, loc, rho, prior), loc.dtype
    )


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSG(0.3), bd.JSA(0.3)], ids=repr)
@pytest.mark.parametrize("shape", [(2, native.MANY), (3, 40), (2, 2, 3000)])
def test_trials_are_summed_each_by_itself(divergence, shape):
    loc, rho = weights(*shape, narrow=True)
    for prior in (PRIOR, Normal(torch.zeros(shape), torch.linspace(0.5, 2.0, shape[-1]))):
        ours, wanted = by_total(divergence, loc, rho, prior), in_double(divergence, loc, rho, prior)
        assert ours[0].shape == shape[:-1]
        assert_equal(ours, wanted, loc.dtype)


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSG(0.3), bd.JSA(0.3)], ids=repr)
def test_blocks_change_nothing(divergence):
    count = 4 * BLOCK + 5
    loc, rho = weights(count, narrow=True)
    value, *gradients = by_total(divergence, loc, rho)
    halves = [
        by_total(divergence, *(x.detach().requires_grad_() for x in pair))
        for pair in zip(loc.split(2 * BLOCK + 7), rho.split(2 * BLOCK + 7), strict=True)
    ]
    assert value.item() == pytest.approx(sum(half[0].item() for half in halves), rel=1e-6)
    for one, pieces in zip(
        gradients, zip(*(half[1:] for half in halves), strict=True), strict=True
    ):
        torch.testing.assert_close(one, torch.cat(pieces), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSA(0.0729), bd.JSA(0.99)], ids=repr)
def test_sum_and_gradients_are_finite_on_the_whole_range(divergence):
    ratio = torch.logspace(-6, 3, 91)
    delta = torch.linspace(-1e3, 1e3, 101)
    loc, scale = (x.flatten() for x in torch.meshgrid(delta, ratio, indexing="ij"))
    rho = (scale + (-(-scale).expm1()).log()).requires_grad_()
    unit = Normal(torch.tensor(0.0), torch.tensor(1.0))
    results = by_total(divergence, loc.requires_grad_(), rho, unit)
    assert all(result.isfinite().all() for result in results)
    wanted = in_double(divergence, loc, rho, unit)
    assert results[0].item() == pytest.approx(wanted[0].item(), rel=1e-5)


def test_a_sum_of_many_equal_weights_keeps_its_digits():
    """In single precision, adding up one by one would stop at 2^24 of the smallest."""
    count = 3_000_000
    loc, rho = torch.full((count,), 0.3), torch.full((count,), -3.0)
    with torch.no_grad():
        q = SoftplusNormal(loc, rho)
        value = prepare(bd.Auto(), bd.KL(), q, PRIOR).total(q, PRIOR)
    one = kl_divergence(Normal(loc[:1].double(), softplus(rho[:1].double())), PRIOR).item()
    assert value.item() == pytest.approx(count * one, rel=1e-6)


def test_js_a_summed_stays_under_its_bound():
    loc = torch.full((table.FEWEST,), 1e4, requires_grad=True)
    value, by_loc, _ = by_total(bd.JSA(0.3), loc, torch.zeros_like(loc).requires_grad_())
    assert 0.999 * table.FEWEST * bd.JSA(0.3).bound < value.item()
    assert value.item() <= table.FEWEST * bd.JSA(0.3).bound * (1 + 1e-6)
    assert by_loc.abs().max() < 1e-3


# Which way is taken --------------------------------------------------------------------------


@pytest.fixture
def taken(monkeypatch):
    """Notes each time that the one pass over sums runs."""
    calls = []
    apply = blocks._Pass.apply
    monkeypatch.setattr(blocks._Pass, "apply", lambda *a: calls.append(1) or apply(*a))
    return calls


def test_the_objective_takes_the_one_pass(taken):
    torch.manual_seed(0)
    net = bd.bayesianize(torch.nn.Linear(100, 30), bd.FanIn())
    objective = bd.Objective(bd.Classes(), bd.JSA(0.3), num_data=10)
    loss = objective(net, torch.randn(10, 100), torch.arange(10))
    assert taken == [1]
    values = bd.JSA(0.3)(net.q(), net.p())
    assert taken == [1]
    assert loss.divergence.item() == pytest.approx(values.sum().item(), rel=1e-5)


def learned_prior():
    return Normal(torch.tensor(0.1, requires_grad=True), torch.tensor(0.5))


@pytest.mark.parametrize(
    ("divergence", "prior", "estimator"),
    [
        pytest.param(bd.KL(), learned_prior(), None, id="learned prior"),
        pytest.param(bd.JSG(torch.tensor(0.3)), PRIOR, None, id="learned alpha"),
        pytest.param(bd.JSA(0.3), PRIOR, bd.Exact(nodes=40), id="chosen nodes"),
        pytest.param(bd.JSA(0.004), PRIOR, None, id="no table"),
        pytest.param(bd.ChiSquared(), PRIOR, None, id="no one pass"),
        pytest.param(bd.KL(), Normal(torch.zeros(2, 1), 1.0), None, id="more axes"),
        pytest.param(bd.KL(), Normal(0.0, torch.tensor(1.0).double()), None, id="other dtype"),
    ],
)
def test_what_the_one_pass_does_not_serve_is_the_sum_of_values(taken, divergence, prior, estimator):
    loc, rho = weights(3000)
    value, *gradients = by_total(divergence, loc, rho, prior, estimator)
    assert not taken
    each = (estimator or bd.Auto())(divergence, Normal(loc, softplus(rho)), prior).sum(-1)
    torch.testing.assert_close(value, each)
    wanted = torch.autograd.grad(each.sum(), (loc, rho))
    for one, two in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one, two)


def test_that_triton_is_missing_is_told_once(monkeypatch, caplog):
    monkeypatch.setattr(backend, "_told", [])
    monkeypatch.setattr(backend, "_TRITON", False)
    with caplog.at_level("INFO", logger="bayesdiv.compute.triton"):
        backend.has_triton()
        backend.has_triton()
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "Triton is not installed"
    ]


def test_samples_are_summed_as_they_are(taken):
    loc, rho = weights(50)
    q = SoftplusNormal(loc, rho)
    drawn = q.rsample((4,))
    value = prepare(bd.MonteCarlo(), bd.KL(), q, PRIOR).total(q, PRIOR, drawn)
    wanted = (q.log_prob(drawn) - PRIOR.log_prob(drawn)).mean(0).sum()
    assert value.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert not taken


@pytest.fixture
def _clean_registry(monkeypatch):
    monkeypatch.setattr(closed_form, "_RULES", dict(closed_form._RULES))
    yield
    closed_form._look_up.cache_clear()


@pytest.mark.usefixtures("_clean_registry")
@pytest.mark.parametrize("kind", [SoftplusNormal, Normal])
def test_a_rule_of_the_user_is_not_passed_by(taken, kind):
    closed_form.register(bd.KL, kind, Normal)(lambda d, q, p: q.loc + 2 * q.scale)
    loc, rho = weights(50)
    wanted = (loc + 2 * softplus(rho)).sum().item()
    assert by_total(bd.KL(), loc, rho)[0].item() == pytest.approx(wanted, rel=1e-5)
    assert not taken


def test_second_derivatives_are_refused_not_wrong():
    loc, rho = weights(20)
    q = SoftplusNormal(loc, rho)
    value = prepare(bd.Auto(), bd.KL(), q, PRIOR).total(q, PRIOR)
    (first,) = torch.autograd.grad(value, loc, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        (first + loc**2).sum().backward()


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSG(0.3), bd.JSA(0.3)], ids=repr)
def test_functional_transforms_work(divergence):
    loc, rho = weights(3, table.FEWEST, narrow=True)
    q = SoftplusNormal(loc[0], rho[0])
    compute = prepare(bd.Auto(), divergence, q, PRIOR).total

    def total(loc, rho):
        return compute(SoftplusNormal(loc, rho), PRIOR)

    # The table's rule runs under torch.vmap too, but torch warns that it is slow.
    rows = zip(loc.detach(), rho.detach(), strict=True)
    by_hand = torch.stack([torch.func.grad(total)(*row) for row in rows])
    by_vmap = None
    if not isinstance(divergence, bd.JSA):
        by_vmap = torch.vmap(torch.func.grad(total))(loc.detach(), rho.detach())
    _, wanted, _ = in_double(divergence, loc, rho)
    for found in (by_hand, by_vmap):
        if found is not None:
            torch.testing.assert_close(found.double(), wanted, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSG(0.3), bd.JSA(0.3)], ids=repr)
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_compiled_sum_has_the_gradients_of_the_eager_one(divergence):
    torch._dynamo.reset()
    loc, rho = weights(table.FEWEST)
    compute = prepare(bd.Auto(), divergence, SoftplusNormal(loc, rho), PRIOR).total

    def both(loc, rho):
        q = SoftplusNormal(loc, rho)
        # A second output with a gradient of its own: without one, a lost gradient would raise.
        return q.rsample((2,)), compute(q, PRIOR)

    gradients = []
    for run in (both, torch.compile(both, fullgraph=True, backend="aot_eager")):
        torch.manual_seed(0)
        drawn, value = run(loc, rho)
        gradients.append(torch.autograd.grad(drawn.sum() + value, (loc, rho)))
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)


# The posterior told by rho -------------------------------------------------------------------


def test_the_scale_is_computed_once_and_only_when_asked_for():
    q = SoftplusNormal(*weights(5))
    assert q.mean is q.loc
    assert q.known_scale is None
    assert q.scale is q.stddev
    assert torch.equal(q.scale, softplus(q.rho))


def test_a_first_look_without_gradients_does_not_take_them_away():
    q = SoftplusNormal(*weights(5))
    with torch.no_grad():
        q.scale.sum()
        later = SoftplusNormal(*weights(5))
    assert q.scale.requires_grad
    assert not later.scale.requires_grad


def test_it_is_a_normal_in_every_other_way():
    loc, rho = weights(5)
    q, plain = SoftplusNormal(loc, rho), Normal(loc, softplus(rho))
    x = torch.linspace(-1, 1, 5)
    for name in ("log_prob", "cdf", "icdf"):
        at = x.sigmoid() if name == "icdf" else x
        torch.testing.assert_close(getattr(q, name)(at), getattr(plain, name)(at))
    torch.testing.assert_close(q.entropy(), plain.entropy())
    torch.testing.assert_close(kl_divergence(q, PRIOR), kl_divergence(plain, PRIOR))
    wide = q.expand((3, 5))
    assert isinstance(wide, SoftplusNormal)
    assert wide.batch_shape == wide.scale.shape == (3, 5)
    assert wide.rsample((2,)).shape == (2, 3, 5)
    twin = copy.deepcopy(SoftplusNormal(loc, rho))
    assert torch.equal(twin.scale, q.scale)
    assert "rho" in repr(q)
    assert isinstance(q, Distribution)


def test_other_estimators_take_it_too():
    loc, rho = weights(3)
    q = SoftplusNormal(loc, rho)
    exact, dense = bd.KL()(q, PRIOR), bd.KL()(q, PRIOR, bd.Quadrature())
    torch.testing.assert_close(exact, dense, rtol=1e-4, atol=1e-5)


# Draws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_draws_and_their_gradients_are_loc_plus_scale_times_noise(samples, shape):
    loc, rho = weights(*shape)
    torch.manual_seed(3)
    drawn = draw(SoftplusNormal(loc, rho), samples)
    torch.manual_seed(3)
    noise = torch.randn(shape if samples == 1 else (samples, *shape))
    wanted = loc + softplus(rho) * noise.reshape(samples, *shape)
    torch.testing.assert_close(drawn, wanted)
    ours = torch.autograd.grad(drawn.pow(3).sum(), (loc, rho))
    for one, two in zip(ours, torch.autograd.grad(wanted.pow(3).sum(), (loc, rho)), strict=True):
        torch.testing.assert_close(one, two)


def test_a_draw_may_be_differentiated_twice():
    loc, rho = weights(3, dtype=torch.float64)

    def drawn(loc, rho):
        torch.manual_seed(0)
        return draw(SoftplusNormal(loc, rho), 2)

    assert torch.autograd.gradgradcheck(drawn, (loc, rho))


def test_draws_far_down_are_the_mean():
    loc = torch.tensor([1.0, -2.0])
    drawn = draw(SoftplusNormal(loc, torch.full((2,), -math.inf)), 3)
    assert torch.equal(drawn, loc.expand(3, 2))


# Agreement -----------------------------------------------------------------------------------


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
def test_every_backend_agrees_with_the_plain_rule(divergence):
    q = Normal(torch.zeros(native.MANY), torch.ones(native.MANY))
    rule = closed_form.find(divergence, q, PRIOR)
    offered = dict(backend._offered(rule, divergence, q, PRIOR))
    assert offered
    for one in offered.values():
        assert backend.agrees(one, rule, divergence)


def test_a_backend_that_computes_something_else_is_reported_and_dropped(monkeypatch, caplog):
    monkeypatch.setattr(backend, "_trusted", {})
    right = inplace.kl_total

    def wrong(*block):
        found = right(*block)
        return found._replace(d_loc=1.1 * found.d_loc)

    monkeypatch.setattr(inplace, "kl_total", wrong)
    loc, rho = weights(50)
    with caplog.at_level("WARNING", logger="bayesdiv.compute.inplace"):
        value, by_loc, _ = by_total(bd.KL(), loc, rho)
    assert "inplace is not used for KL() on cpu: it disagrees" in caplog.text
    torch.testing.assert_close(by_loc.double(), in_double(bd.KL(), loc, rho)[1])
    assert value.isfinite()
