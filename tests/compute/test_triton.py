"""The kernels for a GPU: on one, or on a CPU under Triton's interpreter (TRITON_INTERPRET=1)."""

import os

import pytest
import torch
from torch.distributions import Normal
from torch.nn.functional import softplus

import bayesdiv as bd
from bayesdiv.compute import backend, table
from bayesdiv.divergence import UnmodifiedJSA, closed_form
from bayesdiv.divergence.gaussian import SoftplusNormal

pytest.importorskip("triton", reason="needs Triton")
from bayesdiv.compute import triton as kernels
from bayesdiv.compute.triton import Kernels
from bayesdiv.compute.triton_programs import Program

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [
    pytest.mark.skipif(
        not INTERPRETED and not torch.cuda.is_available(),
        reason="needs a CUDA device, or TRITON_INTERPRET=1",
    ),
    # The interpreter's own, on overflows of integers that Philox means to overflow.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    *([] if INTERPRETED else [pytest.mark.gpu]),
]


def looked_up(divergence):
    weights = divergence.mixture(divergence.alpha)
    rows = table.packed(weights, torch.device(DEVICE))
    return Kernels(Program.TABLE, 0.0, float(weights.bound), rows)


CASES = {
    "KL": (bd.KL(), lambda: Kernels(Program.KL)),
    "ReverseKL": (bd.ReverseKL(), lambda: Kernels(Program.REVERSE_KL)),
    "WeightedKL": (bd.WeightedKL(0.3), lambda: Kernels(Program.WEIGHTED_KL, 0.3)),
    "JSG": (bd.JSG(0.3), lambda: Kernels(Program.JSG, 0.3)),
    "JSA": (bd.JSA(0.3), lambda: looked_up(bd.JSA(0.3))),
    "JSA(0.99)": (bd.JSA(0.99), lambda: looked_up(bd.JSA(0.99))),
    "UnmodifiedJSA": (UnmodifiedJSA(0.3), lambda: looked_up(UnmodifiedJSA(0.3))),
}
cases = pytest.mark.parametrize("case", CASES)


def parameters(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    loc = torch.randn(shape, generator=generator)
    rho = 2 * torch.randn(shape, generator=generator) - 1
    return loc.to(DEVICE).requires_grad_(), rho.to(DEVICE).requires_grad_()


def unit():
    return torch.tensor(0.0, device=DEVICE), torch.tensor(1.0, device=DEVICE)


def by_kernel(case, loc, rho, *prior):
    value = CASES[case][1]().total(SoftplusNormal(loc, rho), Normal(*prior, validate_args=False))
    # A gradient of another size in each trial.
    factors = torch.arange(1.0, value.numel() + 1, device=DEVICE).reshape(value.shape)
    return value, *torch.autograd.grad((factors * value).sum(), (loc, rho))


def by_program(case, loc, rho):
    return CASES[case][1]().total(SoftplusNormal(loc, rho), Normal(*unit(), validate_args=False))


def in_double(case, loc, rho, *prior):
    """The exact rule through torch's softplus, in double precision on the CPU."""
    loc, rho = (x.detach().cpu().double().requires_grad_() for x in (loc, rho))
    p = Normal(*(x.cpu().double() for x in prior))
    value = bd.Exact(nodes=96)(CASES[case][0], Normal(loc, softplus(rho)), p).sum(-1)
    factors = torch.arange(1.0, value.numel() + 1).reshape(value.shape)
    return value, *torch.autograd.grad((factors * value).sum(), (loc, rho))


def assert_close(ours, wanted):
    value, *gradients = (x.detach().cpu().double() for x in ours)
    torch.testing.assert_close(value, wanted[0], rtol=1e-5, atol=1e-4)
    for one, two in zip(gradients, wanted[1:], strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1.2e-3)


@cases
def test_sums_and_gradients_are_those_of_the_exact_rule(case):
    loc, rho = parameters(2 * kernels.BLOCK + 7)
    assert_close(by_kernel(case, loc, rho, *unit()), in_double(case, loc, rho, *unit()))


@cases
@pytest.mark.parametrize("spread", [(), (50,), (2, 3, 50)])
def test_trials_and_priors_of_any_shape_are_served(case, spread):
    loc, rho = parameters(2, 3, 50)
    generator = torch.Generator().manual_seed(1)
    prior_loc = torch.randn(spread, generator=generator).to(DEVICE)
    prior_scale = (torch.rand(spread, generator=generator) + 0.5).to(DEVICE)
    ours = by_kernel(case, loc, rho, prior_loc, prior_scale)
    assert ours[0].shape == (2, 3)
    assert_close(ours, in_double(case, loc, rho, prior_loc, prior_scale))


@pytest.mark.parametrize("case", ["KL", "JSG", "WeightedKL", "ReverseKL"])
def test_next_to_the_prior_no_digit_is_lost(case):
    scale = 1 + torch.linspace(-1e-3, 1e-3, 21, dtype=torch.float64)
    rho = scale.expm1().log().float().to(DEVICE).requires_grad_()
    loc = torch.zeros_like(rho).requires_grad_()
    prior = softplus(torch.tensor(1.0).expm1().log()).to(DEVICE)
    ours = by_kernel(case, loc, rho, torch.zeros((), device=DEVICE), prior)
    wanted = in_double(case, loc, rho, torch.zeros(()), prior)
    assert ours[0].item() == pytest.approx(wanted[0].item(), rel=2e-3)


@pytest.mark.parametrize("case", ["KL", "ReverseKL", "WeightedKL", "JSG"])
@pytest.mark.parametrize("rho", [-80.0, -50.0, 1e10, 1e18, 1e25, 1e37])
def test_sums_of_extreme_scales_are_right_or_infinite_and_never_nan(case, rho):
    rho = torch.full((3,), rho).to(DEVICE).requires_grad_()
    loc = torch.tensor([0.0, 1.0, -3.0]).to(DEVICE).requires_grad_()
    value, *gradients = by_kernel(case, loc, rho, *unit())
    assert not value.isnan()
    assert not any(gradient.isnan().any() for gradient in gradients)
    wanted = in_double(case, loc, rho, *unit())[0].item()
    if wanted < 1e37:
        assert value.item() == pytest.approx(wanted, rel=1e-4)
    else:
        assert value.item() > 1e35


@pytest.mark.parametrize("case", ["KL", "JSA", "JSA(0.99)", "UnmodifiedJSA"])
def test_gradients_are_finite_for_any_parameters(case):
    rho = torch.tensor([-1e6, -200.0, -104.0, -88.0, -20.0, -15.0, 0.0, 15.0, 100.0, 1e6])
    loc = torch.tensor([-1e6, -1e3, 0.0, 1e-3, 1e3, 1e6])
    loc, rho = (x.flatten() for x in torch.meshgrid(loc, rho, indexing="ij"))
    loc, rho = (x.to(DEVICE).requires_grad_() for x in (loc, rho))
    results = by_kernel(case, loc, rho, *unit())
    assert all(result.isfinite().all() for result in results)
    if case == "KL":  # by hand, where softplus(rho) is e^rho and less than a float32 can be
        _, by_loc, by_rho = results
        torch.testing.assert_close(by_loc, loc.detach())
        assert (by_rho[rho < -80] == -1).all()


@cases
def test_the_whole_range_of_scales_and_distances_is_right(case):
    ratio, delta = torch.logspace(-6, 3, 46), torch.linspace(-1e3, 1e3, 21)
    delta, ratio = (x.flatten() for x in torch.meshgrid(delta, ratio, indexing="ij"))
    rho = (ratio + (-(-ratio).expm1()).log()).to(DEVICE).requires_grad_()
    loc = delta.to(DEVICE).requires_grad_()
    value, *gradients = by_kernel(case, loc, rho, *unit())
    wanted, *others = in_double(case, loc, rho, *unit())
    assert value.item() == pytest.approx(wanted.item(), rel=1e-5)
    for one, two in zip(gradients, others, strict=True):
        torch.testing.assert_close(one.cpu().double(), two, rtol=1e-3, atol=1.2e-3)


def test_a_nan_stays_one():
    loc, rho = parameters(5)
    with torch.no_grad():
        loc[2] = float("nan")
    for case in ("KL", "JSG", "JSA"):
        value, by_loc, _ = by_kernel(case, loc, rho, *unit())
        assert value.isnan()
        assert by_loc.isnan().tolist() == [False, False, True, False, False]


def test_no_weights_have_no_divergence():
    for shape in ((0,), (2, 0), (0, 3)):
        loc, rho = parameters(*shape)
        value, by_loc, by_rho = by_kernel("KL", loc, rho, *unit())
        assert value.tolist() == [0.0] * (len(value) if value.dim() else 0) or value.item() == 0
        assert by_loc.shape == by_rho.shape == shape
    assert kernels.draw(*parameters(0), 3).shape == (3, 0)


@pytest.mark.parametrize("count", [1, 2, 4 * kernels.LANES + 3])
def test_gradients_of_a_draw_are_those_of_the_noise_it_made(count):
    loc, rho = parameters(count)
    torch.manual_seed(0)
    drawn = kernels.draw(loc, rho, 3)
    assert drawn.shape == (3, count)
    scale = softplus(rho)
    noise = ((drawn - loc) / scale).detach()
    grad = torch.randn(drawn.shape).to(DEVICE)
    ours = torch.autograd.grad(drawn, (loc, rho), grad, retain_graph=True)
    wanted = torch.autograd.grad(loc + scale * noise, (loc, rho), grad)
    for one, two in zip(ours, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_draws_are_repeated_by_a_seed_and_differ_without():
    loc, rho = parameters(3000)
    with torch.no_grad():
        torch.manual_seed(0)
        one, two = kernels.draw(loc, rho, 2), kernels.draw(loc, rho, 2)
        torch.manual_seed(0)
        again = kernels.draw(loc, rho, 2)
    assert torch.equal(one, again)
    assert (one != two).float().mean() > 0.99
    assert (one[0] != one[1]).float().mean() > 0.99


def test_draws_are_standard_normal_and_independent():
    from scipy import stats

    torch.manual_seed(0)
    one = torch.zeros(20_000, device=DEVICE)
    rho = torch.ones_like(one).expm1().log()  # of scale 1
    noise = kernels.draw(one, rho, 3).cpu().double()
    assert stats.kstest(noise.flatten().numpy(), "norm").pvalue > 1e-3
    assert noise.mean().abs() < 4 / 60_000**0.5
    # Between draws, and between the four parts that come out of one round of Philox.
    between = torch.corrcoef(torch.cat([noise, noise[:1].roll(kernels.LANES, 1)]))
    assert (between - torch.eye(4)).abs().max() < 5 / 20_000**0.5
    assert noise.abs().max() > 3.5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_draws_may_be_of_a_shorter_dtype(dtype):
    loc, rho = parameters(40)
    torch.manual_seed(0)
    short = kernels.draw(loc, rho, 2, dtype)
    torch.manual_seed(0)
    full = kernels.draw(loc, rho, 2)
    assert short.dtype == dtype
    torch.testing.assert_close(short.float(), full, rtol=1e-2, atol=1e-2)
    grad = torch.ones_like(full)
    ours = torch.autograd.grad(short, (loc, rho), grad.to(dtype))
    for one, two in zip(ours, torch.autograd.grad(full, (loc, rho), grad), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, two)


def test_nothing_of_the_size_of_the_weights_is_kept_for_the_backward_pass():
    loc, rho = parameters(100)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        by_program("KL", loc, rho)
        kernels.draw(loc, rho, 5)
    assert {x.data_ptr() for x in kept if x.numel() >= 100} == {loc.data_ptr(), rho.data_ptr()}


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_the_operators_compile_into_one_graph():
    torch._dynamo.reset()
    loc, rho = parameters(50)
    kernel, prior = CASES["JSG"][1](), Normal(*unit(), validate_args=False)

    def both(loc, rho):
        return kernels.draw(loc, rho, 2), kernel.total(SoftplusNormal(loc, rho), prior)

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    results = []
    for run in (both, compiled):
        torch.manual_seed(0)
        drawn, value = run(loc, rho)
        results.append([value, *torch.autograd.grad(drawn.sum() * 0 + value, (loc, rho))])
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two)


def test_second_derivatives_of_a_divergence_are_refused_not_wrong():
    loc, rho = parameters(5)
    value = by_program("KL", loc, rho)
    (first,) = torch.autograd.grad(value, loc, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        (first + loc**2).sum().backward()


def test_second_derivatives_of_a_draw_are_refused_not_wrong():
    loc, rho = parameters(5)
    (first,) = torch.autograd.grad(kernels.draw(loc, rho, 2).pow(3).sum(), rho, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        first.sum().backward()


# --- trust ---------------------------------------------------------------------------------------


def agrees(case):
    divergence, kernel = CASES[case]
    unit = Normal(torch.zeros(1), torch.ones(1))
    rule = closed_form.find(divergence, unit, unit)
    return backend.agrees(kernel(), rule, divergence, DEVICE)


@cases
def test_kernels_are_trusted_where_they_compute_what_plain_operations_do(case):
    assert agrees(case)


@pytest.mark.parametrize("name", ["total", "draw_and_total"])
def test_kernels_that_compute_something_else_are_found_out(name, monkeypatch):
    right = getattr(Kernels, name)

    def wrong(*arguments):
        found = right(*arguments)
        if isinstance(found, tuple):
            return found[0], 1.1 * found[1]
        return 1.1 * found

    monkeypatch.setattr(Kernels, name, wrong)
    assert not agrees("KL")


# --- both at once --------------------------------------------------------------------------------


@cases
@pytest.mark.parametrize("each", [False, True], ids=["one prior", "a prior a weight"])
def test_draws_and_sum_in_one_pass_are_those_of_two(case, each):
    loc, rho = parameters(4 * kernels.LANES + 5)
    scale = torch.linspace(0.5, 2.0, loc.numel()) if each else torch.tensor(0.7)
    # Such as a Gaussian's own broadcast makes it: one number seen as many.
    prior = Normal(torch.zeros(()), scale)
    prior_loc, prior_scale = prior.loc.to(DEVICE), prior.scale.to(DEVICE)
    drawn, total = CASES[case][1]().draw_and_total(
        SoftplusNormal(loc, rho), Normal(prior_loc, prior_scale, validate_args=False), 3
    )
    wanted, *gradients = by_kernel(case, loc, rho, prior_loc, prior_scale)
    torch.testing.assert_close(total, wanted)
    generator = torch.Generator().manual_seed(2)
    weights = torch.randn(drawn.shape, generator=generator).to(DEVICE)
    ours = torch.autograd.grad((drawn * weights).sum() + total, (loc, rho))
    # The noise, told by the draws themselves.
    with torch.no_grad():
        noise = (drawn - loc) / softplus(rho)
        by_draws = weights.sum(0), (weights * noise).sum(0) * rho.sigmoid()
    assert abs(noise.mean().item()) < 0.1
    assert noise.std().item() == pytest.approx(1, abs=0.1)
    for one, two, three in zip(ours, gradients, by_draws, strict=True):
        torch.testing.assert_close(one, two + three, rtol=1e-3, atol=1e-3)


def test_draws_beside_a_sum_may_be_short_numbers_and_need_no_gradient():
    loc, rho = parameters(37)
    q, p = SoftplusNormal(loc, rho), Normal(*unit(), validate_args=False)
    drawn, total = CASES["KL"][1]().draw_and_total(q, p, 1, torch.bfloat16)
    assert drawn.dtype == torch.bfloat16
    assert drawn.shape == (1, 37)
    ours = torch.autograd.grad(total, (loc, rho))
    torch.testing.assert_close(ours, by_kernel("KL", loc, rho, *unit())[1:])


def test_draws_and_sum_of_no_weights_are_empty_and_zero():
    loc, rho = parameters(0)
    q, p = SoftplusNormal(loc, rho), Normal(*unit(), validate_args=False)
    drawn, total = CASES["KL"][1]().draw_and_total(q, p, 2)
    assert drawn.shape == (2, 0)
    assert total.item() == 0
