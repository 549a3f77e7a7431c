"""The table "How to add" of CONTRIBUTING.md: one of each is added, and runs."""

import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn
from torch.distributions import Distribution, Laplace, NegativeBinomial, Normal

import bayesdiv as bd
from bayesdiv.app import cli
from bayesdiv.app import task as tasks
from bayesdiv.app.data import loading, uci
from bayesdiv.app.settings import restore
from bayesdiv.compute import backend
from bayesdiv.compute.inplace import Total
from bayesdiv.divergence import Points, closed_form
from bayesdiv.divergence.gaussian import OnePass, Terms
from bayesdiv.likelihoods import Likelihood
from bayesdiv.metrics import LOWEST, TABLE, TARGET, metric
from bayesdiv.testing import check_divergence, check_likelihood, check_posterior
from command import call, reproduce
from reproduction import catalogue, command
from reproduction.item import Entry

ROOT = Path(__file__).parents[1]
STANDARD = bd.Prior(Normal, loc=0.0, scale=1.0)
EXAMPLES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {}


def example(row: str) -> Callable[[Callable[[pytest.MonkeyPatch], None]], object]:
    """Enter the example of a row of the table."""
    return lambda function: EXAMPLES.setdefault(row, function)


def rows() -> list[str]:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("| new |") : text.index("**Numbers.**")]
    return [line.split("|")[1].strip() for line in table.splitlines()[2:] if line.startswith("|")]


def trained(net: nn.Module, likelihood: nn.Module, divergence: bd.Divergence, y: Tensor) -> float:
    """The loss after a few epochs on a line, by the ordinary loop."""
    objective = bd.Objective(likelihood, divergence, num_data=len(y))
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=1e-2)
    batches = bd.Batches(torch.linspace(-1, 1, len(y)).unsqueeze(1), y, 8)
    return list(bd.fit(net, objective, batches, optimizer, 3, seed=0))[-1].loss.total


LINE = torch.linspace(-1, 1, 32)


@dataclass(frozen=True)
class Jeffreys(bd.Divergence):
    """KL(q ‖ p) + KL(p ‖ q)."""

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        return at_q.mean(at_q.log_q - at_q.log_p) + at_p.mean(at_p.log_p - at_p.log_q)


@example("divergence")
def _(patch):
    check_divergence(Jeffreys())
    net = bd.bayesianize(nn.Linear(1, 1), bd.Prior(Laplace, loc=0.0, scale=1.0))
    assert np.isfinite(trained(net, bd.Gaussian(), Jeffreys(), LINE))


@dataclass(frozen=True)
class Closed(Jeffreys):
    """The same, between Gaussians in closed form."""


@example("closed form for a pair")
def _(patch):
    @closed_form.register(Closed, Normal, Normal)
    def _(divergence, q, p):
        return bd.KL()(q, p) + bd.ReverseKL()(q, p)

    check_divergence(Closed())
    q, p = Normal(torch.tensor(0.5), 0.8), Normal(torch.tensor(0.0), 1.0)
    one, two = stats.norm(0.5, 0.8), stats.norm(0.0, 1.0)
    wanted, _ = integrate.quad(
        lambda x: (one.pdf(x) - two.pdf(x)) * (one.logpdf(x) - two.logpdf(x)), -20, 20
    )
    assert bd.Exact()(Closed(), q, p).item() == pytest.approx(wanted, rel=1e-5)


@dataclass(frozen=True)
class InOnePass(Jeffreys):
    """The same, with its derivatives in one pass over the weights."""


@example("closed form of two Gaussians")
def _(patch):
    # ½ (δ² + δ²/r² + r² + 1/r²) - 1 with δ = (loc_q - loc_p)/scale_p and r = scale_q/scale_p
    def terms(block, alpha):
        delta, ratio, _ = block
        back = ratio**-2
        value = 0.5 * (delta**2 * (1 + back) + ratio**2 + back) - 1
        return Terms(value, delta * (1 + back), ratio**2 - (delta**2 + 1) * back)

    closed_form.register(InOnePass, Normal, Normal)(OnePass(terms))
    check_divergence(InOnePass())
    net = bd.bayesianize(nn.Linear(1, 1), STANDARD)
    assert np.isfinite(trained(net, bd.Gaussian(), InOnePass(), LINE))


@example("fast path")
def _(patch):
    asked = []

    def offer(rule, divergence, q, p):
        def total(loc, scale, prior_loc, prior_scale):
            asked.append(len(loc))
            delta, ratio = (loc - prior_loc) / prior_scale, scale / prior_scale
            value = 0.5 * (ratio**2 + delta**2 - 1) - ratio.log()
            return Total(value.sum(), delta / prior_scale, (ratio - 1 / ratio) / prior_scale)

        return total if isinstance(divergence, bd.KL) else None

    patch.setattr(backend, "_CPU_OFFERS", {"own": offer, **backend._CPU_OFFERS})
    patch.setattr(backend, "_trusted", {})
    net = bd.bayesianize(nn.Linear(3, 2), STANDARD)
    prepared = backend.prepare(bd.Auto(), bd.KL(), net.q(), net.p())
    q, p = net.q(), net.p()
    wanted = torch.distributions.kl_divergence(Normal(q.loc, q.scale), Normal(0.0, 1.0)).sum()
    torch.testing.assert_close(prepared.total(q, p), wanted)
    assert asked


class Shared(nn.Module):
    """Independent Gaussians whose scales are one learned multiple of the given ones."""

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        super().__init__()
        dtype = torch.promote_types(loc.dtype, torch.float32)
        self.loc = nn.Parameter(loc.detach().to(dtype).clone())
        self.factor = nn.Parameter(torch.zeros(*loc.shape[:-1], 1, dtype=dtype))
        self.register_buffer("given", scale.detach().to(dtype).expand_as(loc).clone())

    @property
    def mean(self) -> Tensor:
        return self.loc

    def marginals(self) -> Normal:
        return Normal(self.loc, self.given * self.factor.exp(), validate_args=False)

    distribution = marginals

    def log_prob(self, weights: Tensor) -> Tensor:
        return self.marginals().log_prob(weights).sum(-1)

    def rsample(self, samples, dtype=None, seed=None) -> Tensor:
        return backend.draw(self.marginals(), samples, dtype, seed)


@example("posterior")
def _(patch):
    check_posterior(Shared)
    net = bd.bayesianize(nn.Linear(1, 1), STANDARD, posterior=Shared)
    assert np.isfinite(trained(net, bd.Gaussian(), bd.JSA(0.3), LINE))


class Learned(nn.Module):
    """A Gaussian prior whose scale is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.rho = nn.Parameter(torch.zeros(()))

    def forward(self) -> Distribution:
        return Normal(0.0, nn.functional.softplus(self.rho))


@example("prior")
def _(patch):
    for prior in (bd.Prior(Laplace, loc=0.0, scale=0.5), Learned()):
        net = bd.bayesianize(nn.Linear(1, 1), prior)
        assert np.isfinite(trained(net, bd.Gaussian(), bd.KL(), LINE))
    assert Learned().rho.item() != net.prior.rho.item()


class Overdispersed(Likelihood):
    """Counts that vary more than Poisson's; the output is the logit of their success."""

    def forward(self, outputs: Tensor) -> Distribution:
        return NegativeBinomial(5.0, logits=outputs.squeeze(-1), validate_args=False)


@example("likelihood")
def _(patch):
    check_likelihood(Overdispersed())
    net = bd.bayesianize(nn.Linear(1, 1), STANDARD)
    counts = torch.arange(32.0) % 5
    assert np.isfinite(trained(net, Overdispersed(), bd.KL(), counts))


TASK = """
from dataclasses import dataclass
from bayesdiv.app.tasks.regression import Regression
from bayesdiv.likelihoods import StudentTNoise

@dataclass(frozen=True)
class HeavyTailed(Regression):
    outputs = 1

    def likelihood(self):
        return StudentTNoise()
"""


@example("task")
def _(patch):
    Path("heavy_tailed.py").write_text(TASK)
    patch.setattr(tasks.tasks, "__path__", [*tasks.tasks.__path__, str(Path.cwd())])
    frame = pd.DataFrame({"x": LINE.numpy(), "y": LINE.numpy() ** 2})
    frame.to_csv("line.csv", index=False)
    quick = ["--epochs", 2, "--test_samples", 5]
    assert call("train", "line.csv", "--task", "heavy_tailed", "--out", "run", *quick) == 0
    assert type(restore(Path("run"))[0].likelihood).__name__ == "StudentTNoise"
    assert call("report", "run") == 0


class SignDescent(torch.optim.Optimizer):
    """Steps of one size along the sign of the gradient."""

    def __init__(self, params, lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter -= group["lr"] * parameter.grad.sign()


@example("optimizer")
def _(patch):
    net = bd.bayesianize(nn.Linear(1, 1), STANDARD)
    objective = bd.Objective(bd.Gaussian(), bd.KL(), num_data=32)
    optimizer = SignDescent([*net.parameters(), *objective.parameters()], lr=1e-2)
    before = net.state_dict()["posterior.loc"].clone()
    batches = bd.Batches(LINE.unsqueeze(1), 2 * LINE, 8)
    losses = [e.loss.nll for e in bd.fit(net, objective, batches, optimizer, 20, seed=0)]
    assert losses[-1] < losses[0]
    assert not torch.equal(before, net.state_dict()["posterior.loc"])


@example("metric")
def _(patch):
    @metric("worst", TARGET, LOWEST, "the largest error of all")
    def worst(predictive, y):
        return (predictive.mean - y).abs().max()

    try:
        predictive = bd.Predictive(Normal(torch.zeros(1, 2), 1.0))
        assert TABLE["worst"].function(predictive, torch.tensor([3.0, -4.0])).item() == 4.0
        assert TABLE["worst"].title == "worst"
    finally:
        del TABLE["worst"]


@example("table")
def _(patch):
    values = np.arange(36.0).reshape(12, 3) ** 1.5
    record = f"""
[springs]
title = "Springs"
rows = 12
columns = ["length", "load", "extension"]
checksum = "{uci.checksum(values)}"
"""
    patch.setattr(uci, "SETS", uci.SETS | uci.records(record))
    columns = ["length", "load", "extension"]
    pd.DataFrame(values, columns=columns).to_csv("springs.csv", index=False)
    patch.setenv("BAYESDIV_DATA", str(Path.cwd()))
    assert loading.load("springs").target == "extension"
    quick = ["--epochs", 2, "--test_samples", 5]
    assert call("train", "springs", "--out", "run", *quick) == 0


IMAGES = """
import torch
from bayesdiv.app.data.images import Images

def stripes():
    pixels = torch.zeros(60, 3, 8, 8, dtype=torch.uint8)
    pixels[::2, :, ::2] = 255
    labels = torch.arange(60) % 2
    return Images(pixels, labels, ("stripes", "none"), torch.arange(60) % 6, "stripes")
"""


@example("images")
def _(patch):
    Path("stripes_of_our_own.py").write_text(IMAGES)
    patch.syspath_prepend(str(Path.cwd()))
    patch.setitem(loading.FUNCTIONS, "stripes", "stripes_of_our_own")
    assert loading.load("stripes").shape == (3, 8, 8)
    quick = ["--epochs", 2, "--test_samples", 5]
    assert call("train", "stripes", "--out", "run", *quick) == 0


COMMAND = """
\"\"\"`bayesdiv count`: say how many weights a run has.\"\"\"

from pathlib import Path
from bayesdiv.app.console import say
from bayesdiv.app.command import Command
from bayesdiv.app.settings import outline

def parser():
    command = Command("Say how many weights a run has.", "bayesdiv count runs/diabetes")
    command.add_argument("run", type=str)
    return command

def count(settings):
    say(f"{outline(Path(settings.run))[0].num_weights} weights")
"""


@example("command")
def _(patch):
    Path("commands").mkdir()
    Path("commands", "count.py").write_text(COMMAND.lstrip())
    patch.setattr(cli, "__path__", [*cli.__path__, str(Path("commands").resolve())])
    assert cli.commands()["count"] == "say how many weights a run has"
    assert call("train", "diabetes", "--epochs", 1, "--test_samples", 2, "--out", "run") == 0
    assert call("count", "run") == 0


ITEM = """
from pathlib import Path
from bayesdiv.app import runs
from reproduction.verdict import checked, not_computed

PLACE = Path("figures", "ours.json")

def missing(results):
    return [] if (results / PLACE).exists() else ["one number"]

def compute(results, effort, tell):
    tell("adding")
    runs.write_json(results / PLACE, {"sum": 1 + 1})

def draw(results, out):
    path = out / "ours.md"
    runs.write(path, f"the sum is {runs.read_json(results / PLACE)['sum']}".encode())
    return [path]

def verdict(results):
    if missing(results):
        return not_computed("nothing yet")
    return checked(runs.read_json(results / PLACE)["sum"] == 2, None, "1 + 1 = 2", 1)
"""


@example("item of the paper")
def _(patch):
    folder = Path("reproduction_more")
    folder.mkdir()
    (folder / "ours.py").write_text(ITEM)
    group = importlib.import_module("reproduction.analytical")
    patch.setattr(group, "__path__", [*group.__path__, str(folder.resolve())])
    entry = Entry("ours", "a sum", "Equation 0", "analytical")
    for module in (catalogue, command):
        patch.setattr(module, "CATALOGUE", (entry,))
    assert reproduce("ours", "--results", "results", "--out", "drawn") == 0
    drawn = list(Path("drawn").rglob("ours.md"))
    assert [path.read_text() for path in drawn] == ["the sum is 2"]
    sys.modules.pop("reproduction.analytical.ours", None)


def test_every_row_of_the_table_has_an_example():
    assert rows() == list(EXAMPLES)


@pytest.mark.parametrize("row", EXAMPLES)
def test_what_the_table_says_is_enough(row, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    EXAMPLES[row](monkeypatch)


def test_the_words_of_the_table_stand_in_the_code():
    """A word that the table gives is one that the library uses."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("| say |") : text.index("No abbreviation")]
    first = [line.split("|")[1] for line in table.splitlines()[2:] if line.startswith("|")]
    words = {word for cell in first for word in re.findall(r"`(\w+)`", cell)}
    assert len(words) > 20
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert {word for word in words if not re.search(rf"\b{word}\b", source)} == set()
