"""Random priors of every continuous family of torch, against an integration by SciPy."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

import bayesdiv as bd
from bayesdiv.divergence import UnmodifiedJSA, UnmodifiedJSG
from bayesdiv.divergence.quadrature import NotConverged
from tests.divergence.families import Line, draw_posterior, draw_prior, reference

ACCURACY = 1e-6
MOST_REFUSED = 0.1  # of a batch of cases


def draw_divergence(g):
    alpha = float(g.uniform(0.02, 0.98))
    kinds = [
        bd.KL(),
        bd.ReverseKL(),
        bd.WeightedKL(alpha),
        bd.JSG(alpha),
        UnmodifiedJSG(alpha),
        bd.JSA(alpha),
        UnmodifiedJSA(alpha),
        bd.Renyi(float(g.choice([0.1, 0.5, 0.9, 0.999, 1.5, 2.0]))),
        bd.ChiSquared(),
        bd.TotalVariation(),
    ]
    return kinds[g.integers(len(kinds))]


def agree(found, wanted, dtype):
    """Within 1e-6, or the last digit of single precision where the inputs have no more."""
    if wanted > torch.finfo(found.dtype).max:
        return found.item() == math.inf
    accuracy = ACCURACY if dtype == torch.float64 else 2 * ACCURACY
    return abs(found.item() - wanted) <= accuracy * max(1.0, abs(wanted))


def samples(estimator):
    return isinstance(estimator, bd.MonteCarlo | bd.Auto)


def check(seed):
    """One pair and divergence: what became of it."""
    g = np.random.default_rng(seed)
    name, prior, density = draw_prior(g)
    q, own = draw_posterior(g, torch.float64 if g.random() < 0.7 else torch.float32)
    divergence = draw_divergence(g)
    told = f"seed {seed}: {divergence} of {q} from {name}, {prior}, peers {density.edges}"
    wanted = reference(divergence, Line(own, density))
    try:
        return compared(seed, divergence, q, prior, wanted, told)
    except NotConverged:
        return "refused"


def compared(seed, divergence, q, prior, wanted, told):
    """What became of a pair whose divergence is known."""
    outcome = "agrees" if not math.isnan(wanted) else "reference in doubt"
    found = bd.Quadrature()(divergence, q, prior)
    assert not found.isnan(), told
    if math.isnan(wanted):
        return outcome
    assert agree(found, wanted, q.loc.dtype), f"{told}: {found.item()} instead of {wanted}"
    chosen = bd.Auto().choose(divergence, q, prior)
    torch.manual_seed(seed)
    if samples(chosen):
        many = bd.Auto(bd.MonteCarlo(500))(divergence, q.expand(torch.Size([50])), prior)
        if math.isinf(wanted):
            assert (many == math.inf).all(), told
            return outcome
        error = many.double().std().item() / math.sqrt(50)
        # What happens to one draw in 25,000 may happen to none of them.
        error = max(error, max(1.0, abs(wanted)) / 25_000)
        far = abs(many.double().mean().item() - wanted)
        assert math.isfinite(error), told
        assert far <= 5 * error + 2 * ACCURACY * max(1.0, abs(wanted)), f"{told}: off by {far}"
        return "sampled"
    if chosen == bd.Quadrature():
        return outcome
    automatic = bd.Auto()(divergence, q, prior)
    assert agree(automatic, wanted, torch.float32), f"{told}: {automatic.item()}, not {wanted}"
    return outcome


def check_all(seeds):
    found = Counter(check(seed) for seed in seeds)
    assert found["refused"] <= MOST_REFUSED * len(seeds), found
    assert found["reference in doubt"] <= MOST_REFUSED * len(seeds), found
    return found


@pytest.mark.parametrize("first", range(0, 300, 60))
def test_300_random_pairs_agree_with_scipy_or_are_refused(first):
    check_all(range(first, first + 60))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 21_000, 1000))
def test_20000_random_pairs_agree_with_scipy_or_are_refused(first):
    check_all(range(first, first + 1000))
