"""`bayesdiv calibrate`: calibrate a run with held-out rows."""

from argparse import Namespace
from contextlib import suppress
from pathlib import Path

from bayesdiv.app import calibrated, options, runs
from bayesdiv.app.command import Command
from bayesdiv.app.console import note, print_metrics, say
from bayesdiv.app.data.files import KNOWN
from bayesdiv.app.data.splits import DataError
from bayesdiv.app.settings import reloaded, restore, task_of
from bayesdiv.calibration import Levels


def parser() -> Command:
    new = f"{KNOWN} with rows that were not used in training"
    command = Command(
        "Calibrate a run with held-out rows: its own test rows, or the rows of a file. predict, "
        "evaluate, report and export then use the calibration.",
        "bayesdiv calibrate runs/diabetes held_out.csv",
        {"run": options.RUN, "new?": new, "--data": options.MOVED, **options.HOW},
    )
    what = (
        "conformal gives intervals or sets of classes that keep their level; temperature divides "
        "the logits and spread multiplies the posterior's scales, for the best likelihood"
    )
    command.add_argument("--kind", choices=calibrated.KINDS, default="conformal", help=what)
    return command


def calibrate(settings: Namespace) -> None:
    """Fit a calibration to held-out rows and keep it in the run's folder."""
    folder, name = Path(settings.run), "fitted" if settings.new else "test"
    experiment, told = restore(folder, settings.data)
    if settings.new is not None:
        (x, y), _ = options.with_targets(settings.new, told, settings)
        with suppress(DataError):  # data that are gone cannot be compared
            # By their hashes: rows may be pictures.
            known = {hash(row.tobytes()) for row in reloaded(told, settings.run).train.x.numpy()}
            if same := sum(hash(row.tobytes()) in known for row in x.numpy()):
                note(f"rows that the run was trained on: {same}: calibrate with rows new to it")
    else:
        x, y = reloaded(told, settings.run).test
    kinds = list(calibrated.KINDS)
    before = kinds[: kinds.index(settings.kind)]  # which stay and apply first
    kept = [one["sha256"] for one in calibrated.fitted(folder) if one["kind"] in before]
    if calibrated.digest(x, y) in kept:
        note("an earlier calibration was fitted to these very rows: use other rows for each")
    with runs.owned(folder):
        found = calibrated.fit(folder, experiment, x, y, settings.kind, settings.new or "")
    rows = "test rows" if settings.new is None else f"rows of {settings.new}"
    note(f"fitted to the {rows}, so their metrics say less about new rows from now on")
    count = len(y)
    if isinstance(found, Levels):
        kind = "intervals" if found.score else "sets"
        said = f"conformal {kind} for levels up to {calibrated.largest(count)}"
    else:
        said = f"{settings.kind} {[*found.state().values()][-1]:.4g}"
    say(f"{folder / calibrated.FILE}: {said}, fitted to {count} {'row' if count == 1 else 'rows'}")
    print_metrics({name: task_of(told).measured(experiment.predict(x), y)})
