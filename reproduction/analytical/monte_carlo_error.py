"""How many samples JS-G needs to come within 5 % of its closed form (figure D.14).

q = N(5, 1), p = N(0, 1). Three estimates, since the paper calls two things JS-G:

    weighted KLs      (1-α)² E_q[log q/p] + α² E_p[log p/q], the paper's algorithm 2
    JS-G              the same samples plus log Z in closed form, against eq. 25
    JS-G, sampled Z   log Z from samples too, which needs a great many of them
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Normal

from bayesdiv import JSG, Divergence, MonteCarlo, WeightedKL
from bayesdiv.app import runs
from reproduction import plots
from reproduction.item import Effort, Tell, stamp
from reproduction.pictures import save
from reproduction.verdict import Verdict, checked, not_computed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLACE = Path("figures", "monte_carlo_error.json")
TITLES = {"WeightedKL": "weighted KLs (eq. 21)", "JSG": "JS-G, closed-form Z"}
SAMPLED = "JS-G, sampled Z"
PAPER = 600  # "at least 600 samples are required"
FACTOR = 1.5  # how far from the paper's number ours may be
FEWEST = 1000  # samples that JSG.estimate takes
AT_ONCE = 1_000_000


@dataclass(frozen=True)
class Settings:
    """What is computed.

    Args:
        posterior_loc: mean of q; both scales are 1, the mean of p is 0.
        alpha: of the weighted KLs and of JS-G; the paper does not state it.
        error: the relative error that must be reached.
        confidence: the share of repeats that must reach it.
        most: the largest number of samples; the smallest is 10.
        repeats: estimates for each number of samples.
        seed: of all of them.
    """

    posterior_loc: float = 5.0
    alpha: float = 0.5
    error: float = 0.05
    confidence: float = 0.95
    most: int = 10_000
    repeats: int = 2_000
    seed: int = 0

    @property
    def counts(self) -> list[int]:
        """Numbers of samples, four to a factor of ten, and the paper's."""
        steps = range(round(4 * math.log10(self.most / 10)) + 1)
        return sorted({PAPER, *(round(10 * 10 ** (step / 4)) for step in steps)})


SIZES = {Effort.FULL: Settings(), Effort.QUICK: Settings(most=1_000, repeats=100)}


def missing(results: Path) -> list[str]:
    """The one file of errors, where it is not there yet."""
    return [] if (results / PLACE).exists() else ["errors of Monte Carlo estimates of JS-G"]


def compute(results: Path, effort: Effort, tell: Tell) -> None:
    """Many estimates for each number of samples, against the closed forms."""
    if not missing(results):
        return
    settings = SIZES[effort]
    weighted, geometric = WeightedKL(settings.alpha), JSG(settings.alpha)
    q, p = _pair(settings, 1)
    exact = {"WeightedKL": weighted(q, p).item(), "JSG": geometric(q, p).item()}
    log_z = exact["JSG"] - exact["WeightedKL"]
    found = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        for count in settings.counts:
            tell(f"{count} samples, {settings.repeats} times")
            values = _estimates(weighted, count, settings)
            entry: dict[str, Any] = {"samples": count}
            entry["WeightedKL"] = _spread(values, exact["WeightedKL"], settings)
            entry["JSG"] = _spread(values + log_z, exact["JSG"], settings)
            if count >= FEWEST:
                sampled = _estimates(geometric, count, settings)
                entry["JSG_sampled_z"] = _spread(sampled, exact["JSG"], settings)
            found.append(entry)
    told = {
        "settings": asdict(settings),
        **stamp(),
        "exact": exact,
        "needed": {name: _needed(found, name, settings) for name in TITLES},
        "counts": found,
    }
    runs.write_json(results / PLACE, told)


def _pair(settings: Settings, repeats: int) -> tuple[Normal, Normal]:
    loc = torch.full((repeats,), settings.posterior_loc, dtype=torch.float64)
    return Normal(loc, torch.ones_like(loc)), Normal(torch.zeros_like(loc), torch.ones_like(loc))


def _estimates(divergence: Divergence, count: int, settings: Settings) -> Tensor:
    """Independent estimates, some at a time, so that memory has a ceiling."""
    step = max(1, AT_ONCE // count)
    blocks = [min(step, settings.repeats - start) for start in range(0, settings.repeats, step)]
    estimator = MonteCarlo(count)
    return torch.cat([divergence(*_pair(settings, size), estimator) for size in blocks])


def _spread(values: Tensor, exact: float, settings: Settings) -> dict[str, float]:
    """The first estimate as one run would show it, the middle 95 %, and the relative errors."""
    errors = (values / exact - 1).abs()
    return {
        "one_run": values[0].item(),
        "low": values.quantile(0.025).item(),
        "high": values.quantile(0.975).item(),
        "error": errors.quantile(settings.confidence).item(),
        "within": (errors <= settings.error).double().mean().item(),
    }


def _needed(found: list[dict[str, Any]], name: str, settings: Settings) -> float:
    """Samples that bring the error to the limit, by the law error ∝ 1/√samples, all sizes pooled.

    Each size with error e says samples · (e / limit)²; their geometric mean is taken.
    """
    each = [entry["samples"] * (entry[name]["error"] / settings.error) ** 2 for entry in found]
    return math.exp(sum(map(math.log, each)) / len(each))


def draw(results: Path, out: Path) -> list[Path]:
    """One run beside the closed forms, and the error that 95 % of the repeats keep to."""
    from matplotlib.figure import Figure

    told = runs.read_json(results / PLACE)
    figure = Figure(figsize=(11.5, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    _runs(left, told)
    _errors(right, told)
    figure.legend(loc="outside lower center", ncols=6, frameon=False, fontsize="small")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel("samples")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    settings = told["settings"]
    pair = f"q = N({settings['posterior_loc']:g}, 1), p = N(0, 1)"
    figure.suptitle(f"Monte Carlo estimates of {pair}, α = {settings['alpha']:g}")
    return save(figure, out / "monte_carlo_error.svg")


def _runs(axes: "Axes", told: Mapping[str, Any]) -> None:
    counts = [entry["samples"] for entry in told["counts"]]
    for name in TITLES:
        colour, style = plots.colour(name), plots.STYLES.get(name, ":")
        entries = [entry[name] for entry in told["counts"]]
        low, high = ([entry[side] for entry in entries] for side in ("low", "high"))
        axes.fill_between(counts, low, high, color=colour, alpha=0.2, lw=0)
        one = [entry["one_run"] for entry in entries]
        axes.plot(counts, one, style, marker="o", ms=4, color=colour)
        label = "closed forms" if name == "JSG" else None
        axes.axhline(told["exact"][name], color="black", lw=1, label=label)
    axes.set(ylabel="estimate (nats)", title="One run; shaded: 95 % of repeats")
    axes.set_ylim(0, 1.35 * told["exact"]["WeightedKL"])


def _errors(axes: "Axes", told: Mapping[str, Any]) -> None:
    limit = 100 * told["settings"]["error"]
    for name, label in TITLES.items():
        colour, style = plots.colour(name), plots.STYLES.get(name, ":")
        counts = [entry["samples"] for entry in told["counts"]]
        errors = [100 * entry[name]["error"] for entry in told["counts"]]
        axes.plot(counts, errors, style, marker="o", ms=4, color=colour, lw=2, label=label)
        needed = told["needed"][name]
        axes.plot([needed, needed], [0.1, limit], color=colour, lw=1)
        axes.annotate(f"{needed:.0f} ", (needed, 0.55), color=colour, ha="right")
    many = [entry for entry in told["counts"] if "JSG_sampled_z" in entry]
    errors = [100 * entry["JSG_sampled_z"]["error"] for entry in many]
    counts, colour = [entry["samples"] for entry in many], plots.COLOURS["JSG"]
    axes.plot(counts, errors, "s", mfc="white", ms=5, color=colour, label=SAMPLED)
    axes.axhline(limit, color="black", lw=1, ls=(0, (1, 1)), label=f"{limit:g} %")
    axes.axvline(PAPER, color="#555555", lw=1, ls=(0, (4, 3)), label=f"{PAPER} samples (paper)")
    axes.set_yscale("log")
    axes.set(ylabel="relative error (%)", title="Error that 95 % of repeats keep to")
    axes.set_ylim(0.4, 60)
    ticks = [0.5, 1, 2, 5, 10, 20, 50]
    axes.set_yticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def verdict(results: Path) -> Verdict:
    """Whether the number of samples agrees with the paper's 600, for both definitions of JS-G."""
    if missing(results):
        return not_computed("nothing is computed yet")
    told = runs.read_json(results / PLACE)
    needed, settings, exact = told["needed"], told["settings"], told["exact"]
    at_600 = next(entry for entry in told["counts"] if entry["samples"] == PAPER)
    apart = abs(exact["WeightedKL"] / exact["JSG"] - 1)
    sentence = (
        f"{needed['JSG']:.0f} samples for JS-G and {needed['WeightedKL']:.0f} for the weighted KLs "
        f"of algorithm 2 are enough for {settings['error']:.0%} error in "
        f"{settings['confidence']:.0%} of repeats; the paper says {PAPER} (a factor of {FACTOR:g} "
        f"allowed), enough in {at_600['JSG']['within']:.0%} of repeats of JS-G; samples of the "
        f"weighted KLs stay {apart:.0%} off the closed form of JS-G however many they are"
    )
    near = [max(PAPER / count, count / PAPER) <= FACTOR for count in needed.values()]
    # One of the two is near, the other is not: which one the paper means decides.
    return checked(any(near), all(near), sentence, len(told["counts"]))
