"""The settings that a search found for histopathology, the paper's beside ours."""

from pathlib import Path

from reproduction.images import tuned_cifar10
from reproduction.images.plans import read_settings
from reproduction.images.running import Requirement
from reproduction.verdict import Verdict

SEARCH = "histopathology-tuning"
NEEDS = Requirement((SEARCH,))


def draw(results: Path, out: Path) -> list[Path]:
    """The table, and our settings as a file that can be read back."""
    theirs = read_settings("paper_histopathology")
    return tuned_cifar10.table(results, out, "tuned_histopathology", SEARCH, theirs)


def verdict(results: Path) -> Verdict:
    """Whether the search gives JS-A a strength above 1, and the settings of the paper's table.

    Alpha agrees within 0.1, the strength within a factor of ten, the learning rate within a factor
    of three. A strength above 1 decides something only if the rest of JS-A's setting agrees too.
    """
    (theirs,) = read_settings("paper_histopathology")
    return tuned_cifar10.judge(results, SEARCH, theirs, ["TPE (even spread)"])
