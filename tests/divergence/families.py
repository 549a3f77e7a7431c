"""Every continuous family of torch over one dimension, its peer in SciPy, and an own integration.

Densities come from SciPy, integrals from its tanh-sinh rule: nothing of the library is used here.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from scipy import integrate, optimize, special, stats
from torch import distributions as td

# A density that falls like x^-3 is a number up to here, one that falls faster counts for nothing.
FAR, CLOSE = 1e98, 1e-280


@dataclass(frozen=True)
class Peer:
    """One component: log density, quantiles and support, by SciPy."""

    logpdf: object
    ppf: object
    low: float = -math.inf
    high: float = math.inf


def of_scipy(frozen):
    low, high = frozen.support()
    return Peer(frozen.logpdf, frozen.ppf, low, high)


def laplace(loc, scale):
    own = stats.laplace(loc, scale)  # whose logpdf is the logarithm of a density that underflows
    return Peer(lambda x: -np.abs(x - loc) / scale - math.log(2 * scale), own.ppf)


def pareto(scale, shape):
    def logpdf(x):
        return math.log(shape) + shape * math.log(scale) - (shape + 1) * np.log(x)

    return Peer(logpdf, stats.pareto(shape, 0, scale).ppf, scale, math.inf)


def kumaraswamy(a, b):
    def logpdf(x):
        return np.log(a * b) + (a - 1) * np.log(x) + (b - 1) * np.log(-np.expm1(a * np.log(x)))

    return Peer(logpdf, lambda u: (1 - (1 - u) ** (1 / b)) ** (1 / a), 0.0, 1.0)


def continuous_bernoulli(share):
    rate = math.log(share / (1 - share))
    log_norm = math.log(rate / math.expm1(rate)) if abs(rate) > 1e-6 else -rate / 2
    return Peer(
        lambda x: rate * x + log_norm, lambda u: np.log1p(u * math.expm1(rate)) / rate, 0.0, 1.0
    )


def von_mises(loc, concentration):
    log_norm = math.log(2 * math.pi * special.i0e(concentration)) + concentration

    def ppf(u):
        spread = 1 / math.sqrt(concentration)
        return np.clip(loc + spread * stats.norm.ppf(u), -math.pi, math.pi)

    return Peer(lambda x: concentration * np.cos(x - loc) - log_norm, ppf, -math.pi, math.pi)


def relaxed_bernoulli(temperature, share):
    logit = math.log(share / (1 - share))

    def logpdf(x):
        gap = logit - temperature * special.logit(x)
        return math.log(temperature) + gap - 2 * np.logaddexp(0, gap) - np.log(x) - np.log1p(-x)

    def ppf(u):
        return special.expit((logit + special.logit(u)) / temperature)

    return Peer(logpdf, ppf, 0.0, 1.0)


def positive(low, high):
    return lambda g: math.exp(g.uniform(math.log(low), math.log(high)))


def real(g):
    return g.normal()


def share(g):
    return g.uniform(0.1, 0.9)


SCALE = positive(0.1, 3.0)
# Name: parameters, torch, SciPy.
FAMILIES = {
    "Normal": ((real, SCALE), td.Normal, lambda m, s: of_scipy(stats.norm(m, s))),
    "Laplace": ((real, SCALE), td.Laplace, laplace),
    "Cauchy": ((real, SCALE), td.Cauchy, lambda m, s: of_scipy(stats.cauchy(m, s))),
    "Gumbel": ((real, SCALE), td.Gumbel, lambda m, s: of_scipy(stats.gumbel_r(m, s))),
    "StudentT": (
        (positive(0.8, 30.0), real, SCALE),
        td.StudentT,
        lambda d, m, s: of_scipy(stats.t(d, m, s)),
    ),
    "Uniform": (
        (real, positive(0.2, 5.0)),
        lambda m, w: td.Uniform(m, m + w),
        lambda m, w: of_scipy(stats.uniform(m, w)),
    ),
    "HalfNormal": ((SCALE,), td.HalfNormal, lambda s: of_scipy(stats.halfnorm(0, s))),
    "HalfCauchy": ((SCALE,), td.HalfCauchy, lambda s: of_scipy(stats.halfcauchy(0, s))),
    "Exponential": ((SCALE,), td.Exponential, lambda r: of_scipy(stats.expon(0, 1 / r))),
    "Gamma": (
        (positive(0.3, 10.0), SCALE),
        td.Gamma,
        lambda a, r: of_scipy(stats.gamma(a, 0, 1 / r)),
    ),
    "Chi2": ((positive(0.6, 10.0),), td.Chi2, lambda d: of_scipy(stats.chi2(d))),
    "InverseGamma": (
        (positive(0.8, 8.0), SCALE),
        td.InverseGamma,
        lambda a, r: of_scipy(stats.invgamma(a, 0, r)),
    ),
    "LogNormal": (
        (real, positive(0.1, 2.0)),
        td.LogNormal,
        lambda m, s: of_scipy(stats.lognorm(s, 0, math.exp(m))),
    ),
    "Weibull": (
        (SCALE, positive(0.5, 5.0)),
        td.Weibull,
        lambda s, k: of_scipy(stats.weibull_min(k, 0, s)),
    ),
    "Pareto": (
        (SCALE, positive(0.8, 8.0)),
        td.Pareto,
        pareto,
    ),
    "GeneralizedPareto": (
        (real, SCALE, positive(0.1, 1.0)),
        td.GeneralizedPareto,
        lambda m, s, c: of_scipy(stats.genpareto(c, m, s)),
    ),
    "FisherSnedecor": (
        (positive(0.8, 10.0), positive(1.5, 20.0)),
        td.FisherSnedecor,
        lambda a, b: of_scipy(stats.f(a, b)),
    ),
    "Beta": (
        (positive(0.5, 10.0), positive(0.5, 10.0)),
        td.Beta,
        lambda a, b: of_scipy(stats.beta(a, b)),
    ),
    "Kumaraswamy": ((positive(0.5, 5.0), positive(0.6, 5.0)), td.Kumaraswamy, kumaraswamy),
    "ContinuousBernoulli": (
        (lambda g: g.choice([g.uniform(0.05, 0.45), g.uniform(0.55, 0.95)]),),
        td.ContinuousBernoulli,
        continuous_bernoulli,
    ),
    "VonMises": ((real, positive(0.1, 20.0)), td.VonMises, von_mises),
    "RelaxedBernoulli": (
        (positive(0.6, 3.0), share),
        td.RelaxedBernoulli,
        relaxed_bernoulli,
    ),
}
DTYPES = (torch.float64, torch.float32, torch.bfloat16)
# Others keep a function of their parameters, rounded: another density than that of the parameters.
AS_GIVEN = ("Normal", "Laplace", "Cauchy", "StudentT", "Uniform", "Gamma", "Exponential", "Beta")


@dataclass(frozen=True)
class Density:
    """A mixture of peers, or one of them."""

    shares: tuple[float, ...]
    peers: tuple[Peer, ...]

    @property
    def edges(self):
        return [x for peer in self.peers for x in (peer.low, peer.high) if math.isfinite(x)]

    def log(self, x):
        x = np.asarray(x, dtype=float)
        parts = []
        with np.errstate(all="ignore"):
            for weight, peer in zip(self.shares, self.peers, strict=True):
                inside = (x > peer.low) & (x < peer.high)
                stand_in = np.where(inside, x, peer.ppf(0.5))
                log = np.nan_to_num(peer.logpdf(stand_in), nan=-np.inf, posinf=-np.inf)
                parts.append(np.where(inside, log + math.log(weight), -np.inf))
            return special.logsumexp(np.stack(parts), axis=0)

    def holds(self, other):
        """Whether the support holds that of the other."""
        low, high = (f(getattr(p, n) for p in self.peers) for f, n in ((min, "low"), (max, "high")))
        gaps = len(self.peers) > 1 and max(p.low for p in self.peers) > min(
            p.high for p in self.peers
        )
        inner = min(p.low for p in other.peers), max(p.high for p in other.peers)
        return low <= inner[0] and high >= inner[1] and not gaps

    def quantiles(self, levels):
        return [peer.ppf(np.array(levels)) for peer in self.peers]


def draw_prior(g):
    """A prior of a random family, alone or as a mixture of two, and its density."""
    name = g.choice(list(FAMILIES))
    ranges, family, peer = FAMILIES[name]
    dtype = DTYPES[g.choice(3, p=[0.5, 0.3, 0.2])] if name in AS_GIVEN else torch.float64
    count = 2 if g.random() < 0.3 else 1
    rows = [torch.tensor([float(r(g)) for _ in range(count)], dtype=dtype) for r in ranges]
    rows = [row.clamp(0.02, 0.98) if name in ("ContinuousBernoulli",) else row for row in rows]
    if name == "Uniform":  # whose upper edge is rounded too
        upper = (rows[0] + rows[1]).to(dtype)
        prior = td.Uniform(rows[0], upper)
        rows = [rows[0].double(), upper.double() - rows[0].double()]
    else:
        prior = family(*rows)
    peers = tuple(peer(*(row[k].item() for row in rows)) for k in range(count))
    if count == 1:
        return name, family_of_one(prior), Density((1.0,), peers)
    shares = torch.tensor([0.3, 0.7], dtype=torch.float64)
    return name, td.MixtureSameFamily(td.Categorical(shares), prior), Density((0.3, 0.7), peers)


def family_of_one(prior):
    return prior.expand(torch.Size([1]))


def draw_posterior(g, dtype=torch.float64):
    loc = torch.tensor([g.normal(0, 1.5)], dtype=dtype)
    scale = torch.tensor([math.exp(g.uniform(math.log(0.05), math.log(3.0)))], dtype=dtype)
    peer = of_scipy(stats.norm(loc.item(), scale.item()))
    return td.Normal(loc, scale), Density((1.0,), (peer,))


# Integration ----------------------------------------------------------------------------------

LEVELS = (1e-13, 1e-8, 1e-4, 0.02, 0.2, 0.5, 0.8, 0.98, 1 - 1e-4, 1 - 1e-8, 1 - 1e-13)


class Line:
    """The line cut at all that happens on it: x = origin + sign e^t, or x = t where sign is 0."""

    def __init__(self, q, p):
        self.q, self.p = q, p
        found = [x for d in (q, p) for x in d.quantiles(LEVELS)]
        for d in (q, p):
            for quantiles in d.quantiles((0.16, 0.5, 0.84)):
                width = quantiles[2] - quantiles[0]
                found.append(quantiles[1] + width * np.array([-12, -6, -3, 3, 6, 12]))
        cuts = np.concatenate([np.asarray(x, dtype=float).ravel() for x in found])
        cuts = np.concatenate([cuts[np.isfinite(cuts)], q.edges, p.edges])
        cuts = np.unique(cuts[np.abs(cuts) < 1e100])
        edges = np.unique([*q.edges, *p.edges])
        self.pieces = []  # low, high, origin, sign
        self.ends = []  # of infinite or singular ranges: t far, t near, origin, sign
        for low, high in pairwise(cuts):
            self._between(low, high, edges)
        middle = cuts[len(cuts) // 2]
        for sign, outer in ((-1, cuts[0]), (1, cuts[-1])):
            self._graded(middle, sign, math.log(abs(outer - middle)), math.log(FAR))

    def _between(self, low, high, edges):
        at_low, at_high = low in edges, high in edges
        if at_low and at_high:
            middle = (low + high) / 2
            self._between(low, middle, edges)
            self._between(middle, high, edges)
        elif at_low or at_high:
            edge = low if at_low else high
            close = max(CLOSE, abs(edge) * 4e-16)
            if high - low > 2 * close:
                self._graded(edge, 1 if at_low else -1, math.log(high - low), math.log(close))
        elif high - low > 4 * min(self._gap(low, edges), self._gap(high, edges)):
            edge = min(edges, key=lambda e: min(abs(low - e), abs(high - e)))
            sign = 1 if low > edge else -1
            ends = sorted(math.log(abs(x - edge)) for x in (low, high))
            cuts = np.linspace(*ends, max(2, math.ceil((ends[1] - ends[0]) / 3)))
            self.pieces += [(a, b, edge, sign) for a, b in pairwise(cuts)]
        else:
            self.pieces.append((low, high, 0.0, 0))

    @staticmethod
    def _gap(x, edges):
        return min((abs(x - e) for e in edges), default=math.inf)

    def _graded(self, origin, sign, start, end):
        grades = start + (end - start) * np.array([0, *(2.0 ** -np.arange(8, -1, -1))])
        for one, two in pairwise(grades):
            self.pieces.append((min(one, two), max(one, two), origin, sign))
        self.ends.append(
            (end, end + min(40, abs(start - end) / 2) * np.sign(start - end), origin, sign)
        )

    def integrate(self, f, kinks=()):
        """∫ f, f a function of (x, log q, log p); inf where it diverges, NaN where in doubt."""
        rows = np.array(self.pieces, dtype=float).T
        low, high, origin, sign = self._cut(rows, kinks) if len(kinks) else rows

        def at(t, origin, sign):
            with np.errstate(all="ignore"):
                x = np.where(sign == 0, t, origin + sign * np.exp(np.where(sign == 0, 0, t)))
                value = f(x, self.q.log(x), self.p.log(x))
                return np.nan_to_num(value * np.where(sign == 0, 1, np.exp(t)), posinf=np.inf)

        for far, near, where, side in self.ends:
            one, two = (float(at(np.array(t), where, side)) for t in (far, near))
            if one * two < 0:  # a change of sign hides how it fades
                if abs(one) > 1e-9:
                    return math.nan
                continue
            one, two = abs(one), abs(two)
            if one > 0 and np.isfinite(two):
                decay = math.log(two / one) / abs(far - near) if np.isfinite(one) else -1
                if decay < 1e-4:
                    return math.inf
                if one / decay > 1e-8:
                    return math.nan
        found = integrate.tanhsinh(
            at, low, high, args=(origin, sign), atol=1e-12, rtol=1e-10, maxlevel=9
        )
        total = found.integral.sum()
        return total if found.error[~found.success].sum() <= 2e-8 * max(1, abs(total)) else math.nan

    @staticmethod
    def _cut(rows, kinks):
        for kink in kinks:
            low, high, origin, sign = rows
            with np.errstate(all="ignore"):
                t = np.where(sign == 0, kink, np.log(sign * (kink - origin)))
            hit = (t > low) & (t < high)
            second = rows[:, hit].copy()
            second[0] = t[hit]
            rows = rows.copy()
            rows[1, hit] = t[hit]
            rows = np.concatenate([rows, second], axis=1)
        return rows

    def crossings(self):
        """Where log q = log p."""
        grid = []
        for low, high, origin, sign in self.pieces:
            t = np.linspace(low, high, 24)
            grid.append(t if sign == 0 else origin + sign * np.exp(t))
        grid = np.unique(np.concatenate(grid))

        def gap(x):
            with np.errstate(all="ignore"):
                return np.nan_to_num(self.q.log(x) - self.p.log(x), nan=1.0)

        signs = np.sign(gap(grid))
        places = np.nonzero(signs[1:] * signs[:-1] < 0)[0]
        roots = []
        for k in places:
            ends = [float(np.clip(gap(x), -1e9, 1e9)) for x in grid[k : k + 2]]
            if max(map(abs, ends)) < 1e8:
                roots.append(optimize.brentq(gap, grid[k], grid[k + 1], xtol=1e-15, rtol=1e-14))
        return roots

    @staticmethod
    def _overflow(exponent):
        """Infinite where an exponent grows for ever, in doubt where it has a peak or may turn."""
        ends = [exponent(side * FAR / np.array([100.0, 10.0, 1.0])) for side in (-1, 1)]
        return math.inf if any(_steady(end) for end in ends) else math.nan

    def log_mean(self, on_q, on_p):
        """Log ∫ q^on_q p^on_p."""

        def exponent(log_q, log_p):
            with np.errstate(all="ignore"):
                one = on_q * log_q if on_q else 0 * np.nan_to_num(log_q)
                two = on_p * log_p if on_p else 0 * np.nan_to_num(log_p)
                zero = (on_q > 0) & (log_q == -np.inf) | (on_p > 0) & (log_p == -np.inf)
                return np.where(zero, -np.inf, one + two)

        def at(x):
            return exponent(self.q.log(x), self.p.log(x))

        best = -np.inf
        for low, high, origin, sign in self.pieces:
            t = np.linspace(low, high, 200)
            best = max(best, np.nanmax(at(t if sign == 0 else origin + sign * np.exp(t))))
        if best > 1e6:
            return self._overflow(at)
        found = self.integrate(lambda x, q, p: np.exp(np.minimum(exponent(q, p) - best, 600.0)))
        return found if not 0 < found < math.inf else math.log(found) + best


def _steady(values):
    """Whether three values a decade apart grow like one power; otherwise they may turn."""
    with np.errstate(all="ignore"):
        one, two = np.log(values[1:] / values[:-1])
    return values.min() > 0 and one > 0.1 and abs(one - two) < 1e-6


def ratio(weight, one, two):
    """exp(weight) (one - two), 0 where the weight is."""
    with np.errstate(all="ignore"):
        return np.where(weight == -np.inf, 0.0, np.exp(weight) * (one - two))


def kl(line):
    if not line.p.holds(line.q):
        return math.inf
    return line.integrate(lambda x, q, p: ratio(q, q, p))


def reverse_kl(line):
    if not line.q.holds(line.p):
        return math.inf
    return line.integrate(lambda x, q, p: ratio(p, p, q))


def js_a(line, outer, inner):
    def integrand(x, q, p):
        mean = np.logaddexp(math.log(inner) + q, math.log(1 - inner) + p)
        return outer * ratio(q, q, mean) + (1 - outer) * ratio(p, p, mean)

    return line.integrate(integrand)


def total_variation(line):
    return line.integrate(lambda x, q, p: np.abs(np.exp(q) - np.exp(p)) / 2, kinks=line.crossings())


def reference(divergence, line):
    """The divergence by its definition."""
    name, alpha = type(divergence).__name__, getattr(divergence, "alpha", 0.0)
    if name == "KL":
        return kl(line)
    if name == "ReverseKL":
        return reverse_kl(line)
    if name in ("JSA", "UnmodifiedJSA"):
        return js_a(line, 1 - alpha, alpha if name == "JSA" else 1 - alpha)
    if name == "TotalVariation":
        return total_variation(line)
    if name == "ChiSquared":
        return line.log_mean(-1, 2) if line.q.holds(line.p) else math.inf
    if name == "Renyi":
        if alpha > 1 and not line.p.holds(line.q):
            return math.inf
        return line.log_mean(alpha, 1 - alpha) / (alpha - 1)
    forward, backward = kl(line), reverse_kl(line)
    if math.isinf(forward) or math.isinf(backward):
        return math.inf
    if name == "UnmodifiedJSG":
        return alpha * (1 - alpha) * (forward + backward) + line.log_mean(1 - alpha, alpha)
    both = (1 - alpha) ** 2 * forward + alpha**2 * backward
    return both if name == "WeightedKL" else both + line.log_mean(alpha, 1 - alpha)
