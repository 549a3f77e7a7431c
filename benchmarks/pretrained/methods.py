"""The ways to fine-tune that are compared, each with as many settings as every other."""

from contextlib import nullcontext
from dataclasses import dataclass, field

from torch import nn

import bayesdiv as bd
from bayesdiv.model.layout import Where
from bayesdiv.model.priors import matrices
from bayesdiv.training.augmentation import Prepare
from benchmarks.field.evaluation import Trained
from benchmarks.field.methods import Method, Ours, Result, Task, ours, train
from benchmarks.pretrained.data import Case
from benchmarks.pretrained.network import HEAD, MEAN, SCALE, Resize

DECAY = 1e-4


@dataclass
class FineTuning(Task):
    """A task whose network sees larger images than there are."""

    case: Case = field(kw_only=True)

    def prepared(self, network: nn.Module) -> nn.Sequential:
        """A network behind the preparation of its images."""
        prepare = Prepare(MEAN, SCALE, self.case.changes).to(self.device)
        return nn.Sequential(prepare, Resize(self.case.size), network)


def last(name: str, parameter: nn.Parameter) -> bool:
    """Picks the matrix of the last layer."""
    return name.startswith(HEAD) and matrices(name, parameter)


@dataclass(frozen=True)
class Around(Ours):
    """A posterior around the weights that a network starts from.

    The pull back to them is that of a weight decay, as in `Ours`.
    """

    decay: float = DECAY

    def prior(self, num_data: int) -> bd.AroundStart:
        """A Gaussian around the start."""
        return bd.AroundStart(self.scale)


def plain(task: Task, *, lr: float, decay: float) -> list[Result]:
    """SGD on all weights."""
    model = task.prepared(task.network())
    train(task, model, task.sgd([*model.parameters()], lr, decay), task.cosine(warm_up=0.05))
    task.estimate_statistics(model)
    return [Result("plain", {"lr": lr, "decay": decay}, Trained(model, nullcontext, 1))]


def _around(
    name: str, divergence: bd.Divergence, scales: tuple[float, float], where: Where
) -> Method:
    narrow, wide = scales
    pairs = ((0.01, narrow), (0.03, narrow), (0.1, narrow), (0.03, wide))
    grid = tuple({"ours": Around(divergence, scale, lr=lr, where=where)} for lr, scale in pairs)
    return Method(ours(name, Ours.natural), grid)


def _plain() -> Method:
    pairs = ((0.01, DECAY), (0.03, DECAY), (0.1, DECAY), (0.03, 10 * DECAY))
    return Method(plain, tuple({"lr": lr, "decay": decay} for lr, decay in pairs))


_DIVERGENCES: dict[str, bd.Divergence] = {"kl": bd.KL(), "jsa": bd.JSA(0.5), "jsg": bd.JSG(0.5)}
METHODS: dict[str, Method] = {
    "plain": _plain(),
    **{
        f"last_{d}": _around(f"last_{d}", _DIVERGENCES[d], (0.02, 0.06), last)
        for d in ("kl", "jsa")
    },
    **{
        f"all_{d}": _around(f"all_{d}", own, (0.005, 0.015), matrices)
        for d, own in _DIVERGENCES.items()
    },
}
