"""The command line: compare, train, evaluate, predict, show."""

import logging
import math
import os
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NoReturn

import torch
from jsonargparse import ArgumentError, ArgumentParser, Namespace
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import bayesdiv
from bayesdiv import divergences, experiments, runs
from bayesdiv.data import Bias, Classification, DataError, Regression, Splits, load
from bayesdiv.data.table import read, read_text
from bayesdiv.divergences import JSA, JSG, Divergence
from bayesdiv.experiments import Training
from bayesdiv.training import Diverged, Epoch

# A file or a pipe has no width: tables go there whole, not cut at 80 columns.
console = Console(width=None if sys.stdout.isatty() else 120)
errors = Console(stderr=True)

HIGHER_IS_BETTER = {"accuracy"}
NAMES = {
    "accuracy": "accuracy",
    "rmse": "RMSE",
    "nll": "NLL",
    "ece": "ECE",
    "coverage": "coverage",
    "false_negative_rate": "missed",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2."""
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    if "OMP_NUM_THREADS" not in os.environ:
        # Networks for tables are small: handing a step to several threads costs more than it saves.
        torch.set_num_threads(1)
    whole = parser()
    try:
        settings = whole.instantiate(whole.parse_args(arguments))
    except (ArgumentError, ValueError, TypeError) as error:
        _complain(_plain(str(error)))
    command = settings.command
    try:
        COMMANDS[command](settings[command])
    except (DataError, runs.RunError, Diverged, ValueError, TypeError, RuntimeError) as error:
        _complain(str(error))
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _complain(place + (error.strerror or str(error)))
    except KeyboardInterrupt:
        goes_on = "; the same command goes on from here" if command == "train" else ""
        errors.print(f"[bold]bayesdiv:[/] stopped{goes_on}", soft_wrap=True)
        sys.exit(130)


def _complain(sentence: str) -> NoReturn:
    text = escape(" ".join(sentence.split()))
    errors.print(f"[bold red]bayesdiv:[/] {text}", soft_wrap=True)
    sys.exit(2)


def _plain(message: str) -> str:
    r"""The sentence in a parser's message that a user can act on.

    Examples:
        >>> _plain("Parser key \"epochs\":\n  Expected a <class 'int'>. Got value: many")
        'epochs must be of type int, got many'
    """
    lines = [line.strip(" -") for line in message.splitlines() if line.strip()]
    told = [line for line in lines if re.search(r" must (lie|be) .*, got ", line)]
    if told:
        return told[-1]
    if kind := re.search(r'key "([\w.]+)".*?<class \'(\w+)\'>\. Got value: (.*)', message, re.S):
        return f"{kind[1]} must be of type {kind[2]}, got {kind[3]}"
    if "dot import path" in message or "known subclasses" in message:
        value = lines[-1].removeprefix("Given value: ")
        return f"{value} is no divergence: give one of {', '.join(_known())}, or an import path"
    if "one of {" in message:
        return f"a command must be given, one of {', '.join(COMMANDS)}; see bayesdiv --help"
    return re.sub(rf"\b({'|'.join(COMMANDS)})\.", "--", "; ".join(lines[:2]))


def parser() -> ArgumentParser:
    """The parser of all commands."""
    whole = ArgumentParser(
        prog="bayesdiv",
        version=bayesdiv.__version__,
        description="Bayesian neural networks held near their prior by KL, JS-G or bounded JS-A.",
        epilog="Begin with: bayesdiv compare digits --noise 0.5",
        exit_on_error=False,
    )
    commands = whole.add_subcommands(dest="command")
    commands.add_subcommand(
        "compare", _compare_parser(), help="train several losses, print a table"
    )
    commands.add_subcommand("train", _train_parser(), help="train one network, write a run")
    commands.add_subcommand(
        "evaluate", _run_parser("evaluate", "test metrics of a run"), help="test a run"
    )
    commands.add_subcommand("predict", _predict_parser(), help="predict the rows of a file")
    commands.add_subcommand(
        "show", _run_parser("show", "what a run is and how it went"), help="describe a run"
    )
    return whole


def _command(description: str, example: str) -> ArgumentParser:
    return ArgumentParser(
        description=description, epilog=f"Example: {example}", exit_on_error=False
    )


def _add_data(command: ArgumentParser) -> None:
    command.add_argument(
        "data", type=str, help="diabetes, breast_cancer, digits, or a .csv or .parquet file"
    )
    command.add_argument(
        "--target", type=str | None, default=None, help="column to predict; the last if not given"
    )
    command.add_argument(
        "--noise",
        type=float,
        default=0.0,
        help="standard deviation of noise added once to all inputs",
    )
    command.add_argument(
        "--bias",
        type=str | None,
        default=None,
        help="LABEL:KEEP, a class of which a share is kept, such as malignant:0.2",
    )
    command.add_argument(
        "--as_classes",
        type=bool | None,
        default=None,
        help="true or false: whether the target is a class; decided from its values if not given",
    )


def _compare_parser() -> ArgumentParser:
    command = _command(
        "Train several losses on the same splits and print one table, over several seeds.",
        "bayesdiv compare concrete.csv --target strength --divergences KL JSA:0.3 deterministic",
    )
    _add_data(command)
    command.add_argument(
        "--divergences",
        type=str,
        nargs="+",
        default=["KL", "JSG:0.1", "JSA:0.5", "deterministic"],
        help="names, with alpha after a colon; deterministic is the plain network",
    )
    command.add_argument(
        "--seeds", type=int, default=3, help="how many repetitions with other splits and weights"
    )
    command.add_argument(
        "--out",
        type=str | None,
        default=None,
        help="folder for the figure and its numbers; comparisons/NAME if not given",
    )
    command.add_class_arguments(Training, skip={"seed"})
    return command


def _train_parser() -> ArgumentParser:
    command = _command(
        "Train one network and write a run; a run that was stopped goes on with the same command.",
        "bayesdiv train diabetes --divergence JSA --divergence.alpha 0.3 --out runs/diabetes",
    )
    _add_data(command)
    command.add_argument("--config", action="config", help="a YAML file with any of these settings")
    command.add_argument(
        "--divergence",
        type=Divergence | None,
        default={"class_path": "bayesdiv.KL"},
        help="KL, JSG, JSA, …, or an import path of yours; null for a deterministic network",
    )
    command.add_argument("--out", type=str, required=True, help="folder of the run")
    command.add_class_arguments(Training)
    return command


def _run_parser(name: str, description: str) -> ArgumentParser:
    command = _command(f"Print the {description}.", f"bayesdiv {name} runs/diabetes")
    command.add_argument("run", type=str, help="folder of a run")
    return command


def _predict_parser() -> ArgumentParser:
    command = _command(
        "Predict the rows of a file with a trained run; adds columns to a copy of the table.",
        "bayesdiv predict runs/diabetes new.csv -o predicted.csv",
    )
    command.add_argument("run", type=str, help="folder of a run")
    command.add_argument(
        "data", type=str, help="a .csv or .parquet file with the columns of training"
    )
    command.add_argument("--out", "-o", type=str, required=True, help="a .csv file to write")
    command.add_argument("--level", type=float, default=0.9, help="of the predictive interval")
    return command


# compare -------------------------------------------------------------------------------------


def compare(settings: Namespace) -> None:
    """Train several losses on the same splits and print one table."""
    if settings.seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {settings.seeds}")
    losses = {name: named(name) for name in dict.fromkeys(settings.divergences)}
    training = _training(settings)
    folder = Path(settings.out or f"comparisons/{Path(settings.data).stem}")
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in losses}
    histories: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in losses}
    diverged: dict[str, list[str]] = {}
    predictions = {}
    splits = _load(settings, seed=0)
    _notes(splits)
    plain = {key: value for key, value in settings.as_dict().items() if value is not None}
    runs.write_json(folder / "comparison.json", {"settings": plain})  # a full disk is told now
    with _progress() as progress:
        for seed in range(settings.seeds):
            splits = _load(settings, seed=seed)
            for name, divergence in losses.items():
                own = replace(training, seed=seed)
                title = f"{name}, seed {seed + 1} of {settings.seeds}"
                tell = _teller(progress, title, own.epochs)
                try:
                    experiment, result = experiments.train(splits, divergence, own, tell=tell)
                except Diverged as error:
                    errors.print(f"[bold red]{escape(title)}:[/] {escape(str(error))}")
                    diverged.setdefault(name, []).append(f"seed {seed}: {error}")
                    continue
                results[name].append(result)
                histories[name].append(experiment.history)
                predictions[name] = experiment.predict(splits.test.x), splits.test.y
    if not predictions:
        raise Diverged("no loss came to its end: lower the learning rate or the strength")
    told = {"settings": plain, "results": results, "diverged": diverged}
    runs.write_json(folder / "comparison.json", told)
    console.print(_comparison_table(results, settings, splits))
    _late([run for found in results.values() for run in found], training.epochs)
    kept = {name: found for name, found in histories.items() if found}
    _save_figure(folder, kept, predictions, settings, splits)


def named(text: str) -> Divergence | None:
    """A divergence by its name, with alpha after a colon: KL, JSA:0.3; None for deterministic.

    Examples:
        >>> named("JSA:0.3")
        JSA(alpha=0.3)
    """
    name, _, alpha = text.partition(":")
    if name == "deterministic":
        return None
    kind: Any = getattr(divergences, name, None)
    if kind is None or not _is_divergence(kind):
        raise ValueError(
            f"{text!r} is no divergence: give one of {', '.join(_known())} or deterministic"
        )
    if alpha and "alpha" not in {f.name for f in fields(kind)}:
        raise ValueError(f"{name} has no alpha, got {text!r}")
    if not alpha:
        usual: dict[str, Divergence] = {"JSG": JSG(0.1), "JSA": JSA(0.5)}
        plain: Divergence = usual.get(name) or kind()
        return plain
    try:
        made: Divergence = kind(float(alpha))
        return made
    except (ValueError, TypeError) as error:
        raise ValueError(f"alpha of {text!r}: {error}") from None


def _known() -> list[str]:
    return [n for n in divergences.__all__ if _is_divergence(getattr(divergences, n))]


def _is_divergence(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Divergence) and kind is not Divergence


def _comparison_table(
    results: Mapping[str, list[dict[str, Any]]], settings: Namespace, splits: Splits
) -> Table:
    ended = [run["test"] for found in results.values() for run in found]
    keys = [key for key in ended[0] if all(key in run for run in ended)]
    spread = " (mean ± standard deviation over seeds)" if settings.seeds > 1 else ""
    table = Table(
        title=f"{escape(splits.name)}: test data{spread}", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("loss", no_wrap=True)
    for key in keys:
        table.add_column(NAMES[key], justify="right", no_wrap=True)
    table.add_column("seconds", justify="right")
    means = {
        name: {key: statistics.mean(run["test"][key] for run in found) for key in keys}
        for name, found in results.items()
        if len(found) == settings.seeds  # a mean over the seeds that went well is no best
    }
    best = {
        key: _best(key, {name: value[key] for name, value in means.items()})
        for key in keys
        if means
    }
    for name, found in results.items():
        if not found:
            table.add_row(escape(name), *("diverged" for _ in keys), "")
            continue
        cells = []
        for key in keys:
            text = _spread([run["test"][key] for run in found])
            cells.append(f"[bold green]{text}*[/]" if name == best.get(key) else f"{text} ")
        seconds = statistics.mean(run["seconds"] for run in found)
        lost = settings.seeds - len(found)
        label = f"{name} ({lost} of {settings.seeds} diverged)" if lost else name
        table.add_row(escape(label), *cells, f"{seconds:.1f}")
    table.caption = escape(_caption(keys, splits))
    return table


def _caption(keys: Sequence[str], splits: Splits) -> str:
    parts = ["* best"]
    if "coverage" in keys:
        parts.append("coverage: share of targets in the 90 % interval, best next to 0.9")
    if "false_negative_rate" in keys and isinstance(splits.task, Classification):
        parts.append(f"missed: share of class {splits.task.classes[1]} that was not found")
    return "; ".join(parts)


def _best(key: str, values: Mapping[str, float]) -> str:
    if key == "coverage":
        return min(values, key=lambda name: abs(values[name] - 0.9))
    if key in HIGHER_IS_BETTER:
        return max(values, key=lambda name: values[name])
    return min(values, key=lambda name: values[name])


def _spread(values: list[float]) -> str:
    mean = statistics.mean(values)
    if abs(mean) >= 1e6:
        return f"{mean:.4g}"
    digits = 3 if abs(mean) < 10 else 2 if abs(mean) < 100 else 1
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f}±{statistics.stdev(values):.{digits}f}"


def _late(results: Sequence[Mapping[str, Any]], epochs: int) -> None:
    """Say so if training was still getting better when it ended."""
    late = [run for run in results if run["best_epoch"] > 0.95 * epochs]
    if epochs >= 10 and 2 * len(late) > len(results):
        errors.print(
            "[dim]note: the best epoch is among the last, so intervals may still be too wide: "
            "raise --epochs[/]",
            soft_wrap=True,
        )


def _save_figure(
    folder: Path,
    histories: Mapping[str, Any],
    predictions: Mapping[str, Any],
    settings: Namespace,
    splits: Splits,
) -> None:
    from bayesdiv import plots

    measure = "accuracy" if isinstance(splits.task, Classification) else "rmse"
    noise = f", noise {settings.noise}" if settings.noise else ""
    title = f"{splits.name}{noise}: {splits.num_data} training examples"
    figure = plots.comparison(histories, predictions, measure, title)
    plots.save(figure, folder / "comparison.png")
    _say(f"Figure: {folder / 'comparison.png'}")


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


# train, evaluate, show -----------------------------------------------------------------------


def train(settings: Namespace) -> None:
    """Train one network and write a run."""
    divergence, training = settings.divergence, _training(settings)
    splits = _load(settings, seed=settings.seed)
    _notes(splits)
    names = ("data", "target", "noise", "bias", "as_classes", "seed")
    source = {name: settings[name] for name in names}
    if Path(settings.data).exists():
        source["data"] = str(Path(settings.data).resolve())
    folder = Path(settings.out)
    with _progress() as progress:
        tell = _teller(
            progress, "deterministic" if divergence is None else repr(divergence), training.epochs
        )
        _, result = experiments.train(
            splits, divergence, training, folder=folder, source=source, tell=tell
        )
    _print_metrics(result)
    _late([result], training.epochs)
    _say(f"Run: {folder}")


def evaluate(settings: Namespace) -> None:
    """Print the test metrics of a run, computed anew from its data."""
    experiment, told = experiments.restore(Path(settings.run))
    source = told["data"]
    splits = load(
        source["data"],
        target=source["target"],
        seed=source["seed"],
        noise=source["noise"],
        bias=None if source["bias"] is None else Bias.parse(source["bias"]),
        task=_task(source["as_classes"]),
    )
    same = experiments.describe(experiment, splits, source)
    for key in ("encoder", "task", "num_data"):
        if same[key] != told[key]:
            raise runs.RunError(
                f"{source['data']} has changed since {settings.run} was trained: its {key} differs"
            )
    parts = {"validation": splits.validation, "test": splits.test}
    found = {name: experiments.evaluate(experiment, splits, part) for name, part in parts.items()}
    _print_metrics(found)


def show(settings: Namespace) -> None:
    """Describe a run."""
    folder = Path(settings.run)
    experiment, told = experiments.restore(folder)
    table = Table(title=escape(f"Run {folder}"), show_header=False)
    result = runs.read_json(folder / runs.METRICS)
    divergence = told["divergence"]
    rows = {
        "data": told["data"].get("data", ""),
        "target": told["target"],
        "task": told["task"]["kind"].lower(),
        "network": str(experiment.recipe),
        "weights": f"{experiments.num_weights(experiment):,}",
        "divergence": "none (deterministic)" if divergence is None else _told(divergence),
        **{f.name.replace("_", " "): told["training"][f.name] for f in fields(Training)},
        "epochs done": len(experiment.history),
        "best epoch": result["best_epoch"],
        "version": told["version"],
    }
    for name, value in rows.items():
        table.add_row(name, escape(str(value)))
    console.print(table)
    _print_metrics(result)


def _told(divergence: Mapping[str, Any]) -> str:
    values = ", ".join(f"{key}={value}" for key, value in divergence.items() if key != "kind")
    return f"{divergence['kind']}({values})"


def _print_metrics(result: Mapping[str, Any]) -> None:
    table = Table(title="Metrics")
    table.add_column("part")
    parts = {part: result[part] for part in ("validation", "test") if part in result}
    keys = list(next(iter(parts.values())))
    for key in keys:
        table.add_column(NAMES[key], justify="right")
    for part, found in parts.items():
        table.add_row(part, *(_spread([found[key]]) for key in keys))
    console.print(table)


# predict -------------------------------------------------------------------------------------


def predict(settings: Namespace) -> None:
    """Predict the rows of a file and write a copy of the table with the predictions."""
    if not 0 < settings.level < 1:
        raise ValueError(f"level must lie inside (0, 1), got {settings.level}")
    out = Path(settings.out)
    if out.suffix != ".csv":
        raise ValueError(f"the output must be a .csv file, got {out}")
    if out.exists():
        raise ValueError(f"{out} exists already: choose another name or remove it")
    experiment, told = experiments.restore(Path(settings.run))
    encoder = experiments.encoder_of(told)
    frame = read(settings.data, encoder)
    x = encoder.encode(frame)
    predictive = experiment.predict(x)
    columns = _prediction_columns(predictive, experiments.task_of(told), settings.level)
    clash = sorted(set(columns) & set(frame.columns))
    if clash:
        raise ValueError(f"the table has columns named like predictions already, got {clash}")
    copy, separator = read_text(settings.data)  # as it is written there: 007 stays 007
    for name, values in columns.items():
        copy[name] = values.numpy() if isinstance(values, torch.Tensor) else values
    runs.write(out, copy.to_csv(index=False, sep=separator).encode())
    _say(f"{len(frame)} rows: {out} with {', '.join(columns)}")


def _prediction_columns(predictive: Any, task: Any, level: float) -> dict[str, Any]:
    if isinstance(task, Regression):
        low, high = predictive.interval(level)
        return {
            "predicted_mean": task.to_units(predictive.mean),
            "predicted_scale": predictive.variance.sqrt() * task.scale,
            "predicted_low": task.to_units(low),
            "predicted_high": task.to_units(high),
        }
    probabilities = predictive.probabilities
    chosen = [task.classes[index] for index in probabilities.argmax(-1).tolist()]
    return {
        "predicted_class": chosen,
        **{f"probability_{name}": probabilities[:, k] for k, name in enumerate(task.classes)},
        "entropy": predictive.entropy,
        "mutual_information": predictive.mutual_information,
    }


# shared --------------------------------------------------------------------------------------


def _load(settings: Namespace, seed: int) -> Splits:
    bias = None if settings.bias is None else Bias.parse(settings.bias)
    if not math.isfinite(settings.noise):
        raise DataError(f"noise must be finite and not negative, got {settings.noise}")
    return load(
        settings.data,
        target=settings.target,
        seed=seed,
        noise=settings.noise,
        bias=bias,
        task=_task(settings.as_classes),
    )


def _task(as_classes: bool | None) -> type[Regression] | type[Classification] | None:
    if as_classes is None:
        return None
    return Classification if as_classes else Regression


def _training(settings: Namespace) -> Training:
    names = {f.name for f in fields(Training)}
    return Training(**{name: settings[name] for name in names if name in settings})


def _notes(splits: Splits) -> None:
    for note in splits.notes:
        errors.print(f"[dim]note: {escape(note)}[/]", soft_wrap=True)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} epochs"),
        TextColumn("{task.fields[parts]}"),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
    )


def _teller(progress: Progress, name: str, epochs: int) -> Callable[[Epoch], None]:
    task = progress.add_task(escape(name), total=epochs, parts="")

    def tell(epoch: Epoch) -> None:
        parts = f"nll {epoch.loss.nll:.3f}  divergence {epoch.loss.divergence:.0f}"
        progress.update(task, completed=epoch.number, parts=parts, visible=epoch.number < epochs)

    return tell


COMMANDS: dict[str, Callable[[Namespace], None]] = {
    "compare": compare,
    "train": train,
    "evaluate": evaluate,
    "predict": predict,
    "show": show,
}


if __name__ == "__main__":
    main()
