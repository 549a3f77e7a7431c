"""Fine-tune a network with ImageNet weights in several ways, one result file per run.

    python benchmarks/pretrained/run.py --data ~/data --out $OUT --stage tune --limit 540
    python benchmarks/pretrained/run.py --data ~/data --out $OUT --limit 540

Stages: `tune` tries the grid of every method on the first fold and keeps validation scores only;
`final` trains the best setting of each (the first of the grid where nothing was tuned) on all five
folds and judges it on test patients or images. A run whose result lies in --runs or in --known is
not repeated. No run is begun that would not end within --limit. What is new goes to --out in
archives under 15 MiB.
"""

import argparse
import gc
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
import bayesdiv as bd
from benchmarks.field.evaluation import Logs, Seen, predicted
from benchmarks.field.methods import Result, Settings, per_epoch
from benchmarks.field.run import archive, best, options, results, write
from benchmarks.pretrained.data import CASES, FOLDS, Fold, Sets, fold, read
from benchmarks.pretrained.methods import METHODS, FineTuning
from benchmarks.pretrained.network import Lite0
from benchmarks.pretrained.scores import judged, unusable

HERE = Path(__file__).resolve().parent
SEED = 1000  # of tuning runs; no final run has it


class Job(NamedTuple):
    """One training: what, with which setting, on which fold."""

    stage: str
    case: str
    method: str
    number: int  # the fold of a final run, the place in the grid of a tuning one
    settings: Settings

    @property
    def fold(self) -> int:
        """Tuning uses the first."""
        return self.number if self.stage == "final" else 0

    @property
    def seed(self) -> int:
        """Of weights and batches."""
        return self.number if self.stage == "final" else SEED

    @property
    def key(self) -> str:
        """The name of the result's file."""
        return f"{self.stage}-{self.case}-{self.method}-{self.number}"


def jobs(arguments: argparse.Namespace, known: dict[str, Any]) -> list[Job]:
    """What is left to do: case by case, fold by fold, method by method."""
    names = arguments.only or list(METHODS)
    wanted = [
        Job("tune", case, name, place, settings)
        for case in arguments.case
        for name in names
        for place, settings in enumerate(METHODS[name].grid)
        if arguments.stage == "tune"
    ] + [
        Job("final", case, name, number, chosen(case, name, known))
        for case in arguments.case
        for number in range(arguments.folds)
        for name in names
        if arguments.stage == "final"
    ]
    return [job for job in wanted if job.key not in known]


def chosen(case: str, name: str, known: dict[str, Any]) -> Settings:
    """The setting of a final run: that of the smallest validation NLL."""
    grid = METHODS[name].grid
    return grid[best(f"tune-{case}-{name}", len(grid), known)]


def run(job: Job, arguments: argparse.Namespace, sets: Sets) -> str:
    """Fine-tune and judge; returns a line."""
    case, device = CASES[job.case], torch.device(arguments.device)
    parts = Fold(*(part.to(device) for part in fold(sets, job.case, job.fold)))
    net = Lite0(case.classes, arguments.weights, arguments.width)
    task = FineTuning(
        parts.train,
        net,
        arguments.epochs or case.epochs,
        job.seed,
        arguments.batch,
        samples=arguments.samples,
        case=case,
    )
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    try:
        result = METHODS[job.method].train(task, **job.settings)[0]
    except bd.Diverged:
        result = Result(job.method, {"setting": repr(job.settings)}, None)
    facts = _facts(job, task, time.perf_counter() - began, arguments.beside)
    names = ("validation", "test") if job.stage == "final" else ("validation",)
    wanted = {name: getattr(parts, name) for name in names}
    logs = _predictions(
        result, {n: Seen(p.x, task.samples) for n, p in wanted.items()}, case.classes
    )
    scores = judged(logs, {name: part.y.cpu() for name, part in wanted.items()})
    write(arguments.runs / f"{job.key}.json", facts | _setting(result) | {"scores": scores})
    first = " ".join(f"{name} {value:.4f}" for name, value in scores[names[-1]].items())
    return f"{job.key}: {first}; {facts['seconds']:.1f} s, {time.perf_counter() - began:.1f} in all"


def _facts(job: Job, task: FineTuning, seconds: float, beside: bool) -> dict[str, Any]:
    on_card = task.device.type == "cuda"
    return {
        "stage": job.stage,
        "case": job.case,
        "method": job.method,
        "seed": job.number,
        "epochs": task.epochs,
        "batch": task.batch,
        "num_data": task.num_data,
        "samples": task.samples,
        "seconds": seconds,
        "seconds_per_epoch": per_epoch(task) if task.seconds and not beside else None,
        "memory_mib": torch.cuda.max_memory_allocated() / 2**20 if on_card else None,
        "device": torch.cuda.get_device_name() if on_card else "cpu",
        "torch": torch.__version__,
    }


def _setting(result: Result) -> dict[str, Any]:
    return {"settings": result.settings, "diverged": result.trained is None}


def _predictions(result: Result, wanted: dict[str, Seen], classes: int) -> Logs:
    if result.trained is None:
        return unusable({name: torch.empty(len(own.x), classes) for name, own in wanted.items()})
    logs = {name: own.cpu() for name, own in predicted(result.trained, wanted).items()}
    return logs if all(bool(own.isfinite().all()) for own in logs.values()) else unusable(logs)


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = options(__doc__, HERE, list(METHODS), batch=128, guess=40.0)
    made.add_argument("--weights", type=Path, help="lite0.safetensors; in --data unless named")
    made.add_argument("--stage", choices=["tune", "final"], default="final")
    made.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    made.add_argument("--folds", type=int, default=FOLDS)
    made.add_argument("--samples", type=int, default=16, help="weight draws per prediction")
    made.add_argument("--width", type=float, default=1.0, help="below 1: a toy without weights")
    return made


def main(argv: list[str] | None = None) -> None:
    began = time.perf_counter()
    arguments = parser().parse_args(argv)
    torch.backends.cudnn.benchmark = True
    if arguments.weights is None and arguments.width == 1:
        arguments.weights = arguments.data / "lite0.safetensors"
    before = {file.name for file in arguments.runs.glob("*")}
    arguments.runs.mkdir(parents=True, exist_ok=True)
    try:
        _train_all(arguments, began)
    finally:
        if arguments.out:
            archive(arguments.runs, arguments.out, before, "pretrained")


def _train_all(arguments: argparse.Namespace, began: float) -> None:
    sets, took = read(arguments.data), arguments.guess
    for job in jobs(arguments, results([arguments.known, arguments.runs])):
        now = time.perf_counter()
        if now - began + 1.5 * took > arguments.limit:
            print(f"no time is left for {job.key} and what follows it", flush=True)
            break
        print(run(job, arguments, sets), flush=True)
        gc.collect()  # recorded steps hold their memory until then
        took = time.perf_counter() - now


if __name__ == "__main__":
    main()
