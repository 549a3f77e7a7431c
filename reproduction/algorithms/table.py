"""The table of both algorithms: what each way of computing a divergence learns, and its time."""

from pathlib import Path
from statistics import fmean, stdev

from bayesdiv.app import runs
from reproduction import tables
from reproduction.algorithms.results import TIMED, TRAINED, read
from reproduction.algorithms.training import WAYS

TITLES = {
    "kl": "KL by samples",
    "js_g": "JS-G in closed form (algorithm 1)",
    "js_a": "JS-A by the exact rule",
    "js_a_sampled": "JS-A by samples of both (algorithm 2)",
}


def write(results: Path, out: Path, name: str) -> list[Path]:
    """Loss and accuracy of the small network, time per step of the large one."""
    told, times = read(results, TRAINED), read(results, TIMED)
    if told is None:
        raise runs.RunError(
            f"there are no results of the algorithms in {results}: run python -m reproduction "
            "algorithms --compute"
        )
    rows = []
    for way in WAYS:
        reached = [100 * run["accuracy"] for run in told[way]]
        spread = f" ± {stdev(reached):.2f}" if len(reached) > 1 else ""
        seconds, ratio = "–", "–"
        if times is not None:
            seconds = f"{1000 * fmean(times['times'][way]):.1f}"
            ratio = f"{fmean(times['times'][way]) / fmean(times['times']['kl']):.2f}"
        final = fmean(run["losses"][-1] for run in told[way])
        rows.append([TITLES[way], f"{final:.3f}", f"{fmean(reached):.2f}{spread}", seconds, ratio])
    head = ["way", "final loss", "test accuracy", "ms per step", "over KL"]
    where = "not timed yet" if times is None else f"timed on {times['hardware']}"
    seeds = len(told["kl"])
    note = (
        f"A network of {told['settings']['hidden']} hidden units on handwritten digits, mean ± "
        f"standard deviation over {seeds} seeds; steps of a residual network, {where}. Published "
        "over KL: 1.02 for JS-G, 1.63 for JS-A."
    )
    return tables.write(out, name, head, rows, note)
