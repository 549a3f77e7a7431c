"""Time of a whole training step, zero_grad to Adam, beside that of a deterministic network.

The task is to classify images of 28 x 28, the batch 128, the network 784-400-400-10 or, with
``--network conv``, two convolutions of 3 x 3 and one linear layer. All contenders take turns in
each round and the medians of the rounds are printed: one Markdown table, with 1 and with 10 weight
draws. "The floor" is what no method that draws mean-field weights avoids: the network's passes over
batch x draws rows, the noise for all weights in each draw, from our generator, softplus(rho)
forward and backward, and Adam over twice as many parameters.

Run: python benchmarks/step.py [--network conv]

With --peers, in the environment of benchmarks/peers.sh, other libraries take part, each used as its
own example nearest to this task uses it. The last column compares what that usage adds to the mean
negative log-likelihood with the exact KL / N of its own posterior and prior, N examples in all.
"""

import argparse
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.func import functional_call
from torch.nn.functional import cross_entropy, softplus
from torch.optim import Adam

SIZES = (784, 400, 400, 10)
CHANNELS = (1, 16, 32)
BATCH = 128
NUM_DATA = 60_000
ALPHA = 0.3
DRAWS = (1, 10)
REFERENCE = "deterministic"
OUR_KL = "bayesdiv, KL"

Linear = Callable[[int, int], nn.Module]
Convolution = Callable[[int, int], nn.Module]  # of 3 x 3, as large out as in


@dataclass(frozen=True)
class Task:
    """A network, out of whatever layers a library has, and a batch for it."""

    network: Callable[[Linear, Convolution], nn.Sequential]
    x: Tensor
    y: Tensor

    def plain(self) -> nn.Sequential:
        """The network out of torch's own layers."""
        return self.network(nn.Linear, lambda a, b: nn.Conv2d(a, b, 3, padding=1))

    def nll(self, net: Callable[[Tensor], Tensor], draws: int = 1) -> Tensor:
        """Mean negative log-likelihood over draws that a library runs one by one."""
        return torch.stack([cross_entropy(net(self.x), self.y) for _ in range(draws)]).mean()


@dataclass(frozen=True)
class Contender:
    """One way to train: a step that can be repeated, and what holds of its loss."""

    name: str
    draws: int
    step: Callable[[], object]
    right: str = ""


def mlp(linear: Linear, convolution: Convolution) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(SIZES):
        layers += [linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def conv(linear: Linear, convolution: Convolution) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(CHANNELS):
        layers += [convolution(inputs, outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), linear(CHANNELS[-1] * 7 * 7, SIZES[-1]))


generator = torch.Generator().manual_seed(0)
X = torch.randn(BATCH, SIZES[0], generator=generator)
Y = torch.randint(SIZES[-1], (BATCH,), generator=generator)
TASKS = {"mlp": Task(mlp, X, Y), "conv": Task(conv, X.reshape(BATCH, 1, 28, 28), Y)}


def updates(net: nn.Module, loss: Callable[[], Tensor], *more: Tensor) -> Callable[[], None]:
    """The step of Adam over a network, and over `more` parameters, down a loss."""
    optimizer = Adam([*net.parameters(), *more])

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


# --- the reference, the floor and ours -----------------------------------------------------------


def deterministic(task: Task) -> Contender:
    net = task.plain()
    return Contender(REFERENCE, 1, updates(net, lambda: task.nll(net)))


def floor(task: Task, draws: int) -> Iterator[Contender]:
    from bayesdiv.compute import noise

    net = task.plain()
    count = sum(p.numel() for p in net.parameters())
    rho = nn.Parameter(torch.full((count,), -3.0))
    rows, targets = torch.cat([task.x] * draws), task.y.repeat(draws)

    def loss() -> Tensor:
        noise.many(draws * count)
        return cross_entropy(net(rows), targets) + softplus(rho).mean()

    yield Contender("the floor", draws, updates(net, loss, rho))


def ours(task: Task, draws: int) -> Iterator[Contender]:
    import bayesdiv as bd

    cases = [
        (OUR_KL, bd.KL(), None),
        (f"bayesdiv, JS-G({ALPHA})", bd.JSG(ALPHA), None),
        (f"bayesdiv, JS-A({ALPHA})", bd.JSA(ALPHA), None),
    ]
    if draws > 1:
        cases.append(("bayesdiv, KL, `over=Vectorized()`", bd.KL(), bd.Vectorized()))
        cases.append(("bayesdiv, KL, `over=Looped()`", bd.KL(), bd.Looped()))
    for name, divergence, over in cases:
        net = bd.bayesianize(task.plain(), bd.Prior(Normal, loc=0.0, scale=0.1))
        objective = bd.Objective(
            bd.Classes(), divergence, num_data=NUM_DATA, samples=draws, over=over
        )
        objective.prepare(net)
        right = our_verdict(bd, task, net, objective)
        yield Contender(name, draws, our_step(bd, task, net, objective), right)


def our_step(bd: Any, task: Task, net: nn.Module, objective: nn.Module) -> Callable[[], object]:
    """The step that `fit` repeats."""
    optimizer = Adam([*net.parameters(), *objective.parameters()])
    return lambda: bd.Eager()(
        lambda x, y: objective(net, x, y),
        (task.x, task.y),
        optimizer,
        lambda total: total.backward(),
    )


def our_verdict(bd: Any, task: Task, net: Any, objective: Any) -> str:
    """KL against torch's over all weights; the others against a dense integral over some."""
    with torch.no_grad():
        loss = objective(net, task.x, task.y)
        added, q = loss.total - loss.nll, net.q()
        if isinstance(objective.divergence, bd.KL):
            return verdict(added, q.loc, q.scale, 0.1)
        some = Normal(q.loc[::1000], q.scale[::1000])
        values = [e(objective.divergence, some, net.p()) for e in (bd.Exact(), bd.Quadrature())]
    off = (values[0].double() - values[1].double()).abs().max() / values[1].max()
    return "yes, in the place of KL" if off < 1e-3 else f"no: off by {off:.1%}"


# --- the peers -----------------------------------------------------------------------------------


def verdict(added: Tensor, loc: Tensor, sd: Tensor, prior_sd: float, note: str = "") -> str:
    """Whether what is added to the mean negative log-likelihood is KL / N."""
    wanted = kl_divergence(Normal(loc, sd), Normal(0.0, prior_sd)).sum() / NUM_DATA
    ratio = (added / wanted).item()
    answer = "yes" if abs(ratio - 1) < 0.01 else f"no, {ratio:.2g} × KL/N"
    return f"{answer}: {note}" if note else answer


def posterior_of(
    net: nn.Module, mean: str, raw: str, link: Callable[[Tensor], Tensor] = softplus
) -> tuple[Tensor, Tensor]:
    """All means and standard deviations of a network, told by what its parameters are called."""
    named = dict(net.named_parameters())
    names = [name for name in named if mean in name]
    loc = torch.cat([named[name].flatten() for name in names])
    return loc, torch.cat([link(named[name.replace(mean, raw)]).flatten() for name in names])


def titled(package: str, what: str) -> str:
    return f"{package} {version(package)}, {what}"


def torchbnn(task: Task, draws: int) -> Iterator[Contender]:
    import torchbnn as bnn

    net = task.network(
        lambda a, b: bnn.BayesLinear(0, 0.1, a, b),
        lambda a, b: bnn.BayesConv2d(0, 0.1, a, b, 3, padding=1),
    )
    kl = bnn.BKLLoss(reduction="mean", last_layer_only=False)

    def loss() -> Tensor:
        return task.nll(net, draws) + 0.01 * kl(net)

    posterior = posterior_of(net, "_mu", "_log_sigma", torch.exp)
    right = verdict(0.01 * kl(net), *posterior, 0.1, "averaged over the weights, times 0.01")
    yield Contender(titled("torchbnn", "`BKLLoss('mean')`"), draws, updates(net, loss), right)


def bayesian_torch(task: Task, draws: int) -> Iterator[Contender]:
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

    settings = {
        "prior_mu": 0.0,
        "prior_sigma": 1.0,
        "posterior_mu_init": 0.0,
        "posterior_rho_init": -3.0,
        "moped_enable": False,
    }
    for kind in ("Reparameterization", "Flipout"):
        net = task.plain()
        dnn_to_bnn(net, {**settings, "type": kind})

        def loss(net: nn.Module = net) -> Tensor:
            outputs, divergences = [], []
            for _ in range(draws):
                outputs.append(net(task.x))
                divergences.append(get_kl_loss(net))
            mean = torch.stack(outputs).mean(0)
            return cross_entropy(mean, task.y) + torch.stack(divergences).mean() / BATCH

        note = "averaged over the weights, divided by the batch"
        note += ", logits averaged over draws" if draws > 1 else ""
        right = verdict(get_kl_loss(net) / BATCH, *posterior_of(net, "mu_", "rho_"), 1.0, note)
        name = titled("bayesian-torch", f"`{kind}`")
        yield Contender(name, draws, updates(net, loss), right)


def blitz(task: Task, draws: int) -> Iterator[Contender]:
    from blitz.modules import BayesianConv2d, BayesianLinear
    from blitz.utils import variational_estimator

    layers = task.network(BayesianLinear, lambda a, b: BayesianConv2d(a, b, (3, 3), padding=1))
    net = variational_estimator(type("Network", (nn.Sequential,), {}))(*layers)

    def loss() -> Tensor:
        return net.sample_elbo(
            task.x,
            task.y,
            nn.CrossEntropyLoss(),
            sample_nbr=draws,
            complexity_cost_weight=1 / NUM_DATA,
        )

    net(task.x)
    note = "one sample a draw, no pull beyond 5 prior sd; its default weight 1 would be N times it"
    posterior = posterior_of(net, "_mu", "_rho")
    right = verdict(net.nn_kl_divergence() / NUM_DATA, *posterior, 0.1, note)
    name = titled("blitz-bayesian-pytorch", "`sample_elbo`")
    yield Contender(name, draws, updates(net, loss), right)


def uqpy(task: Task, draws: int) -> Iterator[Contender]:
    import UQpy.scientific_machine_learning as sml
    from torch.utils.data import DataLoader

    layers = task.network(sml.BayesianLinear, lambda a, b: sml.BayesianConv2d(a, b, 3, padding=1))
    net = sml.FeedForwardNeuralNetwork(layers)
    trainer = sml.BBBTrainer(net, Adam(net.parameters()), loss_function=nn.CrossEntropyLoss())
    whole: Any = [(task.x, task.y)]
    batch = DataLoader(whole, batch_size=None)

    def step() -> None:
        trainer.run(batch, epochs=1, num_samples=draws, beta=1e-6)

    note = "beta = 1e-6 in its examples; 1/N would be right, its default 1 is N times it"
    added = 1e-6 * sml.GaussianKullbackLeiblerDivergence()(net)
    right = verdict(added, *posterior_of(net, "_mu", "_rho"), 0.1, note)
    yield Contender(titled("UQpy", "`BBBTrainer`"), draws, step, right)


def posteriors(task: Task, draws: int) -> Iterator[Contender]:
    import posteriors as library
    import torchopt

    net = task.plain()

    def log_prior(weights: dict[str, Tensor], batch: object) -> tuple[Tensor, Tensor]:
        return library.diag_normal_log_prob(weights) / NUM_DATA, task.x[:0]

    def log_posterior(
        weights: dict[str, Tensor], batch: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        outputs = functional_call(net, weights, batch[0])
        return log_prior(weights, batch)[0] - cross_entropy(outputs, batch[1]), outputs

    transform = library.vi.diag.build(
        log_posterior, torchopt.adam(), temperature=1 / NUM_DATA, n_samples=draws
    )
    state = transform.init(dict(net.named_parameters()))

    def step() -> None:
        nonlocal state
        state, _ = transform.update(state, (task.x, task.y))

    means = dict(net.named_parameters())
    sds = {name: torch.full_like(mean, 0.1) for name, mean in means.items()}
    added, _ = library.vi.diag.nelbo(means, sds, None, log_prior, 1 / NUM_DATA)
    flat = [torch.cat([part.flatten() for part in parts.values()]) for parts in (means, sds)]
    right = verdict(added, *flat, 1.0, "one sample a draw")
    yield Contender(titled("posteriors", "`vi.diag`"), draws, step, right)


# --- the table -----------------------------------------------------------------------------------


def gathered(task: Task, peers: bool) -> list[Contender]:
    """All that can be built and run, the reference first; what cannot be costs one line."""
    found = [deterministic(task)]
    families = [floor, ours, *(PEERS if peers else ())]
    for draws in DRAWS:
        for family in tuple(families):
            try:
                for contender in family(task, draws):
                    contender.step()
                    found.append(contender)
            except Exception as error:
                families.remove(family)
                first = str(error).partition("\n")[0]
                print(f"skipped {family.__name__}: {type(error).__name__}: {first}")
    return found


def turn(contender: Contender, least: float = 0.02) -> float:
    """Median of steps in a row, some that last `least` seconds, after one that warms the cache."""
    contender.step()
    times: list[float] = []
    while not times or sum(times) < least:
        start = time.perf_counter()
        contender.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def seconds(contenders: list[Contender], rounds: int) -> dict[Contender, list[float]]:
    """Times of rounds in which all take turns, so that a busy machine slows all alike."""
    times: dict[Contender, list[float]] = {contender: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            times[contender].append(turn(contender))
    return times


def steadiness(times: list[float], what: str = "step") -> str:
    """One line on the machine, told by what is the same in every round."""
    ordered = sorted(times)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    line = f"{REFERENCE} {what}: {1e3 * low:.1f} to {1e3 * high:.1f} ms in 8 of 10 rounds"
    return line + (" (the machine is busy: ratios are rough)" if high > 1.5 * low else "")


def rows(medians: dict[Contender, float]) -> Iterator[str]:
    reference = next(value for contender, value in medians.items() if contender.name == REFERENCE)
    kl = {c.draws: value for c, value in medians.items() if c.name == OUR_KL}
    for contender, value in medians.items():
        over_kl = f"{value / kl[contender.draws]:.2f}" if contender.draws in kl else ""
        yield (
            f"| {contender.draws} | {contender.name} | {1e3 * value:.1f} "
            f"| {value / reference:.2f} | {over_kl} | {contender.right} |"
        )


def begin(peers: bool, threads: int) -> None:
    """Threads, a seed and, for peers, whose environment does not have ours, the path to it."""
    if peers:
        sys.path.append(str(Path(__file__).resolve().parents[1] / "src"))
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
    torch.set_num_threads(threads)
    torch.manual_seed(0)


def setting() -> str:
    return f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, float32, medians"


PEERS = (torchbnn, bayesian_torch, blitz, uqpy, posteriors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=TASKS, default="mlp")
    parser.add_argument("--peers", action="store_true", help="with the other libraries")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    settings = parser.parse_args()
    begin(settings.peers, settings.threads)
    task = TASKS[settings.network]
    times = seconds(gathered(task, settings.peers), settings.rounds)
    weights = sum(p.numel() for p in task.plain().parameters())
    print(f"{settings.network}, {weights:,} weights, batch {BATCH}; {setting()}")
    print(steadiness(next(iter(times.values()))))
    print("\n| draws | step | ms a step | over deterministic | over our KL", end="")
    print(" | computes the right loss? |\n|---|---|---|---|---|---|")
    print(*rows({c: statistics.median(values) for c, values in times.items()}), sep="\n")


if __name__ == "__main__":
    main()
