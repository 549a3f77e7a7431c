"""Table tab:Cifar: the settings that a search found for CIFAR-10, the paper's beside ours.

The table of tuned settings, which the paper has two of, is made here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesdiv.app import runs
from reproduction import tables
from reproduction.images.plans import NOISE, read_settings
from reproduction.images.protocol import CONTENDERS, Setting
from reproduction.images.results import FOLDER, searched, tuned, validation_accuracy
from reproduction.images.running import SearchRequirement
from reproduction.images.training_curves import demand
from reproduction.item import Outcome, Verdict

SEARCH = "cifar10-tuning"
NEEDS = SearchRequirement((SEARCH, "cifar10-refined"))
missing, compute = NEEDS.missing, NEEDS.compute


def draw(results: Path, out: Path) -> list[Path]:
    """The table, and our settings as a file that can be read back."""
    return table(results, out, "tuned_cifar10", SEARCH, read_settings("paper_cifar10"))


def verdict(results: Path) -> Verdict:
    """The paper's values belong to its program and do not carry over: ours are told, not judged."""
    return told(results, SEARCH, read_settings("paper_cifar10"), f"at noise {NOISE:g}")


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
            [_title(contender), "ours", *_values(contender, setting), f"{best:.2%}", str(count)]
        )
    for row in theirs:
        source = "paper" if "noise" not in row else f"paper, noise {row['noise']:g}"
        rows += [
            [_title(contender), source, *_published(contender, given), "–", "–"]
            for contender, given in row.items()
            if contender != "noise"
        ]
    order = list(CONTENDERS.values())
    titles = [contender.title for contender in order]
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


def _title(contender: str) -> str:
    return CONTENDERS[contender].title


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


def told(results: Path, experiment: str, theirs: list[dict[str, Any]], where: str) -> Verdict:
    """Our settings in a sentence, the paper's in brackets."""
    ours, tried = tuned(results, experiment), searched(results, experiment)
    if not ours:
        return Verdict(Outcome.OPEN, "there is no search yet")
    parts = []
    for contender in ("kl", "js_g", "js_a"):
        if contender not in ours:
            continue
        alpha, strength, rate, _ = _values(contender, ours[contender])
        known = dict(
            zip(("α", "λ", "rate"), _published(contender, theirs[-1][contender]), strict=False)
        )
        paper = ", ".join(f"{sign} {value}" for sign, value in known.items() if value != "–")
        own = [f"α {alpha}"] if alpha != "–" else []
        parts.append(
            f"{_title(contender)} {', '.join([*own, f'λ {strength}', f'rate {rate}'])} ({paper})"
        )
    counts = sorted({len(each) for each in tried.values()})
    budget = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return Verdict(
        Outcome.PARTLY,
        f"searched with {budget} tries a loss {where}: {'; '.join(parts)}; the paper's values "
        "(in brackets) belong to its own scales of prior and start",
    )
