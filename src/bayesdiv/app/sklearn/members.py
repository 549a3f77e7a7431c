"""An ensemble trained as one program: members are trials, each with rows held out to stop by."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from bayesdiv.app.sklearn.rows import Rows
from bayesdiv.likelihoods.base import Likelihood
from bayesdiv.model.bayesian import Bayesian, stacked
from bayesdiv.model.posteriors.ensemble import Mixture
from bayesdiv.model.posteriors.mean_field import MeanField
from bayesdiv.prediction import predict
from bayesdiv.training.batches import Batches
from bayesdiv.training.checks import finite_trials
from bayesdiv.training.fit import Diverged, Epoch, EpochLoss

WATCH_SAMPLES = 16  # weight draws for the validation, which only finds when to stop
MOST_WATCHED = 1000  # rows that a member is validated on
ROWS_AT_A_TIME = 1024  # of a prediction, so that the memory of hidden layers has a ceiling


class Parts(NamedTuple):
    """The rows that each member learns from, and those that it is stopped by.

    Members two by two hold out the same rows, so that what their mixture says about rows that
    neither has seen is known; every row is learned by most members.
    """

    train: tuple[Rows, ...]
    held: tuple[Rows, ...]

    @classmethod
    def of(cls, rows: Rows, members: int, share: float, seed: int) -> Self:
        """All rows for each member, or all but a share."""
        if share == 0:
            return cls((rows,) * members, ())
        total = len(rows.x)
        held = math.ceil(share * total)
        if held == total:
            raise ValueError(
                f"validation_fraction must leave a row to train on, got {share} of {total} "
                "different rows"
            )
        order = np.random.default_rng(seed).permutation(total)
        turned = [np.roll(order, -(member // 2) * held) for member in range(members)]
        few = min(held, MOST_WATCHED)
        return cls(
            tuple(rows.at(places[held:]) for places in turned),
            tuple(rows.at(places[:few]) for places in turned),
        )

    @property
    def rows(self) -> int:
        """How many different rows a member learns from."""
        return len(self.train[0].x)

    @property
    def repeats(self) -> float:
        """How often a row is repeated, on average."""
        return float(np.mean([part.repeats.mean() for part in self.train]))

    def batches(self, size: int, seed: int, device: torch.device) -> Batches:
        """Batches of one member, or of a stack of several with an order of rows each."""
        x, y = _together(self.train, device)
        if len(self.train) == 1:
            return Batches(x[0], y[0], size, seed)
        return Batches(x, y, size, [seed + member for member in range(len(self.train))])

    def nll(self, model: Bayesian, likelihood: Likelihood, seed: int) -> float:
        """The NLL of the whole ensemble on rows it has not seen, for one example, in nats.

        Two members hold out the same rows, so the NLL of one and of two are known. It falls with
        the number of members M as NLL_∞ + c/M, by which that of all is found: a single member, and
        a pair still, seems to overfit long before the ensemble does.
        """
        x, repeated = _together(self.held, next(model.parameters()).device)
        y, repeats = repeated[..., :-1], repeated[..., -1]
        if len(self.held) == 1:
            x, y = x[0], y[0]
        found = predict(model, likelihood, x, WATCH_SAMPLES, batch_size=ROWS_AT_A_TIME, seed=seed)
        each = found.log_prob(y if found.conditional.event_shape else y.squeeze(-1))
        each = each.reshape(repeats.shape)  # (members, rows)
        pairs = torch.stack([_mixed(each[at : at + 2]) for at in range(0, len(each), 2)])
        fine = each.isfinite().all(1)
        one = -((repeats * each)[fine].sum() / repeats[fine].sum()).item()
        if len(each) == 1:
            return one
        two = -((repeats[::2] * pairs).sum() / repeats[::2].sum()).item()
        return two - (one - two) * (1 - 2 / len(each))


def _mixed(each: Tensor) -> Tensor:
    """The log density of a mixture in equal shares; members that diverged are left out."""
    fine = each[each.isfinite().all(1)]
    return fine.logsumexp(0) - math.log(len(fine)) if len(fine) else each.mean(0)


def _together(parts: Sequence[Rows], device: torch.device) -> tuple[Tensor, Tensor]:
    """Inputs and targets with their repeats, (members, rows, …)."""
    x, y = zip(*(part.tensors(device) for part in parts), strict=True)
    return torch.stack(x), torch.stack(y)


def side_by_side(models: Sequence[Bayesian]) -> Bayesian:
    """Members as one model to be trained; a single one as it is."""
    return models[0] if len(models) == 1 else stacked(models)


def mixture(model: Bayesian) -> Bayesian:
    """One model whose draws cycle through the members of a trained stack that are finite."""
    if model.loc.dim() == 1:
        return model
    assert isinstance(model.posterior, MeanField)
    loc, scale = model.loc.detach(), model.posterior.scale.detach()
    fine = finite_trials(model).to(loc.device)
    each = MeanField(loc[fine], scale[fine])
    return Bayesian(model.module, model.layout, Mixture(each, int(fine.sum())), model.prior)


def begin_at(models: Sequence[Bayesian], before: Bayesian) -> None:
    """Let members begin where those of a trained mixture, or of a single network, ended."""
    posterior = before.posterior.each if isinstance(before.posterior, Mixture) else before.posterior
    assert isinstance(posterior, MeanField)
    size = models[0].layout.size
    ended = posterior.loc.reshape(-1, posterior.loc.shape[-1])
    if ended.shape != (len(models), size):
        raise ValueError(
            f"warm_start needs {len(ended)} members of {ended.shape[1]} weights, like the fit "
            f"before, got {len(models)} of {size}"
        )
    for number, model in enumerate(models):
        for name, value in posterior.state_dict().items():
            model.posterior.get_parameter(name).data.copy_(value.reshape(len(models), -1)[number])


def for_one_member(epochs: Iterator[Epoch], repeats: float) -> Iterator[tuple[int, EpochLoss]]:
    """Numbers and losses of epochs, the latter as means over members and for one example."""
    for epoch in epochs:
        loss = epoch.loss
        if epoch.trials is not None:
            fine = epoch.trials.nll.isfinite() & epoch.trials.divergence.isfinite()
            if not fine.any():
                raise Diverged(
                    f"the loss of epoch {epoch.number} is not finite: lower the learning rate"
                )
            loss = EpochLoss(*(part / int(fine.sum()) for part in loss))
        yield (
            epoch.number,
            EpochLoss(loss.total / repeats, loss.nll / repeats, loss.divergence),
        )
