"""Train and judge the methods of the field on CIFAR-10, one result file per run.

    python benchmarks/field/run.py --data ~/data --out $OUT --limit 420 --only sgd
    python benchmarks/field/run.py --data ~/data --out $OUT --stage tune --limit 540
    python benchmarks/field/run.py --stage ensemble

Stages: `tune` tries the grid of every method on validation images with one seed, `final` trains the
best setting of each (that of clean images where the case was not tuned) and judges it on test
images, `time` measures some epochs of it, `ensemble` averages kept predictions of SGD's seeds. A
run whose result lies in --runs or in --known is not repeated. No run is begun that would not end
within --limit. What is new goes to --out in archives under 15 MiB.
"""

import argparse
import gc
import json
import sys
import tarfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
import bayesdiv as bd
from bayesdiv.app.nets.images import Norm, ResNet, resnet20, small_stem
from benchmarks.field.data import CASES, Part, read, training_part, tuning_parts
from benchmarks.field.evaluation import Logs, judged, predicted, seen, unusable
from benchmarks.field.methods import METHODS, Result, Settings, Task, per_epoch
from benchmarks.field.scores import averaged

HERE = Path(__file__).resolve().parent
ARCHIVE = 15 * 2**20
NETS = {
    "resnet18": ResNet(10, small_stem, norm=Norm.BATCH),
    "resnet20": resnet20(10),
    "resnet20_frn": resnet20(10, Norm.FILTER_RESPONSE),
    "tiny": ResNet(10, small_stem, width=4, blocks=(1, 1), norm=Norm.BATCH),
}
TUNING_EPOCHS = 1 / 3  # of a case's own
TIMED_EPOCHS = 6


class Job(NamedTuple):
    """One training: what, with which setting, from which seed."""

    stage: str
    case: str
    net: str
    method: str
    number: int  # the seed of a final run, the place in the grid of a tuning one
    settings: Settings

    @property
    def seed(self) -> int:
        """Tuning runs share one that no final run has."""
        return 1000 if self.stage == "tune" else self.number

    def key(self, method: str | None = None, number: int | None = None) -> str:
        """The name of a result's files."""
        own = self.number if number is None else number
        return f"{self.stage}-{self.case}-{self.net}-{method or self.method}-{own}"


def results(folders: list[Path]) -> dict[str, dict[str, Any]]:
    """Every result by its key."""
    files = [file for folder in folders for file in sorted(folder.glob("*.json"))]
    return {file.stem: json.loads(file.read_text()) for file in files}


def best(prefix: str, count: int, known: dict[str, dict[str, Any]]) -> int:
    """The place in a grid with the smallest validation NLL; the first if none was tried."""
    tried = [
        (found["scores"]["validation"]["nll"], place)
        for place in range(count)
        if (found := known.get(f"{prefix}-{place}"))
    ]
    return min(tried)[1] if tried else 0


def tuned_on(method: str, case: str, net: str, known: dict[str, dict[str, Any]]) -> str:
    """The case whose validation images choose the setting: its own, or clean ones."""
    own = f"tune-{case}-{net}-{method}-0" in known
    return case if own else "clean"


def chosen(method: str, case: str, net: str, known: dict[str, dict[str, Any]]) -> Settings:
    """The setting that a final run has."""
    grid, case = METHODS[method].grid, tuned_on(method, case, net, known)
    settings = dict(grid[best(f"tune-{case}-{net}-{method}", len(grid), known)])
    if method == "sgd":  # whose last layer's Laplace approximation is tuned beside it
        precisions = settings["precisions"]
        place = best(f"tune-{case}-{net}-laplace", len(precisions), known)
        settings["precisions"] = (precisions[place],)
    return settings


def jobs(arguments: argparse.Namespace, known: dict[str, dict[str, Any]]) -> list[Job]:
    """What is left to do, in the order of the cases, then seeds, then methods."""
    names, net = arguments.only or list(METHODS), arguments.net
    if arguments.stage == "tune":
        wanted = [
            Job("tune", case, net, name, place, settings)
            for case in arguments.case
            for name in names
            for place, settings in enumerate(METHODS[name].grid)
        ]
    else:
        wanted = [
            Job(arguments.stage, case, net, name, seed, chosen(name, case, net, known))
            for case in arguments.case
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds)
            for name in names
        ]
    return [job for job in wanted if job.key() not in known]


def run(job: Job, arguments: argparse.Namespace, parts: dict[str, Part]) -> list[str]:
    """Train and judge; returns a line per result."""
    case = CASES[job.case]
    epochs = arguments.epochs or (TIMED_EPOCHS if job.stage == "time" else case.epochs)
    if job.stage == "tune":
        epochs = max(1, round(epochs * TUNING_EPOCHS))
        part, held = tuning_parts(parts["train"], case, job.seed)
        sets, y = {"validation": held}, held.y
    else:
        part, sets = training_part(parts["train"], case, job.seed), parts
        y = parts["test"].y
    device = torch.device(arguments.device)
    task = Task(part.to(device), NETS[job.net], epochs, job.seed, arguments.batch)
    began = time.perf_counter()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    try:
        found = METHODS[job.method].train(task, **job.settings)
    except bd.Diverged:
        found = [Result(job.method, {"setting": repr(job.settings)}, None)]
    facts = _facts(job, task, time.perf_counter() - began, arguments.beside)
    if job.stage == "time":
        write(arguments.runs / f"{job.key()}.json", {"method": job.method, **facts})
        return [f"{job.key()}: {facts['seconds_per_epoch']:.3f} s per epoch"]
    return [
        _judge(job, place, result, facts, arguments, sets, y)
        for place, result in enumerate(found)
        if result.method == job.method or job.stage == "final" or job.number == 0
    ]


def _facts(job: Job, task: Task, seconds: float, beside: bool) -> dict[str, Any]:
    on_card = task.device.type == "cuda"
    return {
        "stage": job.stage,
        "case": job.case,
        "net": job.net,
        "seed": job.seed,
        "epochs": task.epochs,
        "batch": task.batch,
        "num_data": task.num_data,
        "seconds": seconds,
        "seconds_per_epoch": per_epoch(task) if task.seconds and not beside else None,
        "memory_mib": torch.cuda.max_memory_allocated() / 2**20 if on_card else None,
        "device": torch.cuda.get_device_name() if on_card else "cpu",
        "torch": torch.__version__,
    }


def _judge(
    job: Job,
    place: int,
    result: Result,
    facts: dict[str, Any],
    arguments: argparse.Namespace,
    sets: dict[str, Part],
    y: Tensor,
) -> str:
    began = time.perf_counter()
    logs = _predictions(result, arguments, sets, y)
    if "validation" in logs:
        scores: dict[str, Any] = {"validation": judged({"test": logs["validation"]}, y)["test"]}
    else:
        scores = judged(logs, y)
    # Beside the method itself a run may yield others, one per setting when they are tuned.
    own = result.method == job.method
    number = job.number if own or job.stage == "final" else place - 1
    key = job.key(result.method, number)
    whole = {"method": result.method, "settings": result.settings, **facts}
    whole["diverged"] = result.trained is None
    whole |= {"samples": result.trained.samples if result.trained else 0, "scores": scores}
    whole["seconds_of_evaluation"] = time.perf_counter() - began
    if job.stage == "final":
        np.savez_compressed(arguments.runs / f"{key}.npz", **_kept(result.method, logs, y))
    write(arguments.runs / f"{key}.json", whole)
    first = scores.get("test") or scores["validation"]
    line = " ".join(f"{name} {value:.4f}" for name, value in first.items())
    return f"{key}: {line}; {facts['seconds_per_epoch'] or 0:.2f} s per epoch"


def write(file: Path, content: dict[str, Any]) -> None:
    """Whole or not at all."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1))
    part.rename(file)


def _predictions(
    result: Result, arguments: argparse.Namespace, sets: dict[str, Part], y: Tensor
) -> Logs:
    device = torch.device(arguments.device)
    if "validation" in sets:
        wanted = {"validation": seen({"test": sets["validation"].to(device)}, 0)["test"]}
    else:
        wanted = seen({name: part.to(device) for name, part in sets.items()}, arguments.shifted)
    if result.trained is None:
        return unusable({name: torch.empty(len(own.x), 10) for name, own in wanted.items()})
    logs = {name: own.cpu() for name, own in predicted(result.trained, wanted).items()}
    finite = all(bool(own.isfinite().all()) for own in logs.values())
    return logs if finite else unusable(logs)


def _kept(method: str, logs: Logs, y: Tensor) -> dict[str, Any]:
    """Log probabilities in half precision; all sets of SGD, the first two of other methods."""
    names = [name for name in logs if method == "sgd" or name in ("test", "far_cifar100")]
    return {name: logs[name].half().numpy() for name in names} | {"y": y.numpy().astype(np.uint8)}


def form_ensembles(arguments: argparse.Namespace) -> list[str]:
    """Averages of SGD's seeds, three and five, for every case whose predictions were kept."""
    wanted = [(case, size) for case in arguments.case for size in (3, 5)]
    return [line for case, size in wanted if (line := _ensemble(arguments, case, size))]


def _ensemble(arguments: argparse.Namespace, case: str, size: int) -> str | None:
    keys = [f"final-{case}-{arguments.net}-sgd-{seed}" for seed in range(size)]
    files = [_find(arguments, f"{key}.npz") for key in keys]
    if None in files:
        return None
    members = [{k: torch.from_numpy(v) for k, v in np.load(file).items()} for file in files]
    y = members[0]["y"].long()
    names = [name for name in members[0] if name != "y"]
    logs = {name: averaged([member[name] for member in members]) for name in names}
    one = json.loads(_find(arguments, f"{keys[0]}.json").read_text())
    whole = one | {
        "method": f"ensemble{size}",
        "samples": size,
        "seconds_per_epoch": size * took if (took := one["seconds_per_epoch"]) else None,
        "scores": judged(logs, y),
    }
    key = f"final-{case}-{arguments.net}-ensemble{size}-0"
    (arguments.runs / f"{key}.json").write_text(json.dumps(whole, indent=1))
    return f"{key}: {whole['scores']['test']}"


def _find(arguments: argparse.Namespace, name: str) -> Path | None:
    places = [folder / name for folder in (arguments.runs, arguments.known)]
    return next((place for place in places if place.exists()), None)


def archive(runs: Path, out: Path, before: set[str], name: str = "field") -> None:
    """What was not there before, in archives that are small enough to be sent."""
    out.mkdir(parents=True, exist_ok=True)
    room, number = 0, -1
    for file in sorted(runs.glob("*.[jn][sp][oz]*")):
        if file.name in before:
            continue
        size = file.stat().st_size + 2048
        if number < 0 or room < size:
            room, number = ARCHIVE, number + 1
        with tarfile.open(out / f"{name}_{number}.tar", "a") as packed:
            packed.add(file, file.name)
        room -= size


def options(
    about: str, home: Path, methods: list[str], batch: int, guess: float
) -> argparse.ArgumentParser:
    """The options that every harness has, whose program and results lie in a folder of its own."""
    made = argparse.ArgumentParser(description=about.split("\n")[0])
    data, runs = Path("~/data").expanduser(), Path(f"~/{home.name}_runs").expanduser()
    made.add_argument("--data", type=Path, default=data, help="folder of the pieces")
    made.add_argument("--out", type=Path, help="folder for archives of what is new")
    made.add_argument("--runs", type=Path, default=runs)
    made.add_argument("--known", type=Path, default=home / "results")
    made.add_argument("--limit", type=float, default=1e9, help="seconds in all")
    made.add_argument("--only", nargs="+", choices=methods, help="these methods")
    made.add_argument("--epochs", type=int, help="in the place of the case's own")
    made.add_argument("--batch", type=int, default=batch)
    made.add_argument("--guess", type=float, default=guess, help="seconds of a first run")
    made.add_argument(
        "--beside", action="store_true", help="other runs share the device: keep no times"
    )
    made.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return made


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = options(__doc__, HERE, list(METHODS), batch=256, guess=100.0)
    made.add_argument("--stage", choices=["tune", "final", "time", "ensemble"], default="final")
    made.add_argument("--case", nargs="+", choices=list(CASES), default=["clean"])
    made.add_argument("--seeds", type=int, default=1)
    made.add_argument("--first-seed", type=int, default=0)
    made.add_argument("--net", choices=list(NETS), default="resnet18")
    made.add_argument("--shifted", type=int, default=1000, help="test images per corruption")
    return made


def main(argv: list[str] | None = None) -> None:
    began = time.perf_counter()
    arguments = parser().parse_args(argv)
    torch.backends.cudnn.benchmark = True
    before = {file.name for file in arguments.runs.glob("*")}
    arguments.runs.mkdir(parents=True, exist_ok=True)
    if arguments.stage == "ensemble":
        print(*form_ensembles(arguments), sep="\n")
    else:
        _train_all(arguments, began)
    if arguments.out:
        archive(arguments.runs, arguments.out, before)


def _train_all(arguments: argparse.Namespace, began: float) -> None:
    parts = read(arguments.data)
    known = results([arguments.known, arguments.runs])
    longest: dict[str, float] = {}
    for job in jobs(arguments, known):
        now = time.perf_counter()
        expected = longest.get(job.case, arguments.guess)
        if now - began + 1.1 * expected > arguments.limit:
            print(f"no time is left for {job.key()} and what follows it", flush=True)
            break
        print(*run(job, arguments, parts), sep="\n", flush=True)
        gc.collect()  # recorded steps hold their memory until then
        longest[job.case] = max(longest.get(job.case, 0), time.perf_counter() - now)


if __name__ == "__main__":
    main()
