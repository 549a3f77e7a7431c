"""How tables are learned: the defaults of both the estimators and the command line.

They were chosen on rows held out from the training parts of the standard splits of eight tables;
benchmarks/tables has the study, its results, and what these splits cannot show.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from bayesdiv.divergence import JSA, JSG, Divergence, ReverseKL, UnmodifiedJSG, WeightedKL


@dataclass(frozen=True)
class TableRecipe:
    """What a fit takes where its user says nothing."""

    hidden: tuple[int, ...] = (50, 50)
    members: int = 4
    samples: int = 4  # per update and member
    start: float = 0.02  # see `start_for`
    divergence: Divergence = field(default_factory=lambda: JSA(0.3))
    strength: float = 1.0
    learning_rate: float = 5e-3  # of Adam between warm-up and decay
    warm_up: int = 200  # updates in which it rises
    held: float = 0.1  # share of the rows that find when a member stops
    smallest: float = 0.01  # learned scale, in standard deviations of the target
    seconds: float = 300.0  # after which a fit ends, finished or not

    def start_for(self, divergence: Divergence | None) -> float:
        """Where a posterior begins: at 0.1 if the divergence holds a reverse KL, else at `start`.

        A reverse KL grows with 1/scale²: from a narrower start it crushes the means to 0 before the
        data speak.
        """
        reverse = isinstance(divergence, JSG | ReverseKL | UnmodifiedJSG | WeightedKL)
        return max(0.1, self.start) if reverse else self.start

    def batch_size(self, rows: int) -> int:
        """Rows per update: 64, more from 25,600 rows on, so that an epoch has 400 updates."""
        return max(64, rows // 400)

    def updates(self, rows: int, columns: int) -> tuple[int, int]:
        """The fewest and the most updates of a fit: more for more rows and for more columns."""
        return 3000, min(4000 + rows // 5 + 4 * columns, 12_000)


TABLES = TableRecipe()


class Rate:
    """The factor of a learning rate: a rise, a level of open length, then half a cosine to 0."""

    def __init__(self, warm_up: float) -> None:
        self.warm_up, self.first, self.length = warm_up, math.inf, 1

    def fall(self, first: int, length: int) -> None:
        """Fall from the update `first` on, to 0 after `length` more."""
        self.first, self.length = first, max(1, length)

    def __call__(self, update: int) -> float:
        """The factor of an update, counted from 0."""
        rise = min(1.0, (update + 1) / max(1, self.warm_up))
        done = min(1.0, max(0.0, (update - self.first) / self.length))
        return rise * 0.5 * (1 + math.cos(math.pi * done))


def halved(updates: int) -> Rate:
    """The rate of a fit whose length is known: level for one half, then falling to 0."""
    rate = Rate(min(TABLES.warm_up, updates // 10))
    rate.fall(updates // 2, updates - updates // 2)
    return rate


def scheduled(optimizer: Optimizer, rate: Callable[[int], float], done: int = 0) -> LambdaLR:
    """A schedule for `fit` that can begin anywhere: the first learning rates times a factor."""
    # Kept with the optimizer's state, so that a run that goes on has those of its beginning.
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", float(group["lr"]))
        if isinstance(group["lr"], Tensor):  # where a recorded step looks
            group["lr"] = group["lr"].to(group["params"][0].device)
    return LambdaLR(optimizer, rate, done - 1)


class Watch:
    """Decides when a fit has learned enough, by the validation NLL that it is shown.

    The learning rate stays level as long as the NLL falls by `step` per look, with a patience of
    some looks; then the fit goes back to the best weights, and the rate falls to 0 over as many
    updates as these had. The time and the updates of the second half are kept back.
    """

    step = 0.01
    patience = 3
    every = 200  # updates between two looks
    short = 0.1  # nats that the NLL falls within the patience where a fit was too short

    def __init__(self, rate: Rate, fewest: int, most: int, seconds: float) -> None:
        self.rate, self.fewest, self.most, self.seconds = rate, fewest, most, seconds
        self.began = time.perf_counter()
        self.best_update, self.since, self.looked = 0, 0, 0
        self.bests: list[float] = []
        self.level, self.cut, self.sentence = "the validation NLL stood", "", ""

    def due(self, update: int) -> bool:
        """Whether it is time to look at the validation rows."""
        return update >= min(self.looked + self.every, self.end)

    @property
    def turning(self) -> bool:
        """Whether the rate begins to fall just now, from the best weights."""
        return self.rate.first == self.looked

    @property
    def end(self) -> float:
        """The update after which the fit is over, as far as it is known."""
        return self.rate.first + self.rate.length

    def over(self, update: int, nll: float) -> bool:
        """Note the NLL after so many updates; whether the fit is over."""
        self.looked = update
        best = min(self.bests, default=math.inf)
        self.since = 0 if nll < best - self.step else self.since + 1
        self.best_update = update if nll < best else self.best_update
        self.bests.append(min(nll, best))
        late = time.perf_counter() - self.began
        if self.rate.first == math.inf:
            self._perhaps_fall(update, late > self.seconds / 2)
        done = update >= self.end or late > self.seconds
        if done:
            self.sentence = self.cut or f"{self.level} after {update} updates"
        return done

    def _perhaps_fall(self, update: int, late: bool) -> None:
        """End the level where the NLL converges, or where half of the time or updates is gone."""
        if late and self.since < self.patience:
            self.cut = f"the NLL had not stood when {self.seconds:g} seconds, the most for a fit, "
            self.cut += "were near"
        elif 2 * update >= self.most:
            fall = self.bests[-self.patience - 1 :][0] - self.bests[-1]
            self.level = "the validation NLL all but stood"
            if fall > self.short:
                self.cut = f"the NLL still fell by {fall:.2f} when {self.most} updates, the most "
                self.cut += "for this table, were near"
        elif 2 * update < self.fewest or self.since < self.patience:
            return
        self.rate.fall(update, max(self.best_update, self.fewest // 4))
