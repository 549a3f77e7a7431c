"""Names that every example in a docstring may use without importing them."""

import pytest
import torch
from torch import distributions, nn

import bayesdiv as bd

NAMES = ("Bernoulli", "Categorical", "Laplace", "Normal")


@pytest.fixture(autouse=True)
def _names_of_examples(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace |= {name: getattr(distributions, name) for name in NAMES}
    doctest_namespace |= {"torch": torch, "nn": nn, "bd": bd}
