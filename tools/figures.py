"""Figures of the documentation, drawn when it is built: no picture is older than the code."""

import io
from collections.abc import Callable

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.distributions import Laplace, Normal

import bayesdiv as bd
from reproduction.plots import COLOURS, STYLES
from tools.ink import INK

LOSSES = {"KL": bd.KL(), "JSG": bd.JSG(0.5), "JSA": bd.JSA(0.5)}
TITLES = {"KL": "KL", "JSG": "JS-G", "JSA": "JS-A"}


def weight() -> str:
    """One weight: its prior, its posterior, and the two numbers that describe the posterior."""
    figure, (axes,) = blank(1)
    w = torch.linspace(-4, 4, 300)
    loc, scale = 1.2, 0.45
    for name, bell, title in (
        ("KL", Normal(0.0, 1.0), "prior p"),
        ("JSA", Normal(loc, scale), "posterior q"),
    ):
        density = bell.log_prob(w).exp()
        axes.fill_between(w, density, color=COLOURS[name], alpha=0.2, linewidth=0)
        axes.plot(w, density, STYLES[name], color=COLOURS[name], label=title)
    height = Normal(loc, scale).log_prob(torch.tensor(loc + scale)).exp().item()
    axes.plot([loc, loc], [0, height / 0.607], ":", color=INK, linewidth=1)
    arrow = {"arrowstyle": "<->", "color": INK}
    axes.annotate("", (loc, height), (loc + scale, height), arrowprops=arrow)
    axes.text(loc + scale + 0.1, height, "scale", color=INK, fontsize=9, va="center")
    axes.text(loc + 0.05, 0.02, "loc", color=INK, fontsize=9)
    axes.set(xlabel="weight w", ylabel="density", ylim=(0, None))
    axes.legend(frameon=False, labelcolor=INK, loc="upper left")
    return svg(figure)


def divergences() -> str:
    """KL, JS-G and JS-A, α = ½, over the distance and over the scale of q."""
    figure, (left, right) = blank(2)
    far = torch.linspace(0, 6, 200)
    _lines(left, far, Normal(far, 1.0), "distance of q from p = N(0, 1)")
    scale = torch.logspace(-2, 1, 200)
    _lines(right, scale, Normal(0.0, scale), "scale σ of q, centred on p")
    right.set_xscale("log")
    for axes in (left, right):
        axes.axhline(bd.JSA(0.5).bound, color=INK, linestyle=":", linewidth=1)
        axes.set_ylim(0, 4)
        axes.set_ylabel("nats")
    left.text(4.4, bd.JSA(0.5).bound + 0.08, "bound of JS-A", color=INK, fontsize=9)
    left.legend(frameon=False, labelcolor=INK)
    return svg(figure)


def _lines(axes: Axes, x: Tensor, q: Normal, label: str) -> None:
    for name, divergence in LOSSES.items():
        values = divergence(q, Normal(0.0, 1.0))
        axes.plot(x, values, STYLES[name], color=COLOURS[name], label=TITLES[name])
    axes.set_xlabel(label)


def pull() -> str:
    """How hard a network's mean is pulled back: the gradient of each divergence."""
    figure, (left, right) = blank(2)
    for axes, scale in ((left, 1.0), (right, 0.3)):
        far = torch.linspace(0, 6, 200, requires_grad=True)
        for name, divergence in LOSSES.items():
            total = divergence(Normal(far, scale), Normal(0.0, 1.0)).sum()
            (slope,) = torch.autograd.grad(total, far)
            axes.plot(far.detach(), slope, STYLES[name], color=COLOURS[name], label=TITLES[name])
        axes.set(ylim=(0, 4), xlabel="distance of q from p = N(0, 1)", ylabel="pull, nats per unit")
        axes.set_title(f"scale of q: {scale:g}", color=INK, fontsize=10)
    left.legend(frameon=False, labelcolor=INK)
    return svg(figure)


def integrand() -> str:
    """What JS-A averages, on the side of q, for three distances."""
    figure, (axes,) = blank(1)
    w = torch.linspace(-4, 8, 400)
    p, alpha = Normal(0.0, 1.0), 0.5
    for far, shade in ((0.5, 0.35), (2.0, 0.6), (4.0, 1.0)):
        q = Normal(far, 1.0)
        one, two = q.log_prob(w), p.log_prob(w)
        z = one - two
        gap = (1 - alpha) * one.exp() * nn.functional.softplus(-z)
        gap = gap + alpha * two.exp() * nn.functional.softplus(z)
        axes.plot(w, gap, color=COLOURS["JSA"], alpha=shade, label=f"q = N({far:g}, 1)")
    axes.set(xlabel="weight w", ylabel="nats per unit of w", ylim=(0, None))
    axes.set_title("what is missing to the bound: its area is B − JS-A", color=INK, fontsize=10)
    axes.legend(frameon=False, labelcolor=INK)
    return svg(figure)


def estimators() -> str:
    """Sampling against integration: JS-A of a Gaussian from a Laplace prior."""
    figure, (axes,) = blank(1)
    torch.manual_seed(0)
    q, p = Normal(0.3, 0.5).expand((200,)), Laplace(0.0, 1.0)
    exact = bd.Quadrature()(bd.JSA(0.3), Normal(0.3, 0.5), p)
    counts = [1, 3, 10, 30, 100, 300, 1000, 3000]
    errors = [(bd.MonteCarlo(n)(bd.JSA(0.3), q, p) - exact).abs().median() for n in counts]
    axes.loglog(counts, errors, "o-", color=COLOURS["KL"], label="MonteCarlo(samples)")
    axes.axhline(1e-7, color=COLOURS["JSA"], linestyle="-.", label="Quadrature(), at most")
    axes.set(xlabel="samples", ylabel="median error, nats")
    axes.legend(frameon=False, labelcolor=INK)
    return svg(figure)


def strength() -> str:
    """The same small data with three strengths: from overfitted to not fitted."""
    figure, panels = blank(3, share=True)
    torch.manual_seed(0)
    x = torch.rand(40, 1) * 4 - 2
    y = (1.6 * x[:, 0]).sin() + 0.2 * torch.randn(40)
    for axes, value in zip(panels, (0.1, 1.0, 10.0), strict=True):
        mean, epistemic, grid = _trained(x, y, bd.JSA(0.3), value)
        _band(axes, grid, mean, epistemic, "JSA")
        axes.plot(x, y, ".", color=INK)
        axes.set_title(f"strength {value:g}", color=INK, fontsize=10)
        axes.set(xlabel="x", ylim=(-2, 2))
    return svg(figure)


def uncertainty() -> str:
    """Aleatoric and epistemic standard deviations of a network between and beyond its data."""
    figure, (left, right) = blank(2)
    torch.manual_seed(0)
    x = torch.cat([torch.rand(60, 1) * 1.5 - 2, torch.rand(60, 1) * 1.5 + 0.5])
    y = (1.6 * x[:, 0]).sin() + 0.2 * torch.randn(len(x))
    net, objective = _fitted(x, y, bd.JSA(0.3), 0.1, members=5)
    grid = torch.linspace(-4, 4, 200)[:, None]
    predictive = bd.predict(net, objective.likelihood, grid, samples=50)
    low, high = predictive.interval(0.9)
    flat = grid[:, 0]
    left.fill_between(flat, low, high, color=COLOURS["JSA"], alpha=0.25, linewidth=0)
    left.plot(flat, predictive.mean, color=COLOURS["JSA"])
    left.plot(x, y, ".", color=INK, markersize=3)
    left.set(xlabel="x", ylabel="mean and 90 % interval", ylim=(-4, 4))
    right.plot(flat, predictive.aleatoric.sqrt(), "--", color=INK, label="aleatoric")
    right.plot(flat, predictive.epistemic.sqrt(), color=COLOURS["JSA"], label="epistemic")
    right.set(xlabel="x", ylabel="standard deviation", ylim=(0, None))
    right.legend(frameon=False, labelcolor=INK)
    return svg(figure)


def plain_and_bayesian() -> str:
    """Two clusters of points: a plain network, and the default estimator with nothing set.

    It is drawn for the README and the home page by `python -m tools.readme`, not in every build.
    """
    figure, panels = blank(2, share=True)
    torch.manual_seed(0)
    x = torch.cat([torch.rand(60, 1) * 1.5 - 2.2, torch.rand(60, 1) * 1.5 + 0.8])
    y = (1.6 * x[:, 0]).sin() + 0.2 * torch.randn(len(x))
    grid = torch.linspace(-4, 4, 200)[:, None]
    net, objective = _fitted(x, y, None, 1.0)
    plain = bd.predict(net, objective.likelihood, grid, samples=1)
    model = bd.BayesianRegressor(random_state=0).fit(x.numpy(), y.numpy())
    drawn = {
        "a plain network": ("KL", plain.mean, plain.interval(0.9)),
        "BayesianRegressor()": (
            "JSA",
            model.predict(grid.numpy()),
            model.predict_interval(grid.numpy(), 0.9),
        ),
    }
    for axes, (title, (name, mean, ends)) in zip(panels, drawn.items(), strict=True):
        axes.fill_between(grid[:, 0], *ends, color=COLOURS[name], alpha=0.3, linewidth=0)
        axes.plot(grid[:, 0], mean, color=COLOURS[name], linewidth=2)
        axes.plot(x, y, ".", color=INK, markersize=4)
        axes.set_title(title, color=INK, fontsize=11)
        axes.set(xlabel="x", ylim=(-3, 3), xlim=(-4, 4))
    panels[0].set_ylabel("mean and 90 % interval")
    return svg(figure).replace(INK, "#808080")  # read on white and on black alike


def _trained(
    x: Tensor, y: Tensor, divergence: bd.Divergence, strength: float
) -> tuple[Tensor, Tensor, Tensor]:
    net, objective = _fitted(x, y, divergence, strength)
    grid = torch.linspace(-3, 3, 120)[:, None]
    predictive = bd.predict(net, objective.likelihood, grid, samples=100)
    return predictive.mean, predictive.epistemic.sqrt(), grid[:, 0]


def _fitted(
    x: Tensor, y: Tensor, divergence: bd.Divergence | None, strength: float, members: int = 1
) -> tuple[nn.Module, bd.Objective]:
    net: nn.Module = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1))
    posterior = bd.Ensemble(members) if members > 1 else bd.MeanField
    if divergence is not None:
        net = bd.bayesianize(net, bd.FanIn(gain=2.0), posterior=posterior)
    settings = {"num_data": len(x), "strength": strength, "samples": 4 if divergence else 1}
    objective = bd.Objective(bd.Gaussian(), divergence, **settings)
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=1e-2)
    for _ in bd.fit(net, objective, bd.Batches(x, y, size=len(x)), optimizer, 500, seed=0):
        pass
    return net, objective


def _band(axes: Axes, x: Tensor, mean: Tensor, scale: Tensor, name: str) -> None:
    ends = (mean - 2 * scale, mean + 2 * scale)
    axes.fill_between(x, *ends, color=COLOURS[name], alpha=0.25, linewidth=0)
    axes.plot(x, mean, color=COLOURS[name])


def blank(columns: int, *, share: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure of some panels beside each other, in the grey of both themes."""
    figure = Figure(figsize=(3.9 * columns if columns > 1 else 5.2, 3.1), layout="constrained")
    found = figure.subplots(1, columns, sharey=share, squeeze=False)[0]
    for axes in found:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK)
        axes.xaxis.label.set_color(INK)
        axes.yaxis.label.set_color(INK)
        for spine in axes.spines.values():
            spine.set_color(INK)
    return figure, list(found)


def svg(figure: Figure) -> str:
    """Transparent, and the same every time."""
    np.random.seed(0)
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "bayesdiv", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return out.getvalue()


FIGURES: dict[str, Callable[[], str]] = {
    "weight": weight,
    "divergences": divergences,
    "pull": pull,
    "integrand": integrand,
    "estimators": estimators,
    "strength": strength,
    "uncertainty": uncertainty,
}
