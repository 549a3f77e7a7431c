"""Quantiles of a mixture of any torch distribution, whether torch knows its quantiles or not."""

import math
from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import cast

import torch
from torch import Tensor
from torch.distributions import Distribution, NegativeBinomial, Poisson, StudentT
from torch.distributions.constraints import Constraint
from torch.nn.functional import logsigmoid

from bayesdiv.compute.devices import traced
from bayesdiv.compute.noise import seeded
from bayesdiv.divergence.densities import offers

DRAWS = 1 << 14  # where nothing but samples is known, in all
MOST_COUNTS = 1 << 16  # beyond which samples take over
MOST_TERMS = 1000  # of a continued fraction
NODES, STEP = 40, 0.08  # of the tanh-sinh rule, on each side of its middle
ENOUGH = 30.0  # e^-30 of an integrand's peak is left out
# In a graph, a quantile is found by passes that each cut its bracket into four: 12 are 24 halvings.
SECTIONS, PASSES = 4, 12


@torch.no_grad()
def quantiles(distribution: Distribution, *probabilities: float) -> list[Tensor]:
    """Where the distribution function of the mixture over the first axis reaches each of them."""
    # By the distribution function where torch or this file knows it: Newton's steps, or halves of a
    # bracket. Of counts, the least that reaches it, their probabilities added up. By samples
    # elsewhere, with an error in the probability of about 0.004.
    if traced():
        return list(in_fixed_steps(distribution, probabilities))
    ours = cdf.dispatch(type(distribution)) is not cdf.dispatch(object)
    known, discrete = ours or offers(distribution, "cdf"), is_discrete(distribution)
    finds = (_count if known else _added_up) if discrete else (_continuous if known else _sampled)
    return [finds(distribution, probability) for probability in probabilities]


def is_discrete(distribution: Distribution) -> bool:
    """Whether a target is a count."""
    return bool(getattr(distribution.support, "is_discrete", False))


def mean(distribution: Distribution) -> Tensor:
    """The mean, by samples where torch has none."""
    if type(distribution).mean is Distribution.mean:
        return _draws(distribution).mean(0)
    if isinstance(distribution, StudentT):  # torch picks rows by value, which cannot be traced
        return torch.where(distribution.df > 1, distribution.loc, torch.nan)
    return distribution.mean


def variance(distribution: Distribution) -> Tensor:
    """The variance, by samples where torch has none."""
    if type(distribution).variance is Distribution.variance:
        return _draws(distribution).var(0)
    if isinstance(distribution, StudentT):
        df, square = distribution.df, distribution.scale.square()
        infinite = torch.where(df > 1, torch.inf, torch.nan).to(square)
        return torch.where(df > 2, square * df / (df - 2), infinite)
    return distribution.variance


@singledispatch
def cdf(distribution: Distribution, value: Tensor) -> Tensor:
    """The distribution function, also of those for which torch has none."""
    if not offers(distribution, "cdf"):
        raise ValueError(f"{type(distribution).__name__} has no distribution function")
    return distribution.cdf(value)


@cdf.register
def _(distribution: Poisson, value: Tensor) -> Tensor:
    below: Tensor = torch.special.gammaincc(value.floor() + 1, distribution.mean)
    return torch.where(value < 0, 0.0, below)


@cdf.register
def _(distribution: NegativeBinomial, value: Tensor) -> Tensor:
    # P(Y ≤ k) = I_{1-p}(r, k + 1)
    logits, whole = distribution.logits, value.double().floor()
    dtype = torch.promote_types(value.dtype, logits.dtype)
    below = beta(distribution.total_count.double(), whole.clamp(min=0) + 1, -logits.double())
    return torch.where(whole < 0, 0.0, below).to(dtype)


@cdf.register
def _(distribution: StudentT, value: Tensor) -> Tensor:
    # P(T > t) = ½ I_x(df/2, ½),   x = df / (df + t²)
    t = ((value - distribution.loc) / distribution.scale).double()
    df = distribution.df.double()
    tail = 0.5 * beta(0.5 * df, t.new_tensor(0.5), df.log() - 2 * t.abs().log())
    return torch.where(t > 0, 1 - tail, tail)


def in_fixed_steps(distribution: Distribution, probabilities: Sequence[float]) -> Tensor:
    """The quantiles, (probabilities, …), by steps that are the same for any values."""
    counts = is_discrete(distribution)
    dtype = torch.float64 if counts else mean(distribution).dtype
    bounds = [_bracket(distribution, probability) for probability in probabilities]
    low, high = (torch.stack(ends).to(dtype) for ends in zip(*bounds, strict=True))  # (P, B)
    axes = (1,) * low.dim()
    wanted = low.new_tensor(probabilities).view(-1, *axes[1:])
    inner = torch.arange(1, SECTIONS, dtype=dtype, device=low.device).view(-1, *axes)
    step = (high - low) / SECTIONS
    for _ in range(PASSES):
        points = (low + inner * step).unsqueeze(2)  # (3, P, 1, B)
        short = cdf(distribution, points.floor() if counts else points).mean(2) < wanted
        low, step = low + short.to(dtype).sum(0) * step, step / SECTIONS
    # The least count that reaches it is the only one in the last, tiny bracket.
    tiny = SECTIONS * step
    return (low + tiny + 1e-6).floor() if counts else low + tiny / 2


def _continuous(distribution: Distribution, probability: float) -> Tensor:
    low, high = _bracket(distribution, probability)
    value, last = _between(low, high), high - low
    for _ in range(100):
        excess = cdf(distribution, value).mean(0) - probability
        done = (excess.abs() <= 1e-10 * min(probability, 1 - probability)) | (low == high)
        if done.all():
            break
        low, high = torch.where(excess < 0, value, low), torch.where(excess < 0, high, value)
        step = -excess / distribution.log_prob(value).exp().mean(0)
        # Steps that do not shrink would walk down a tail for ever.
        good = (low - value <= step) & (step <= high - value) & (step.abs() < 0.5 * last)
        after = torch.where(good, value + step, _between(low, high)).where(~done, value)
        value, last = after, (after - value).abs()
    return value.to(mean(distribution).dtype)


def _bracket(distribution: Distribution, probability: float) -> tuple[Tensor, Tensor]:
    """Bounds of the mixture's quantile, from those of each draw or by Cantelli's inequality.

    mean - scale √((1-p)/p)  ≤  quantile  ≤  mean + scale √(p/(1-p))
    """
    if isinstance(distribution, StudentT):  # P(T > t) ≤ ½ (1 + t²/df)^(-df/2), solved for t
        outside, df = 2 * min(probability, 1 - probability), distribution.df.double()
        reach = (df * torch.expm1(-2 * math.log(outside) / df)).sqrt().clamp(max=1e150)
        reach = distribution.scale * reach
        return (distribution.loc - reach).amin(0), (distribution.loc + reach).amax(0)
    means = mean(distribution).double()
    if offers(distribution, "icdf") and not traced():
        each = distribution.icdf(means.new_full(distribution.batch_shape, probability))
        return each.amin(0), each.amax(0)
    odds = math.sqrt(probability / (1 - probability))
    scale = (variance(distribution).double().mean(0) + means.var(0, correction=0)).sqrt()
    # Where there is no variance, or no mean either, the bracket is as wide as can be.
    means, scale = means.nan_to_num(0.0), scale.nan_to_num(1e150, 1e150)
    least = getattr(distribution.support, "lower_bound", -math.inf)
    low, high = (means.mean(0) - scale / odds).clamp(min=least), means.mean(0) + scale * odds
    # A count is found from outside: the step at its floor must lie inside the bracket.
    return (low.floor() - 1, high.ceil() + 1) if is_discrete(distribution) else (low, high)


def _between(low: Tensor, high: Tensor) -> Tensor:
    """Half way on a scale that is logarithmic far out: a wide bracket loses half its digits."""
    # A narrow one, far from 0, is halved as it is: a logarithm would lose the digits it is about.
    narrow = high - low < torch.minimum(low.abs(), high.abs())
    far = ((low.asinh() + high.asinh()) / 2).sinh()
    return torch.where(narrow, 0.5 * low + 0.5 * high, far).clamp(low, high)


def _count(distribution: Distribution, probability: float) -> Tensor:
    low, high = _bracket(distribution, probability)
    while bool((high - low > 1).any()):
        middle = ((low + high) / 2).floor()
        reached = cdf(distribution, middle).double().mean(0) >= probability
        low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
    return high.to(mean(distribution).dtype)


def _added_up(distribution: Distribution, probability: float) -> Tensor:
    """The same without a distribution function: probabilities of 0, 1, 2, … added up."""
    like = mean(distribution)
    found, total = torch.zeros_like(like[0]), torch.zeros_like(like[0])
    for number in range(MOST_COUNTS):
        count = torch.full_like(like, number)
        # 0 outside the support, where torch raises or extrapolates.
        inside: Tensor = cast(Constraint, distribution.support).check(count)
        mass = distribution.log_prob(count.where(inside, 0)).exp().where(inside, 0.0)
        total = total + mass.mean(0)
        short = total < probability - 16 * torch.finfo(like.dtype).eps  # rounding apart
        if not bool(short.any()):
            return found
        found = found + short
    return _sampled(distribution, probability)


def _sampled(distribution: Distribution, probability: float) -> Tensor:
    samples = distribution.batch_shape[0]
    drawn = _draws(distribution, -(-DRAWS // samples)).flatten(0, 1)  # (≥ DRAWS, batch)
    return drawn.sort(0).values[math.ceil(probability * len(drawn)) - 1]


def _draws(distribution: Distribution, count: int = DRAWS) -> Tensor:
    """Samples that are the same in every call, and leave torch's generator alone."""
    with seeded(0, list(range(torch.cuda.device_count()))):
        return distribution.sample(torch.Size([count]))


def beta(a: Tensor, b: Tensor, logits: Tensor) -> Tensor:
    """I_x(a, b), the regularised incomplete beta function, at x = sigmoid(logits)."""
    if traced():
        return beta_in_graph(a, b, logits)
    # By the side whose continued fraction is short; torch has no such function.
    a, b, logits = torch.broadcast_tensors(a, b, logits)
    turned = logits.sigmoid() > (a + 1) / (a + b + 2)
    one, two = torch.where(turned, b, a), torch.where(turned, a, b)
    near = torch.where(turned, -logits, logits)
    log_x, log_rest = logsigmoid(near), logsigmoid(-near)
    front = (one * log_x + two * log_rest - _log_beta(a, b) - one.log()).exp()
    found = front / _fraction(one, two, near.sigmoid())
    return torch.where(turned, 1 - found, found).clamp(0, 1)


def _log_beta(a: Tensor, b: Tensor) -> Tensor:
    """The logarithm of Γ(a) Γ(b) / Γ(a + b); of a large number by Stirling's series."""
    small, large, total = torch.minimum(a, b), torch.maximum(a, b), a + b
    far = small - (large - 0.5) * (small / large).log1p() - small * total.log()
    far = far + (1 / large - 1 / total) / 12 - (large**-3 - total**-3) / 360
    return small.lgamma() + far.where(large > 100, large.lgamma() - total.lgamma())


def _fraction(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """1 + d_1/(1 + d_2/(1 + …)) of the incomplete beta function, evaluated from the front."""
    value, above, below = torch.ones_like(x), torch.ones_like(x), torch.zeros_like(x)
    for step in range(1, 2 * MOST_TERMS):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        below = 1 / (1 + term * below + 1e-300)  # never 0, nor is the next
        above = 1 + term / above + 1e-300
        value = value * above * below
        if bool(((above * below - 1).abs() < 1e-14).all()):
            break
    return value


def beta_in_graph(a: Tensor, b: Tensor, logits: Tensor) -> Tensor:
    """The same as `beta`, without a gamma function or a loop that looks at values."""
    # x = sigmoid(v),   bend(v) = -a log x - b log(1 - x), less its value at the peak
    a, b, at = torch.broadcast_tensors(a, b, logits)
    one, two, middle = a.unsqueeze(-1), b.unsqueeze(-1), (a / b).log()

    def bend(v: Tensor) -> Tensor:
        return one * _softplus(-v) + two * _softplus(v)

    least, wide = bend(middle.unsqueeze(-1)), (2 * ENOUGH * (1 / a + 1 / b)).sqrt()
    low, high = middle - wide - ENOUGH / a, middle + wide + ENOUGH / b
    return _below(lambda v: bend(v) - least, low, middle, at, high)


def upper_gamma_in_graph(a: Tensor, x: Tensor) -> Tensor:
    """Q(a, x), the regularised upper incomplete gamma function, in double precision."""
    # t = a e^v,   bend(v) = a (e^v - 1 - v)
    a, x = torch.broadcast_tensors(a.double(), x.double())
    share, each = ENOUGH / a, a.unsqueeze(-1)
    reach = (2 * share).sqrt()

    def bend(v: Tensor) -> Tensor:
        # v² / 2 + v³ / 6 + … near 0, where e^v - 1 - v would lose its digits.
        near = v * v * (0.5 + v / 6 + v * v / 24)
        return each * torch.where(v.abs() < 1e-2, near, v.exp() - 1 - v)

    low, high = -(share * 2 / 3 + reach), (1 + share + reach).log()
    return 1 - _below(bend, low, torch.zeros_like(a), (x / a).log(), high)


def _softplus(v: Tensor) -> Tensor:
    """log(1 + e^v) by operations that onnxruntime has in double precision too."""
    return v.clamp(min=0) + (1 + (-v.abs()).exp()).log()


def _below(
    bend: Callable[[Tensor], Tensor], low: Tensor, peak: Tensor, at: Tensor, high: Tensor
) -> Tensor:
    """The share of ∫ exp(-bend) below a point, of a bend that is convex and at least 0."""
    # No piece has the peak inside, where it is sharpest.
    at = torch.maximum(torch.minimum(at, high), low)
    first, last = torch.minimum(at, peak), torch.maximum(at, peak)
    pieces = (low, first), (first, last), (last, high)
    left, middle, right = (_area(bend, *ends) for ends in pieces)
    return (left + torch.where(at > peak, middle, 0.0)) / (left + middle + right)


def _area(bend: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """∫ exp(-bend) from low to high, by the tanh-sinh rule."""
    # Made in the graph: a constant tensor in a decomposition is lost on the way to ONNX.
    t = STEP * torch.arange(-NODES, NODES + 1, dtype=low.dtype, device=low.device)
    steep = 0.25 * math.pi * (t.exp() - (-t).exp())
    shares = STEP * 0.5 * math.pi * (t.exp() + (-t).exp()) / (steep.exp() + (-steep).exp()) ** 2
    width = high - low
    v = low.unsqueeze(-1) + width.unsqueeze(-1) / (1 + (-2 * steep).exp())
    return ((-bend(v)).exp() * shares).sum(-1) * width
