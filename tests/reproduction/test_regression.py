"""The regression experiment at a toy size, and its tables."""

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from scipy import stats
from sklearn.linear_model import LinearRegression

import bayesdiv as bd
from bayesdiv.app import runs
from reproduction.contenders import CONTENDERS
from reproduction.item import Effort
from reproduction.published import NLL, RMSE
from reproduction.regression import columns, effective, halving, page, table
from reproduction.regression import nll as regression_nll
from reproduction.regression import results as regression_results
from reproduction.regression import rmse as regression_rmse
from reproduction.regression import rows as regression_rows
from reproduction.regression import training as regression
from reproduction.regression.training import COLUMNS, Choice, Protocol
from reproduction.verdict import Outcome

CPU = torch.device("cpu")
TOY = Protocol(trials=3, epochs=3, candidates=2, search_samples=2, test_samples=5, hidden=4)


def rows(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(count, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, -1.0]
    return x, 100 + 20 * x[:, 0] + generator.normal(size=count)


@pytest.fixture
def at_hand(monkeypatch):
    monkeypatch.setattr(columns, "arrays", lambda data: rows())
    monkeypatch.setattr(effective, "arrays", lambda data: rows())
    monkeypatch.setattr(regression_results, "arrays", lambda data, folder: rows())


def test_splits_are_disjoint_standardised_on_training_rows_and_repeat_with_their_seed():
    x, y = rows()
    outer, inner = regression_rows.split_rows(x, y, [0, 1, 0], TOY)
    assert outer.x.shape == (3, 54, 3)
    assert outer.test_x.shape == (3, 6, 3)
    assert inner.x.shape == (3, 43, 3)  # 54 less a fifth
    assert inner.test_x.shape == (3, 11, 3)
    torch.testing.assert_close(outer.x.mean(1), torch.zeros(3, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(outer.y.std(1, correction=0), torch.ones(3), atol=1e-5, rtol=0)
    assert torch.equal(outer.x[0], outer.x[2])
    assert not torch.equal(outer.x[0], outer.x[1])
    back = outer.y[0] * outer.scale[0]
    tests = outer.test_y[0] * outer.scale[0]
    together = np.sort(np.concatenate([back - back.mean(), tests - back.mean()]))
    np.testing.assert_allclose(np.diff(together), np.diff(np.sort(y)), atol=1e-3)


def test_scores_are_in_the_units_of_the_target():
    """A linear network at the least-squares solution scores what scikit-learn and SciPy say."""
    x, y = rows(200)
    outer, _ = regression_rows.split_rows(x, y, [0, 1], TOY)
    nets = []
    for k in range(2):
        fitted = LinearRegression().fit(outer.x[k].numpy(), outer.y[k].numpy())
        linear = torch.nn.Linear(3, 1)
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(fitted.coef_).reshape(1, 3))
            linear.bias.fill_(float(fitted.intercept_))
        prior = bd.Prior(torch.distributions.Normal, loc=0.0, scale=1.0)
        nets.append(bd.bayesianize(linear, prior, posterior=bd.Point, start=1.0))
    found = regression.scores(bd.stacked(nets), bd.Gaussian(torch.tensor([0.1, 0.2])), outer, 1)
    for k, noise in enumerate((0.1, 0.2)):
        order = np.random.default_rng(k).permutation(200)
        test, train = order[:20], order[20:]
        fitted = LinearRegression().fit(x[train], y[train])
        error = y[test] - fitted.predict(x[test])
        assert found.rmse[k].item() == pytest.approx(np.sqrt((error**2).mean()), rel=1e-4)
        scale = noise * y[train].std()
        wanted = -stats.norm(0, scale).logpdf(error).mean()
        assert found.nll[k].item() == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_contender_computes_and_its_result_is_json(name):
    told = columns.compute(name, *rows(), TOY, device=CPU)
    json.dumps(told, allow_nan=False)
    assert len(told["rmse"]) == len(told["nll"]) == 3
    assert told["diverged"] == []
    assert (told["search"] is None) == (not CONTENDERS[name].chooses)
    if told["search"]:
        chosen = [told["search"]["strength"][k] for k in told["search"]["chosen"]]
        assert told["strength"] == pytest.approx(chosen)


def test_each_split_chooses_the_candidate_of_its_own_lowest_validation_nll():
    x, y = rows()
    seeds = [0, 1]
    protocol = replace(TOY, trials=2, candidates=3, epochs=20, weakest=1e-3, strongest=1e3)
    _, inner = regression_rows.split_rows(x, y, seeds, protocol)
    choice, told = columns.searched(CONTENDERS["lambda_kl"], inner, protocol, seeds, CPU)
    # The strongest of 0.01, 1 and 100 forbids to learn; no split takes it.
    assert max(choice.strength.tolist()) < max(told["strength"])
    assert len(told["validation_nll"]) == 3


def test_candidates_are_as_many_for_every_loss_and_inside_their_ranges():
    for name in COLUMNS:
        contender = CONTENDERS[name]
        alpha, strength = columns.candidates(contender, Protocol())
        assert len(alpha) == len(strength) == 16
        assert 0 < alpha.min() <= alpha.max() < 1
        assert strength.min() >= 0.999e-2
        assert strength.max() <= 10.01


def test_a_diverged_trial_is_told_and_leaves_the_others(monkeypatch):
    x, y = rows()
    real = columns.scores

    def broken(*arguments):
        found = real(*arguments)
        found.nll[1] = float("nan")
        return found

    monkeypatch.setattr(columns, "scores", broken)
    told = columns.compute("kl", x, y, TOY, device=CPU)
    assert told["diverged"] == [1]
    assert told["nll"][1] is None
    cell = table._cell(told, "nll")
    assert (cell.trials, cell.diverged) == (2, 1)
    assert "1 diverged" in cell.text


def test_finished_results_are_not_computed_again(tmp_path, at_hand):
    jobs = regression_results.missing(
        tmp_path, TOY, 1, CPU, data=("yacht",), contenders=("kl", "deterministic")
    )
    assert [job.contender for job, _ in jobs] == ["kl", "deterministic"]
    again = regression_results.missing(
        tmp_path, TOY, 1, CPU, data=("yacht",), contenders=("kl", "js_a")
    )
    assert [job.contender for job, _ in again] == ["js_a"]
    told = json.loads(regression_results.place(tmp_path, "yacht", "kl").read_text())
    assert told["seeds"] == [0, 1, 2]
    assert {"hardware", "date", "command", "version", "protocol"} <= told.keys()


def test_what_all_losses_share_is_chosen_on_validation_rows(tmp_path, at_hand):
    protocol = regression_results.choose(tmp_path, TOY, 1, CPU)
    told = json.loads((tmp_path / "regression" / "choice.json").read_text())
    best = min(told["means"], key=lambda entry: entry["validation_nll"])
    assert (protocol.learning_rate, protocol.start) == (best["learning_rate"], best["start"])
    assert len(told["means"]) == 6


def fake(results: Path, data: str, contender: str, mean: float, spread: float = 0.1) -> None:
    path = regression_results.place(results, data, contender)
    path.parent.mkdir(parents=True, exist_ok=True)
    values = [mean - spread, mean, mean + spread]
    path.write_text(json.dumps({"rmse": values, "nll": values}))


@pytest.fixture
def results(tmp_path):
    for data in RMSE:
        fake(tmp_path, data, "kl", RMSE[data]["kl"].mean)
        fake(tmp_path, data, "js_g", RMSE[data]["kl"].mean - 0.2)
        fake(tmp_path, data, "js_a", RMSE[data]["kl"].mean + 0.2)
    return tmp_path


def test_tables_mark_the_best_and_show_the_published_figure(results, tmp_path):
    written = regression_rmse.draw(results, tmp_path / "out")
    assert [path.suffix for path in written] == [".csv", ".md", ".tex"]
    lines = list(csv.DictReader(written[0].read_text().splitlines()))
    airfoil = {line["loss"]: line for line in lines if line["data"] == "airfoil"}
    assert airfoil["js_g"]["mark"] == "**"
    assert float(airfoil["js_g"]["mean"]) == pytest.approx(1.96)
    assert float(airfoil["js_g"]["published_mean"]) == 2.22
    assert airfoil["f_c1"]["mark"] == "published, not rerun"
    assert airfoil["f_c1"]["mean"] == ""
    text = written[1].read_text()
    assert "**1.96±0.10** [2.22±0.25]" in text
    assert "over 3 trials" in text
    assert r"\textbf{1.96$\pm$0.10}" in written[2].read_text()


def test_a_result_without_its_numbers_is_told_in_a_sentence(results):
    regression_results.place(results, "yacht", "kl").write_text("{}")
    with pytest.raises(runs.RunError, match="must hold a list 'rmse'"):
        regression_rmse.verdict(results)


def test_without_results_there_is_a_sentence(tmp_path):
    with pytest.raises(runs.RunError, match="there are no regression results"):
        regression_nll.draw(tmp_path, tmp_path)
    assert regression_nll.verdict(tmp_path).outcome is Outcome.OPEN
    assert len(regression_nll.missing(tmp_path)) == 8 * (len(COLUMNS) + len(halving.LOSSES))


def test_a_quick_run_computes_a_toy_table(tmp_path, at_hand):
    told: list[str] = []
    regression_rmse.compute(tmp_path, Effort.QUICK, told.append)
    assert sum(" with " in line for line in told) == len(COLUMNS) + len(halving.LOSSES)
    assert not any("yacht" in line for line in regression_rmse.missing(tmp_path))
    assert regression_rmse.draw(tmp_path, tmp_path / "out")[1].exists()


def test_published_figures_are_those_of_the_paper():
    assert RMSE["concrete"]["chi"] == (3.32, 0.34)
    assert NLL["yacht"]["f_c1"] == (2.05, 0.01)
    assert all(len(row) == 8 for row in [*RMSE.values(), *NLL.values()])


def test_choices_stay_with_their_trials():
    """Candidates run along the first axis of a stack, splits along the second."""
    x, y = rows()
    _, inner = regression_rows.split_rows(x, y, [0, 1], replace(TOY, trials=2))
    many = inner.repeated(3, CPU)
    assert torch.equal(many.x[2], inner.x[0])
    choice = Choice(*(torch.arange(3.0).repeat_interleave(2) for _ in range(2)))
    assert choice.alpha.tolist() == [0, 0, 1, 1, 2, 2]


SMALL = halving.Search(((4, 2), (2, 3)), finalists=2, draws=2, lengths=(1, 2))


def test_every_loss_gets_as_many_candidates_inside_their_ranges():
    search = halving.Search()
    for name in halving.LOSSES:
        tried = halving.candidates(CONTENDERS[name], search)
        assert len(tried) == len(set(tried)) == 32
        assert all(1e-3 <= one.rate <= 3e-2 for one in tried)
        assert {one.epochs for one in tried} == {100, 250, 500}
        if name == "kl":
            assert {one.strength for one in tried} == {1.0}
        else:
            assert min(one.strength for one in tried) < 0.1 < 1 < max(one.strength for one in tried)
        alphas = {one.alpha for one in tried}
        assert (len(alphas) == 32) == name.startswith("js")


def test_a_trial_with_its_own_rate_takes_the_steps_of_adam_with_that_rate():
    rates = torch.tensor([1e-3, 3e-2])
    stack = torch.nn.Parameter(torch.tensor([[1.0, -2.0], [1.0, -2.0]]))
    alone = [torch.nn.Parameter(row.detach().clone()) for row in stack]
    ours = regression.PerTrial([stack], rates)
    theirs = [torch.optim.Adam([p], lr=r) for p, r in zip(alone, rates.tolist(), strict=True)]
    for _ in range(5):
        stack.grad = 2 * stack.detach() + 0.1
        ours.step()
        for parameter, optimizer in zip(alone, theirs, strict=True):
            parameter.grad = 2 * parameter.detach() + 0.1
            optimizer.step()
    torch.testing.assert_close(stack.detach(), torch.stack([p.detach() for p in alone]))


def test_a_halving_keeps_the_best_and_a_diverged_candidate_is_last():
    nll = torch.tensor([[1.0, 3.0], [0.5, float("nan")], [1.0, 1.0], [0.0, 9.0]])
    assert halving.best(nll, 2) == [2, 0]
    assert halving.best(nll, 4)[-1] == 1


def test_a_search_by_halving_writes_one_file_per_set_and_loss_and_goes_on(tmp_path, at_hand):
    lines = []
    given = {"search": SMALL, "protocol": TOY, "data": ("yacht",), "tell": lines.append}
    regression_results.halve(tmp_path, CPU, limit=-1, **given)
    assert not list(tmp_path.rglob("*.json"))
    regression_results.halve(tmp_path, CPU, **given)
    files = sorted(path.name for path in tmp_path.rglob("*.json"))
    assert files == ["js_a.json", "js_g.json", "kl.json", "lambda_kl.json"]
    told = json.loads((tmp_path / "regression-searched/yacht/js_a.json").read_text())
    assert [len(each["tried"]) for each in told["rounds"]] == [4, 2, 2]
    assert [each["splits"] for each in told["rounds"]] == [2, 3, 3]
    assert told["rounds"][-1]["samples"] == told["samples"] == 10
    assert told["setting"] in told["rounds"][-1]["tried"]
    lowest = min(range(2), key=told["rounds"][-1]["validation_nll"].__getitem__)
    assert told["setting"] == told["rounds"][-1]["tried"][lowest]
    assert len(told["rmse"]) == 3
    lines.clear()
    regression_results.halve(tmp_path, CPU, **given)
    assert lines == []
    found = regression_results.found(tmp_path)
    assert found["yacht"]["js_a"]["setting"] == told["setting"]


class Stopped(Exception):
    pass


def test_a_stopped_search_repeats_no_round_and_ends_as_if_it_had_not_stopped(tmp_path, at_hand):
    given = {"search": SMALL, "protocol": TOY, "data": ("yacht",)}
    regression_results.halve(tmp_path / "whole", CPU, **given)
    part = tmp_path / "again" / "regression-searched/yacht/kl.part"

    def stopping(line):
        if part.exists() and len(json.loads(part.read_text())["rounds"]) == 2:
            raise Stopped

    with pytest.raises(Stopped):
        regression_results.halve(tmp_path / "again", CPU, **given, tell=stopping)
    assert not part.with_suffix(".json").exists()
    lines = []
    regression_results.halve(tmp_path / "again", CPU, **given, tell=lines.append)
    assert lines[0].startswith("2 candidates on 3 splits, 100 draws")  # the third round of KL
    assert not list(tmp_path.rglob("*.part"))
    for name in halving.LOSSES:
        one, two = (
            json.loads((tmp_path / each / f"regression-searched/yacht/{name}.json").read_text())
            for each in ("whole", "again")
        )
        same = ("rounds", "setting", "rmse", "nll")
        assert [one[key] for key in same] == [two[key] for key in same]


def test_rounds_of_another_search_are_not_taken_over(tmp_path, at_hand):
    given = {"protocol": TOY, "data": ("yacht",)}
    part = tmp_path / "regression-searched/yacht/kl.part"
    part.parent.mkdir(parents=True)
    part.write_text(json.dumps({"given": "another", "rounds": [{}], "seconds": 1e6}))
    regression_results.halve(tmp_path, CPU, search=SMALL, **given)
    told = json.loads(part.with_suffix(".json").read_text())
    assert len(told["rounds"]) == 3
    assert told["seconds"] < 1e6


def test_packed_arrays_are_read_in_the_place_of_tables(tmp_path, monkeypatch):
    wanted = rows()
    np.savez_compressed(tmp_path / "yacht.npz", x=wanted[0], y=wanted[1])
    found = regression_rows.arrays("yacht", tmp_path)
    assert all(np.array_equal(one, two) for one, two in zip(found, wanted, strict=True))


def test_the_sets_are_those_that_the_app_knows():
    from bayesdiv.app.data.uci import SETS

    assert len(set(regression_rows.SETS)) == 8
    assert set(regression_rows.SETS) <= set(SETS)


def test_all_draws_count_at_the_exact_posterior_and_one_far_from_it():
    """One weight, known noise: where q is the posterior, the ratio is the evidence at any draw."""
    torch.manual_seed(0)
    x = torch.randn(40, 1)
    y = 0.7 * x[:, 0] + 0.5 * torch.randn(40)
    precision = 1 + x.square().sum() / 0.5**2
    loc = (x[:, 0] * y).sum() / 0.5**2 / precision
    model = bd.bayesianize(
        torch.nn.Linear(1, 1, bias=False),
        bd.Prior(torch.distributions.Normal, loc=0.0, scale=1.0),
        start=precision.rsqrt().item(),
    )
    found = []
    for shift in (0.0, 1.0):
        with torch.no_grad():
            model.posterior.loc.fill_(loc + shift)
        rows_ = regression_rows.Rows(x[None], y[None], x[None], y[None], torch.ones(1))
        likelihood = bd.Gaussian(torch.tensor([0.5]))
        found.append(effective.effective(bd.stacked([model]), likelihood, rows_, 2.0, 50).item())
    assert found[0] == pytest.approx(50, rel=1e-3)
    assert found[1] < 2


def test_effective_draws_are_measured_before_and_after_training(tmp_path, at_hand):
    small = replace(TOY, trials=2, epochs=2)
    told = effective.compute(tmp_path, small, lambda line: None, ("yacht",))
    assert {*told["each"]["yacht"]} == {"renyi", "chi", "total_variation"}
    for each in told["each"]["yacht"].values():
        for when in ("before", "after"):
            assert all(1 <= number <= each["samples"] for number in each[when]["effective"])
    assert effective.compute(tmp_path, small, lambda line: None) == told  # read, not measured again


def test_how_many_draws_count_is_what_the_page_says():
    root = Path(__file__).parents[2]
    text = " ".join((root / "docs" / "paper" / "regression.md").read_text().split())
    told = runs.read_json(root / "results" / effective.PLACE)
    counts = {
        when: [
            number
            for row in told["each"].values()
            for name in ("chi", "total_variation")
            for number in row[name][when]["effective"]
        ]
        for when in ("before", "after")
    }
    before, after = (f"{min(c):.1f} to {max(c):.1f}" for c in counts.values())
    assert f"{before} before training and {after} after it" in text
    assert f"median {np.median(counts['before'] + counts['after']):.1f}." in text
    renyi = [n for row in told["each"].values() for n in row["renyi"]["after"]["effective"]]
    assert max(renyi) < 1.05
    assert told["seconds"] < 7.5 * 60


def test_figures_in_the_text_of_the_page_are_what_the_results_give(tmp_path):
    root = Path(__file__).parents[2]
    text = " ".join((root / "docs" / "paper" / "regression.md").read_text().split())
    older = tmp_path / "older"
    shutil.copytree(root / "results" / "regression", older / "regression")
    means = {key: table.cells(older, key) for key in ("rmse", "nll")}
    higher = [d for d, row in means["nll"].items() if row["lambda_kl"].mean > row["kl"].mean]
    assert len(higher) == 6
    assert "has a higher NLL than the untuned KL on six of the eight sets" in text
    boston = {key: each["boston_housing"] for key, each in means.items()}
    assert boston["rmse"]["lambda_kl"].mean < boston["rmse"]["kl"].mean
    assert boston["nll"]["lambda_kl"].mean > boston["nll"]["kl"].mean
    assert "on Boston housing the tuned strength lowers the one and raises the other" in text
    losses = (root / "benchmarks" / "tables" / "losses.md").read_text()
    for one in ("JS-G", "JS-A"):
        for key in ("NLL", "RMSE"):
            said = rf"against {{}}, {key} on . tables: ahead on (\d), behind on (\d)"
            over_kl, over_tuned = (
                re.search(f"- {one} " + said.format(base), losses) for base in ("KL", "λKL")
            )
            assert int(over_kl[1]) > 0
            assert over_kl[2] == over_tuned[1] == "0"
    assert "behind on none, and neither is ahead of λKL on any" in text


def signed(end, digits):
    """With one more digit where it would look like 0, so that its sign shows."""
    return f"{end:+.{digits + (abs(end) < 0.5 * 10**-digits)}f}"


def test_the_page_shows_the_searched_sets_as_their_files_have_them():
    """Means, intervals, bold figures, sentences and minutes, worked out again with NumPy."""
    root = Path(__file__).parents[2]
    text = (root / "docs" / "paper" / "regression.md").read_text()
    shown = text[text.index("## Equal searches") : text.index("## Root mean squared error")]
    searched = sorted((root / "results" / "regression-searched").iterdir())
    whole = [folder for folder in searched if len([*folder.glob("*.json")]) == 4]
    told = {d.name: {p.stem: json.loads(p.read_text()) for p in d.iterdir()} for d in whole}
    pairs = {
        "JS-G over KL": ("js_g", "kl"),
        "JS-A over KL": ("js_a", "kl"),
        "λKL over KL": ("lambda_kl", "kl"),
        "JS-G over λKL": ("js_g", "lambda_kl"),
        "JS-A over λKL": ("js_a", "lambda_kl"),
    }
    for key in ("rmse", "nll"):
        part = shown[shown.index(f"| {key.upper()}, ") :]
        for data, each in told.items():
            expected = []
            for one, base in pairs.values():
                own, theirs = (np.array(each[name][key]) for name in (one, base))
                less, digits = theirs - own, 3
                if key == "rmse":
                    less, digits = 100 * less / theirs.mean(), 1
                # A tenth of the rows is tested on; splits that share rows vary less than new data.
                wide = scipy.stats.sem(less) * np.sqrt(1 + len(less) / 9)
                low, high = scipy.stats.t.interval(0.95, len(less) - 1, less.mean(), wide)
                ends = ", ".join(signed(end, digits) for end in (low, high))
                text = f"{less.mean():+.{digits}f} [{ends}]"
                expected.append(f"**{text}**" if low > 0 or high < 0 else text)
            (row,) = re.findall(
                rf"^\| {data.replace('_', ' ')} \| (.*) \|$", part.split("In ")[0], re.M
            )
            unsigned = [re.sub(r"-(0\.0+)\b", r"+\1", cell) for cell in expected]
            assert unsigned == row.split(" | ")
    seconds = sum(one["seconds"] for each in told.values() for one in each.values())
    assert f"{len(told)} of 8 sets are searched, in {seconds / 60:.0f} minutes on one core" in shown


def test_a_set_is_shown_once_all_four_losses_are_searched(tmp_path):
    """A lead on every split is ahead, the other way round behind; noise decides nothing."""
    noise = np.random.default_rng(0).normal(size=20)
    of = {"kl": noise + 1, "lambda_kl": noise[::-1] + 1, "js_g": noise + 0.8, "js_a": noise + 1.2}
    for data, losses in (("yacht", halving.LOSSES), ("concrete", ("kl", "js_g"))):
        for name in losses:
            setting = {"rate": 0.00123, "epochs": 250, "strength": 0.5, "alpha": 0.25}
            told = {"rmse": [*of[name]], "nll": [*of[name]], "rounds": [], "seconds": 60.0}
            told["setting"] = setting
            path = regression_results.place(tmp_path, data, name, regression_results.SEARCHED)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(told))
    found = regression_results.found(tmp_path)
    assert (set(found["yacht"]), found["concrete"]) == ({*halving.LOSSES}, {})  # whole, or not yet
    shown = page.searches(tmp_path)
    assert shown.startswith("1 of 8 sets are searched, in 4 minutes on one core. airfoil, aquatic")
    assert "| concrete |" not in shown
    for said in (
        "- JS-G over KL: ahead on yacht\n",
        "- JS-A over KL: behind on yacht\n",
        "- λKL over KL: undecided on all\n",
    ):
        assert shown.count(said) == 2
    kl = "rate 0.0012, 250 epochs"
    chosen = f"| yacht | {kl} | {kl}, λ 0.5 | {kl}, λ 0.5, α 0.25 | {kl}, λ 0.5, α 0.25 |\n"
    assert shown.endswith(chosen)


def test_the_computed_parts_of_the_page_are_what_its_program_writes():
    root = Path(__file__).parents[2]
    text = (root / "docs" / "paper" / "regression.md").read_text()
    assert page.replaced(text, page.sections(root / "results")) == text
    with pytest.raises(ValueError, match="must have a section 'Equal searches'"):
        page.replaced("# Regression\n", {"Equal searches": ""})
