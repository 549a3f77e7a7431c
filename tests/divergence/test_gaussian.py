"""The one pass over Gaussians: derivatives, shapes, blocks, transforms, compilation."""

import math

import mpmath as mp
import numpy as np
import pytest
import torch
from torch.distributions import Normal, Uniform
from torch.nn.functional import softplus

import bayesdiv as bd
from bayesdiv.compute import native, table
from bayesdiv.compute.backend import prepare
from bayesdiv.divergence import UnmodifiedJSA, UnmodifiedJSG, closed_form
from bayesdiv.divergence.gaussian import BLOCK

DIVERGENCES = [
    bd.KL(),
    bd.ReverseKL(),
    bd.JSG(0.3),
    bd.WeightedKL(0.3),
    bd.JSA(0.3),
    bd.JSA(0.97),
    UnmodifiedJSG(0.3),
    UnmodifiedJSA(0.3),
    bd.Renyi(0.5),
    bd.Renyi(0.2),
    bd.TotalVariation(),
]


def parameters(count=7, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)

    def draw():
        return torch.randn(count, generator=generator, dtype=dtype)

    return draw(), (0.6 * draw()).exp(), draw(), (0.4 * draw()).exp()


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
def test_derivatives_by_all_four_parameters_pass_gradcheck(divergence):
    """Finite differences of the value, both with q narrower and with q wider than p."""
    inputs = [x.requires_grad_() for x in parameters()]

    def value(loc, scale, prior_loc, prior_scale):
        return bd.Exact()(divergence, Normal(loc, scale), Normal(prior_loc, prior_scale))

    assert torch.autograd.gradcheck(value, inputs, atol=1e-6)


@pytest.mark.parametrize("kind", [bd.JSG, bd.WeightedKL, bd.JSA, UnmodifiedJSG, UnmodifiedJSA])
@pytest.mark.parametrize("shape", [(), (7,)])
def test_a_learned_alpha_has_a_gradient(kind, shape):
    loc, scale, prior_loc, prior_scale = parameters()
    alpha = torch.full(shape, 0.3, dtype=torch.float64).requires_grad_()

    def value(alpha):
        q, p = Normal(loc, scale), Normal(prior_loc, prior_scale)
        return kind(alpha)(q, p)

    assert torch.autograd.gradcheck(value, (alpha,), atol=1e-6)
    fixed = kind(0.3)(Normal(loc, scale), Normal(prior_loc, prior_scale))
    assert torch.allclose(value(alpha), fixed, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("alpha", [0.3, 0.9])
def test_uniform_prior_passes_gradcheck_even_by_its_edges(alpha):
    loc, scale, _, _ = (x.requires_grad_() for x in parameters())
    low, high = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (-2.0, 1.5))
    learned = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)

    def value(loc, scale, low, high, alpha):
        return bd.Exact()(bd.JSA(alpha), Normal(loc, scale), Uniform(low, high))

    assert torch.autograd.gradcheck(value, (loc, scale, low, high, learned), atol=1e-5)


def test_gradient_vanishes_where_posterior_is_prior():
    for alpha in (0.004, 0.0729, 0.5, 0.9):
        for divergence in (bd.JSA(alpha), bd.JSG(alpha), UnmodifiedJSA(alpha)):
            loc, scale = (torch.full((3,), x, dtype=torch.float64) for x in (0.7, 1.3))
            q = Normal(loc.requires_grad_(), scale.requires_grad_())
            value = divergence(q, Normal(loc.detach(), scale.detach())).sum()
            for gradient in torch.autograd.grad(value, (loc, scale)):
                assert gradient.abs().max() < 1e-9


@pytest.mark.parametrize("kind", [bd.JSA, UnmodifiedJSA])
def test_wider_posterior_is_the_swapped_narrower_one(kind):
    """The branch r > 1: values and gradients against dense integration, which has no branch."""
    q = Normal(*(torch.tensor(x, dtype=torch.float64) for x in ([0.3, 4.0, 0.0], [1.5, 30.0, 1e3])))
    p = Normal(torch.tensor(0.1, dtype=torch.float64), 1.0)
    for alpha in (0.05, 0.5, 0.95):
        exact, dense = (
            gradient_of(kind(alpha), q, p, how) for how in (bd.Exact(96), bd.Quadrature())
        )
        for one, two in zip(exact, dense, strict=True):
            assert torch.allclose(one, two, rtol=1e-6, atol=1e-9)


def gradient_of(divergence, q, p, estimator):
    loc, scale = (x.clone().requires_grad_() for x in (q.loc, q.scale))
    value = estimator(divergence, Normal(loc, scale), p)
    return value.detach(), *torch.autograd.grad(value.sum(), (loc, scale))


@pytest.mark.parametrize(
    "divergence", [bd.KL(), bd.JSG(0.0729), bd.JSA(0.0729), bd.JSA(0.99)], ids=repr
)
def test_loss_and_gradient_are_finite_in_float32_on_the_whole_range(divergence):
    ratio = torch.logspace(-6, 3, 91)
    delta = torch.linspace(-1e3, 1e3, 101)
    delta, ratio = (x.flatten() for x in torch.meshgrid(delta, ratio, indexing="ij"))
    for estimator in (bd.Exact(), bd.Exact(nodes=40)):
        value, *gradients = gradient_of(
            divergence, Normal(delta, ratio), Normal(0.0, 1.0), estimator
        )
        assert value.isfinite().all()
        assert all(gradient.isfinite().all() for gradient in gradients)


def by_table(alpha, q, p):
    divergence = bd.JSA(alpha)
    return table.values(closed_form.find(divergence, q, p), divergence, q, p) is not None


@pytest.mark.parametrize("alpha", [0.01, 0.0729, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("kind", [bd.JSA, UnmodifiedJSA])
def test_table_equals_the_rule(kind, alpha):
    generator = torch.Generator().manual_seed(1)
    count = 200_000
    ratio = (torch.rand(count, generator=generator) * 18 - 12).exp()  # 6e-6 … 400
    distance = torch.rand(count, generator=generator) ** 2 * 12
    delta = distance * (1 + ratio**2).sqrt()
    q, p = Normal(delta, ratio), Normal(0.0, 1.0)
    assert by_table(alpha, q, p)
    value, by_loc, by_scale = gradient_of(kind(alpha), q, p, bd.Exact())
    wide = Normal(delta.double(), ratio.double())
    right, loc_right, scale_right = gradient_of(kind(alpha), wide, p, bd.Exact(nodes=64))
    assert (value - right).abs().max() < 1e-5
    assert (by_loc - loc_right).abs().max() < 1e-3
    assert ((by_scale - scale_right) * ratio).abs().max() < 1.2e-3
    assert (by_loc - loc_right).square().mean().sqrt() < 3e-5


@pytest.mark.parametrize("alpha", [0.01, 0.5, 0.99])
def test_table_stays_right_beyond_its_edges(alpha):
    ratio = torch.logspace(-12, 12, table.FEWEST)
    for delta in (0.0, 5.0, 1e6):
        q, p = Normal(torch.full_like(ratio, delta), ratio), Normal(0.0, 1.0)
        assert by_table(alpha, q, p)
        value, by_loc, by_scale = gradient_of(bd.JSA(alpha), q, p, bd.Exact())
        right, loc_right, scale_right = gradient_of(bd.JSA(alpha), q, p, bd.Exact(nodes=40))
        assert torch.allclose(value, right, atol=3e-5)
        assert torch.allclose(by_loc, loc_right, atol=1e-3)
        assert torch.allclose(by_scale * ratio, scale_right * ratio, atol=1.2e-3)


def test_table_is_left_out_where_it_does_not_serve():
    many, prior = Normal(torch.zeros(table.FEWEST), 1.0), Normal(0.0, 1.0)
    assert by_table(0.3, many, prior)
    assert not by_table(0.004, many, prior)
    assert not by_table(torch.tensor(0.3), many, prior)
    assert not by_table(0.3, Normal(torch.zeros(10), 1.0), prior)
    assert not by_table(0.3, Normal(torch.zeros(table.FEWEST).double(), 1.0), prior)


def test_tiny_and_huge_alpha_stay_right_in_float32():
    """1e-13 of the mixture still bounds: no fall-back to KL, which has no bound."""
    q, p = Normal(torch.tensor([30.0, 0.1]), torch.tensor([0.5, 0.5])), Normal(0.0, 1.0)
    wide = Normal(q.loc.double(), q.scale.double())
    for alpha in (1e-300, 1e-13, 1e-7, 1 - 1e-7, 1 - 1e-13):
        dense = bd.Quadrature()(bd.JSA(alpha), wide, p)
        assert torch.allclose(bd.JSA(alpha)(q, p).double(), dense, rtol=1e-5)


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSG(0.3), bd.JSA(0.3)], ids=repr)
def test_blocks_and_broadcasting_change_nothing(divergence):
    count = 2 * BLOCK + 5
    loc, scale, _, _ = parameters(count, dtype=torch.float32)
    whole = gradient_of(divergence, Normal(loc, scale), Normal(0.0, 1.0), bd.Auto())
    halves = [
        gradient_of(divergence, Normal(x, y), Normal(torch.zeros_like(x), 1.0), bd.Auto())
        for x, y in zip(loc.split(BLOCK + 3), scale.split(BLOCK + 3), strict=True)
    ]
    for one, pieces in zip(whole, zip(*halves, strict=True), strict=True):
        assert torch.allclose(one, torch.cat(pieces), atol=1e-6)


def test_shapes_broadcast_like_tensors():
    q = Normal(torch.zeros(5, 1, requires_grad=True), torch.ones(4))
    p = Normal(torch.zeros(3, 1, 4), torch.tensor(2.0, requires_grad=True))
    for divergence in (bd.KL(), bd.JSG(0.2), bd.JSA(0.2), bd.TotalVariation()):
        value = divergence(q, p)
        assert value.shape == (3, 5, 4)
        value.sum().backward()
    assert q.loc.shape == (5, 4)
    assert bd.KL()(Normal(0.0, 1.0), Normal(0.0, 1.0)).shape == ()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters_are_computed_in_float32(dtype):
    q = Normal(torch.tensor([0.5], dtype=dtype), torch.tensor([0.25], dtype=dtype))
    for divergence in (bd.KL(), bd.JSG(0.3), bd.JSA(0.3)):
        value = divergence(q, Normal(0.0, 1.0))
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(
            divergence(Normal(0.5, 0.25), Normal(0.0, 1.0)).item(), rel=1e-6
        )


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSG(0.3), bd.JSA(0.3)], ids=repr)
def test_functional_transforms_work(divergence):
    loc, scale, _, _ = parameters()

    def total(loc, scale):
        return divergence(Normal(loc, scale, validate_args=False), Normal(0.0, 1.0)).sum()

    by_loc = torch.func.grad(total)(loc, scale)
    a_weight_at_a_time = torch.vmap(torch.func.grad(total))(loc, scale)
    assert torch.allclose(by_loc, a_weight_at_a_time)


@pytest.mark.parametrize("divergence", [bd.KL(), bd.JSG(0.3), bd.JSA(0.3)], ids=repr)
@pytest.mark.parametrize("count", [10, table.FEWEST])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiles_into_one_graph(divergence, count):
    """The rule found first, the way a compiled step uses it; traced without a C++ compiler."""
    p = Normal(torch.tensor(0.0), torch.tensor(1.0), validate_args=False)
    loc, scale, _, _ = parameters(count, dtype=torch.float32)
    rho = scale.expm1().log().requires_grad_()
    loc.requires_grad_()
    compute = bd.Exact().prepare(divergence, Normal(loc, scale), p)

    def total(loc, rho):
        return compute(Normal(loc, softplus(rho), validate_args=False), p, None).sum()

    compiled = torch.compile(total, fullgraph=True, backend="aot_eager")
    for one, two in zip(
        torch.autograd.grad(compiled(loc, rho), (loc, rho)),
        torch.autograd.grad(total(loc, rho), (loc, rho)),
        strict=True,
    ):
        assert torch.allclose(one, two, atol=1e-4)


def test_second_derivatives_are_refused_not_wrong():
    loc = torch.tensor([0.5], requires_grad=True)
    (first,) = torch.autograd.grad(
        bd.JSA(0.3)(Normal(loc, 1.0), Normal(0.0, 1.0)).sum(), loc, create_graph=True
    )
    with pytest.raises(RuntimeError, match="no second derivative"):
        (first + loc**2).sum().backward()


# The ends of the range -----------------------------------------------------------------------

ENDS = [bd.KL(), bd.ReverseKL(), bd.JSA(1.0), UnmodifiedJSG(1.0)] + [
    kind(alpha) for kind in (bd.WeightedKL, bd.JSG, UnmodifiedJSG) for alpha in (0.01, 0.3, 0.99)
]
at_any_scale = pytest.mark.parametrize(
    ("dtype", "prior_scale"),
    [
        (torch.float32, 1.0),
        (torch.float32, 2.0**-64),
        (torch.float32, 2.0**64),
        (torch.float64, 1.0),
    ],
)
RATIOS = [1.3e-38, 1e-30, 1e-20, 3e-20, 1e-19, 1e-10, 1e-3, 0.9, 1.0]
RATIOS += [1.01, 30.0, 1e10, 1e19, 1.9e19, 3e19, 1e21, 1e30, 1e38]
DISTANCES = [0.0, 1e-10, 0.5, 30.0, 1e6, 1e19]


def pairs(dtype, prior_scale):
    """All ratios and distances that the dtype holds, as loc and scale."""
    ratio, distance = np.meshgrid(RATIOS, DISTANCES)
    loc, scale = (torch.tensor(x * prior_scale).flatten() for x in (distance, ratio))
    held = (scale > 1.2e-38) & (scale < 3e38) & (loc < 3e38)
    return loc[held].to(dtype), scale[held].to(dtype)


def by_many_digits(divergence, delta, ratio):
    """The closed forms as they stand in a book, with 60 digits."""
    with mp.workdps(60):
        d, r = mp.mpf(delta), mp.mpf(ratio)
        kl = (r**2 + d**2 - 1) / 2 - mp.log(r)
        reverse = ((1 + d**2) / r**2 - 1) / 2 + mp.log(r)
        a = mp.mpf(getattr(divergence, "alpha", isinstance(divergence, bd.ReverseKL)))
        unmodified = isinstance(divergence, UnmodifiedJSG)
        power = 1 - a if unmodified else a  # of q in the geometric mean
        v = (1 - power) * r**2 + power
        log_z = (1 - power) * mp.log(r) - (mp.log(v) + power * (1 - power) * d**2 / v) / 2
        weights = (a * (1 - a),) * 2 if unmodified else ((1 - a) ** 2, a**2)
        without = isinstance(divergence, bd.WeightedKL) or a in (0, 1)
        return weights[0] * kl + weights[1] * reverse + (0 if without else log_z)


@at_any_scale
@pytest.mark.parametrize("divergence", ENDS, ids=repr)
def test_closed_forms_are_right_or_infinite_at_any_ratio(divergence, dtype, prior_scale):
    loc, scale = pairs(dtype, prior_scale)
    p = Normal(torch.zeros((), dtype=dtype), torch.tensor(prior_scale, dtype=dtype))
    found = divergence(Normal(loc, scale), p)
    total = prepare(bd.Exact(), divergence, Normal(loc[:1], scale[:1]), p).total
    limits = torch.finfo(dtype)
    for one, place, width in zip(found.tolist(), loc, scale, strict=True):
        wanted = by_many_digits(divergence, place.item() / prior_scale, width.item() / prior_scale)
        alone = total(Normal(place.reshape(1), width.reshape(1)), p, None).item()
        if wanted > limits.max:
            assert one == alone == math.inf
        else:
            wanted = float(wanted)
            # Near a ratio of 1 the unmodified one is the difference of two squares.
            close = pytest.approx(wanted, rel=300 * limits.eps, abs=10 * limits.eps * (wanted > 0))
            assert one == close
            assert alone == close


def dense(divergence, delta, ratio):
    """JS-A by a sum over 4001 points where the narrower side lies, from its two densities."""
    w, _, m, rest, _, _ = divergence.mixture(divergence.alpha)
    if ratio > 1:
        delta, ratio, w, m, rest = delta / ratio, 1 / ratio, 1 - w, rest, m
    points = np.linspace(-11, 11, 4001)
    share = np.exp(-(points**2) / 2)
    share /= share.sum()
    with np.errstate(over="ignore"):
        log_ratio = 0.5 * (delta + ratio * points) ** 2 - 0.5 * points**2 - math.log(ratio)
        p_over_q = np.exp(-log_ratio)
        mixed = np.logaddexp(math.log(m), math.log(rest) - log_ratio)  # log A/q
        # KL(p ‖ A) = -log(1-m) - E_p[log(A/(1-m)p)], which the narrower side sees whole.
        lost = np.where(p_over_q > 0, p_over_q * (mixed - math.log(rest) + log_ratio), 0.0)
    return -w * (share * mixed).sum() - (1 - w) * (math.log(rest) + (share * lost).sum())


@at_any_scale
@pytest.mark.parametrize(
    ("kind", "alpha"), [(bd.JSA, 0.01), (bd.JSA, 0.5), (bd.JSA, 0.99), (UnmodifiedJSA, 0.8)]
)
def test_js_a_is_right_and_its_gradients_are_finite_at_any_ratio(kind, alpha, dtype, prior_scale):
    loc, scale = pairs(dtype, prior_scale)
    standard = zip((loc / prior_scale).tolist(), (scale / prior_scale).tolist(), strict=True)
    wanted = torch.tensor([dense(kind(alpha), *one) for one in standard], dtype=torch.float64)
    p = Normal(torch.zeros((), dtype=dtype), torch.tensor(prior_scale, dtype=dtype))
    copies = [1] if dtype == torch.float64 else [1, -(-table.FEWEST // len(loc))]
    for count in copies:
        many = Normal(loc.repeat(count), scale.repeat(count))
        assert by_table(alpha, many, p) == (count > 1)
        value, *gradients = gradient_of(kind(alpha), many, p, bd.Exact())
        torch.testing.assert_close(value.double(), wanted.repeat(count), rtol=0, atol=1e-5)
        assert all(gradient.isfinite().all() for gradient in gradients)
        mixture = kind.mixture(alpha)
        rules = [table.of(mixture).total]
        if native.library() is not None:
            rules.append(table.looked_up(mixture))
        for rule in rules if count > 1 else []:
            found = rule(many.loc, many.scale, p.loc, p.scale)
            assert found.value.item() == pytest.approx(count * wanted.sum().item(), rel=2e-5)
            for one, two, unit in zip(found[1:], gradients, (p.scale, many.scale), strict=True):
                torch.testing.assert_close(one * unit, two * unit, rtol=1e-3, atol=1e-4)


def test_total_variation_is_1_far_apart_and_its_gradients_are_finite():
    loc, scale = pairs(torch.float32, 1.0)
    value, *gradients = gradient_of(
        bd.TotalVariation(), Normal(loc, scale), Normal(0.0, 1.0), bd.Exact()
    )
    far = (loc > 20 * scale) & (loc > 20) | (scale < 1e-9) | (scale > 1e9)
    assert (value[far] > 1 - 1e-6).all()
    assert ((value >= 0) & (value <= 1)).all()
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
def test_a_pair_whose_ratio_no_float_holds_gives_no_nan(divergence):
    loc, scale = torch.tensor([0.0, 1e38, 1e38]), torch.tensor([1e38, 1e-38, 1e38])
    value = divergence(Normal(loc, scale), Normal(0.0, 1e-20))
    assert not value.isnan().any()
    assert (value > 0.1).all()


@pytest.mark.parametrize("count", [table.FEWEST - 1, table.FEWEST])
@pytest.mark.parametrize("place", [0, 1])
def test_js_a_of_nan_is_nan_with_and_without_the_table(count, place):
    given = [torch.zeros(count), torch.ones(count)]
    given[place][7] = math.nan
    q, p = Normal(*given, validate_args=False), Normal(0.0, 1.0)
    assert bd.JSA(0.3)(q, p).isnan().nonzero().tolist() == [[7]]
    total = prepare(bd.Exact(), bd.JSA(0.3), Normal(torch.zeros(count), 1.0), p).total
    assert total(q, p, None).isnan()


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=repr)
def test_many_weights_under_vmap_give_the_same_without_a_warning(divergence):
    generator = torch.Generator().manual_seed(0)
    loc, scale = torch.rand(2, 2, table.FEWEST, generator=generator) + 0.1

    def value(loc, scale):
        return divergence(Normal(loc, scale, validate_args=False), Normal(0.0, 1.0))

    wanted = torch.stack([value(*rows) for rows in zip(loc, scale, strict=True)])
    torch.testing.assert_close(torch.vmap(value)(loc, scale), wanted)
    torch.testing.assert_close(torch.vmap(lambda x: value(x, scale[0]))(loc)[0], wanted[0])


def test_one_pair_against_many_alphas_broadcasts():
    alphas = torch.tensor([0.2, 0.5, 0.8])
    q, p = Normal(torch.tensor([0.5]), torch.tensor([0.4])), Normal(0.0, 1.0)
    for kind in (bd.JSG, bd.WeightedKL, bd.JSA, UnmodifiedJSG, UnmodifiedJSA):
        wanted = [kind(alpha)(q, p).item() for alpha in alphas.tolist()]
        assert kind(alphas)(q, p).tolist() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("order", [0.2, 0.5, 0.9, 2.0])
def test_renyi_is_right_or_infinite_at_any_ratio(order):
    """Log v / 2(1-α) - log r + α δ²/2v, v = (1-α) r² + α, with 60 digits."""
    loc, scale = pairs(torch.float32, 1.0)
    found = bd.Renyi(order)(Normal(loc, scale), Normal(0.0, 1.0)).tolist()
    for one, delta, ratio in zip(found, loc.tolist(), scale.tolist(), strict=True):
        with mp.workdps(60):
            a, d, r = mp.mpf(order), mp.mpf(delta), mp.mpf(ratio)
            v = (1 - a) * r**2 + a
            wanted = mp.inf
            if v > 0:
                wanted = mp.log(v) / (2 * (1 - a)) - mp.log(r) + a * d**2 / (2 * v)
        largest = torch.finfo(torch.float32).max
        assert one == pytest.approx(float(wanted) if wanted < largest else math.inf, rel=1e-4)


@pytest.mark.parametrize("ratio", [1e-12, 1e-3])
def test_js_g_at_a_tiny_alpha_is_right_in_value_and_gradient(ratio):
    """1 - (1 - α) is 0 for this α, which is more than r² all the same."""
    alpha, r = 1e-17, mp.mpf(ratio)
    scale = torch.tensor(ratio, dtype=torch.float64, requires_grad=True)
    p = Normal(torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64))
    value = bd.JSG(alpha)(Normal(p.loc + 0.5, scale), p)
    assert value.item() == pytest.approx(
        float(by_many_digits(bd.JSG(alpha), 0.5, ratio)), rel=1e-12
    )
    (gradient,) = torch.autograd.grad(value, scale)
    with mp.workdps(60):
        wanted = mp.diff(lambda width: by_many_digits(bd.JSG(alpha), 0.5, width), r, h=r * 1e-12)
    assert gradient.item() == pytest.approx(float(wanted), rel=1e-6)
