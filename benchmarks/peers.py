"""Times and checks the divergences of other libraries: one Markdown table.

Run through ``bash benchmarks/peers.sh``, which builds the environment that this file needs.

*Time* is forward and backward over a mean-field Gaussian posterior of n float32 weights; each
measurement alternates with one of the reference, the closed-form KL of ``torch.distributions``,
and the ratio is the median over these pairs. A divergence that cannot be differentiated is timed
forward only; one that loops over the weights in Python is timed on a few of them.

*Correct* compares value and gradient, on 16 weights of very different widths, with a float64
integral on a dense grid and its central differences: 0.1 % for the value, 1 % for the gradient,
and four standard errors on top where the library samples. JS-A and JS-G are taken as
(1 - a) KL(posterior, m) + a KL(prior, m), where m is the arithmetic or geometric mean with weight
a on the posterior.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus

SIZES = (10_000, 1_000_000)
REPEATS = 25
THREADS = 2
ALPHA = 0.25  # not 1/2, where an exchange of the two weights would go unseen
SIDE = 4  # the check is on SIDE x SIDE weights, so that a square layer can hold them
CHECK_SECONDS = 6.0  # at most about this long is spent on draws from a library that samples


@dataclass(frozen=True)
class Built:
    """A divergence ready to be evaluated, with the leaves that it ought to be differentiable in."""

    mean: Tensor
    raw_scale: Tensor
    loss: Callable[[], Tensor]


@dataclass(frozen=True)
class Case:
    """One divergence of one library."""

    package: str
    what: str
    kind: str  # "KL", "JS-A" or "JS-G"
    build: Callable[[Tensor, Tensor], Built]  # from flat means and standard deviations
    log_scale: bool = False  # the raw scale is log(sd), not the inverse softplus of sd
    prior_sd: float = 1.0
    sizes: tuple[int, ...] = SIZES  # empty: checked, not timed


# --- the libraries -------------------------------------------------------------------------------


def inverse_softplus(sd: Tensor) -> Tensor:
    return sd + torch.log(-torch.expm1(-sd))


def leaf(values: Tensor) -> Tensor:
    return values.clone().requires_grad_()


def fill(parameter: Tensor, values: Tensor) -> None:
    with torch.no_grad():
        parameter.copy_(values.view_as(parameter))


def flat(divergence: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Built]:
    """Builder for a function of one flat tensor of means and one of standard deviations."""

    def build(mean: Tensor, sd: Tensor) -> Built:
        mu, rho = leaf(mean), leaf(inverse_softplus(sd))
        return Built(mu, rho, lambda: divergence(mu, softplus(rho)))

    return build


def torch_cases() -> list[Case]:
    def kl(mu: Tensor, sd: Tensor) -> Tensor:
        return kl_divergence(Normal(mu, sd), Normal(0.0, 1.0)).sum()

    return [Case("torch", "KL, `kl_divergence(Normal, Normal)`: the reference", "KL", flat(kl))]


def uqpy_cases() -> list[Case]:
    from UQpy.distributions import Normal as UQNormal
    from UQpy.scientific_machine_learning import functional

    zero, one = torch.tensor(0.0), torch.tensor(1.0)

    def kl(mu: Tensor, sd: Tensor) -> Tensor:
        return functional.gaussian_kullback_leibler_divergence(mu, sd, zero, one)

    def js_g(mu: Tensor, sd: Tensor) -> Tensor:
        return functional.geometric_jensen_shannon_divergence(mu, sd, zero, one, alpha=ALPHA)

    # The sampled divergences take one scipy-backed object a weight, made of Python floats; the
    # library's own loss modules call `.item()` to make them, so nothing more is lost here.
    def objects(mu: Tensor, sd: Tensor) -> tuple[list[object], list[object]]:
        posterior = [UQNormal(m, s) for m, s in zip(mu.tolist(), sd.tolist(), strict=True)]
        return posterior, [UQNormal(0.0, 1.0) for _ in posterior]

    def sampled_kl(mu: Tensor, sd: Tensor) -> Tensor:
        return functional.mc_kullback_leibler_divergence(*objects(mu, sd))

    def sampled_js_a(mu: Tensor, sd: Tensor) -> Tensor:
        return functional.generalized_jensen_shannon_divergence(*objects(mu, sd), alpha=ALPHA)

    few = (SIDE * SIDE,)
    return [
        Case("UQpy", "KL, `gaussian_kullback_leibler_divergence`", "KL", flat(kl)),
        Case("UQpy", "JS-G, `geometric_jensen_shannon_divergence`", "JS-G", flat(js_g)),
        Case(
            "UQpy",
            "KL, `mc_kullback_leibler_divergence`, 1000 samples",
            "KL",
            flat(sampled_kl),
            sizes=few,
        ),
        Case(
            "UQpy",
            "JS-A, `generalized_jensen_shannon_divergence`, 1000 samples",
            "JS-A",
            flat(sampled_js_a),
            sizes=few,
        ),
    ]


def torchbnn_cases() -> list[Case]:
    import torchbnn

    def build(mean: Tensor, sd: Tensor) -> Built:
        side = math.isqrt(mean.numel())
        layer = torchbnn.BayesLinear(0.0, 1.0, side, side, bias=False)
        fill(layer.weight_mu, mean)
        fill(layer.weight_log_sigma, sd.log())
        divergence = torchbnn.BKLLoss(reduction="sum")
        return Built(layer.weight_mu, layer.weight_log_sigma, lambda: divergence(layer))

    what = "KL, `BKLLoss('sum')` of a `BayesLinear` (log sd, no softplus)"
    return [Case("torchbnn", what, "KL", build, log_scale=True)]


def bayesian_torch_cases() -> list[Case]:
    from bayesian_torch.layers import LinearReparameterization

    def builder(prior_variance: float) -> Callable[[Tensor, Tensor], Built]:
        def build(mean: Tensor, sd: Tensor) -> Built:
            side = math.isqrt(mean.numel())
            layer = LinearReparameterization(side, side, prior_variance=prior_variance, bias=False)
            fill(layer.mu_weight, mean)
            fill(layer.rho_weight, inverse_softplus(sd))
            return Built(layer.mu_weight, layer.rho_weight, layer.kl_loss)

        return build

    what = "KL, `LinearReparameterization.kl_loss`"
    return [
        Case("bayesian-torch", what, "KL", builder(1.0)),
        Case(
            "bayesian-torch",
            "the same, `prior_variance=0.25`",
            "KL",
            builder(0.25),
            prior_sd=0.5,
            sizes=(),
        ),
    ]


def blitz_cases() -> list[Case]:
    from blitz.modules.weight_sampler import PriorWeightDistribution, TrainableRandomDistribution

    def builder(prior_sd: float) -> Callable[[Tensor, Tensor], Built]:
        def build(mean: Tensor, sd: Tensor) -> Built:
            posterior = TrainableRandomDistribution(mean.clone(), inverse_softplus(sd))
            prior = PriorWeightDistribution(dist=Normal(0.0, prior_sd))

            def loss() -> Tensor:
                sample = posterior.sample()
                return posterior.log_posterior() - prior.log_prior(sample)

            return Built(posterior.mu, posterior.rho, loss)

        return build

    what = "KL, one sample: `log_posterior - log_prior`"
    return [
        Case("blitz-bayesian-pytorch", what, "KL", builder(1.0)),
        Case(
            "blitz-bayesian-pytorch",
            "the same, its default prior sd of 0.1",
            "KL",
            builder(0.1),
            prior_sd=0.1,
            sizes=(),
        ),
    ]


def available() -> Iterator[Case]:
    """The cases of every library that can be imported, the reference first."""
    for cases in (torch_cases, uqpy_cases, torchbnn_cases, bayesian_torch_cases, blitz_cases):
        try:
            yield from cases()
        except ImportError as error:
            print(f"skipped {cases.__name__.removesuffix('_cases')}: {error}")


# --- time ----------------------------------------------------------------------------------------


def weights(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    mean = 0.5 * torch.randn(n, generator=generator)
    return mean, softplus(torch.randn(n, generator=generator) - 2.0)


def step(built: Built) -> Tensor:
    """One forward pass and, where there is something to differentiate, one backward pass."""
    built.mean.grad = built.raw_scale.grad = None
    loss = built.loss()
    if loss.requires_grad:
        loss.backward()
    return loss


def seconds(built: Built, calls: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        step(built)
    return (time.perf_counter() - start) / calls


@dataclass(frozen=True)
class Cost:
    """Nanoseconds a weight, those of the reference beside it, and the median ratio of the two."""

    ns: float
    reference_ns: float
    ratio: float


def cost(case: Case, reference: Case, n: int) -> Cost:
    """The cost of a case on n weights, measured in turns with the reference."""
    sizes = (n, max(n, SIZES[0]))  # the reference on a few weights would be overhead alone
    built = [c.build(*weights(k)) for c, k in zip((case, reference), sizes, strict=True)]
    once = [min(seconds(b) for _ in range(2)) for b in built]
    calls = [max(1, round(0.02 / t)) for t in once]
    found: list[list[float]] = [[], []]
    for turn in range(REPEATS if once[0] < 0.5 else 3):
        for i in (0, 1) if turn % 2 else (1, 0):
            found[i].append(1e9 * seconds(built[i], calls[i]) / sizes[i])
    ratios = [a / b for a, b in zip(*found, strict=True)]
    return Cost(median(found[0]), median(found[1]), median(ratios))


# --- correctness ---------------------------------------------------------------------------------


def exact(kind: str, mean: np.ndarray, sd: np.ndarray, prior_sd: float) -> np.ndarray:
    """The divergence of each weight by the trapezoidal rule, in float64."""
    reach = 12 * max(sd.max(), prior_sd) + np.abs(mean).max()
    x, dx = np.linspace(-reach, reach, 100_001, retstep=True)

    def log_normal(centre: np.ndarray | float, width: np.ndarray | float) -> np.ndarray:
        return -0.5 * ((x - centre) / width) ** 2 - np.log(width) - 0.5 * math.log(2 * math.pi)

    log_q, log_p = log_normal(mean[:, None], sd[:, None]), log_normal(0.0, prior_sd)

    def kl(log_a: np.ndarray, log_b: np.ndarray) -> np.ndarray:
        return (np.exp(log_a) * (log_a - log_b)).sum(axis=-1) * dx

    if kind == "KL":
        return kl(log_q, log_p)
    if kind == "JS-A":
        log_m = np.logaddexp(math.log(ALPHA) + log_q, math.log1p(-ALPHA) + log_p)
    else:
        log_m = ALPHA * log_q + (1 - ALPHA) * log_p
        top = log_m.max(axis=-1, keepdims=True)
        log_m = log_m - top - np.log(np.exp(log_m - top).sum(axis=-1, keepdims=True) * dx)
    return (1 - ALPHA) * kl(log_q, log_m) + ALPHA * kl(log_p, log_m)


def exact_with_slopes(case: Case, mean: Tensor, sd: Tensor) -> tuple[float, np.ndarray]:
    """The exact sum, and its derivatives in the means and raw scales: shape (2, weights)."""
    mu, sigma = mean.double().numpy(), sd.double().numpy()
    raw = np.log(sigma) if case.log_scale else np.log(np.expm1(sigma))
    h = 1e-4

    def value(d_mu: float, d_raw: float) -> np.ndarray:
        moved = raw + d_raw
        width = np.exp(moved) if case.log_scale else np.log1p(np.exp(moved))
        return exact(case.kind, mu + d_mu, width, case.prior_sd)

    slopes = [value(h, 0.0) - value(-h, 0.0), value(0.0, h) - value(0.0, -h)]
    return float(value(0.0, 0.0).sum()), np.stack(slopes) / (2 * h)


def draw(built: Built) -> tuple[float, np.ndarray | None]:
    """Value and gradient, if there is one, of a single evaluation."""
    loss = step(built)
    if built.mean.grad is None or built.raw_scale.grad is None:
        return loss.item(), None
    gradients = [built.mean.grad.flatten(), built.raw_scale.grad.flatten()]
    return loss.item(), torch.stack(gradients).double().numpy()


def draws(built: Built) -> tuple[np.ndarray, np.ndarray | None]:
    """Every draw of a library that samples, within the time allowed; else a single one."""
    start = time.perf_counter()
    found = [draw(built), draw(built)]
    if found[0][0] == found[1][0]:
        found.pop()
    else:
        once = (time.perf_counter() - start) / 2
        found += [draw(built) for _ in range(min(4000, max(2, round(CHECK_SECONDS / once) - 2)))]
    gradients = [g for _, g in found if g is not None]
    return np.array([v for v, _ in found]), np.stack(gradients) if gradients else None


def standard_error(samples: np.ndarray) -> np.ndarray | float:
    return samples.std(axis=0, ddof=1) / math.sqrt(len(samples)) if len(samples) > 1 else 0.0


def averages(case: Case, mean: Tensor, sd: Tensor) -> bool:
    """Whether four copies of the weights have the divergence of one: a mean, not a sum."""
    once = draw(case.build(mean, sd))[0]
    return draw(case.build(mean.repeat(4), sd.repeat(4)))[0] < 2 * once


def value_notes(values: np.ndarray, truth: float) -> list[str]:
    value, slack = float(values.mean()), 4 * float(standard_error(values))
    right = abs(value - truth) <= 1e-3 * abs(truth) + slack
    return [] if right else [f"wrong value ({value:.4g} vs {truth:.4g})"]


def gradient_notes(gradients: np.ndarray | None, slopes: np.ndarray) -> list[str]:
    if gradients is None:
        return ["no gradient"]
    if len(gradients) == 1:
        floor = 0.1 * np.abs(slopes).max(axis=1, keepdims=True)  # some slopes are nearly zero
        worst = (np.abs(gradients[0] - slopes) / (np.abs(slopes) + floor)).max(axis=1)
        allowed = np.full(2, 0.01)
    else:  # single weights are too noisy: the length along the true gradient
        along = (gradients * slopes).sum(axis=2) / (slopes**2).sum(axis=1)
        worst = np.abs(along.mean(axis=0) - 1)
        allowed = 0.01 + 4 * standard_error(along)
    pairs = zip(("mean", "scale"), worst, allowed, strict=True)
    return [f"wrong gradient in the {name} (off by {w:.0%})" for name, w, a in pairs if w > a]


def verdict(case: Case) -> str:
    """What holds of a case on a few weights between 0.01 and 1.3 wide."""
    n = SIDE * SIDE
    mean = torch.linspace(-1.5, 1.5, n)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    sd = torch.logspace(math.log10(0.01), math.log10(1.3), n)[order]
    values, gradients = draws(case.build(mean, sd))
    truth, slopes = exact_with_slopes(case, mean, sd)
    notes = []
    if value_notes(values, truth) and averages(case, mean, sd):
        notes = ["averaged, not summed"]
        values, gradients = n * values, None if gradients is None else n * gradients
    wrong = value_notes(values, truth) + gradient_notes(gradients, slopes)
    if len(values) > 1:
        spread = values.std(ddof=1) / abs(truth)
        notes.append(f"noisy (one draw ±{spread:.1%} on {n} weights, {len(values)} draws)")
    if wrong == ["no gradient"]:
        wrong = ["value right", "no gradient"]
    return "; ".join((wrong or ["yes"]) + notes)


# --- the table -----------------------------------------------------------------------------------


def digits(number: float) -> str:
    return f"{number:.3g}" if number < 999 else f"{number:,.0f}"


def row(case: Case, costs: list[Cost]) -> str:
    try:
        correct = verdict(case)
    except Exception as error:  # a peer that breaks costs its row, not the table
        correct = f"raises {type(error).__name__}: {error}"
    times = " / ".join(digits(c.ns) for c in costs) or "–"
    ratios = " / ".join(digits(c.ratio) for c in costs) or "–"
    if costs and case.sizes != SIZES:
        times += f" (n = {case.sizes[0]}, forward)"
    name = f"{case.package} ({version(case.package)})"
    return f"| {name} | {case.what} | {times} | {ratios} | {correct} |"


def steadiness(reference: Case, n: int, seen: list[float]) -> str:
    """One line on the machine: both signs of busy cores make the ratios meaningless."""
    torch.set_num_threads(1)
    built = reference.build(*weights(n))
    calls = max(1, round(0.02 / min(seconds(built) for _ in range(2))))
    alone = 1e9 * median(seconds(built, calls) for _ in range(REPEATS)) / n
    torch.set_num_threads(THREADS)
    low, high = min(seen), max(seen)
    line = f"reference, n = {n:.0e}: {low:.3g} to {high:.3g} ns a weight, {alone:.3g} on one thread"
    busy = high > 1.5 * low or high > 1.5 * alone
    return line + (" (cores are busy: run again, these ratios do not hold)" if busy else "")


def time_all(cases: list[Case]) -> dict[Case, list[Cost]]:
    """The costs of every case, after a line for each size on how steady the machine was.

    The cases that take long come last: the shorter the rest, the likelier it meets a quiet machine.
    """
    table: dict[Case, list[Cost]] = {}
    for case in sorted(cases, key=lambda c: c.sizes != SIZES):
        try:
            table[case] = [cost(case, cases[0], n) for n in case.sizes]
        except Exception:  # the check raises it again and reports it
            table[case] = []
    for k, n in enumerate(SIZES):
        seen = [costs[k].reference_ns for costs in table.values() if len(costs) > k]
        print(steadiness(cases[0], n, seen))
    return table


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    np.random.seed(0)  # scipy's samplers read the global state
    cases = list(available())
    table = time_all(cases)
    print("\n| library (version) | what | ns a weight, n = 1e4 / 1e6 | ratio to reference", end="")
    print(" | correct? |\n|---|---|---|---|---|")
    for case in cases:
        print(row(case, table[case]), flush=True)


if __name__ == "__main__":
    main()
