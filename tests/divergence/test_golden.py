"""Every case of the reference file, through every way to compute it."""

import math

import mpmath
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

import bayesdiv as bd
import golden
from bayesdiv.compute import table

FLOAT32_ROUNDING = "g16"  # scale 1.001 rounds by 5e-8, which is 5e-5 of its distance from 1


def misses(value: float, wanted: float, relative: float, absolute: float) -> bool:
    if math.isinf(wanted) or math.isinf(value):
        return value != wanted
    return abs(value - wanted) > max(absolute, relative * abs(wanted))


def failures(cases, fields, estimator, dtype, relative, absolute):
    """Lines for all the cases that miss, so that one run shows them all."""
    lines = []
    for batch in golden.batches(cases):
        q, p = golden.posterior(batch, dtype), golden.prior(batch, dtype)
        alpha = batch[0]["alpha"]
        for field in fields:
            if field in golden.WITHOUT_ALPHA and alpha != 0.5:
                continue
            values = estimator(golden.FIELDS[field](alpha), q, p)
            for case, value in zip(batch, values.tolist(), strict=True):
                wanted = golden.expected(case, field)
                if wanted is not None and misses(value, wanted, relative, absolute):
                    lines.append(f"{case['id']} {field}: {value} instead of {wanted}")
    return lines


def inside(cases):
    return [case for case in cases if 0 < case["alpha"] < 1]


def at_ends(cases):
    return [case for case in cases if case["alpha"] in (0, 1)]


CLOSED = [field for field in golden.FIELDS if field not in golden.BY_NODES]


def test_closed_forms_match_in_float64():
    assert not failures(golden.GAUSSIAN, CLOSED, bd.Exact(), torch.float64, 1e-10, 1e-14)


def test_js_a_is_the_two_kls_at_the_ends_in_float64():
    ends = at_ends(golden.GAUSSIAN)
    assert not failures(ends, golden.BY_NODES, bd.Exact(), torch.float64, 1e-10, 1e-14)


def test_closed_forms_match_in_float32():
    cases = [case for case in golden.GAUSSIAN if not case["id"].startswith(FLOAT32_ROUNDING)]
    assert not failures(cases, CLOSED, bd.Exact(), torch.float32, 1e-5, 1e-7)


@pytest.mark.parametrize("divergence", [bd.KL(), bd.ReverseKL(), bd.JSG(0.3), bd.WeightedKL(0.3)])
def test_nearly_identical_gaussians_lose_no_digits_in_float32(divergence):
    """Against 50 digits at the rounded inputs: the formula cancels nothing, only inputs round."""
    q = Normal(torch.tensor(0.001), torch.tensor(1.001))
    p = Normal(torch.tensor(0.0), torch.tensor(1.0))
    value = divergence(q, p).item()
    with mpmath.workdps(50):
        loc, scale = mpmath.mpf(q.loc.item()), mpmath.mpf(q.scale.item())
        kl = (scale**2 + loc**2 - 1) / 2 - mpmath.log(scale)
        reverse = ((1 + loc**2) / scale**2 - 1) / 2 + mpmath.log(scale)
        a, b = mpmath.mpf(0.3), 1 - mpmath.mpf(0.3)
        v = b * scale**2 + a
        log_z = b * mpmath.log(scale) - mpmath.log(v) / 2 - a * b * loc**2 / (2 * v)
        weighted = b**2 * kl + a**2 * reverse
        wanted = {"KL": kl, "ReverseKL": reverse, "JSG": weighted + log_z, "WeightedKL": weighted}
        assert value == pytest.approx(float(wanted[type(divergence).__name__]), rel=1e-6)


@pytest.mark.parametrize(
    ("estimator", "dtype", "tolerance"),
    [
        (bd.Exact(nodes=96), torch.float64, 1e-7),
        (bd.Exact(), torch.float64, 1e-5),
        (bd.Exact(), torch.float32, 3e-5),
    ],
)
def test_js_a_by_the_one_sided_rule_matches(estimator, dtype, tolerance):
    cases = inside(golden.GAUSSIAN)
    assert not failures(cases, golden.BY_NODES, estimator, dtype, 0.0, tolerance)


def test_js_a_by_the_rule_for_a_uniform_prior_matches():
    cases = [case for case in inside(golden.OTHER) if case["prior"]["family"] == "uniform"]
    assert len(cases) == 30
    assert not failures(cases, golden.BY_NODES, bd.Exact(), torch.float64, 0.0, 1e-9)


def test_quadrature_matches_for_all_other_families():
    assert not failures(golden.OTHER, golden.FIELDS, bd.Quadrature(), torch.float64, 1e-10, 1e-7)


def test_quadrature_matches_for_gaussians():
    # The tails of log ∫ p²/q at 50 scales hold more than a double: relative 1e-6 there.
    assert not failures(golden.GAUSSIAN, golden.FIELDS, bd.Quadrature(), torch.float64, 1e-6, 1e-8)


def test_closed_forms_with_other_priors_match():
    lines, found = [], set()
    for batch in golden.batches(golden.OTHER):
        q, p = golden.posterior(batch, torch.float64), golden.prior(batch, torch.float64)
        for field, make in golden.FIELDS.items():
            if make(batch[0]["alpha"]).has_closed_form(q, p):
                found.add((field, type(p).__name__))
                lines += failures(batch, [field], bd.Exact(), torch.float64, 1e-10, 1e-14)
    assert not lines
    # What torch lacks and this package adds, and what is put together from both KLs.
    assert {("kl_Pq", "StudentT"), ("js_g_unnormalised", "Laplace")} <= found


def gradients(divergence, estimator, batch, dtype, count=1) -> tuple[Tensor, Tensor, Tensor]:
    """Value and derivatives by loc and scale for a batch, each weight `count` times."""
    q = golden.posterior(batch, dtype)
    loc, scale = (x.repeat(count).requires_grad_() for x in (q.loc, q.scale))
    p = golden.prior(batch, dtype)
    if count > 1:
        p = Normal(p.loc.repeat(count), p.scale.repeat(count))
    value = estimator(divergence, Normal(loc, scale), p)
    return value, *torch.autograd.grad(value.sum(), (loc, scale))


def prior_scale(case) -> float:
    told = case["prior"]
    if told["family"] == "uniform":
        return (told["high"] - told["low"]) / 2
    return told.get("sigma", told.get("scale", told.get("sigma1")))


def gradient_failures(cases, estimator, dtype, tolerance, count=1):
    """In d/d(loc/scale of the prior) and d/d(log scale of q), the units of the file's README."""
    lines = []
    for batch in golden.batches(cases):
        _, *found = gradients(bd.JSA(batch[0]["alpha"]), estimator, batch, dtype, count)
        by_loc, by_scale = (x.tolist() for x in found)
        for case, d_loc, d_scale in zip(batch, by_loc[-len(batch) :], by_scale, strict=False):
            wanted = case["grad"]["js_a"]
            errors = (
                (d_loc - wanted["d_mu"]) * prior_scale(case),
                (d_scale - wanted["d_sigma"]) * case["q"]["sigma"],
            )
            if not max(map(abs, errors)) <= tolerance:
                lines.append(f"{case['id']}: {errors}")
    return lines


@pytest.mark.parametrize(
    ("estimator", "dtype", "tolerance"),
    [
        (bd.Exact(nodes=96), torch.float64, 1e-7),
        (bd.Exact(), torch.float64, 1e-4),
        (bd.Exact(), torch.float32, 1e-3),
    ],
)
def test_js_a_gradients_match(estimator, dtype, tolerance):
    assert not gradient_failures(inside(golden.GAUSSIAN), estimator, dtype, tolerance)


def test_js_a_gradients_match_for_all_other_families():
    assert not gradient_failures(inside(golden.OTHER), bd.Quadrature(), torch.float64, 1e-6)


@pytest.mark.parametrize("name", ["js_a", "js_g_normalised"])
def test_closed_form_gradients_match(name):
    lines = []
    for batch in golden.batches(at_ends(golden.GAUSSIAN) if name == "js_a" else golden.GAUSSIAN):
        divergence = golden.FIELDS[name](batch[0]["alpha"])
        _, *found = gradients(divergence, bd.Exact(), batch, torch.float64)
        for key, values in zip(("d_mu", "d_sigma"), found, strict=True):
            for case, value in zip(batch, values.tolist(), strict=True):
                if misses(value, case["grad"][name][key], 1e-10, 1e-14):
                    lines.append(f"{case['id']} {key}: {value}, not {case['grad'][name][key]}")
    assert not lines


def test_table_matches_in_value_and_gradient():
    cases, count = inside(golden.GAUSSIAN), table.FEWEST
    lines = gradient_failures(cases, bd.Exact(), torch.float32, 1e-3, count)
    for batch in golden.batches(cases):
        divergence = bd.JSA(batch[0]["alpha"])
        value, *_ = gradients(divergence, bd.Exact(), batch, torch.float32, count)
        for case, found in zip(batch, value.tolist(), strict=False):
            wanted = golden.expected(case, "js_a")
            if misses(found, wanted, 0.0, 3e-5):
                lines.append(f"{case['id']}: {found} instead of {wanted}")
    assert not lines


@pytest.mark.parametrize("alpha", [0.0729, 0.5, 0.9])
@pytest.mark.parametrize("field", ["kl_qP", "js_g_unnormalised", *golden.BY_NODES, "tv"])
def test_monte_carlo_is_within_five_standard_errors(field, alpha):
    """Where its variance is finite and a draw in a hundred thousand does not decide."""
    torch.manual_seed(0)
    lines = []
    divergence = golden.FIELDS[field](alpha)
    limit = math.inf if divergence.bound is None else divergence.bound
    for batch in golden.batches([case for case in golden.CASES if case["alpha"] == alpha]):
        q, p = golden.posterior(batch, torch.float64), golden.prior(batch, torch.float64)
        groups = torch.stack([bd.MonteCarlo(4000)(divergence, q, p) for _ in range(25)])
        means, errors = groups.mean(0), groups.std(0) / 5
        for case, mean, error in zip(batch, means.tolist(), errors.tolist(), strict=True):
            wanted = golden.expected(case, field)
            if wanted is None or math.isinf(wanted) or wanted > limit - 1e-4:
                continue
            if case["id"].startswith("t") and field == "js_g_unnormalised":
                continue  # E_p[x²] of a Student t with 3 degrees of freedom: infinite variance
            if abs(mean - wanted) > 5 * error + 1e-12:
                lines.append(f"{case['id']}: {mean} ± {error}, not {wanted}")
    assert not lines
