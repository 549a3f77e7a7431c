"""Closed forms by the types of divergence, q and p: the most specific entry wins, a tie raises."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor
from torch.distributions import Distribution

if TYPE_CHECKING:
    from bayesdiv.divergence.base import Divergence

Rule = Callable[["Divergence", Distribution, Distribution], Tensor]
Prepared = Callable[[Distribution, Distribution], Tensor]
_Entry = TypeVar("_Entry", bound=Callable[..., Tensor])
_RULES: dict[tuple[type, type, type], Rule] = {}
# Faster forms of a rule for pairs like one given; None for a rule or pair that one does not serve.
FASTER: list[Callable[[Rule, "Divergence", Distribution, Distribution], Prepared | None]] = []


@dataclass(frozen=True)
class NodeRule(ABC):
    """A rule that sums over fixed nodes: exact to a stated accuracy, and not a closed form."""

    nodes: int | None = None

    @abstractmethod
    def prepare(self, divergence: "Divergence", q: Distribution, p: Distribution) -> Prepared:
        """The rule for pairs like this one, its nodes prepared: what a compiled step calls."""

    def __call__(self, divergence: "Divergence", q: Distribution, p: Distribution) -> Tensor:
        return self.prepare(divergence, q, p)(q, p)


def register(
    divergence: "type[Divergence]", q: type[Distribution], p: type[Distribution]
) -> Callable[[_Entry], _Entry]:
    """Enter a rule for a divergence between two types; usable from anyone's code.

    Examples:
        >>> from torch.distributions import Cauchy
        >>> from bayesdiv import KL, closed_form
        >>> @closed_form.register(KL, Cauchy, Cauchy)
        ... def _(divergence, q, p):
        ...     top = (q.scale + p.scale) ** 2 + (q.loc - p.loc) ** 2
        ...     return (top / (4 * q.scale * p.scale)).log()
    """

    def enter(rule: _Entry) -> _Entry:
        _RULES[divergence, q, p] = rule
        _look_up.cache_clear()
        return rule

    return enter


def find(divergence: "Divergence", q: Distribution, p: Distribution) -> Rule | None:
    """The rule for this divergence and pair, or None."""
    # Look a rule up once, before a step is compiled: the look-up does not trace, the rule does. A
    # rule takes the `reduced()` divergence, so that JSA(alpha=0) is computed by the rule of KL.
    simple = divergence.reduced()
    return _look_up(*map(type, (simple, q, p))) or simple.derived_rule(q, p)


def prepare(rule: Rule, divergence: "Divergence", q: Distribution, p: Distribution) -> Prepared:
    """The rule for pairs like this one, in the fastest form that is offered."""
    for faster in FASTER:
        found = faster(rule, divergence, q, p)
        if found is not None:
            return found
    if isinstance(rule, NodeRule):
        return rule.prepare(divergence, q, p)
    return partial(rule, divergence)


@cache
def _look_up(*wanted: type) -> Rule | None:
    fitting = [key for key in _RULES if _at_least(wanted, key)]
    best = [key for key in fitting if all(_at_least(key, other) for other in fitting)]
    if fitting and not best:
        names = " and ".join(sorted(str(tuple(t.__name__ for t in key)) for key in fitting))
        told = f"no closed form is the most specific for {tuple(t.__name__ for t in wanted)}"
        raise TypeError(f"{told}: register one for exactly these types, found {names}")
    return _RULES[best[0]] if best else None


def _at_least(key: tuple[type, ...], other: tuple[type, ...]) -> bool:
    """Whether `key` is as specific as `other` in all three places."""
    return all(issubclass(one, two) for one, two in zip(key, other, strict=True))
