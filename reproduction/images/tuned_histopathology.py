"""Table tab:histo: the settings that a search found for histopathology, the paper's beside ours."""

from pathlib import Path

from reproduction.images import tuned_cifar10
from reproduction.images.plans import read_settings
from reproduction.images.running import SearchRequirement
from reproduction.item import Verdict

SEARCH = "histopathology-tuning"
NEEDS = SearchRequirement((SEARCH,))
missing, compute = NEEDS.missing, NEEDS.compute


def draw(results: Path, out: Path) -> list[Path]:
    """The table, and our settings as a file that can be read back."""
    theirs = read_settings("paper_histopathology")
    return tuned_cifar10.table(results, out, "tuned_histopathology", SEARCH, theirs)


def verdict(results: Path) -> Verdict:
    """The paper's values belong to its program and do not carry over: ours are told, not judged."""
    return tuned_cifar10.told(results, SEARCH, read_settings("paper_histopathology"), "on fold 1")
