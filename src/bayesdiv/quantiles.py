"""Quantiles of a mixture of any torch distribution, whether torch knows its quantiles or not."""

import math
from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, NegativeBinomial, Poisson, StudentT
from torch.distributions.constraints import Constraint
from torch.nn.functional import logsigmoid

from bayesdiv.compute.devices import traced
from bayesdiv.compute.streams import seeded
from bayesdiv.divergence.densities import offers

DRAWS = 1 << 14  # where nothing but samples is known, in all
BLOCK = 64  # counts whose probabilities are added up at once
MOST_TERMS = 1000  # of a continued fraction
MOST_COUNTS = 1 << 16  # beyond which samples take over


@torch.no_grad()
def quantile(distribution: Distribution, probability: float) -> Tensor:
    """Where the distribution function of the mixture over the first axis reaches `probability`."""
    # By the distribution function where torch or this file knows it: Newton's steps, or halves of a
    # bracket. Of counts, the least that reaches it, their probabilities added up. By samples
    # elsewhere, with an error in the probability of about 0.004.
    known = _cdf_of(distribution) is not None
    if getattr(distribution.support, "is_discrete", False):
        return (_count if known else _added_up)(distribution, probability)
    return (_continuous if known else _sampled)(distribution, probability)


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


def cdf(distribution: Distribution, value: Tensor) -> Tensor:
    """The distribution function, also of those for which torch has none."""
    found = _cdf_of(distribution)
    if found is None:
        raise ValueError(f"{type(distribution).__name__} has no distribution function")
    return found(distribution, value)


def _poisson_cdf(distribution: Distribution, value: Tensor) -> Tensor:
    below: Tensor = torch.special.gammaincc(value.floor() + 1, distribution.mean)
    return torch.where(value < 0, 0.0, below)


def _negative_binomial_cdf(distribution: NegativeBinomial, value: Tensor) -> Tensor:
    """P(Y ≤ k) = I_{1-p}(r, k + 1), the regularised incomplete beta function."""
    logits_dtype = distribution.logits.dtype
    logits, count = distribution.logits.double(), distribution.total_count.double()
    whole = value.double().floor()
    below = _incomplete_beta(count, whole.clamp(min=0) + 1, logits)
    return torch.where(whole < 0, 0.0, below).to(torch.promote_types(value.dtype, logits_dtype))


def _incomplete_beta(a: Tensor, b: Tensor, logits: Tensor) -> Tensor:
    """I_x(a, b) at x = 1 - sigmoid(logits), by the side whose continued fraction is short."""
    x = torch.sigmoid(-logits)
    a, b, logits, x = torch.broadcast_tensors(a, b, logits, x)
    turned = x > (a + 1) / (a + b + 2)
    one, two = torch.where(turned, b, a), torch.where(turned, a, b)
    near = torch.where(turned, 1 - x, x)
    log_beta = one.lgamma() + two.lgamma() - (one + two).lgamma()
    logs = logsigmoid(-logits), logsigmoid(logits)  # of x and of 1 - x
    log_near, log_far = torch.where(turned, logs[1], logs[0]), torch.where(turned, *logs)
    front = (one * log_near + two * log_far - log_beta - one.log()).exp()
    found = front / _fraction(one, two, near)
    return torch.where(turned, 1 - found, found).clamp(0, 1)


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


def _students_cdf(distribution: StudentT, value: Tensor) -> Tensor:
    """P(T ≤ value), to twelve digits in double precision."""
    t = (value - distribution.loc) / distribution.scale
    df = distribution.df.double()
    if not traced() and (df == df[:1, :1]).all():
        df = df[:1, :1]  # one for all, so that most of the work is done once
    tail = _upper_tail(t.abs().double(), df)
    return torch.where(t > 0, 1 - tail, tail)


def farthest(distribution: StudentT, probability: float) -> tuple[Tensor, Tensor]:
    """Bounds of the quantile of each, from P(T > t) ≤ ½ (1 + t²/df)^(-df/2), solved for t."""
    # J of `_upper_tail` falls with s, which gives that bound.
    outside, df = 2 * min(probability, 1 - probability), distribution.df.double()
    reach = (df * torch.expm1(-2 * math.log(outside) / df)).sqrt().clamp(max=1e150)
    reach = distribution.scale * reach
    return distribution.loc - reach, distribution.loc + reach


def _upper_tail(t: Tensor, df: Tensor) -> Tensor:
    """P(T > t) of Student's t, t ≥ 0, after substituting T = √df sinh(v + w), t = √df sinh v."""
    # P(T > t) = ½ cosh(v)^-df J(tanh v) / J(0),   J(s) = ∫ (cosh w + s sinh w)^-df dw over w > 0
    slope = t / (df + t * t).sqrt()
    start = torch.exp(-0.5 * df * torch.log1p(t * t / df))
    return 0.5 * start * _decay(slope, df) / _decay(torch.zeros_like(df), df)


_NODES, _SHARES = (torch.from_numpy(side) for side in np.polynomial.legendre.leggauss(64))


def _decay(slope: Tensor, df: Tensor) -> Tensor:
    """J(s) of `_upper_tail`, by Gauss-Legendre up to where at most e^-36 is left."""
    fall = 36 / df
    reach = fall + torch.log1p((-torch.expm1(-2 * fall)).sqrt())  # arcosh(e^fall)
    total = slope.new_zeros(())
    # A few nodes at a time: all would need 64 times the memory, single ones many small steps.
    for nodes, shares in zip(_NODES.to(df).split(8), _SHARES.to(df).split(8), strict=True):
        w = 0.5 * reach.unsqueeze(-1) * (1 + nodes)
        log_base = w + torch.log1p(0.5 * (1 - slope.unsqueeze(-1)) * torch.expm1(-2 * w))
        total = total + torch.exp(-df.unsqueeze(-1) * log_base) @ shares
    return total * reach


# What torch lacks.
_CDFS: Mapping[type[Distribution], Callable[..., Tensor]] = {
    StudentT: _students_cdf,
    Poisson: _poisson_cdf,
    NegativeBinomial: _negative_binomial_cdf,
}


def _cdf_of(distribution: Distribution) -> Callable[..., Tensor] | None:
    own = next((_CDFS[kind] for kind in type(distribution).__mro__ if kind in _CDFS), None)
    if own is not None or not offers(distribution, "cdf"):
        return own
    return lambda distribution, value: distribution.cdf(value)


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
    """Bounds of the mixture's quantile: the least and the greatest quantile of a draw."""
    if isinstance(distribution, StudentT):
        lows, highs = farthest(distribution, probability)
        return lows.amin(0), highs.amax(0)
    centre = mean(distribution).double()
    if offers(distribution, "icdf"):
        each = distribution.icdf(centre.new_full(distribution.batch_shape, probability))
        return each.amin(0), each.amax(0)
    # Around the mean, doubled until the quantile is inside, within the support.
    reach = variance(distribution).double().sqrt()
    least = getattr(distribution.support, "lower_bound", -torch.inf)
    most = getattr(distribution.support, "upper_bound", torch.inf)
    for _ in range(200):
        low, high = ((centre + sign * reach).clamp(least, most) for sign in (-1, 1))
        low, high = low.amin(0), high.amax(0)
        below = cdf(distribution, low).mean(0) <= probability
        above = cdf(distribution, high).mean(0) >= probability
        if bool((below & above).all()):
            break
        reach = 2 * reach
    return low, high


def _between(low: Tensor, high: Tensor) -> Tensor:
    """Half way on a scale that is logarithmic far out: a wide bracket loses half its digits."""
    # A narrow one, far from 0, is halved as it is: a logarithm would lose the digits it is about.
    narrow = high - low < torch.minimum(low.abs(), high.abs())
    far = ((low.asinh() + high.asinh()) / 2).sinh()
    return torch.where(narrow, 0.5 * low + 0.5 * high, far).clamp(low, high)


def _count(distribution: Distribution, probability: float) -> Tensor:
    dtype = mean(distribution).dtype
    high = mean(distribution).double().amax(0).ceil() + 1
    low = torch.full_like(high, -1.0)
    while bool((short := cdf(distribution, high).double().mean(0) < probability).any()):
        high = torch.where(short, 2 * high, high)
    while bool((high - low > 1).any()):
        middle = ((low + high) / 2).floor()
        reached = cdf(distribution, middle).double().mean(0) >= probability
        low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
    return high.to(dtype)


def _added_up(distribution: Distribution, probability: float) -> Tensor:
    """The same without a distribution function: probabilities of 0, 1, 2, … added up."""
    like = mean(distribution)
    found, total = torch.full_like(like[0], torch.nan), torch.zeros_like(like[0])
    for start in range(0, MOST_COUNTS, BLOCK):
        counts = torch.arange(start, start + BLOCK, device=like.device, dtype=like.dtype)
        every = counts.view(-1, *(1,) * like.dim())
        # 0 outside the support, where torch raises or extrapolates.
        inside: Tensor = cast(Constraint, distribution.support).check(every)
        mass = distribution.log_prob(every.where(inside, 0)).exp().where(inside, 0.0)
        sums = total + mass.mean(1).cumsum(0)  # (BLOCK, batch)
        place = (sums < probability - 16 * torch.finfo(like.dtype).eps).sum(0)  # rounding apart
        new = found.isnan() & (place < BLOCK)
        found, total = torch.where(new, start + place.to(found), found), sums[-1]
        if not bool(found.isnan().any()):
            return found
    return _sampled(distribution, probability)


def _sampled(distribution: Distribution, probability: float) -> Tensor:
    samples = distribution.batch_shape[0]
    drawn = _draws(distribution, -(-DRAWS // samples)).flatten(0, 1)  # (≥ DRAWS, batch)
    return drawn.sort(0).values[math.ceil(probability * len(drawn)) - 1]


def _draws(distribution: Distribution, count: int = DRAWS) -> Tensor:
    """Samples that are the same in every call, and leave torch's generator alone."""
    with seeded(0, list(range(torch.cuda.device_count()))):
        return distribution.sample(torch.Size([count]))
