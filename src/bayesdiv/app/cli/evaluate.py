"""`bayesdiv evaluate`: print the metrics of a run, also on new rows."""

from argparse import Namespace
from dataclasses import replace
from functools import cache
from typing import Any

from bayesdiv.app import calibrated, options
from bayesdiv.app.command import Command
from bayesdiv.app.console import note, print_metrics
from bayesdiv.app.data.files import KNOWN
from bayesdiv.app.experiment import evaluate as measured
from bayesdiv.app.report import reading
from bayesdiv.app.report.page import on_runs
from bayesdiv.metrics import LEVEL


def parser() -> Command:
    new = f"{KNOWN} with the columns used in training and the target, or a folder with one folder "
    return Command(
        "Print the metrics of a run on its own validation and test rows, or on a new file.",
        "bayesdiv evaluate runs/diabetes new.csv",
        {
            "run": options.RUN,
            "new?": f"{new}of pictures per class",
            "--data": options.MOVED,
            "--out": "an .html file for a page of charts, as bayesdiv report writes it",
            **options.HOW,
        },
    )


def evaluate(settings: Namespace) -> None:
    """Compute and print the metrics of a run."""
    path = None if settings.out is None else options.page_path(settings.out)
    run = reading.read([settings.run], settings.data)[0]
    tested, new = cache(reading.tested), dict[str, Any]()  # loaded and predicted once
    if settings.new is None:
        one = tested(run)
        validation = measured(run.experiment, one.splits, one.splits.validation)
        print_metrics({"validation": validation, "test": run.task.measured(one.predictive, one.y)})
    else:
        part, new = options.with_targets(settings.new, run.settings, settings)
        new |= {"part": part, "predictive": run.experiment.predict(part.x)}
        if calibrated.digest(*part) in [one["sha256"] for one in calibrated.fitted(run.folder)]:
            note("the run was calibrated with these very rows: their metrics flatter it")
        print_metrics({"new": run.task.measured(new["predictive"], part.y)}, settings.new)
    if "coverage" in run.task.metrics:  # of the intervals of this level
        note(*calibrated.unserved(run.experiment.calibration, LEVEL))
    if path is not None:
        options.write_page(path, on_runs([replace(tested(run), **new)]))
