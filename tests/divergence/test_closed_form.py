"""The registry: the most specific rule wins, a tie raises, anyone may register."""

from dataclasses import dataclass

import pytest
import torch
from torch.distributions import Distribution, Laplace, Normal

import bayesdiv as bd
from bayesdiv.divergence import closed_form


@dataclass(frozen=True)
class Distance(bd.Divergence):
    def estimate(self, at_q, at_p):
        return at_q.mean(torch.zeros_like(at_q.log_q))


class Narrow(Normal):
    pass


@pytest.fixture(autouse=True)
def _clean_registry(monkeypatch):
    monkeypatch.setattr(closed_form, "_RULES", dict(closed_form._RULES))
    yield
    closed_form._look_up.cache_clear()


def test_the_most_specific_rule_wins():
    closed_form.register(Distance, Distribution, Distribution)(lambda d, q, p: torch.tensor(1.0))
    closed_form.register(Distance, Normal, Distribution)(lambda d, q, p: torch.tensor(2.0))
    q, p = Narrow(0.0, 1.0), Laplace(0.0, 1.0)
    assert Distance()(q, p).item() == 2
    assert Distance()(p, q).item() == 1
    closed_form.register(Distance, Narrow, Laplace)(lambda d, q, p: torch.tensor(3.0))
    assert Distance()(q, p).item() == 3


def test_a_tie_raises_and_names_the_rules():
    closed_form.register(Distance, Normal, Distribution)(lambda d, q, p: torch.tensor(1.0))
    closed_form.register(Distance, Distribution, Normal)(lambda d, q, p: torch.tensor(2.0))
    with pytest.raises(TypeError, match=r"no closed form is the most specific for \('Distance'"):
        Distance()(Normal(0.0, 1.0), Normal(0.0, 1.0))


def test_closed_forms_are_told_from_rules_with_nodes():
    q, p = Normal(0.0, 1.0), Normal(1.0, 1.0)
    assert bd.KL().has_closed_form(q, p)
    assert bd.JSG(0.3).has_closed_form(q, p)
    assert bd.JSA(0.0).has_closed_form(q, p)
    assert not bd.JSA(0.3).has_closed_form(q, p)
    assert not bd.JSG(0.3).has_closed_form(q, Laplace(0.0, 1.0))
    assert bd.ReverseKL().has_closed_form(q, Laplace(0.0, 1.0))
