"""The suite for a user's own divergence: our classes pass, and each broken promise is caught."""

from dataclasses import dataclass

import pytest
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv.divergence import UnmodifiedJSA, UnmodifiedJSG, closed_form
from bayesdiv.testing import check_divergence

SKEWED = [bd.JSG, bd.WeightedKL, bd.JSA, UnmodifiedJSG, UnmodifiedJSA]
OURS = [
    bd.KL(),
    bd.ReverseKL(),
    *(kind(alpha) for kind in SKEWED for alpha in (0.0, 0.0729, 0.5, 0.9, 1.0)),
    *(bd.Renyi(order) for order in (0.0, 0.5, 1.0, 1.5)),
    bd.ChiSquared(),
    bd.TotalVariation(),
]


@pytest.mark.parametrize("divergence", OURS, ids=repr)
def test_every_divergence_of_ours_passes(divergence):
    check_divergence(divergence)


@dataclass(frozen=True)
class Jeffreys(bd.Divergence):
    """KL(q ‖ p) + KL(p ‖ q): what a user would write."""

    @property
    def symmetric(self):
        return True

    def estimate(self, at_q, at_p):
        return at_q.mean(at_q.log_q - at_q.log_p) + at_p.mean(at_p.log_p - at_p.log_q)


def test_a_divergence_of_ones_own_passes():
    check_divergence(Jeffreys())


class Shifted(Jeffreys):
    def estimate(self, at_q, at_p):
        return super().estimate(at_q, at_p) + 0.1


class Negative(Jeffreys):
    def estimate(self, at_q, at_p):
        return -super().estimate(at_q, at_p)


class Bounded(Jeffreys):
    @property
    def bound(self):
        return 0.01


class Lopsided(bd.KL):
    @property
    def symmetric(self):
        return True


class SummedOverSamples(bd.KL):
    def estimate(self, at_q, at_p):
        own = super().estimate(at_q, at_p)
        return own if at_q.log_weight.dim() else own * at_q.log_q.shape[0]


class WrongForm(bd.KL):
    pass


class WrongGradient(bd.KL):
    pass


closed_form.register(WrongForm, Normal, Normal)(lambda d, q, p: 2 * bd.KL()(q, p))
closed_form.register(WrongGradient, Normal, Normal)(
    lambda d, q, p: bd.KL()(q, p).detach() + 0 * q.loc
)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (Shifted(), "must be 0 for equal distributions"),
        (Negative(), "must not be negative"),
        (Bounded(), "exceeds its bound 0.01"),
        (Lopsided(), "claims to be symmetric"),
        (SummedOverSamples(), "estimated from samples is"),
        (WrongForm(), "has a closed form that gives"),
        (WrongGradient(), "has a closed form with gradient"),
    ],
)
def test_each_broken_promise_is_caught(broken, words):
    with pytest.raises(AssertionError, match=words):
        check_divergence(broken)
