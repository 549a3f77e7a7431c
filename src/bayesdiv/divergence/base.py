"""What a divergence is, a number from log densities at points, and what an estimator of it is."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.closed_form import Rule
from bayesdiv.divergence.densities import check_pair

Number = float | Tensor
Computation = Callable[[Distribution, Distribution, Tensor | None], Tensor]


@dataclass(frozen=True)
class Points:
    """Log densities of q and p at points, the first axis, spread like one of the two.

    `log_weight` is the log of the share each point stands for; the shares add up to 1. `-inf` takes
    a point out altogether (0 · log 0 = 0).

    Examples:
        >>> half = torch.tensor([0.5, 0.5]).log()
        >>> points = Points(torch.tensor([0.0, -1.0]), torch.zeros(2), half)
        >>> points.mean(points.log_q - points.log_p)
        tensor(-0.5000)
    """

    log_q: Tensor
    log_p: Tensor
    log_weight: Tensor

    def mean(self, values: Tensor) -> Tensor:
        """The expectation of `values`; infinite as soon as a point that counts is infinite."""
        return self._terms(values).sum(0)

    def log_mean_ratio(self, power: Number) -> Tensor:
        """Log E[(p/q)^power], such as log Z = log ∫ q^α p^(1-α) with power 1-α at points of q."""
        count = self.log_q.shape[0]
        if count < 1000:  # from a handful, the gradient of this logarithm points away from p
            told = f"the logarithm of a mean needs at least 1000 samples, got {count}"
            raise ValueError(f"{told}: use Quadrature() or MonteCarlo(samples=1000)")
        return self._exponents(power).logsumexp(0)

    def _terms(self, values: Tensor) -> Tensor:
        # A share that underflows to 0 must not hide an infinite value: 0 · inf is inf here.
        terms = torch.where(values == math.inf, values, self.log_weight.exp() * values)
        return torch.where(self.log_weight == -math.inf, 0.0, terms)

    def _exponents(self, power: Number) -> Tensor:
        return self.log_weight + power * (self.log_p - self.log_q)


class Divergence(ABC):
    """A measure of how far q lies from p, in nats, one value per weight.

    Subclasses are frozen dataclasses with one method, `estimate`. Calling a divergence computes it:

        >>> from torch.distributions import Normal
        >>> from bayesdiv import KL
        >>> KL()(Normal(1.0, 1.0), Normal(0.0, 1.0))
        tensor(0.5000)
    """

    default: ClassVar["Estimator"]
    """How a call computes it by default: `Auto()`."""
    mirror: ClassVar["Divergence | None"] = None
    """The divergence that this one is with q and p in each other's place."""
    linear: ClassVar[bool] = True
    """Whether it is a mean over points, so that a few samples estimate it without bias."""
    averaged: ClassVar[str] = "qp"
    """Under which of q and p it is the mean of a ratio of logarithms without bound."""

    @abstractmethod
    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        """One value per weight, from points spread like q and points spread like p."""

    @property
    def bound(self) -> float | None:
        """The value that no pair exceeds, for one weight; None where there is no such value."""
        return None

    @property
    def symmetric(self) -> bool:
        """Whether q and p may change places."""
        return False

    @property
    def parts(self) -> "tuple[tuple[Number, Divergence], ...]":
        """Divergences and factors whose sum this is, where each may have its own rule."""
        return ()

    def estimate_wide(self, at_q: Points, at_p: Points) -> Tensor:
        """Like `estimate`, with less spread from samples where q is wider than p."""
        return self.estimate(at_q, at_p)

    def reduced(self) -> "Divergence":
        """The simpler divergence this one equals, such as KL at alpha = 0; else itself."""
        return self

    def derived_rule(self, q: Distribution, p: Distribution) -> Rule | None:
        """A closed form put together from those of other divergences; None where there is none."""
        if self.mirror is not None:
            other, rule = self.mirror, closed_form.find(self.mirror, p, q)
            return None if rule is None else lambda _, q, p: rule(other, p, q)
        found = [(f, each, closed_form.find(each, q, p)) for f, each in self.parts]
        terms = [(f, each, rule) for f, each, rule in found if rule is not None]
        if not terms or len(terms) < len(found):
            return None
        return lambda _, q, p: reduce(add, (f * rule(each, q, p) for f, each, rule in terms))

    def has_closed_form(self, q: Distribution, p: Distribution) -> bool:
        """Whether this pair has an analytical expression, without nodes or samples."""
        rule = closed_form.find(self, q, p)
        return rule is not None and not isinstance(rule, closed_form.NodeRule)

    def __call__(
        self, q: Distribution, p: Distribution, estimator: "Estimator | None" = None
    ) -> Tensor:
        """One value per weight, not summed; `Auto()` computes it where no estimator is given."""
        return (estimator or self.default)(self, q, p)


class Estimator(ABC):
    """A way to compute a divergence. Subclasses are frozen dataclasses."""

    def __call__(
        self,
        divergence: Divergence,
        q: Distribution,
        p: Distribution,
        *,
        weights: Tensor | None = None,
    ) -> Tensor:
        """One value per weight, in nats, not summed."""
        return self.prepare(divergence, q, p)(q, p, weights)

    def prepare(self, divergence: Divergence, q: Distribution, p: Distribution) -> Computation:
        """A function of q, p and weights (or None) for pairs like this one."""
        # All that does not depend on values is done here, once: checks, the look-up of the rule,
        # its nodes or its table. The function itself compiles into one graph where the rule is
        # exact.
        if not isinstance(divergence, Divergence):
            raise TypeError(f"divergence must be a Divergence such as KL(), got {divergence!r}")
        check_pair(q, p)
        return self.prepared(divergence.reduced(), q, p)

    @abstractmethod
    def prepared(self, divergence: Divergence, q: Distribution, p: Distribution) -> Computation:
        """What `prepare` returns, for a checked pair and a reduced divergence."""

    def rule(self, divergence: Divergence, q: Distribution, p: Distribution) -> Rule | None:
        """The exact rule that `prepared` uses, which a backend may add up faster; None if none."""
        return None


def compiling() -> bool:
    """Whether a compiler traces: it fuses by itself, cannot look at values nor catch what fails."""
    return torch.compiler.is_compiling()


def on_gpu(value: object) -> bool:
    """Whether this is a tensor on a CUDA device: a look at values would halt it."""
    return isinstance(value, Tensor) and value.is_cuda


def checked_alpha(alpha: Number) -> Number:
    """`alpha`, after its check: [0, 1] for a number, inside (0, 1) for a tensor."""
    if isinstance(alpha, Tensor):
        if not compiling() and not bool(((alpha > 0) & (alpha < 1)).all()):
            told = f"an alpha given as a tensor must lie inside (0, 1), got {alpha.tolist()}"
            raise ValueError(f"{told}: to learn it, use LearnedAlpha, which keeps it there")
        return alpha
    if isinstance(alpha, str | bool) or not hasattr(alpha, "__float__"):
        raise TypeError(f"alpha must be a number, got {alpha!r}")
    if not 0 <= float(alpha) <= 1:
        raise ValueError(f"alpha must lie in [0, 1], got {alpha}")
    return float(alpha)
