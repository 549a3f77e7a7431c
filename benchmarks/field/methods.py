"""The methods that are compared, each with a grid of as many settings as every other.

A method is a function of a task and its settings that trains a network through `bd.fit` and
returns what can be evaluated, by name.
"""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import LambdaLR

import bayesdiv as bd
from bayesdiv.app.image_recipe import ImageRecipe
from bayesdiv.app.nets.images import ResNet, estimate_statistics
from bayesdiv.model.bayesian import using
from bayesdiv.training.augmentation import Crop, Flip, Prepare
from bayesdiv.training.optimizers.natural import Cosine
from benchmarks.field.data import MEAN, SCALE, Part
from benchmarks.field.evaluation import Trained
from benchmarks.field.peers import LastLayerLaplace, Swag, ivon_optimizer, ivon_step
from benchmarks.field.several import Several

DECAY = 5e-4
SAMPLES = 32
Settings = dict[str, Any]


@dataclass
class Task:
    """What a method is given: images on their device, the network, epochs, a seed."""

    part: Part
    net: ResNet
    epochs: int
    seed: int
    batch: int = 256
    samples: int = SAMPLES
    seconds: list[float] = field(default_factory=list)

    @property
    def device(self) -> torch.device:
        """Where the images are."""
        return self.part.x.device

    @property
    def num_data(self) -> int:
        """How many images."""
        return len(self.part.y)

    def network(self) -> nn.Sequential:
        """The network, drawn from the seed."""
        torch.manual_seed(self.seed)
        return self.net.build().to(self.device, memory_format=torch.channels_last)

    def rate(self, value: float) -> Tensor:
        """A learning rate that a recorded step can follow."""
        return torch.tensor(value, device=self.device)

    def sgd(self, parameters: list[nn.Parameter], lr: float, decay: float) -> SGD:
        """SGD with Nesterov momentum, in one kernel on a GPU."""
        fused = True if self.device.type == "cuda" else None
        rate = self.rate(lr)
        return SGD(parameters, rate, 0.9, weight_decay=decay, nesterov=True, fused=fused)

    def batches(self) -> bd.Batches:
        """The training images in batches, in an order drawn from the seed."""
        return bd.Batches(self.part.x, self.part.y, min(self.batch, self.num_data), self.seed)

    def cosine(self, warm_up: float = 0.0, end: float = 1.0) -> Cosine:
        """A schedule over the run or its first part; both as shares of the epochs."""
        steps = max(1, round(end * self.epochs * len(self.batches())))
        return Cosine(steps, min(round(warm_up * steps), steps - 1))

    def inputs(self) -> Iterator[Tensor]:
        """Some training images in batches, for statistics."""
        return iter(self.part.x[: 40 * self.batch].split(self.batch))

    def prepared(self, network: nn.Module) -> nn.Sequential:
        """A network behind the preparation of its images: crops and flips in training."""
        return nn.Sequential(Prepare(MEAN, SCALE, [Crop(4), Flip()]).to(self.device), network)

    def estimate_statistics(self, model: nn.Module) -> None:
        """Batch statistics of the training images, for the weights as they are drawn now."""
        on_card = self.device.type == "cuda"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=on_card):
            estimate_statistics(model, self.inputs())


def train(
    task: Task,
    model: nn.Module,
    optimizer: Optimizer,
    factor: Callable[[int], float],
    *,
    objective: bd.Objective | None = None,
    step: Any = None,
    after: Callable[[int], None] = lambda epoch: None,
) -> None:
    """Train through `bd.fit`; times of the epochs go to the task."""
    on_card = task.device.type == "cuda"
    epochs = bd.fit(
        model,
        objective or bd.Objective(bd.Classes(), num_data=task.num_data),
        task.batches(),
        optimizer,
        task.epochs,
        seed=task.seed,
        step=step or (bd.Recorded() if on_card else bd.Eager()),
        schedule=LambdaLR(optimizer, factor),
        autocast=torch.bfloat16 if on_card else None,
        device=task.device,
    )
    for epoch in epochs:
        task.seconds.append(epoch.seconds)
        after(epoch.number)


def per_epoch(task: Task) -> float:
    """The median time of an epoch, the first two of a run left out."""
    return statistics.median(task.seconds[2:] or task.seconds)


class Result(NamedTuple):
    """Something to evaluate: the name of a method, its settings, the network."""

    method: str
    settings: Settings
    trained: Trained | None  # None where the run diverged


def sgd(task: Task, *, lr: float, decay: float, precisions: tuple[float, ...] = (25.0,)) -> list:
    """Plain SGD, then a Laplace approximation of its last layer for each prior precision."""
    network = task.network()
    model = task.prepared(network)
    train(task, model, task.sgd([*model.parameters()], lr, decay), task.cosine())
    results = [Result("sgd", {"lr": lr, "decay": decay}, Trained(model, nullcontext, 1))]
    laplace = LastLayerLaplace(model, task.part)
    for precision in precisions:
        draw = laplace.with_precision(precision)
        results.append(Result("laplace", {"precision": precision}, Trained(model, draw, SAMPLES)))
    return results


def dropout(task: Task, *, share: float, lr: float = 0.1, decay: float = DECAY) -> list:
    """MC dropout after each group of blocks (Gal and Ghahramani 2016)."""
    network = task.network()
    for name, layer in list(network.named_children()):
        if name.startswith("layer"):
            setattr(network, name, nn.Sequential(layer, nn.Dropout(share)))
    model = task.prepared(network)
    train(task, model, task.sgd([*model.parameters()], lr, decay), task.cosine())

    @contextmanager
    def dropping() -> Iterator[None]:
        drops = [module for module in model.modules() if isinstance(module, nn.Dropout)]
        for module in drops:
            module.train()
        yield
        for module in drops:
            module.eval()

    settings = {"share": share, "lr": lr, "decay": decay}
    return [Result("dropout", settings, Trained(model, dropping, SAMPLES))]


def swag(task: Task, *, swag_lr: float, lr: float = 0.1, decay: float = DECAY) -> list:
    """SWAG (Maddox et al. 2019): a Gaussian through the last quarter of an SGD run."""
    model = task.prepared(task.network())
    collected = Swag(model, rank=20)
    cosine = task.cosine(end=0.75)

    def factor(step: int) -> float:
        return max(cosine(step), swag_lr / lr)

    def collect(epoch: int) -> None:
        if epoch >= 0.75 * task.epochs:
            collected.collect()

    train(task, model, task.sgd([*model.parameters()], lr, decay), factor, after=collect)

    @contextmanager
    def drawn() -> Iterator[None]:
        collected.draw()
        task.estimate_statistics(model)
        yield

    settings = {"swag_lr": swag_lr, "lr": lr, "decay": decay}
    return [Result("swag", settings, Trained(model, drawn, SAMPLES))]


def ivon(task: Task, *, lr: float, curvature: float, decay: float = DECAY) -> list:
    """IVON (Shen et al. 2024), from its own package."""
    model = task.prepared(task.network())
    optimizer = ivon_optimizer(
        model.parameters(), lr=lr, ess=task.num_data, hess_init=curvature, weight_decay=decay
    )
    train(task, model, optimizer, task.cosine(warm_up=0.08), step=ivon_step)
    settings = {"lr": lr, "curvature": curvature, "decay": decay}
    return [Result("ivon", settings, Trained(model, optimizer.sampled_params, SAMPLES))]


@dataclass(frozen=True)
class Ours(ImageRecipe):
    """One of ours: `ImageRecipe`, trained by natural gradients or plainly."""

    def model(self, task: Task) -> tuple[bd.Bayesian, bd.Objective]:
        """The network made Bayesian, and its loss."""
        net = self.bayesian(task.network(), task.num_data)
        strength = self.strength(task.num_data)
        how = {"num_data": task.num_data, "strength": strength}
        return net, bd.Objective(bd.Classes(), self.divergence, **how).to(task.device)

    def plain(self, task: Task, rho_lr: float = 0.01) -> nn.Module:
        """SGD on the means, Adam on the scales."""
        net, objective = self.model(task)
        optimizer = Several(
            task.sgd([net.posterior.loc], self.lr, 0.0),
            task.sgd([*net.module.parameters()], self.lr, self.decay),
            Adam([net.posterior.rho], task.rate(rho_lr), capturable=task.device.type == "cuda"),
        )
        return self._trained(task, net, objective, optimizer, task.cosine())

    def natural(self, task: Task) -> nn.Module:
        """Natural gradients for both."""
        net, objective = self.model(task)
        optimizer = self.optimizer(net, objective, task.batch)
        schedule = self.schedule(task.epochs * len(task.batches()))
        return self._trained(task, net, objective, optimizer, schedule)

    @staticmethod
    def _trained(
        task: Task,
        net: bd.Bayesian,
        objective: bd.Objective,
        optimizer: Optimizer,
        schedule: Cosine,
    ) -> nn.Module:
        model = task.prepared(net)
        train(task, model, optimizer, schedule, objective=objective)
        return model


def ours(name: str, how: Callable[..., nn.Module]) -> Callable[..., list]:
    """A method from a family of divergences and a way to train."""

    def run(task: Task, *, ours: Ours, **more: float) -> list:
        settings = asdict(ours) | {"divergence": repr(ours.divergence)} | more
        settings["where"] = ours.where.__name__
        settings["strength"] = ours.strength(task.num_data)
        return of_draws(name, settings, how(ours, task, **more), task)

    return run


def of_draws(name: str, settings: Settings, model: nn.Module, task: Task) -> list:
    """The average over weight draws, and the mean network, each with its own batch statistics."""

    def drawn() -> Any:
        return using(model, [weights.squeeze(0) for weights in bd.draw_weights(model, 1)])

    @contextmanager
    def at_mean() -> Iterator[None]:
        with bd.at_mean(model):
            task.estimate_statistics(model)
            yield

    task.estimate_statistics(model)
    return [
        Result(name, settings, Trained(model, drawn, task.samples)),
        Result(f"{name}_mean", settings, Trained(model, at_mean, 1)),
    ]


class Method(NamedTuple):
    """How to train, and the settings that are tried on validation images."""

    train: Callable[..., list]
    grid: tuple[Settings, ...]


STRONG = 1e-3  # twice the usual decay, which a short schedule favours
STRONGER = 2e-3  # where SGD was best: every method has it
# The first places were tried before; what lies beside the best of them followed.


def _grid(
    pairs: tuple[tuple[bd.Divergence, float], ...], decay: float = DECAY
) -> tuple[Settings, ...]:
    return tuple({"ours": Ours(divergence, scale, decay=decay)} for divergence, scale in pairs)


KL_GRID = (
    *_grid(tuple((bd.KL(), scale) for scale in (0.02, 0.011, 0.035, 0.06))),
    *_grid(((bd.KL(), 0.007),), STRONG),
    *_grid(((bd.KL(), 0.007),), STRONGER),
)
METHODS: dict[str, Method] = {
    "sgd": Method(
        sgd,
        tuple(
            {"lr": lr, "decay": decay, "precisions": (1.0, 10.0, 50.0, 0.1, 0.3, 3.0)}
            for lr, decay in (
                (0.1, 5e-4),
                (0.2, 5e-4),
                (0.1, STRONG),
                (0.05, 5e-4),
                (0.1, STRONGER),
                (0.1, 4e-3),
            )
        ),
    ),
    "dropout": Method(
        dropout,
        (
            {"share": 0.1},
            *({"share": share, "decay": STRONG} for share in (0.1, 0.05, 0.2)),
            *({"share": share, "decay": STRONGER} for share in (0.1, 0.05)),
        ),
    ),
    "swag": Method(
        swag,
        (
            {"swag_lr": 0.02},
            *({"swag_lr": lr, "decay": STRONG} for lr in (0.02, 0.01, 0.05)),
            *({"swag_lr": lr, "decay": STRONGER} for lr in (0.02, 0.05)),
        ),
    ),
    "ivon": Method(
        ivon,
        tuple(
            {"lr": lr, "curvature": h, "decay": decay}
            for lr, h, decay in (
                (0.2, 0.5, 5e-4),
                (0.1, 0.5, 5e-4),
                (0.2, 0.9, 5e-4),
                (0.2, 0.9, STRONG),
                (0.4, 0.9, STRONG),
                (0.2, 0.9, STRONGER),
            )
        ),
    ),
    "kl_natural": Method(ours("kl_natural", Ours.natural), KL_GRID),
    "jsg_natural": Method(
        ours("jsg_natural", Ours.natural),
        (
            *_grid(((bd.JSG(0.1), 0.011),)),
            *_grid(tuple((bd.JSG(0.1), scale) for scale in (0.007, 0.011)), STRONG),
            *_grid(tuple((bd.JSG(0.5), scale) for scale in (0.007, 0.011)), STRONG),
            *_grid(((bd.JSG(0.5), 0.007),), STRONGER),
        ),
    ),
    "jsa_natural": Method(
        ours("jsa_natural", Ours.natural),
        (
            *_grid(((bd.JSA(0.5), 0.02),)),
            *_grid(tuple((bd.JSA(0.5), scale) for scale in (0.007, 0.011)), STRONG),
            *_grid(tuple((bd.JSA(0.1), scale) for scale in (0.007, 0.011)), STRONG),
            *_grid(((bd.JSA(0.5), 0.011),), STRONGER),
        ),
    ),
    # SGD on the means and Adam on the scales: what natural gradients are worth.
    "kl": Method(ours("kl", Ours.plain), KL_GRID),
}
