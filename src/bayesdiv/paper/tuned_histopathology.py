"""Table tab:histo: the settings that a search found for histopathology, the paper's beside ours."""

from pathlib import Path

from bayesdiv.paper import images_results, tuned_cifar10
from bayesdiv.paper.images_results import published_settings
from bayesdiv.paper.item import Effort, Tell, Verdict

PLAN = "histopathology-tuning"


def missing(results: Path) -> list[str]:
    """Which runs of the search have no file yet."""
    jobs = images_results.plan(PLAN).jobs(results)
    return images_results.absent([job.place for job in jobs], results)


def compute(results: Path, effort: Effort, tell: Tell) -> None:
    """Run what is missing of the search: minutes on a GPU, hours on a CPU."""
    images_results.compute(results, [PLAN], effort, tell)


def draw(results: Path, out: Path) -> list[Path]:
    """The table, and our settings as a file that can be read back."""
    theirs = published_settings("paper_histopathology")
    return tuned_cifar10.table(results, out, "tuned_histopathology", PLAN, theirs)


def verdict(results: Path) -> Verdict:
    """The paper's values belong to its program and do not carry over: ours are told, not judged."""
    return tuned_cifar10.told(
        results, PLAN, published_settings("paper_histopathology"), "on fold 1"
    )
