"""The settings that a search found for CIFAR-10, the paper's beside ours.

The table of tuned settings, which the paper has two of, is made here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayesdiv.app import runs
from reproduction import tables
from reproduction.contenders import title
from reproduction.images.drawing import demand
from reproduction.images.plans import NOISE, read_settings
from reproduction.images.protocol import SEARCHES, Setting
from reproduction.images.results import FOLDER, searched, tuned, validation_accuracy
from reproduction.images.running import Requirement
from reproduction.verdict import Badge, Verdict, not_computed

SEARCH = "cifar10-tuning"
WIDE = "cifar10-wide-tuning"
NEEDS = Requirement((SEARCH, "cifar10-refined"), beyond=("cifar10-wide",))


def draw(results: Path, out: Path) -> list[Path]:
    """The table, and our settings as a file that can be read back."""
    return table(results, out, "tuned_cifar10", SEARCH, read_settings("paper_cifar10"))


def verdict(results: Path) -> Verdict:
    """Whether the search gives JS-A a strength above 1, and the settings of the paper's table.

    Alpha agrees within 0.1, the strength within a factor of ten, the learning rate within a factor
    of three; all at noise 0.9. A strength above 1 decides something only if the rest of JS-A's
    setting agrees too.
    """
    (theirs,) = [row for row in read_settings("paper_cifar10") if row["noise"] == NOISE]
    lacks = ["8 of 9 noise levels", "TPE (even spread)"]
    found = judge(results, SEARCH, {n: g for n, g in theirs.items() if n != "noise"}, lacks)
    larger = tuned(results, WIDE).get("js_a")
    if larger is None:
        return found
    return replace(
        found, sentence=f"{found.sentence}; {larger.strength:g} by a search of 20 tries per loss"
    )


def table(
    results: Path, out: Path, name: str, experiment: str, theirs: list[dict[str, Any]]
) -> list[Path]:
    """Each contender's settings, ours first, and the accuracy they were chosen by."""
    ours, tried = tuned(results, experiment), searched(results, experiment)
    demand(bool(ours), results)
    rows = []
    for contender, setting in ours.items():
        best = max(map(validation_accuracy, tried[contender]))
        count = len(tried[contender])
        rows.append(
            [title(contender), "ours", *_values(contender, setting), f"{best:.2%}", str(count)]
        )
    for row in theirs:
        source = "paper" if "noise" not in row else f"paper, noise {row['noise']:g}"
        rows += [
            [title(contender), source, *_published(contender, given), "–", "–"]
            for contender, given in row.items()
            if contender != "noise"
        ]
    titles = [title(name) for name in SEARCHES]
    rows.sort(key=lambda row: (titles.index(row[0]), row[1]))
    head = ["loss", "source", "α", "λ", "learning rate", "start", "validation", "tries"]
    diverged = sum(one["diverged"] for each in tried.values() for one in each)
    note = (
        "Settings with the best validation accuracy of fold 1 among the tries; start is the "
        f"posterior scale as a fraction of the prior's. {diverged} of our tries diverged."
    )
    written = tables.write(out, name, head, rows, note)
    path = out / f"{name}.yaml"
    runs.write(path, _yaml(ours, experiment).encode())
    return [*written, path]


def _values(contender: str, setting: Setting) -> list[str]:
    """Alpha, strength, learning rate and start; a dash where the loss has none."""
    deterministic = contender == "deterministic"
    return [
        "–" if setting.alpha is None else f"{setting.alpha:g}",
        "–" if deterministic else f"{setting.strength:g}",
        f"{setting.learning_rate:g}",
        "–" if deterministic else f"{setting.start:g}",
    ]


def _published(contender: str, given: Mapping[str, float]) -> list[str]:
    if contender in ("kl", "js_g"):
        given = {"strength": 1, **given}  # said in the text
    told = [f"{given[key]:g}" if key in given else "–" for key in ("alpha", "strength")]
    rate = f"{given['learning_rate']:g}" if "learning_rate" in given else "–"
    return [*told, rate, "rho = -10"]


def _yaml(ours: Mapping[str, Setting], experiment: str) -> str:
    """Our settings in the format of the files in `settings`."""
    import yaml  # type: ignore[import-untyped]

    rows = {
        contender: {
            key: getattr(setting, key)
            for key in ("alpha", "strength", "learning_rate", "start")
            if getattr(setting, key) is not None
        }
        for contender, setting in ours.items()
    }
    head = f"# Best by validation accuracy of the runs in {FOLDER}/{experiment}.\n"
    return head + str(yaml.safe_dump([rows], sort_keys=False))


def judge(
    results: Path,
    experiment: str,
    theirs: Mapping[str, Mapping[str, float]],
    missing: Sequence[str],
) -> Verdict:
    """Our settings against the paper's, cell by cell.

    A search is a single sample. About a third of its tries have a strength above 1, so the best one
    has it by chance; that all cells of JS-A agree is rare enough.

    Args:
        results: the folder of results.
        experiment: the search.
        theirs: the paper's settings of each loss.
        missing: what of the paper's plan was not done.
    """
    ours, tried = tuned(results, experiment), searched(results, experiment)
    if not {"kl", "js_g", "js_a"} <= ours.keys():
        return not_computed("there is no search of KL and both JS losses yet", missing)
    cells = [
        (name, key, getattr(ours[name], key), value)
        for name, given in theirs.items()
        if name in ("kl", "js_g", "js_a")
        for key, value in given.items()
    ]
    same = [_agree(key, own, value) for _, key, own, value in cells]
    strength = ours["js_a"].strength
    said = ", ".join(
        f"{title(name)} {SIGNS[key]} {own:g} ({value:g})" for name, key, own, value in cells
    )
    fewest = min(map(len, tried.values()))
    whole = all(agrees for agrees, cell in zip(same, cells, strict=True) if cell[0] == "js_a")
    direction = (Badge.YES if whole else Badge.UNDECIDED) if strength > 1 else Badge.NO
    return Verdict(
        direction,
        Badge.YES if all(same) else Badge.NO,
        f"λ of JS-A is {strength:g}, in the paper above 1 throughout; {sum(same)} of {len(same)} "
        f"cells agree: {said} (the paper's in brackets; they belong to its own scales of prior and "
        f"start); {fewest} tries per loss",
        count=fewest,
        missing=tuple(missing),
    )


SIGNS = {"alpha": "α", "strength": "λ", "learning_rate": "rate"}


def _agree(key: str, own: float | None, theirs: float) -> bool:
    """Alpha within 0.1, strength within a factor of ten, the learning rate of three."""
    if own is None:
        return False
    if key == "alpha":
        return abs(own - theirs) <= 0.1
    factor = 10.0 if key == "strength" else 3.0
    return theirs / factor <= own <= theirs * factor
