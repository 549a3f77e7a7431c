"""Charts as SVG inside a page, in colours of the page, so that they fit light and dark."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise

from bayesdiv.app import plots
from bayesdiv.app.report.markup import Html, element, joined

Warp = Callable[[float], float]
Point = tuple[float, float]

WIDTH, HEIGHT = 360.0, 250.0  # the units are CSS pixels at the width of a phone
TOP, BOTTOM, RIGHT, EDGE = 24.0, 38.0, 10.0, 9.0
LETTER = 6.6  # width of a digit

# The hues of print are too dim on dark; the others are told apart from them and from each other.
ON_DARK = {"KL": "#5ab1ec", "JSG": "#2fcb9d", "JSA": "#ff8f45", "deterministic": "#b9b9b9"}
OTHERS = (
    ("#a3437f", "#ea9dcb"),
    ("#8a6100", "#eec04f"),
    ("#4b3fae", "#a99ff5"),
    ("#000000", "#f2f2f0"),
    ("#7d1f2b", "#f08b93"),
)
DASHES = {"KL": "", "JSG": "8 4", "JSA": "9 3 2 3", "deterministic": "2 3"}
OTHER_DASHES = ("", "12 3", "5 2 2 2", "3 2", "10 2 2 2 2 2")


@dataclass(frozen=True)
class Series:
    """How what belongs to one run looks in every chart."""

    place: int  # among the runs
    label: str  # as the legend has it
    light: str  # colour on light pages
    dark: str  # colour on dark ones
    dash: str  # of its lines, as SVG has it

    @property
    def kind(self) -> str:
        """The class of its marks."""
        return f"s{self.place}"


def series(labels: Sequence[tuple[str, str]]) -> list[Series]:
    """A look for each run, from its label and its loss: the first of each loss has its colour.

    Examples:
        >>> [one.light for one in series([("a", "KL"), ("b", "KL"), ("c", "JSA")])]
        ['#0072B2', '#a3437f', '#D55E00']
    """
    own = {loss: (plots.COLOURS[loss], ON_DARK[loss], DASHES[loss]) for loss in ON_DARK}
    others = ((*hues, dash) for hues, dash in zip(cycle(OTHERS), cycle(OTHER_DASHES), strict=False))
    return [
        Series(place, label, *(own.pop(loss) if loss in own else next(others)))
        for place, (label, loss) in enumerate(labels)
    ]


def colours(every: Iterable[Series]) -> str:
    """The style of all marks, for light and dark."""
    every = list(every)
    light = "".join(f".{one.kind}{{color:{one.light}}}" for one in every)
    dark = "".join(f".{one.kind}{{color:{one.dark}}}" for one in every)
    return f"{light}\n@media screen and (prefers-color-scheme:dark){{{dark}}}"


def legend(entries: Iterable[tuple[Series, str]]) -> Html:
    """Names of the series beside a piece of their line."""
    items = []
    for one, text in entries:
        line = _path("M0 6H34", f"line {one.kind}", stroke_dasharray=one.dash)
        key = element("svg", line, class_="key", viewBox="0 0 34 12", aria_hidden="true")
        items.append(element("li", key, text))
    return element("ul", items, class_="legend")


def linear(value: float) -> float:
    """The usual axis."""
    return value


@dataclass(frozen=True)
class Axis:
    """One axis of a chart."""

    label: str  # what is along it
    low: float
    high: float
    warp: Warp = linear  # or `math.log10`
    least: float = 0.0  # between two numbers along a linear axis; 1 for what is counted

    @classmethod
    def around(cls, label: str, values: Iterable[float], warp: Warp = linear) -> "Axis":
        """An axis with room for these values, where they are finite."""
        usable = [v for v in values if math.isfinite(v) and (warp is linear or v > 0)]
        if not usable:
            return cls(label, 0.1, 1.0, warp)
        low, high = min(usable), max(usable)
        if warp is not linear:
            return cls(label, low / 1.15, high * 1.15, warp)
        room = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
        return cls(label, low - room, high + room)

    def share(self, value: float) -> float:
        """Where a value is, from 0 at the start to 1 at the end."""
        low, high = self.warp(self.low), self.warp(self.high)
        return (self.warp(value) - low) / (high - low)

    def holds(self, value: float) -> bool:
        """Whether a value can be drawn at all, inside the axis or beyond its ends."""
        return math.isfinite(value) and (self.warp is linear or value > 0)

    @property
    def ticks(self) -> list[float]:
        """Round numbers along the axis, some four to six.

        Examples:
            >>> Axis("epoch", 0.0, 10.0).ticks
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
            >>> Axis("epoch", 1.0, 3.0, least=1.0).ticks
            [1.0, 2.0, 3.0]
            >>> Axis("scale", 0.02, 3.0, math.log10).ticks
            [0.1, 1.0]
        """
        if self.warp is linear:
            step = max(self.least, _step((self.high - self.low) / 6))
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            return [float(f"{k * step:.12g}") for k in range(first, last + 1)]
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        if last - first >= 1:
            by = max(1, (last - first) // 4)
            return [float(f"1e{power}") for power in range(first, last + 1, by)]
        numbers = [n * 10.0**power for power in range(first - 1, last + 1) for n in (1, 2, 5)]
        return [float(f"{n:g}") for n in numbers if self.low <= n <= self.high]


def _step(wanted: float) -> float:
    """The next of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= wanted * (1 - 1e-9))


@dataclass(frozen=True)
class Frame:
    """The area of a chart between its axes; marks are made by its methods."""

    across: Axis
    up: Axis
    left: float  # room for the labels on the left
    height: float = HEIGHT  # of the whole

    @classmethod
    def of(cls, across: Axis, up: Axis) -> "Frame":
        """A frame with room for the numbers of the upward axis."""
        return cls(across, up, 12 + LETTER * max((len(_tick(t)) for t in up.ticks), default=1))

    def x(self, value: float) -> float:
        """Across, in units of the drawing."""
        return self.left + (WIDTH - RIGHT - self.left) * self.across.share(value)

    def y(self, value: float) -> float:
        """Down, in units of the drawing."""
        return TOP + (self.height - TOP - BOTTOM) * (1 - self.up.share(value))

    def places(self, points: Iterable[Point]) -> list[Point | None]:
        """Points in units of the drawing; None where one cannot be drawn."""
        return [
            (self.x(x), self.y(y)) if self.across.holds(x) and self.up.holds(y) else None
            for x, y in points
        ]

    def line(self, points: Iterable[Point], look: Series, kind: str = "line") -> Html:
        """A line, with gaps where a value is not finite; a point between gaps is a dot."""
        places = [None, *self.places(points), None]
        steps, alone = "", []
        for before, here, after in zip(places, places[1:], places[2:], strict=False):
            if here is None:
                continue
            if before is None and after is None:
                alone.append(_circle(*here, look, 2.5))
            else:
                steps += f"{'M' if before is None else 'L'}{here[0]:.1f} {here[1]:.1f}"
        line = _path(steps, f"{kind} {look.kind}", stroke_dasharray=look.dash)
        return joined([line] if steps else [], alone)

    def dots(self, points: Iterable[Point], look: Series, radii: Sequence[float]) -> Html:
        """Filled circles."""
        pairs = zip(self.places(points), radii, strict=True)
        return joined(_circle(*place, look, r) for place, r in pairs if place is not None)

    def bars(self, intervals: Iterable[tuple[float, float, float]], look: Series) -> Html:
        """Upright strokes: a place and from where to where."""
        steps = [
            f"M{self.x(x):.1f} {self.y(low):.1f}V{self.y(high):.1f}"
            for x, low, high in intervals
            if self.up.holds(low) and self.up.holds(high)
        ]
        return _path("".join(steps), f"bar {look.kind}")

    def crosses(self, points: Iterable[Point], size: float = 2.6) -> Html:
        """Small crosses in the colour of the text."""
        steps = [
            f"M{x - size:.1f} {y - size:.1f}l{2 * size} {2 * size}m0 {-2 * size}l{-2 * size} "
            f"{2 * size}"
            for x, y in filter(None, self.places(points))
        ]
        return _path("".join(steps), "cross")

    def guide(self, one: Point, other: Point) -> Html:
        """A thin straight line, such as the diagonal of a perfect forecast."""
        (x1, y1), (x2, y2) = ((self.x(x), self.y(y)) for x, y in (one, other))
        return _path(f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", "guide")

    def drawn(self, marks: Iterable[Html], description: str) -> Html:
        """The chart, its marks cut off at the frame."""
        # A mark on the frame is drawn whole: the largest dot of a chart has a radius of 7.5.
        x, y = self.left - EDGE, TOP - EDGE
        wide, tall = WIDTH - x, self.height - BOTTOM + EDGE - y
        # A drawing inside the drawing: it cuts off what leaves it, without a name for a clip.
        inside = element(
            "svg", marks, x=x, y=y, width=wide, height=tall, viewBox=f"{x} {y} {wide} {tall}"
        )
        return _svg(self.height, description, self._axes(), inside)

    def _axes(self) -> Html:
        low, end = self.height - BOTTOM, WIDTH - RIGHT
        ups = [(self.y(tick), _tick(tick)) for tick in self.up.ticks]
        acrosses = [self.x(tick) for tick in self.across.ticks]
        return joined(
            (_path(f"M{self.left:.1f} {y:.1f}H{end}", "grid") for y, _ in ups),
            (_text(self.left - 6, y + 4, text, "end") for y, text in ups),
            (_path(f"M{x:.1f} {low:.1f}v4", "axis") for x in acrosses),
            _path(f"M{self.left:.1f} {low:.1f}H{end}", "axis"),
            _text(0, 12, self.up.label, "start", "label"),
            self.below(),
        )

    def below(self) -> Html:
        """The numbers below and what they are."""
        ticks = _apart([(self.x(tick), _tick(tick)) for tick in self.across.ticks])
        low, end = self.height - BOTTOM, WIDTH - RIGHT
        return joined(
            (_text(x, low + 16, text, "middle") for x, text in ticks),
            _text(end, self.height - 4, self.across.label, "end", "label"),
        )


def _apart(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """The numbers below an axis, every second one left out as long as two would touch."""
    wide = max((LETTER * len(text) + 6 for _, text in ticks), default=0)
    if any(b - a < wide for (a, _), (b, _) in pairwise(ticks)):
        return _apart(ticks[::2])
    return list(ticks)


Whisker = tuple[tuple[float, float, float], Series]
"""Three quantiles of something, in a row of a chart."""


def whiskers(rows: Sequence[tuple[str, Sequence[Whisker]]], across: Axis, description: str) -> Html:
    """Named rows, in each some quantiles: a stroke from the low one to the high one, a dot between.

    The description is for those who do not see the chart.
    """
    names = [_short(name) for name, _ in rows]
    left = 12 + LETTER * max(map(len, names))
    each = [max(16.0, 11.0 * len(inside) + 7) for _, inside in rows]
    frame = Frame(across, Axis("", 0.0, 1.0), left, 8 + sum(each) + BOTTOM)
    marks, top = [], 8.0
    for tick in across.ticks:
        line = f"M{frame.x(tick):.1f} 8V{frame.height - BOTTOM + 4}"
        marks.append(_path(line, "guide" if tick == 1 else "grid"))
    for (_, inside), tall, name in zip(rows, each, names, strict=True):
        marks.append(_text(left - 6, top + tall / 2 + 4, name, "end"))
        for place, (quantiles, look) in enumerate(inside):
            y = top + tall * (place + 0.5) / len(inside)
            low, middle, high = map(frame.x, quantiles)
            marks.append(_path(f"M{low:.1f} {y:.1f}H{high:.1f}", f"line {look.kind}"))
            marks.append(_circle(middle, y, look, 3.6))
        top += tall
    return _svg(frame.height, description, *marks, frame.below())


def _short(name: str, most: int = 18) -> str:
    """A name that leaves room for what it names; its end differs from its neighbours."""
    return name if len(name) <= most else f"…{name[1 - most :]}"


def _svg(height: float, description: str, *marks: Html | Iterable[Html]) -> Html:
    return element(
        "svg",
        *marks,
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        class_="chart",
        role="img",
        aria_label=description,
    )


def _path(steps: str, kind: str, **attributes: object) -> Html:
    return element("path", d=steps, class_=kind, **attributes)


def _circle(x: float, y: float, look: Series, radius: float) -> Html:
    place = {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": f"{radius:.1f}"}
    return element("circle", **place, class_=f"dot {look.kind}")


def _text(x: float, y: float, text: str, anchor: str, kind: str | None = None) -> Html:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=kind)


def _tick(value: float) -> str:
    """A round number, whole."""
    return f"{value:.6g}"
