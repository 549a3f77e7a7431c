"""What a report says about inputs: what matters and how, what they hold, which are unusual."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical

from bayesdiv import metrics, quantiles
from bayesdiv.app.data.columns import Dates, Encoder, Numeric, OneHot, label_of
from bayesdiv.app.metric import number, percent
from bayesdiv.app.report.markup import Html, Values, chart, charts, plain, rows, section, table
from bayesdiv.app.report.reading import Tested
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.app.tasks.regression import Regression
from bayesdiv.app.training import unlike
from bayesdiv.outliers import mutual_information

WORK = 4_000_000  # rows times draws that permutations may take
REPEATS = 5  # permutations of a column, as notes.toml says
MOST_SHOWN = 12  # columns in the chart of importance
MOST_CURVES = 4  # columns with a curve of partial dependence
POINTS, ROWS = 15, 100  # of such a curve, and those that it averages
MOST_LISTED = 100  # columns in the overview
MOST_ROWS = 500  # of each kind of unusual rows
ALARMS = 0.05  # share of rows like those of training that the check may flag
FAR = 3.0  # times as far from the mean


def spans(one: Tested) -> dict[str, tuple[Numeric | OneHot, slice]]:
    """The columns of a table by their names, and where they are in x; none of pictures."""
    columns = () if one.pictures else cast(Encoder, one.splits.encoder).columns
    ends = accumulate(column.width for column in columns)
    return {c.name: (c, slice(end - c.width, end)) for c, end in zip(columns, ends, strict=True)}


def sections(known: Sequence[Tested]) -> list[Html]:
    """Which columns matter and how; nothing for pictures."""
    every = spans(known[0])
    if not every:
        return []
    found = {one.run.name: importance(one) for one in known}
    order = sorted(every, key=lambda name: -sum(rises[name].mean() for rises in found.values()))
    values = [
        {"column": name, "run": run, "middle": rises[name].mean().item()}
        | {"low": rises[name].min().item(), "high": rises[name].max().item()}
        for name in order[:MOST_SHOWN]
        for run, rises in found.items()
    ]
    title, x = "Importance by permutation", "rise of the NLL (nats)"
    drawn = [chart(title, "", values, "whiskers", field="column", x=x)]
    task, what = known[0].splits.task, f"predicted {known[0].splits.target}"
    if isinstance(task, Classification):
        what = f"probability of {task.classes[_class(known[0])]}"
    for name in [name for name in order if isinstance(every[name][0], Numeric)][:MOST_CURVES]:
        values = [value for one in known for value in curve(one, name)]
        options = {"x": name, "y": what, "dates": "date" in values[0]}
        drawn.append(chart(f"Partial dependence on {name}", "", values, "band", **options))
    return [section("What matters", charts(*drawn))]


def importance(one: Tested) -> dict[str, Tensor]:
    """The rise of the NLL when a column is shuffled, for each column and shuffle."""
    every = spans(one)
    fair = WORK // (len(every) * REPEATS * one.predictive.samples)
    x, y = (each[: max(20, min(fair, 500))] for each in one.part)
    random = torch.Generator().manual_seed(0)
    predict = one.run.experiment.predict
    usual = predict(x).log_prob(y).double().mean()
    found = {}
    for name, (_, place) in every.items():
        copies = x.repeat(REPEATS, 1, 1)
        for copy in copies:
            copy[:, place] = copy[torch.randperm(len(x), generator=random), place]
        shuffled = predict(copies.flatten(0, 1)).log_prob(y.repeat(REPEATS)).double()
        found[name] = usual - shuffled.reshape(REPEATS, -1).mean(1)
    return found


def curve(one: Tested, name: str) -> Values:
    """The mean answer over some rows at values of a column, and its band over draws."""
    column, place = spans(one)[name]
    units, learned = cast(Numeric, column), one.splits.train.x[:, place.start]
    grid = learned.quantile(torch.linspace(0.02, 0.98, POINTS)).unique()
    x = one.part.x[:ROWS].repeat(len(grid), 1, 1)
    x[:, :, place.start] = grid[:, None]
    predictive = one.run.experiment.predict(x.flatten(0, 1))
    if predictive.discrete:
        each = cast(Categorical, predictive.conditional).probs[..., _class(one)]
    else:
        each = cast(Regression, one.splits.task).to_units(quantiles.mean(predictive.conditional))
    means = each.double().unflatten(1, (len(grid), -1)).mean(-1)  # (S, values)
    step = units.scale * 1e-5  # single precision: a 0 of the file must not come back as 2.6e-07
    columns: dict[str, list[Any]] = {
        "value": [round((at * units.scale + units.loc) / step) * step for at in grid.tolist()],
        "mean prediction": means.mean(0).tolist(),
        "low": means.quantile(0.05, 0).tolist(),
        "high": means.quantile(0.95, 0).tolist(),
    }
    if isinstance(units, Dates):
        columns["date"] = [str(np.datetime64(round(day), "D")) for day in columns["value"]]
    return rows(columns, run=one.run.name)


def _class(one: Tested) -> int:
    """The class whose probability is drawn: the second of two, else the most frequent."""
    return 1 if one.splits.task.outputs == 2 else int(one.splits.train.y.mode().values)


def overview(one: Tested) -> Html:
    """What the data hold: the target in each part, and every column."""
    parts = zip(("training", "validation", "test"), one.splits.parts, strict=True)
    values = [value for part, (_, y) in parts if len(y) for value in _shares(one, part, y)]
    kind = "classes" if isinstance(one.splits.task, Classification) else "histogram"
    drawn = charts(chart("Target in the three parts", "", values, kind, x=one.splits.target))
    head = ["column", "kind", "smallest", "median or most common", "largest", "missing"]
    cells = list(_columns(one))
    return section("Data", drawn, table("Columns of the data", head, cells) if cells else "")


def _shares(one: Tested, part: str, y: Tensor) -> Values:
    task = one.splits.task
    if isinstance(task, Classification):
        counts, field = np.bincount(y, minlength=task.outputs), {"class": list(task.classes)}
    else:
        units = cast(Regression, task).to_units
        whole = units(torch.cat([each.y for each in one.splits.parts]))
        counts, edges = np.histogram(units(y), 20, (whole.min().item(), whole.max().item()))
        field = {"target": ((edges[1:] + edges[:-1]) / 2).tolist()}
    shares: dict[str, Any] = {"share of rows": (counts / len(y)).tolist(), "rows": counts.tolist()}
    return rows({**field, **shares}, part=part)


def _columns(one: Tested) -> Iterator[list[str]]:
    """A row on each column, from all rows of the file that could be used."""
    for column, _ in list(spans(one).values())[:MOST_LISTED]:
        held = cast(Any, one.splits.frame)[column.name]
        missing = f"{held.isna().sum():,}" if held.isna().any() else "none"
        if not isinstance(column, Numeric):
            counts = held.dropna().map(label_of).value_counts()
            kind = f"{len(counts)} categories"
            yield [column.name, kind, "", f"{counts.index[0]} ({counts.iloc[0]:,})", "", missing]
            continue
        ends = [float(f(column.values(held))) for f in (np.nanmin, np.nanmedian, np.nanmax)]
        texts = [plain(float(f"{end:.5g}")) for end in ends]
        if isinstance(column, Dates):
            texts = [str(np.datetime64(int(end), "D")) for end in ends]
        yield [column.name, column.called, *texts, missing]


def unusual(known: Sequence[Tested]) -> Html:
    """The uncertainty of test rows beside that of rows made to be unlike them."""
    values, cells, what = [], [], known[0].what
    for one in known:
        sets = _sets(one, what)
        scores = {n: mutual_information(one.run.experiment.predict(x)) for n, x in sets.items()}
        # Where the variance overflows, a row is as unusual as can be.
        scores = {name: found.nan_to_num(torch.inf, torch.inf) for name, found in scores.items()}
        for name, found in scores.items():
            levels = torch.tensor([0.05, 0.5, 0.95], dtype=found.dtype)
            low, middle, high = found.quantile(levels, interpolation="nearest").tolist()
            place = {"rows": name, "run": one.run.name}
            values.append({**place, "low": low, "middle": middle, "high": high})
            flags = unlike(one.run.folder, sets[name], ALARMS)
            flagged = "–" if flags is None else percent(flags.double().mean().item())
            apart = number(metrics.outlier_auroc(scores[f"test {what}"], found).item())
            cells.append([f"{one.run.name}: {name}", flagged, number(middle), apart])
    options = {"field": "rows", "x": "mutual information (nats)", "scale": {"zero": True}}
    said = f"5 % to 95 % of {what}, and the median"
    drawn = charts(chart("Epistemic uncertainty", said, values, "whiskers", **options))
    head = [what, "flagged by the check", "median uncertainty", "AUROC"]
    told = table(f"Unusual {what}", head, cells)
    return section("Out of distribution", drawn, told, kind=what)


def _sets(one: Tested, what: str) -> dict[str, Tensor]:
    """Test rows, and rows made from them that are no such rows."""
    x = one.part.x[:MOST_ROWS]
    flat, random = x.flatten(1), torch.Generator().manual_seed(0)
    orders = torch.rand(flat.shape, generator=random).argsort(0)
    found = {f"test {what}": x, f"shuffled {what}": flat.gather(0, orders).reshape(x.shape)}
    places = [at.start for column, at in spans(one).values() if isinstance(column, Numeric)]
    if places:
        found[f"numbers {FAR:g} × as far out"] = far = x.clone()
        far[:, places] *= FAR
    return found
