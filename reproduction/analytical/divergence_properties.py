"""Which divergences are bounded, symmetric and analytical (table A.5).

Each answer is what the divergence says of itself, and stands beside the number that checks it: the
largest value over pairs that part further and further, the largest change when q and p swap places,
and the distance of the closed form from integration. A column the paper lacks shows that symmetry
ends away from α = ½.
"""

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Normal

from bayesdiv import JSA, JSG, KL, Divergence, Quadrature, WeightedKL
from bayesdiv.app import runs
from bayesdiv.divergence import UnmodifiedJSA, UnmodifiedJSG
from reproduction.item import Effort, Tell, stamp
from reproduction.verdict import Verdict, checked, not_computed

PLACE = Path("figures", "divergence_properties.json")
KINDS: dict[str, Callable[[float], Divergence]] = {
    "KL": lambda alpha: KL(),
    "JS-A": JSA,
    "JS-G": JSG,
    "weighted KLs (eq. 21)": WeightedKL,
    "unmodified JS-A": UnmodifiedJSA,
    "unmodified JS-G": UnmodifiedJSG,
}
# The published table; its symmetry is that at alpha = ½.
PAPER = {
    "KL": {"bounded": False, "symmetric": False, "analytical": True},
    "JS-A": {"bounded": True, "symmetric": True, "analytical": False},
    "JS-G": {"bounded": False, "symmetric": True, "analytical": True},
}
EQUAL = 1e-6  # relative: a smaller change is rounding
APART = 1e-2  # relative: a larger change is a change
VAST = 1e6  # nats: a larger value is held by no bound


@dataclass(frozen=True)
class Settings:
    """What is computed.

    Args:
        skewed: the alpha away from ½ at which symmetry is looked at.
        pairs: random Gaussians, for symmetry and closed forms.
        farthest: means part up to 10 to this power.
        seed: of the pairs.
    """

    skewed: float = 0.3
    pairs: int = 200
    farthest: int = 6
    seed: int = 0


SIZES = {Effort.FULL: Settings(), Effort.QUICK: Settings(pairs=10)}


def missing(results: Path) -> list[str]:
    """The one file of properties, where it is not there yet."""
    return [] if (results / PLACE).exists() else ["properties of the divergences"]


def compute(results: Path, effort: Effort, tell: Tell) -> None:
    """Ask every divergence, and check what it says."""
    if not missing(results):
        return
    settings = SIZES[effort]
    q, p = _pairs(settings)
    rows = {}
    for name, kind in KINDS.items():
        tell(name)
        half, skewed = kind(0.5), kind(settings.skewed)
        rows[name] = {
            "bounded": half.bound is not None,
            "bound": half.bound,
            "largest": _largest(half, settings),
            "symmetric": half.symmetric,
            "change": _change(half, q, p),
            "symmetric_skewed": skewed.symmetric,
            "change_skewed": _change(skewed, q, p),
            "analytical": half.has_closed_form(q, p),
            "error": _error(half, q, p) if half.has_closed_form(q, p) else None,
        }
    told = {
        "settings": asdict(settings),
        **stamp(),
        "rows": rows,
    }
    runs.write_json(results / PLACE, told)


def _pairs(settings: Settings) -> tuple[Normal, Normal]:
    generator = torch.Generator().manual_seed(settings.seed)

    def uniform(low: float, high: float) -> Tensor:
        share = torch.rand(settings.pairs, generator=generator, dtype=torch.float64)
        return low + (high - low) * share

    q, p = (Normal(uniform(-3, 3), uniform(-2, 2).exp()) for _ in range(2))
    return q, p


def _largest(divergence: Divergence, settings: Settings) -> float:
    """The largest value as the means of two Gaussians of scale 1 part by factors of ten."""
    loc = 10.0 ** torch.arange(settings.farthest + 1, dtype=torch.float64)
    p = Normal(torch.zeros_like(loc), torch.ones_like(loc))
    return divergence(Normal(loc, torch.ones_like(loc)), p, Quadrature()).max().item()


def _change(divergence: Divergence, q: Normal, p: Normal) -> float:
    """The largest relative change when q and p swap places, by integration."""
    there, back = divergence(q, p, Quadrature()), divergence(p, q, Quadrature())
    return ((there - back).abs() / torch.maximum(there, back)).max().item()


def _error(divergence: Divergence, q: Normal, p: Normal) -> float:
    """The largest relative distance of the closed form from integration."""
    return (divergence(q, p) / divergence(q, p, Quadrature()) - 1).abs().max().item()


def draw(results: Path, out: Path) -> list[Path]:
    """The table as CSV with its numbers, as Markdown and as LaTeX."""
    told = runs.read_json(results / PLACE)
    contents = {".csv": _csv(told), ".md": _markdown(told), ".tex": _latex(told)}
    paths = []
    for suffix, content in contents.items():
        path = out / f"divergence_properties{suffix}"
        runs.write(path, content.encode())
        paths.append(path)
    return paths


def _columns(told: Mapping[str, Any]) -> dict[str, str]:
    skewed = told["settings"]["skewed"]
    return {
        "bounded": "bounded",
        "symmetric": "symmetric at α = ½",
        "symmetric_skewed": f"symmetric at α = {skewed:g}",
        "analytical": "analytical for Gaussians",
    }


def _csv(told: Mapping[str, Any]) -> str:
    fields = list(next(iter(told["rows"].values())))
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(["divergence", *fields])
    words = {True: "yes", False: "no", None: ""}
    for name, row in told["rows"].items():
        cells = (row[field] for field in fields)
        shown = (words[c] if c is None or isinstance(c, bool) else f"{c:.6g}" for c in cells)
        writer.writerow([name, *shown])
    return content.getvalue()


def _markdown(told: Mapping[str, Any]) -> str:
    columns = _columns(told)
    lines = [
        f"| divergence | {' | '.join(columns.values())} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for name, row in told["rows"].items():
        cells = " | ".join("✓" if row[column] else "✗" for column in columns)
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines) + "\n"


def _latex(told: Mapping[str, Any]) -> str:
    columns = _columns(told)
    heads = (head.replace("α", r"$\alpha$").replace("½", "$1/2$") for head in columns.values())
    lines = [
        r"\begin{tabular}{l" + "c" * len(columns) + "}",
        r"\toprule",
        " & ".join(["divergence", *heads]) + r" \\",
        r"\midrule",
    ]
    for name, row in told["rows"].items():
        marks = (r"\checkmark" if row[column] else r"$\times$" for column in columns)
        lines.append(" & ".join([name, *marks]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def verdict(results: Path) -> Verdict:
    """Every cell agrees with the published table, and with the number that checks it."""
    if missing(results):
        return not_computed("nothing is computed yet")
    told = runs.read_json(results / PLACE)
    rows, skewed = told["rows"], told["settings"]["skewed"]
    cells = [(name, column) for name, row in PAPER.items() for column in row]
    same = sum(rows[name][column] == PAPER[name][column] for name, column in cells)
    borne_out = [name for name, row in rows.items() if _borne_out(row)]
    sentence = (
        f"{same} of {len(cells)} cells agree and the numbers bear out {len(borne_out)} of "
        f"{len(rows)} divergences; the symmetry is that at α = ½ alone: at α = {skewed:g} a swap "
        f"changes JS-A by up to {rows['JS-A']['change_skewed']:.0%}"
    )
    return checked(len(borne_out) == len(rows), same == len(cells), sentence, len(cells))


def _borne_out(row: Mapping[str, Any]) -> bool:
    """Whether the numbers agree with what the divergence says of itself."""
    largest, error = row["largest"], row["error"]
    bounded = largest <= row["bound"] * (1 + EQUAL) if row["bounded"] else largest > VAST
    swaps = all(
        row[f"change{end}"] <= EQUAL if row[f"symmetric{end}"] else row[f"change{end}"] > APART
        for end in ("", "_skewed")
    )
    return bounded and swaps and (error is None or error <= EQUAL)
