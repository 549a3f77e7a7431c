"""The losses that the experiments compare, each by one name in all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.distributions import Normal

from bayesdiv.divergence import (
    JSA,
    JSG,
    KL,
    Divergence,
    Points,
    UnmodifiedJSA,
    UnmodifiedJSG,
    WeightedKL,
    closed_form,
)
from bayesdiv.model.posteriors import MeanField, Point
from reproduction.evidence import ChiVI, Method, RenyiVI, TotalVariationVI


@dataclass(frozen=True)
class ScaleAsVariance(Divergence):
    """A divergence of Gaussians whose standard deviations are taken for variances.

    So the authors' program writes KL and JS-G: softplus(rho), by which it scales the noise of the
    weights, and 0.1, the prior's, stand where the closed forms have variances.

    Args:
        inner: the divergence that the formula is of.

    Examples:
        >>> import torch
        >>> q, p = (Normal(torch.tensor(0.0), torch.tensor(s)) for s in (0.01, 0.04))
        >>> ScaleAsVariance(KL())(q, p) == KL()(Normal(q.loc, 0.1), Normal(p.loc, 0.2))
        tensor(True)
    """

    inner: Divergence

    def estimate(self, at_q: Points, at_p: Points) -> Tensor:
        """Not from points: they are spread like the Gaussians as they are."""
        raise ValueError("ScaleAsVariance has a closed form alone, got points: use Exact()")


@closed_form.register(ScaleAsVariance, Normal, Normal)
def _scale_as_variance(divergence: ScaleAsVariance, q: Normal, p: Normal) -> Tensor:
    rule = closed_form.find(divergence.inner, q, p)
    if rule is None:
        raise ValueError(f"inner must have a closed form for Gaussians, got {divergence.inner}")
    # Unchecked, since a check would wait for the device in the middle of a recorded step.
    wide = (Normal(one.loc, one.scale.sqrt(), validate_args=False) for one in (q, p))
    return rule(divergence.inner, *wide)


@dataclass(frozen=True)
class Contender:
    """A loss, and what of it is left to choose.

    Args:
        title: as tables and figures show it.
        divergence: from alpha to the divergence; alpha is left unread where there is none.
        chooses: which of alpha and strength are chosen on validation data.
        posterior: what is learned of the weights.
        method: a bound on the evidence instead of a divergence.
        strength: where it is not chosen.
    """

    title: str
    divergence: Callable[[Any], Divergence] = lambda alpha: KL()
    chooses: tuple[str, ...] = ()
    posterior: Callable[[Tensor, Tensor], nn.Module] = MeanField
    method: Method | None = None
    strength: float = 1.0


BOTH = ("alpha", "strength")
CONTENDERS: dict[str, Contender] = {
    "kl": Contender("KL"),
    "lambda_kl": Contender("λKL", chooses=("strength",)),
    "js_g": Contender("JS-G", JSG, BOTH),
    "js_a": Contender("JS-A", JSA, BOTH),
    "deterministic": Contender("deterministic", posterior=Point, strength=0.0),
    "unmodified_js_g": Contender("unmodified JS-G", UnmodifiedJSG, BOTH),
    "unmodified_js_a": Contender("unmodified JS-A", UnmodifiedJSA, BOTH),
    "weighted_kl": Contender("weighted KL", WeightedKL, BOTH),
    "renyi": Contender("Rényi-½ VI", method=RenyiVI(0.5)),
    "chi": Contender("χ-VI", method=ChiVI(2.0)),
    "total_variation": Contender("TV-VI", method=TotalVariationVI()),
    "authors_kl": Contender("KL as programmed", lambda alpha: ScaleAsVariance(KL())),
    "authors_js_g": Contender(
        "JS-G as programmed", lambda alpha: ScaleAsVariance(JSG(alpha)), BOTH
    ),
}
THREE = ("kl", "js_g", "js_a")
JS = ("js_g", "js_a")


def title(name: str) -> str:
    """How a contender is called.

    Examples:
        >>> title("lambda_kl")
        'λKL'
    """
    return CONTENDERS[name].title
