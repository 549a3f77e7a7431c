"""Images a second that are predicted with 100 weight draws, one image at a time and 1,000.

The network is 784-400-400-10; every contender holds the same posterior, the means of one network
and standard deviations of 0.05, and returns mean class probabilities. All take turns in each round
and the medians of the rounds are printed: one Markdown table a batch. "Draws kept" draws weights
once, before the clock starts, and uses them for every batch. "The floor" is what then remains to
be done: the products of all rows with the weights of each draw, and nothing else.

Run: python benchmarks/predict.py

With --peers, in the environment of benchmarks/peers.sh, other libraries take part, each the way its
own documentation predicts with several draws. The last columns tell whether the probabilities are
the average over the posterior, to within five standard errors of many draws made from its formula,
and whether equal rows of a batch get equal probabilities, as they do if one draw serves all rows.
"""

import argparse
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import softmax

from step import REFERENCE, TASKS, Contender, begin, seconds, setting, steadiness, titled

DRAWS = 100
BATCHES = (1, 1000)
SCALE = 0.05
RHO = math.log(math.expm1(SCALE))  # softplus(rho) is the scale
TASK = TASKS["mlp"]

Predict = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Predictor:
    """One way to predict: mean class probabilities, (batch, classes), from rows."""

    name: str
    predict: Predict
    kept: bool = False
    """Whether its draws were made before."""


torch.manual_seed(0)
SOURCE = TASK.plain()
generator = torch.Generator().manual_seed(0)
X = torch.randn(max(BATCHES), TASK.x.shape[1], generator=generator)


def holding(net: nn.Module, mean: str, raw: str, value: float) -> nn.Module:
    """A library's network with the means of the source and one raw scale for all weights."""
    named = dict(net.named_parameters())
    names = [name for name in named if mean in name]
    with torch.no_grad():
        for name, source in zip(names, SOURCE.parameters(), strict=True):
            named[name].copy_(source)
            named[name.replace(mean, raw)].fill_(value)
    return net.eval()


def averaged(net: nn.Module) -> Predict:
    """The loop that most libraries document: as many calls, each with weights of its own."""

    @torch.no_grad()
    def predict(x: Tensor) -> Tensor:
        return torch.stack([softmax(net(x), -1) for _ in range(DRAWS)]).mean(0)

    return predict


def drawn_matrices() -> list[Tensor]:
    """One draw loc + scale · ε of the source's weights."""
    return [p.detach() + SCALE * torch.randn_like(p) for p in SOURCE.parameters()]


def outputs_at(rows: Tensor, matrices: list[Tensor]) -> Tensor:
    """Logits by plain products."""
    w1, b1, w2, b2, w3, b3 = matrices
    hidden = torch.addmm(b1, rows, w1.mT).relu_()
    return torch.addmm(b3, torch.addmm(b2, hidden, w2.mT).relu_(), w3.mT)


def products() -> Iterator[Predictor]:
    kept = [drawn_matrices() for _ in range(DRAWS)]

    @torch.no_grad()
    def predict(x: Tensor) -> Tensor:
        return torch.stack([outputs_at(x, matrices) for matrices in kept]).softmax(-1).mean(0)

    yield Predictor("plain products, draws kept", predict, kept=True)


# --- ours ----------------------------------------------------------------------------------------


def ours() -> Iterator[Predictor]:
    from torch.distributions import Normal

    import bayesdiv as bd

    prior = bd.Prior(Normal, loc=0.0, scale=2 * SCALE)
    net, likelihood = bd.bayesianize(SOURCE, prior, start=0.5), bd.Classes()
    weights = bd.draw_weights(net, DRAWS)
    yield Predictor("bayesdiv", lambda x: bd.predict(net, likelihood, x, DRAWS).probabilities)
    yield Predictor(
        "bayesdiv, `over=Looped()`",
        lambda x: bd.predict(net, likelihood, x, DRAWS, over=bd.Looped()).probabilities,
    )
    yield Predictor(
        "bayesdiv, draws kept",
        lambda x: bd.predict_at(net, likelihood, x, weights).probabilities,
        kept=True,
    )
    short = tuple(drawn.bfloat16() for drawn in weights)
    yield Predictor(
        "bayesdiv, draws kept in bfloat16",
        lambda x: bd.predict_at(net, likelihood, x, short).probabilities,
        kept=True,
    )


# --- the peers -----------------------------------------------------------------------------------


def torchbnn() -> Iterator[Predictor]:
    """As its demonstrations: the model is called again for another draw."""
    import torchbnn as bnn

    net = TASK.network(lambda a, b: bnn.BayesLinear(0, 0.1, a, b), nn.Identity)
    holding(net, "_mu", "_log_sigma", math.log(SCALE))
    yield Predictor(titled("torchbnn", "calls"), averaged(net))


def bayesian_torch() -> Iterator[Predictor]:
    """As the testing snippet of its README."""
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn

    for kind in ("Reparameterization", "Flipout"):
        net = TASK.plain()
        dnn_to_bnn(
            net,
            {
                "prior_mu": 0.0,
                "prior_sigma": 1.0,
                "posterior_mu_init": 0.0,
                "posterior_rho_init": -3.0,
                "type": kind,
                "moped_enable": False,
            },
        )
        holding(net, "mu_", "rho_", RHO)
        yield Predictor(titled("bayesian-torch", f"`{kind}`"), averaged(net))


def blitz() -> Iterator[Predictor]:
    """As the evaluation of its README: a list of calls, stacked."""
    from blitz.modules import BayesianLinear

    net = holding(TASK.network(BayesianLinear, nn.Identity), "_mu", "_rho", RHO)
    yield Predictor(titled("blitz-bayesian-pytorch", "calls"), averaged(net))


def uqpy() -> Iterator[Predictor]:
    """As its "Bayesian Quickstart Testing": logits filled in a loop."""
    import UQpy.scientific_machine_learning as sml

    net = sml.FeedForwardNeuralNetwork(TASK.network(sml.BayesianLinear, nn.Identity))
    holding(net, "_mu", "_rho", RHO)
    net.sample()

    @torch.no_grad()
    def predict(x: Tensor) -> Tensor:
        logits = torch.empty(DRAWS, len(x), 10)
        for draw in range(DRAWS):
            logits[draw] = net(x)
        return logits.softmax(-1).mean(0)

    yield Predictor(titled("UQpy", "`sample()`"), predict)


def posteriors() -> Iterator[Predictor]:
    """As its IMDb example: weights sampled together, then `torch.vmap`."""
    import posteriors as library
    import torchopt

    means = {name: value.detach() for name, value in SOURCE.named_parameters()}
    state = library.vi.diag.init(means, torchopt.adam(), init_log_sds=math.log(SCALE))

    @torch.no_grad()
    def outputs(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        run = torch.vmap(partial(functional_call, SOURCE), in_dims=(0, None))
        return run(weights, x).softmax(-1).mean(0)

    def sampled() -> dict[str, Tensor]:
        with torch.no_grad():
            drawn: dict[str, Tensor] = library.vi.diag.sample(state, torch.Size([DRAWS]))
            return drawn

    weights = sampled()
    name = titled("posteriors", "`vi.diag.sample`")
    yield Predictor(name, lambda x: outputs(sampled(), x))
    yield Predictor(f"{name}, draws kept", partial(outputs, weights), kept=True)


# --- what holds of them --------------------------------------------------------------------------


def by_formula(rows: Tensor, draws: int) -> Tensor:
    """Probabilities of draws loc + scale · ε by plain products, (draws, rows, classes)."""
    found = [outputs_at(rows, drawn_matrices()).softmax(-1) for _ in range(draws)]
    return torch.stack(found)


def verdict(predictor: Predictor, wanted: Tensor, rows: Tensor) -> str:
    calls = 1 if predictor.kept else 3
    found = torch.stack([predictor.predict(rows) for _ in range(calls)]).mean(0)
    error = wanted.std(0) * math.sqrt(1 / len(wanted) + 1 / (calls * DRAWS))
    far = ((found - wanted.mean(0)) / error).abs().max().item()
    average = "yes" if far < 5 else f"no, {far:.0f} standard errors off"
    same = predictor.predict(rows[:1].repeat(len(rows), 1))
    return f"{average} | {'yes' if torch.allclose(same, same[:1], atol=1e-5) else 'no'}"


# --- the tables ----------------------------------------------------------------------------------

PEERS = (torchbnn, bayesian_torch, blitz, uqpy, posteriors)


def gathered(peers: bool) -> list[tuple[Predictor, str]]:
    """All that can be built and run, with what holds of them; what cannot be costs one line."""
    rows = X[:20]
    wanted = by_formula(rows, 300)
    found = []
    for family in (products, ours, *(PEERS if peers else ())):
        try:
            found += [(predictor, verdict(predictor, wanted, rows)) for predictor in family()]
        except Exception as error:
            first = str(error).partition("\n")[0]
            print(f"skipped {family.__name__}: {type(error).__name__}: {first}")
    return found


def table(found: list[tuple[Predictor, str]], batch: int, rounds: int) -> None:
    x = X[:batch]
    plain = Contender(REFERENCE, 1, torch.no_grad()(lambda: SOURCE(x).softmax(-1)))
    contenders = [Contender(p.name, DRAWS, partial(p.predict, x), right) for p, right in found]
    times = seconds([plain, *contenders], rounds)
    medians = {c: statistics.median(values) for c, values in times.items()}
    peers = [
        medians[c]
        for c, (p, _) in zip(contenders, found, strict=True)
        if not p.kept and not p.name.startswith("bayesdiv")
    ]
    print(f"\n{steadiness(times[plain], 'pass')}\n")
    print("| batch | predicted by | ms a call | images a second | over the fastest peer", end="")
    print(" | average over the posterior? | one draw for all rows? |")
    print("|---|---|---|---|---|---|---|")
    for contender, value in medians.items():
        over = f"{min(peers) / value:.2f}" if peers and contender is not plain else ""
        line = f"| {batch} | {contender.name} | {1e3 * value:.2f} | {batch / value:,.1f} | {over} |"
        print(line, contender.right or " | ", "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true", help="with the other libraries")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    settings = parser.parse_args()
    begin(settings.peers, settings.threads)
    found = gathered(settings.peers)
    print(f"784-400-400-10, {DRAWS} draws; {setting()}")
    for batch in settings.batches:
        table(found, batch, settings.rounds)


if __name__ == "__main__":
    main()
