"""Suites that your own class can run: the same that our own classes pass."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.distributions import Distribution, Laplace, MultivariateNormal, Normal

from bayesdiv.divergence import closed_form
from bayesdiv.divergence.base import Divergence, Estimator
from bayesdiv.divergence.estimators import Exact, MonteCarlo
from bayesdiv.divergence.quadrature import Quadrature
from bayesdiv.model.posteriors import PosteriorFor
from bayesdiv.predictive import Predictive
from bayesdiv.quantiles import is_discrete

Pair = tuple[Distribution, Distribution]
_HEAVY = 30.0  # kurtosis, which is 3 of a Gaussian
_GROUPS = 20  # of samples, whose spread is the error of their mean
_WEIGHTS, _TRIALS = 3, 2


def check_divergence(
    divergence: Divergence, pairs: Sequence[Pair] | None = None, *, samples: int = 40_000
) -> None:
    """Raise an AssertionError, in one sentence, unless `divergence` keeps what it promises.

    For each pair: zero for equal distributions; never negative nor above its `bound`; its closed
    form, if one is registered, equal to dense integration in value and gradient; Monte Carlo within
    five standard errors of it; the gradient finite; unchanged when q and p change places if it
    claims to be `symmetric`. Pairs are in float64, each a single weight; there are usual ones.

    Examples:
        >>> check_divergence(bd.JSA(alpha=0.3))
    """
    if pairs is None:
        loc, scale, unit, off = torch.tensor(
            [[0.5, 0.0, -0.1, 0.2], [0.8, 1.2, 0.2, 0.9], [1.0, 1.0, 1.0, 0.7], [0.0, 0.3, 0, 0]]
        ).double()
        priors = [*map(Normal, off[:3], unit[:3]), Laplace(off[3], unit[3])]
        pairs = list(zip(map(Normal, loc, scale), priors, strict=True))
    for q, p in pairs:
        value = _check_value(divergence, q, p)
        if math.isfinite(value):
            _check_samples(divergence, q, p, value, samples)
            if isinstance(q, Normal):
                _check_gradient(divergence, q, p)


def _require(subject: object, holds: bool | Tensor, what: str) -> None:
    if not bool(holds):
        raise AssertionError(f"{subject} {what}")


def _check_value(divergence: Divergence, q: Distribution, p: Distribution) -> float:
    """Zero, positive, bounded and symmetric by dense integration, as by the closed form."""
    require, measure, pair = partial(_require, divergence), Quadrature(), f"for {q} against {p}"
    value, own = measure(divergence, q, p).item(), measure(divergence, q, q).item()
    require(abs(own) < 1e-9, f"must be 0 for equal distributions, got {own} for {q}")
    require(value > -1e-9, f"must not be negative, got {value} {pair}")
    bound = math.inf if divergence.bound is None else divergence.bound
    require(value <= bound + 1e-9, f"exceeds its bound {bound}: {value} {pair}")
    back = measure(divergence, p, q).item() if divergence.symmetric else value
    same = math.isclose(value, back, rel_tol=1e-7, abs_tol=1e-9)
    require(same, f"claims to be symmetric, got {value} {pair} and {back} the other way round")
    known = closed_form.find(divergence, q, p) is not None
    exact = Exact()(divergence, q, p).item() if known else value
    same = math.isclose(value, exact, rel_tol=1e-5, abs_tol=1e-6)
    require(same, f"has a closed form that gives {exact} {pair}, integration gives {value}")
    return value


def _check_samples(
    divergence: Divergence, q: Distribution, p: Distribution, dense: float, samples: int
) -> None:
    # Independent groups show the spread, whatever the formula does with its points.
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        estimator = MonteCarlo(max(1000, samples // _GROUPS))
        values = torch.stack([estimator(divergence, q, p) for _ in range(_GROUPS)])
    error, mean = values.std().item() / math.sqrt(_GROUPS), values.mean().item()
    # The logarithm of a mean is biased by about half its relative variance.
    allowance = 5 * error + 1e-9 + (0.0 if divergence.linear else 5 * values.var().item())
    told = f"estimated from samples is {mean} ± {error} for {q} against {p}, integration gives "
    _require(divergence, abs(mean - dense) <= allowance, f"{told}{dense}")


def _check_gradient(divergence: Divergence, q: Normal, p: Distribution) -> None:
    pair, dense = f"for {q} against {p}", _gradient(divergence, q, p, Quadrature())
    _require(divergence, dense.isfinite().all(), f"has a gradient of {dense} {pair}")
    known = closed_form.find(divergence, q, p) is not None
    own = _gradient(divergence, q, p, Exact()) if known else dense
    same = torch.allclose(own, dense, rtol=1e-4, atol=1e-4)
    told = f"has a closed form with gradient {own.tolist()} {pair}, integration gives "
    _require(divergence, same, f"{told}{dense.tolist()}")


def _gradient(divergence: Divergence, q: Normal, p: Distribution, estimator: Estimator) -> Tensor:
    loc, scale = (x.detach().clone().requires_grad_() for x in (q.loc, q.scale))
    value = estimator(divergence, Normal(loc, scale), p).sum()
    value = value + 0 * loc  # such as Renyi(0), which does not depend on q at all
    return torch.stack(torch.autograd.grad(value, (loc, scale), materialize_grads=True))


def check_posterior(make: PosteriorFor, *, samples: int = 40_000) -> None:
    """Raise an AssertionError, in one sentence, unless `make` makes posteriors that keep to theirs.

    The contract is `bayesdiv.model.posteriors.Posterior`. Checked are the shapes, of trials
    too; dtypes, single precision at least; that a seed repeats the draws; that gradients reach all
    parameters through the draws and are those of small differences; that `log_prob` is the density
    of the draws, and so are marginals; that the state dict holds all of it.

    A point, whose draws are all alike, has no density to check; nor has a posterior whose
    `log_prob` raises a ValueError.

    Examples:
        >>> check_posterior(bd.MeanField)
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for trials in ((), (_TRIALS,)):
            _check_shapes(make, *trials)
        for given, wanted in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
            found = {parameter.dtype for parameter in _made(make, given).parameters()}
            told = f"must have parameters of {wanted} for means of {given}, got {found}"
            _require(make, found == {wanted}, told)
        _check_draws(make, _bent(make))
        one, other = _bent(make), _bent(make)
        other.load_state_dict(one.state_dict())
        told = "must have all that its draws depend on in its state dict"
        _require(make, _same_draws(one, other), told)
        _check_density(make, _bent(make), samples)


def _made(make: PosteriorFor, dtype: torch.dtype = torch.float64, *trials: int) -> Any:
    """A posterior, which is both a module and what the contract says."""
    loc = torch.linspace(-0.3, 0.3, _WEIGHTS, dtype=torch.float64).expand(*trials, _WEIGHTS)
    scale = torch.linspace(0.5, 1.0, _WEIGHTS, dtype=torch.float64)
    return make(loc.to(dtype), scale.to(dtype))


def _bent(make: PosteriorFor) -> Any:
    """A posterior away from its start, where all parameters matter."""
    posterior = _made(make)
    with torch.no_grad():
        for parameter in posterior.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return posterior


def _same_draws(one: Any, other: Any) -> bool:
    seed = torch.tensor(7)
    return torch.equal(one.rsample(4, seed=seed), other.rsample(4, seed=seed))


def _check_shapes(make: PosteriorFor, *trials: int) -> None:
    posterior, wanted = _made(make, torch.float64, *trials), (4, *trials, _WEIGHTS)

    def shaped(name: str, found: tuple[int, ...], right: tuple[int, ...]) -> None:
        _require(make, found == right, f"must give {name} of shape {right}, got {tuple(found)}")

    drawn = posterior.rsample(4)
    shaped("rsample(4)", drawn.shape, wanted)
    shaped("mean", posterior.mean.shape, wanted[1:])
    density = _density(posterior, drawn)
    shaped("log_prob", wanted[:-1] if density is None else density.shape, wanted[:-1])
    event = () if posterior.marginals() is not None else (_WEIGHTS,)
    shaped("an event of distribution()", posterior.distribution().event_shape, event)
    dtype = posterior.rsample(2, torch.bfloat16).dtype
    _require(make, dtype == torch.bfloat16, f"must draw in the dtype asked for, got {dtype}")


def _density(posterior: Any, weights: Tensor) -> Tensor | None:
    """The log density, or None where there is none: of points."""
    try:
        density: Tensor = posterior.log_prob(weights)
    except ValueError:
        return None
    return density if bool((posterior.rsample(8).detach().std(0) > 0).any()) else None


def _check_draws(make: PosteriorFor, posterior: Any) -> None:
    """Seeds, and gradients by the parameters against small differences."""
    same = _same_draws(posterior, posterior)
    _require(make, same, "must draw the same weights for the same seed")

    def drawn(*_: Tensor) -> Tensor:
        return cast(Tensor, posterior.rsample(4, seed=torch.tensor(7)))

    _require(make, drawn().requires_grad, "must let gradients through its draws")
    given = tuple(posterior.parameters())
    same = gradcheck(drawn, given, raise_exception=False, check_undefined_grad=False)
    _require(make, same, "must have the gradient of its draws: small differences have another")


def _check_density(make: PosteriorFor, posterior: Any, samples: int) -> None:
    drawn = posterior.rsample(samples).detach()
    density = _density(posterior, drawn)
    if density is None:
        return
    density = density.detach()
    # A Gaussian within the draws: what it weighs in them must be 1 in the mean.
    narrower = MultivariateNormal(drawn.mean(0), 0.5 * drawn.T.cov())
    _require_one(make, narrower.log_prob(drawn) - density)
    for name in ("distribution", "marginals"):
        each = getattr(posterior, name)()
        joint = density if each is None else each.log_prob(drawn).detach()
        same = torch.allclose(joint.reshape(samples, -1).sum(-1), density, rtol=1e-6, atol=1e-6)
        _require(make, same, f"must have the same density in log_prob and in {name}()")


def _require_one(subject: object, log_weights: Tensor) -> None:
    """Whether the weights of importance sampling have mean 1, as those of a density do."""
    weights = log_weights.exp()
    mean, error = weights.mean().item(), weights.std().item() / math.sqrt(len(weights))
    told = f"must have the density of its draws in log_prob: its integral is {mean} ± {error}"
    _require(subject, abs(mean - 1) <= 5 * error + 1e-9, f"{told}, not 1")


def check_likelihood(likelihood: nn.Module, outputs: int = 1, *, samples: int = 20_000) -> None:
    """Raise an AssertionError, in one sentence, unless `likelihood` keeps what it promises.

    From outputs (draws, rows, outputs) it must make a distribution of the targets, (draws, rows);
    density and gradients must be finite at targets of its own; mean, variance, intervals or class
    probabilities must agree with samples, and the density must be that of the samples.

    Examples:
        >>> check_likelihood(bd.Poisson())
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        given = torch.randn(4, 5, outputs, requires_grad=True)
        conditional = likelihood(given)
        told = f"must return a distribution, got {type(conditional).__name__}"
        _require(likelihood, isinstance(conditional, Distribution), told)
        shape = tuple(conditional.batch_shape)
        told = f"must return batch shape (4, 5) for outputs of 4 draws and 5 rows, got {shape}"
        _require(likelihood, shape == (4, 5), told)
        _check_targets(likelihood, conditional, given)
        predictive = Predictive(conditional)
        check = _check_classes if predictive.discrete else _check_numbers
        check(likelihood, predictive, predictive.sample(samples))


def _check_targets(likelihood: nn.Module, conditional: Distribution, outputs: Tensor) -> None:
    require, y = partial(_require, likelihood), conditional.sample()[0]
    density = conditional.log_prob(y)
    require(density.isfinite().all(), f"must have a finite density at {y[0]}")
    learned = [outputs, *(p for p in likelihood.parameters() if p.requires_grad)]
    gradients = torch.autograd.grad(density.sum(), learned, materialize_grads=True)
    finite = all(bool(gradient.isfinite().all()) for gradient in gradients)
    require(finite, "must have finite gradients by its outputs and parameters")
    require(gradients[0].abs().sum() > 0, "must let gradients reach its outputs")


def _check_classes(likelihood: nn.Module, predictive: Predictive, drawn: Tensor) -> None:
    shares = predictive.probabilities.detach()
    counted = nn.functional.one_hot(drawn.long(), shares.shape[-1]).double().mean(0)
    error = (shares * (1 - shares) / len(drawn)).sqrt() + 1e-4
    told = "must have class probabilities that are the shares of its samples"
    _require(likelihood, ((counted - shares).abs() < 6 * error).all(), told)
    told = "must have the logarithm of its class probabilities as its density"
    for label, share in enumerate(shares.unbind(-1)):
        density = predictive.log_prob(torch.full(share.shape, label)).exp()
        _require(likelihood, torch.allclose(density, share, atol=1e-4), told)


def _check_numbers(likelihood: nn.Module, predictive: Predictive, drawn: Tensor) -> None:
    require, counts = partial(_require, likelihood), is_discrete(predictive.marginals)
    root, mean, variance = len(drawn) ** 0.5, predictive.mean.detach(), predictive.variance.detach()
    if bool(variance.isfinite().all()):
        away = ((drawn.mean(0) - mean) / variance.sqrt()).abs().max().item()
        require(away < 6 / root, f"has a mean that is {away} scales off its samples'")
        squares = (drawn - drawn.mean(0)).square()
        off = (drawn.var(0) - variance).abs() / (squares.std(0) / root)
        # Samples of heavy tails miss the rows that make their variance.
        tame = squares.square().mean(0) < _HEAVY * squares.mean(0).square()
        worst = off.where(tame, 0.0).max().item()
        require(worst < 12, f"has a variance that is {worst} errors off its samples'")
    for level in (0.5, 0.9):
        low, high = predictive.interval(level)
        share = ((low <= drawn) & (drawn <= high)).double().mean().item()
        inside = level - 0.01 <= share <= (1.0 if counts else level + 0.01)
        require(inside, f"must have {level:.0%} of its samples in that interval, got {share:.1%}")
    # The density against the samples: weighted to be even over an interval they have mean 1.
    low, high = (end.detach() for end in predictive.interval(0.8))
    some, width = drawn[:2000], high - low + counts
    density = torch.stack([predictive.log_prob(y) for y in some]).detach()
    log_even = torch.where((low <= some) & (some <= high), -width.log(), -math.inf)
    _require_one(likelihood, (log_even.reshape(*density.shape, -1).sum(-1) - density).flatten())
