"""`bayesdiv export`: write a run as one file that predicts without bayesdiv."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import torch

from bayesdiv.app.calibrated import unserved
from bayesdiv.app.command import Command
from bayesdiv.app.console import note, say
from bayesdiv.app.data.columns import Dates, Encoder
from bayesdiv.app.data.splits import DataError, Splits
from bayesdiv.app.experiment import Experiment
from bayesdiv.app.options import MOVED, RUN
from bayesdiv.app.settings import reloaded, restore, task_of
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.app.tasks.regression import Regression
from bayesdiv.calibration import Levels
from bayesdiv.draws import Weights
from bayesdiv.export import export as written
from bayesdiv.prediction import predict_at
from bayesdiv.serving.graph import Column, Rounded, Units, fewer, rounded

PRECISIONS = ("float32", "float16", "bfloat16", "int8")


def parser() -> Command:
    command = Command(
        "Write a run as one file that turns raw columns into means, intervals and probabilities: "
        ".onnx for onnxruntime and others, .pt2 for torch. Neither needs bayesdiv to run.",
        "bayesdiv export runs/diabetes diabetes.onnx",
        {"run": RUN, "out": "the .onnx or .pt2 file to write", "--data": MOVED},
    )
    command.add_argument("--samples", type=int, default=20, help="weight draws in the file")
    most = "draws to choose the samples from, so that predictions change least"
    command.add_argument("--among", type=int, help=most)
    command.add_argument("--level", type=float, default=0.9, help="level of the interval")
    how = "of the stored draws"
    command.add_argument("--precision", choices=PRECISIONS, default="float32", help=how)
    return command


def export(settings: Namespace) -> None:
    """Write a run as one file, and say what that changes."""
    if Path(settings.out).exists():
        raise ValueError(f"{settings.out} exists already: choose another name or remove it")
    experiment, told = restore(Path(settings.run), settings.data)
    notes: list[str] = []  # printed once nothing can be refused any more
    splits, weights = None, experiment.drawn(settings.among or settings.samples)
    try:
        splits = reloaded(told, settings.run)
    except DataError as error:
        if settings.among is not None:
            raise
        notes.append(f"the change in NLL could not be computed: {error}")
    if settings.among is not None and splits is not None:  # those that predict most like all
        rows = splits.train.x[:500]
        weights = fewer(experiment.model, experiment.likelihood, rows, weights, settings.samples)
    precision = Rounded(getattr(torch, settings.precision))
    task, name = task_of(told), told["target"] or ""
    own = experiment.training.test_samples
    if settings.samples != own and any(isinstance(c, Levels) for c in experiment.calibration):
        said = f"the conformal promise was fitted to {own} draws and is not exact for others"
        notes.append(f"{said}: give --samples {own} to keep it")
    columns: list[Column] | None = None
    if told["encoder"] is not None:
        days = "days since 1970"  # which the file takes for a date
        every = Encoder.from_json(told["encoder"]).columns
        columns = [replace(c, unit=days) if isinstance(c, Dates) else c for c in every]
    made = written(
        experiment.model,
        experiment.likelihood,
        torch.zeros(2, *told["shape"], dtype=torch.float32 if told["encoder"] else torch.uint8),
        settings.out,
        columns=columns,
        level=settings.level,
        calibration=experiment.calibration,
        precision=precision,
        weights=weights,
        classes=task.classes if isinstance(task, Classification) else (),
        units=Units(task.loc, task.scale, name) if isinstance(task, Regression) else None,
    )
    note(*notes)
    say(f"{made.path}: {made.size / 1e6:.1f} MB, {', '.join(made.outputs)}")
    if columns is not None:
        count = len(columns)
        say(f"inputs: {count} number{'s' * (count > 1)} per row; the file's metadata lists them")
    note(*unserved(experiment.calibration, settings.level))
    if splits is not None:
        say(_change(experiment, splits, rounded(experiment.model, weights, precision)))


def _change(experiment: Experiment, splits: Splits, weights: Weights) -> str:
    """The validation NLL of the run beside that of the file."""
    x, y = splits.validation
    kept = predict_at(experiment.model, experiment.likelihood, x, weights, batch_size=512)
    both = experiment.predict(x), experiment.calibrated(kept)
    before, after = (splits.task.log_scale - p.log_prob(y).double().mean().item() for p in both)
    return (
        f"validation NLL: {before:.4f} of the run, {after:.4f} of the file "
        f"({after - before:+.4f} nats per row)"
    )
