"""Closed forms by the types of divergence, q and p: the most specific entry wins, a tie raises."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor
from torch.distributions import Distribution

if TYPE_CHECKING:
    from bayesdiv.divergence.base import Divergence

Rule = Callable[["Divergence", Distribution, Distribution], Tensor]
Prepared = Callable[[Distribution, Distribution], Tensor]
# The sum over the last axis of what a rule computes; None for a pair that it does not serve.
Total = Callable[[Distribution, Distribution], Tensor | None]
TotalRule = Callable[["Divergence", Distribution, Distribution], Total | None]
_Entry = TypeVar("_Entry", bound=Callable[..., Tensor])
_TotalEntry = TypeVar("_TotalEntry", bound=Callable[..., Total | None])
_Key = tuple[type, type, type]
_RULES: dict[_Key, Rule] = {}
_TOTALS: dict[_Key, TotalRule] = {}


@dataclass(frozen=True)
class NodeRule(ABC):
    """A rule that sums over fixed nodes: exact to a stated accuracy, and not a closed form.

    Args:
        nodes: how many; None lets the rule choose its fastest way.
    """

    nodes: int | None = None

    @abstractmethod
    def prepare(self, divergence: "Divergence", q: Distribution, p: Distribution) -> Prepared:
        """The rule for pairs like this one, its nodes laid out: what a compiled step calls."""

    def __call__(self, divergence: "Divergence", q: Distribution, p: Distribution) -> Tensor:
        """One value a weight."""
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
        _TOTALS.pop((divergence, q, p), None)  # which was the sum of the rule before
        _look_up.cache_clear()
        return rule

    return enter


def register_total(
    divergence: "type[Divergence]", q: type[Distribution], p: type[Distribution]
) -> Callable[[_TotalEntry], _TotalEntry]:
    """Enter a faster way to the sum over all weights, beside the rule for one value a weight.

    It is asked once for a divergence and a pair, and returns the function that sums, or None. A
    rule for more special types than its own stays in force.
    """

    def enter(rule: _TotalEntry) -> _TotalEntry:
        _TOTALS[divergence, q, p] = rule
        return rule

    return enter


def find_total(divergence: "Divergence", q: Distribution, p: Distribution) -> Total | None:
    """The faster way to the sum for a reduced divergence and this pair, or None."""
    wanted = (type(divergence), type(q), type(p))
    rule = _best(wanted)
    key = next((key for key in _TOTALS if _at_least(wanted, key)), None)
    if rule is None or key is None or not _at_least(key, rule):
        return None
    return _TOTALS[key](divergence, q, p)


def find(divergence: "Divergence", q: Distribution, p: Distribution) -> Rule | None:
    """The rule for this divergence and pair, or None.

    Look a rule up once, before a step is compiled: the look-up does not trace, the rule does. A
    rule takes the `reduced()` divergence, so that JSA(alpha=0) is computed by the rule of KL.
    """
    simple = divergence.reduced()
    return _look_up(*map(type, (simple, q, p))) or simple.derived_rule(q, p)


@cache
def _look_up(*wanted: type) -> Rule | None:
    key = _best(wanted)
    return None if key is None else _RULES[key]


def _best(wanted: tuple[type, ...]) -> _Key | None:
    """The most specific of the entries that fit."""
    fitting = [key for key in _RULES if _at_least(wanted, key)]
    best = [key for key in fitting if all(_at_least(key, other) for other in fitting)]
    if fitting and not best:
        names = " and ".join(sorted(str(tuple(t.__name__ for t in key)) for key in fitting))
        raise TypeError(
            f"no closed form is the most specific for {tuple(t.__name__ for t in wanted)}: "
            f"register one for exactly these types, found {names}"
        )
    return best[0] if best else None


def _at_least(key: tuple[type, ...], other: tuple[type, ...]) -> bool:
    """Whether `key` is as specific as `other` in all three places."""
    return all(issubclass(one, two) for one, two in zip(key, other, strict=True))
