"""Both algorithms at a toy size, and the two-sided estimate against integration."""

import json
from pathlib import Path

import pytest
import torch
from torch.distributions import Normal

from bayesdiv import JSA, MonteCarlo, Quadrature
from bayesdiv.app import runs
from reproduction.algorithms import algorithm_1, algorithm_2, table
from reproduction.algorithms.results import NEEDS, TIMED, TRAINED
from reproduction.algorithms.training import TwoSided
from reproduction.item import Effort
from reproduction.verdict import Outcome

COMMITTED = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    assert len(NEEDS.missing(folder)) == 2
    NEEDS.compute(folder, Effort.QUICK, lambda line: None)
    return folder


def test_the_two_sided_estimate_is_js_a_and_needs_draws_of_the_prior():
    torch.manual_seed(0)
    q = Normal(torch.tensor([0.3, 2.0]).double(), torch.tensor([0.2, 0.7]).double())
    p = Normal(torch.zeros(2).double(), torch.ones(2).double())
    wanted = JSA(0.3)(q, p, Quadrature())
    found = MonteCarlo(400_000)(TwoSided(0.3), q, p)
    torch.testing.assert_close(found, wanted, rtol=0.01, atol=1e-3)


def test_a_toy_is_trained_timed_and_shown(made, tmp_path):
    assert NEEDS.missing(made) == []
    for item, name in ((algorithm_1, "algorithm_1"), (algorithm_2, "algorithm_2")):
        written = item.draw(made, tmp_path)
        assert [path.name for path in written] == [
            f"{name}{end}" for end in (".csv", ".md", ".tex")
        ]
        assert item.verdict(made).outcome is not Outcome.OPEN
    text = (tmp_path / "algorithm_2.md").read_text()
    assert all(title in text for title in table.TITLES.values())


def test_what_is_there_is_not_computed_again(made):
    before = [(made / place).read_bytes() for place in (TRAINED, TIMED)]
    NEEDS.compute(made, Effort.FULL, pytest.fail)
    assert [(made / place).read_bytes() for place in (TRAINED, TIMED)] == before


def test_without_times_the_size_is_undecided(made, tmp_path):
    runs.write_json(tmp_path / TRAINED, json.loads((made / TRAINED).read_text()))
    for item in (algorithm_1, algorithm_2):
        verdict = item.verdict(tmp_path)
        assert verdict.missing == ("the time of a step on a GPU",)
        assert verdict.outcome is not Outcome.REPRODUCED


def test_without_results_there_is_a_sentence(tmp_path):
    assert algorithm_1.verdict(tmp_path).outcome is Outcome.OPEN
    with pytest.raises(runs.RunError, match="there are no results of the algorithms"):
        algorithm_2.draw(tmp_path, tmp_path)


def test_the_committed_networks_learned_by_samples_as_by_the_exact_rule():
    told = runs.read_json(COMMITTED / TRAINED)
    for way in ("js_a", "js_a_sampled"):
        assert min(run["accuracy"] for run in told[way]) > 0.95
