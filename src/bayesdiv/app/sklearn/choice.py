"""A likelihood chosen by rows held out."""

import logging
import math
from typing import Any

import numpy as np
import torch
from sklearn.base import clone

from bayesdiv.app.families import Floats, candidates
from bayesdiv.app.recipe import TABLES
from bayesdiv.app.sklearn.rows import Rows
from bayesdiv.app.sklearn.tabular import Tabular
from bayesdiv.predictive import Predictive
from bayesdiv.training.fit import Diverged

log = logging.getLogger(__name__)

UPDATES, MEMBERS = 2000, 2  # of a fit that is only to be compared
MOST_TRIED, MOST_JUDGED = 4000, 1000  # rows


def chosen(estimator: Tabular, rows: Rows) -> tuple[str, str]:
    """The word of an estimator's likelihood, and a sentence on how "auto" came to it.

    Every family that the targets allow learns four fifths of the rows, in short fits of two
    members; the fifth judges by its mean log density. Where all targets are whole numbers, by the
    probability of the unit around each, so that densities and probabilities can be compared.
    """
    if estimator.likelihood != "auto":
        return estimator.likelihood or "heteroscedastic", ""
    scores = {word: _nll(estimator, word, rows) for word in candidates(rows.y)}
    best, *others = sorted(scores, key=lambda word: scores[word])
    beside = ", ".join(f"{word} {scores[word]:.3f}" for word in others)
    said = f"likelihood {best} chosen by validation NLL, {scores[best]:.3f} ({beside})"
    log.info("%s", said)
    return best, f"{said}; "


def _nll(estimator: Tabular, word: str, rows: Rows) -> float:
    order = np.random.default_rng(0).permutation(len(rows.x))
    held = min(max(1, len(order) // 5), MOST_JUDGED)
    judged, learned = rows.at(order[:held]), rows.at(order[held : held + MOST_TRIED])
    updates = math.ceil(len(learned.x) / (estimator.batch_size or TABLES.batch_size(len(rows.x))))
    settings = {"likelihood": word, "members": MEMBERS, "validation_fraction": 0.0}
    trial: Any = clone(estimator).set_params(**settings, epochs=max(1, UPDATES // updates))
    try:
        y = learned.y[:, 0] if learned.y.shape[1] == 1 else learned.y
        found = trial.fit(learned.x, y, learned.repeats).predictive(judged.x)
        each = _log_score(found, judged.y, whole=bool((rows.y == rows.y.round()).all()))
    except (ValueError, Diverged):  # it cannot have these targets, or its fit diverged
        return math.inf
    nll = -float(np.average(each, weights=judged.repeats))
    return nll if math.isfinite(nll) else math.inf


def _log_score(predictive: Predictive, targets: Floats, whole: bool) -> Floats:
    """Log densities; of whole numbers the log probability of the unit around each."""
    y = torch.from_numpy(targets)
    if y.shape[1] > 1:
        return predictive.log_prob(y).numpy()
    y = y.squeeze(-1)
    counts = getattr(predictive.conditional.support, "is_discrete", False)
    if counts or not whole:
        return predictive.log_prob(y).numpy()
    return (predictive.cdf(y + 0.5) - predictive.cdf(y - 0.5)).clamp(min=1e-300).log().numpy()
