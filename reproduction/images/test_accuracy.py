"""Figures pt1_pt5 and pt6_pt9: test accuracy on CIFAR-10 against the noise, over folds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.images.plans import THREE, plan
from reproduction.images.protocol import CONTENDERS
from reproduction.images.results import Difference, accuracy_on_test, difference, folds
from reproduction.images.running import Requirement
from reproduction.images.training_curves import COLOURS, STYLES, demand, dress, finished, panels
from reproduction.item import Outcome, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLAN = plan("cifar10-noise")
SHOWN = (*THREE, "deterministic")
NEEDS = Requirement(("cifar10-noise",))
missing, compute = NEEDS.missing, NEEDS.compute


def draw(results: Path, out: Path) -> list[Path]:
    """A box for each loss at each noise level, and the difference to KL beside it."""
    told = _told(results)
    demand(bool(told), results)
    figure, (left, right) = panels(2, (13, 5.2))
    boxes(left, {_named(noise, each): _scores(each) for noise, each in told.items()})
    left.set(xlabel="noise (standard deviation)", ylabel="test accuracy", title="Test accuracy")
    for name in ("js_g", "js_a"):
        gains = {n: g for n, each in told.items() if (g := _gain(each, name)) is not None}
        aside = -0.006 if name == "js_g" else 0.006  # or one would hide the other
        right.errorbar(
            [noise + aside for noise in gains],
            [100 * gain.mean for gain in gains.values()],
            [100 * gain.error for gain in gains.values()],
            color=COLOURS[name],
            ls=STYLES[name],
            marker="o",
            capsize=3,
            lw=2,
        )
    right.axhline(0, color=COLOURS["kl"], lw=1.5)
    right.set_xticks(list(told))
    right.set(
        xlabel="noise (standard deviation)",
        ylabel="points above KL",
        title="Difference to KL, ± a standard error",
    )
    dress(right)
    title = "CIFAR-10 with noise: minimum, quartiles, median and maximum over folds"
    return finished(figure, title, results, out / "test_accuracy.png")


def verdict(results: Path) -> Verdict:
    """Whether both JS losses are above KL at every noise level, and more so the more noise.

    Reproduced if all mean differences are positive and those at the most noise above those at the
    least; partly if more than half of them are positive.
    """
    told = _told(results)
    gains = {
        name: {n: g for n, each in told.items() if (g := _gain(each, name)) is not None}
        for name in ("js_g", "js_a")
    }
    every = [gain for each in gains.values() for gain in each.values()]
    if not every or not all(gains.values()):
        return Verdict(Outcome.OPEN, "there are no runs of KL and both JS losses yet")
    above = sum(gain.mean > 0 for gain in every)
    grows = all(each[max(each)].mean > each[min(each)].mean for each in gains.values())
    outcome = Outcome.NOT if 2 * above <= len(every) else Outcome.PARTLY
    if above == len(every) and grows and len(told) > 1:
        outcome = Outcome.REPRODUCED
    most = "; ".join(
        f"{CONTENDERS[name].title} {100 * each[max(each)].mean:+.2f} points at noise "
        f"{max(each):g}, {100 * each[min(each)].mean:+.2f} at {min(each):g}"
        for name, each in gains.items()
    )
    return Verdict(outcome, f"above KL in {above} of {len(every)} cases: {most}")


def _told(results: Path) -> dict[float, dict[str, list[dict[str, Any]]]]:
    """Runs by noise level and contender, where there is any."""
    levels = sorted(noise for noise in PLAN.noises if noise is not None)
    every = {
        noise: {name: folds(results, "cifar10", name, noise) for name in SHOWN} for noise in levels
    }
    return {noise: each for noise, each in every.items() if any(each.values())}


def _named(noise: float, each: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The noise level, and under it how many folds there are."""
    return f"{noise:g}\n{counted(max(map(len, each.values())))}"


def counted(folds: int) -> str:
    """How many folds, in words."""
    return "1 fold" if folds == 1 else f"{folds} folds"


def _scores(each: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[float]]:
    return {name: [accuracy_on_test(told) for told in runs] for name, runs in each.items() if runs}


def _gain(each: Mapping[str, Sequence[Mapping[str, Any]]], name: str) -> Difference | None:
    return difference(each.get(name, []), each.get("kl", []), accuracy_on_test)


def boxes(axes: "Axes", groups: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Box charts side by side in groups, a point for each run; whiskers reach all of them."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    width = 0.8 / max(len(names), 1)
    for place, group in enumerate(groups.values()):
        for beside, (name, values) in enumerate(group.items()):
            at = place + (beside - (len(group) - 1) / 2) * width
            axes.boxplot(
                [values],
                positions=[at],
                widths=0.85 * width,
                whis=(0, 100),
                patch_artist=True,
                manage_ticks=False,
                boxprops={"facecolor": COLOURS[name], "alpha": 0.35, "edgecolor": COLOURS[name]},
                medianprops={"color": COLOURS[name], "lw": 2},
                whiskerprops={"color": COLOURS[name]},
                capprops={"color": COLOURS[name]},
            )
            axes.plot([at] * len(values), values, ".", color=COLOURS[name], ms=5)
    for name in names:
        axes.plot([], [], "s", color=COLOURS[name], label=CONTENDERS[name].title)
    axes.set_xticks(range(len(groups)), labels=list(groups))
    axes.set_xlim(-0.6, len(groups) - 0.4)
    dress(axes)
