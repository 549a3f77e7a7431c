"""The losses of all experiments, and the authors' formulas verbatim."""

import math

import pytest
import torch
from torch.distributions import Normal

from bayesdiv import JSG, KL, Divergence
from reproduction.contenders import CONTENDERS, ScaleAsVariance, title


def authors_kl(loc, scale, prior):
    """As their program writes it, with softplus(rho) and 0.1 where variances belong."""
    return 0.5 * (scale / prior + loc**2 / prior - 1 + math.log(prior / scale))


def authors_js_g(loc, scale, prior, alpha):
    mean = 1 / (alpha / scale + (1 - alpha) / prior)  # a variance
    centre = mean * alpha * loc / scale
    parts = ((1 - alpha, loc, scale), (alpha, 0.0, prior))
    return sum(
        share * 0.5 * (v / mean + (m - centre) ** 2 / mean - 1 + math.log(mean / v))
        for share, m, v in parts
    )


@pytest.mark.parametrize(("loc", "scale"), [(0.0, 4.5e-5), (0.3, 0.01), (-1.0, 0.2)])
def test_the_authors_formulas_take_scales_for_variances(loc, scale):
    q = Normal(torch.tensor(loc).double(), torch.tensor(scale).double())
    p = Normal(torch.tensor(0.0).double(), torch.tensor(0.1).double())
    found = CONTENDERS["authors_kl"].divergence(None)(q, p).item()
    assert found == pytest.approx(authors_kl(loc, scale, 0.1))
    for alpha in (0.1, 0.7584):
        found = CONTENDERS["authors_js_g"].divergence(alpha)(q, p).item()
        assert found == pytest.approx(authors_js_g(loc, scale, 0.1, alpha))


def test_their_start_is_not_tiny_next_to_their_prior():
    """Why JS-G trains in their program: 4.5e-5 is 1/50 of the prior as a scale, not 1/2000."""
    q, p = Normal(0.0, 4.5e-5), Normal(0.0, 0.1)
    exact, theirs = JSG(0.5)(q, p).item(), ScaleAsVariance(JSG(0.5))(q, p).item()
    assert exact > 1000 * theirs


def test_a_formula_that_is_none_is_refused():
    q = Normal(torch.zeros(2), torch.ones(2))
    with pytest.raises(ValueError, match="inner must have a closed form for Gaussians"):
        ScaleAsVariance(_Unknown())(q, q)


class _Unknown(Divergence):
    def estimate(self, at_q, at_p):
        raise AssertionError


def test_every_contender_has_a_title_of_its_own():
    titles = [title(name) for name in CONTENDERS]
    assert len(set(titles)) == len(titles)
    assert CONTENDERS["kl"].divergence(None) == KL()
