"""The schedule of a learning rate."""

import itertools

import pytest

from bayesdiv.training.optimizers.natural import Cosine


def test_the_cosine_rises_then_falls_to_nothing():
    factors = [Cosine(20, warm_up=4)(epoch) for epoch in range(21)]
    assert factors[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert all(a > b for a, b in itertools.pairwise(factors[4:]))
    assert factors[-1] == pytest.approx(0)


def test_a_warm_up_as_long_as_the_run_is_refused():
    with pytest.raises(ValueError, match="below steps"):
        Cosine(5, warm_up=5)
