"""What the figures of the image experiments share: curves over epochs, box charts, their look."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from bayesdiv.app import runs
from reproduction import plots
from reproduction.contenders import title
from reproduction.images.results import folds
from reproduction.images.running import is_toy
from reproduction.pictures import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAND = ", means over folds ± a standard error"
COLOURS = {
    "kl": plots.COLOURS["KL"],
    "js_g": plots.COLOURS["JSG"],
    "js_a": plots.COLOURS["JSA"],
    "deterministic": plots.COLOURS["deterministic"],
    **dict(zip(("lambda_kl", "unmodified_js_g", "unmodified_js_a"), plots.OTHERS, strict=False)),
}
STYLES = {
    "kl": plots.STYLES["KL"],
    "js_g": plots.STYLES["JSG"],
    "js_a": plots.STYLES["JSA"],
    "deterministic": plots.STYLES["deterministic"],
    "lambda_kl": (0, (5, 1, 1, 1, 1, 1)),
    "unmodified_js_g": (0, (2, 1)),
    "unmodified_js_a": (0, (6, 2, 1, 2)),
}


class Curves(NamedTuple):
    """What one panel shows: runs of some contenders.

    Args:
        title: of the panel.
        experiment: whose results.
        contenders: which losses.
        noise: of the images.
    """

    title: str
    experiment: str
    contenders: tuple[str, ...]
    noise: float | None = None

    def found(self, results: Path) -> dict[str, list[dict[str, Any]]]:
        """The runs that there are."""
        every = {
            name: folds(results, self.experiment, name, self.noise) for name in self.contenders
        }
        return {name: told for name, told in every.items() if told}


def panels(count: int, size: tuple[float, float]) -> "tuple[Figure, Sequence[Axes]]":
    """An empty figure with panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def panel(axes: "Axes", curves: Curves, results: Path) -> bool:
    """Accuracy of training and validation, the band ± a standard error. False without any."""
    told = curves.found(results)
    for name, runs_of in told.items():
        line(axes, name, runs_of, "train_accuracy", bold=False)
        line(axes, name, runs_of, "validation_accuracy", bold=True)
    axes.set(xlabel="epoch", ylabel="accuracy", title=curves.title)
    absent = [title(name) for name in curves.contenders if name not in told]
    if absent:
        note(axes, f"not computed yet: {', '.join(absent)}")
    dress(axes)
    return bool(told)


def line(
    axes: "Axes",
    name: str,
    told: Sequence[Mapping[str, Any]],
    key: str,
    bold: bool,
    factor: float = 1,
) -> list[float]:
    """Draw the mean over folds of a column of the histories, as far as all go, and return it."""
    columns = [[factor * entry[key] for entry in each["history"]] for each in told]
    length = min(map(len, columns))
    epochs = range(1, length + 1)
    rows = list(zip(*(column[:length] for column in columns), strict=True))
    means = [sum(row) / len(row) for row in rows]
    axes.plot(
        epochs,
        means,
        ls=STYLES[name],
        color=COLOURS[name],
        lw=2.2 if bold else 0.9,
        label=title(name) if bold else None,
    )
    if bold and len(columns) > 1:
        errors = [stdev(row) / math.sqrt(len(row)) for row in rows]
        low, high = ([m + s * e for m, e in zip(means, errors, strict=True)] for s in (-1, 1))
        axes.fill_between(epochs, low, high, color=COLOURS[name], alpha=0.15, lw=0)
    return means


def magnified(axes: "Axes", curves: Curves, results: Path) -> None:
    """Validation accuracy alone, in limits that show the second half of the mean curves."""
    means = [
        line(axes, name, runs, "validation_accuracy", bold=True)
        for name, runs in curves.found(results).items()
    ]
    values = [value for each in means for value in each[len(each) // 2 :]]
    margin = 0.1 * (max(values) - min(values)) + 0.005
    axes.set_ylim(min(values) - margin, max(values) + margin)
    axes.set(xlabel="epoch", ylabel="accuracy", title="Validation, magnified")
    dress(axes)


def mark_published(axes: "Axes", values: Mapping[str, float]) -> None:
    """Published figures as short lines at the right edge, in the colour of their loss."""
    for place, (name, value) in enumerate(values.items()):
        axes.axhline(value, 0.94, 1.0, color=COLOURS[name], lw=4, alpha=0.8)
        if place == 0:
            axes.plot([], [], color="black", lw=4, alpha=0.8, label="published best validation")
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, value - 0.01), max(high, value + 0.01))
    left, right = axes.get_xlim()
    axes.set_xlim(left, right + 0.04 * (right - left))  # or they would hide the curves' ends


def note(axes: "Axes", text: str) -> None:
    """A small line inside a panel."""
    axes.text(
        0.5, 0.02, text, transform=axes.transAxes, ha="center", fontsize="small", color="#777777"
    )


def dress(axes: "Axes") -> None:
    """The look of all figures."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def demand(there: bool, results: Path) -> None:
    """Complain where there is nothing to draw."""
    if not there:
        raise runs.RunError(
            f"there are no image results in {results} to draw this from: run python -m reproduction"
        )


def finished(figure: "Figure", title: str, results: Path, path: Path) -> list[Path]:
    """Title, one legend for all panels, saved as a picture; a toy says that it is one."""
    toy = " (toy: a tiny network on digits)" if is_toy(results) else ""
    figure.suptitle(title + toy)
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    if entries:
        figure.legend(
            entries.values(),
            entries.keys(),
            loc="outside lower center",
            ncols=int(figure.get_figwidth() // 2),  # an entry takes some two inches
            frameon=False,
        )
    return save(figure, path)


def counted(folds: int) -> str:
    """How many folds, in words."""
    return "1 fold" if folds == 1 else f"{folds} folds"


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
        axes.plot([], [], "s", color=COLOURS[name], label=title(name))
    axes.set_xticks(range(len(groups)), labels=list(groups))
    axes.set_xlim(-0.6, len(groups) - 0.4)
    dress(axes)
