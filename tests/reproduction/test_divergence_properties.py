"""The table of properties: asked of the divergences, checked by numbers."""

import csv
from pathlib import Path

import pytest
import torch

from bayesdiv.app import runs
from reproduction.analytical import divergence_properties as item
from reproduction.verdict import Outcome

COMMITTED = Path(__file__).parents[2] / "results"


def test_a_toy_size_is_computed_and_judged(results):
    assert item.missing(results) == []
    assert item.verdict(results).outcome is Outcome.REPRODUCED


def test_the_table_is_written_in_three_formats(results, tmp_path):
    paths = {path.suffix: path for path in item.draw(results, tmp_path)}
    with paths[".csv"].open() as file:
        rows = {row["divergence"]: row for row in csv.DictReader(file)}
    assert [rows["JS-A"][c] for c in ("bounded", "symmetric", "analytical")] == ["yes", "yes", "no"]
    assert [rows["KL"][c] for c in ("bounded", "symmetric", "analytical")] == ["no", "no", "yes"]
    assert "| JS-G | ✗ | ✓ | ✗ | ✓ |" in paths[".md"].read_text()
    latex = paths[".tex"].read_text()
    assert r"JS-A & \checkmark & \checkmark & $\times$ & $\times$ \\" in latex
    assert latex.count("&") == 4 * (1 + len(rows))


def test_the_committed_table_is_the_papers_in_every_cell():
    verdict = item.verdict(COMMITTED)
    assert verdict.outcome is Outcome.REPRODUCED
    assert verdict.sentence.startswith("9 of 9 cells agree")


def test_numbers_of_the_committed_table_are_those_of_hand_and_torch():
    rows = runs.read_json(COMMITTED / item.PLACE)["rows"]
    far = torch.distributions.Normal(torch.tensor(1e6, dtype=torch.float64), 1.0)
    near = torch.distributions.Normal(torch.tensor(0.0, dtype=torch.float64), 1.0)
    kl = torch.distributions.kl_divergence(far, near).item()
    assert rows["KL"]["largest"] == pytest.approx(kl, rel=1e-6)
    assert rows["JS-G"]["largest"] == pytest.approx(kl / 4, rel=1e-4)
    assert rows["JS-A"]["largest"] == pytest.approx(torch.tensor(2.0).log().item(), rel=1e-6)


@pytest.mark.parametrize(
    ("divergence", "wrong"),
    [
        ("JS-A", {"largest": 0.7}),
        ("KL", {"largest": 10.0}),
        ("JS-G", {"change": 0.1}),
        ("JS-G", {"change_skewed": 0.0}),
        ("KL", {"error": 1e-3}),
    ],
)
def test_an_answer_that_its_number_denies_is_not_reproduced(tmp_path, divergence, wrong):
    told = runs.read_json(COMMITTED / item.PLACE)
    told["rows"][divergence] |= wrong
    runs.write_json(tmp_path / item.PLACE, told)
    assert item.verdict(tmp_path).outcome is Outcome.NOT


def test_an_answer_unlike_the_papers_is_partly_reproduced(tmp_path):
    told = runs.read_json(COMMITTED / item.PLACE)
    told["rows"]["JS-A"] |= {"analytical": True, "error": 0.0}
    runs.write_json(tmp_path / item.PLACE, told)
    assert item.verdict(tmp_path).outcome is Outcome.PARTLY
