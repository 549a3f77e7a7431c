"""What is minimised: the paper's loss F = λ D(q ‖ p) - E_q[log p(data | w)], for one example."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from numbers import Integral
from typing import Any, NamedTuple, cast
from weakref import ref

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, Normal
from torch.distributions.constraints import real, unit_interval

from bayesdiv.compute.backend import Prepared, prepare
from bayesdiv.compute.devices import autocast_dtype, compiling, on_cpu, recording, traced
from bayesdiv.compute.noise import MANY
from bayesdiv.divergence import KL, Divergence, Estimator, joint
from bayesdiv.divergence.estimators import Auto, Exact
from bayesdiv.divergence.quadrature import Quadrature
from bayesdiv.draws import Inputs, Outputs, Over, Weights, draw_of, draws, leaves, settled_way
from bayesdiv.likelihoods import Likelihood
from bayesdiv.model.bayesian import Bayesian, bayesian_modules
from bayesdiv.model.layout import LARGE
from bayesdiv.model.posteriors import MeanField
from bayesdiv.model.priors import Prior
from bayesdiv.objective.in_turn import Part, in_turn
from bayesdiv.objective.strength import Fixed, Strength, WarmUp

# Weights whose prior is kept as a vector between steps, and numbers that it is made from, which are
# compared in each; any other prior is made again.
SMALL, FEW = 1 << 20, 64


class Loss(NamedTuple):
    """A loss and its two parts: nll for one example, divergence for all weights, in nats."""

    total: Tensor
    nll: Tensor
    divergence: Tensor


class _Fact(NamedTuple):
    """What is looked up once for a Bayesian module."""

    kind: object  # what the choice of the rule depends on
    rule: Prepared
    prior: Distribution | None  # where it is kept between steps
    numbers: object  # that it was made from
    samples: bool  # whether the rule needs the draws


class Objective(nn.Module):
    """Mean negative log-likelihood over the batch and the draws, plus strength/num_data · D(q ‖ p).

        total = -1/(S|b|) Σ_s Σ_i log p(y_i | x_i, w_s) + λ/N · Σ_weights D(q ‖ p)

    This is the paper's minibatch loss divided by the batch size, on which learning rates then do
    not depend.

    Args:
        likelihood: from outputs to a distribution of the targets.
        divergence: what keeps the posterior near the prior.
        num_data: how many training examples there are.
        strength: λ, a number, one per trial, a `WarmUp` or a `Constraint`; with KL and 1 the loss
            is the negative ELBO.
        samples: weight draws for the likelihood.
        estimator: how the divergence is computed.
        over: how several draws are run, see `draws`. Those that run in turn are differentiated so
            too: then `nll` and `divergence` are values to log, and a gradient of them, by the
            inputs, or of second order, needs `Vectorized()`.
        outputs: the tensor out of what the model returns; None takes itself, or its `logits`.

    Examples:
        >>> from bayesdiv import JSA, Gaussian
        >>> Objective(Gaussian(), JSA(0.3), num_data=100, samples=4).samples
        4
    """

    epoch: int
    """The epoch that a `WarmUp` is in, counted from 0; set by `fit`."""

    def __init__(
        self,
        likelihood: nn.Module,
        divergence: Divergence | None = None,
        *,
        num_data: int,
        strength: float | Tensor | WarmUp | Strength = 1.0,
        samples: int = 1,
        estimator: Estimator | None = None,
        over: Over | None = None,
        outputs: Outputs | None = None,
    ) -> None:
        super().__init__()
        if type(likelihood).__module__ == "torch.nn.modules.loss":
            told = f"a distribution, as Classes() and Gaussian() do, got the loss {likelihood}"
            raise TypeError(f"likelihood must map outputs to {told}")
        for name, given, kind, such in (
            ("likelihood", likelihood, nn.Module, "a module such as Gaussian()"),
            ("divergence", divergence, Divergence, "a Divergence such as KL()"),
            ("estimator", estimator, Estimator, "an Estimator such as Exact()"),
            ("over", over, Over, "a way to run draws such as Looped()"),
        ):
            if not isinstance(given, kind) and (given is not None or name == "likelihood"):
                raise TypeError(f"{name} must be {such}, got {given!r}")
        for name, value in {"num_data": num_data, "samples": samples}.items():
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be at least 1, a whole number, got {value!r}")
        self.likelihood = likelihood
        self.divergence = KL() if divergence is None else divergence
        self.divergence_given = divergence is not None  # and not the default
        self.num_data = num_data
        self.strength = strength if isinstance(strength, Strength) else Fixed(strength)
        self.samples = samples
        self.estimator = Auto() if estimator is None else estimator
        self.over = over
        self.outputs = outputs
        self.epoch = 0
        self._known: tuple[ref[nn.Module], dict[Bayesian, _Fact | None]] | None = None
        self._tried = False  # targets of this model

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("divergence", "estimator"):  # what was looked up is of another one
            self.__dict__["_known"] = None
        if name == "epoch":
            self.strength.begin(value)

    def __getstate__(self) -> dict[str, Any]:
        """All but what was looked up, for a copy."""
        return {**self.__dict__, "_known": None}

    def forward(self, model: nn.Module, x: Inputs, y: Tensor) -> Loss:
        """The loss of one batch; of a stack, the sum over its trials that are finite."""
        total, nll, divergence = self.terms(model, x, y)
        return Loss(total, nll.sum(), divergence.sum())

    def given(self, model: nn.Module, weights: Weights, x: Inputs, y: Tensor) -> Loss:
        """The loss of one batch for given weight draws, which likelihood and divergence share."""
        total, nll, divergence = self._sum(self.each(model, weights, x, y))
        return Loss(total, nll.sum(), divergence.sum())

    def terms(self, model: nn.Module, x: Inputs, y: Tensor, share: float = 1.0) -> Loss:
        """What is minimised, one number, and its parts for each trial, (trials…).

        `share` is by how much this process's part of the batch is larger than an equal one.
        """
        counts = self._counts(model, x)
        if counts:
            return self._in_turn(model, x, y, share, counts)
        weights, divergence = self._drawn(model)
        return self._sum(self.each(model, weights, x, y, divergence), share)

    def each(
        self, model: nn.Module, weights: Weights, x: Inputs, y: Tensor, found: Tensor | None = None
    ) -> Loss:
        """The loss of each trial of a stack by itself, (trials…); of a single model, a number."""
        nll = self._nll(model, weights, x, y)
        if found is None:  # 0 for a deterministic model
            found = self._divergence(model, weights) if weights else nll.new_zeros(())
        divergence, count = found.to(nll.device), sum(drawn.shape[-1] for drawn in weights)
        return Loss(nll + self._penalty(divergence, count), nll, divergence)

    def _nll(self, model: nn.Module, weights: Weights, x: Inputs, y: Tensor) -> Tensor:
        modules, trials = [*self._facts(model)], weights[0].dim() - 2 if weights else 0
        made = draws(model, x, weights, self.over, self.outputs, modules)
        each = self._log_likelihoods(self.likelihood(made), y, trials)
        return -(each.squeeze(0) if len(each) == 1 else each.mean(0))

    def _penalty(self, divergence: Tensor, weights: int) -> Tensor:
        """What the divergence adds to the loss, with what the strength learns from."""
        strength = self.strength.value()
        strength = strength.to(divergence) if isinstance(strength, Tensor) else strength
        penalty = strength / self.num_data * divergence
        term = self.strength.term(penalty, divergence, weights) if weights else None
        return penalty if term is None else penalty + term

    def _sum(self, each: Loss, share: float = 1.0) -> Loss:
        """Trials that are finite added up; a single loss as it is, for it to be found out."""
        total, nll, divergence = each
        if share != 1.0:
            # Processes are averaged alike, so the nll of one with more of the batch counts more.
            total, nll = total + (share - 1.0) * nll, share * nll
        return Loss(_finite_sum(total), nll, _as_many(divergence, nll))

    def _counts(self, model: nn.Module, x: Inputs) -> list[int]:
        """How many draws to hold at a time; nothing where all are held together."""
        facts = self._facts(model)
        if not facts or not torch.is_grad_enabled() or compiling():
            return []
        # Gradients of one draw of very many weights need not be held together with those of the
        # penalty. On a GPU one pass makes both without keeping any.
        loc = next(iter(facts)).loc
        worth_it = self.samples > 1 or (loc.numel() >= LARGE and on_cpu(loc))
        if not worth_it or any(fact is None or fact.samples for fact in facts.values()):
            return []
        # Draws are differentiated one by one by what is learned alone; and where posteriors are
        # sharded one by one, no part of the loss sees them all.
        parted = any(hasattr(own, "device_mesh") for m in facts for own in m.posterior.parameters())
        given = leaves((x, getattr(self.divergence, "alpha", None)))
        if parted or any(tensor.requires_grad for tensor in given):
            return []
        if self.samples == 1:
            return [1]
        over = settled_way(model, x, self.outputs) if self.over is None else self.over
        counts = [] if over is None else over.groups(self.samples)
        return counts if len(counts) > 1 else []

    def _in_turn(
        self, model: nn.Module, x: Inputs, y: Tensor, share: float, counts: list[int]
    ) -> Loss:
        """The same as the whole, with the gradients of each group of draws formed in turn."""
        modules = [*self._facts(model)]
        # Of many weights on a CPU the scales are computed, and differentiated, once for all draws.
        many = [m for m in modules if MANY <= m.loc.numel() <= LARGE and on_cpu(m.loc)]
        scales = {m: m.q().stddev for m in many if type(m.posterior) is MeanField}
        shared = {m: scale.detach().requires_grad_() for m, scale in scales.items()}
        posteriors = {m: Normal(m.loc, own, validate_args=False) for m, own in shared.items()}
        # Few weights are drawn at once, so that the draws are those of a network that runs at once.
        few = [m for m in modules if self.samples * m.loc.numel() < MANY]
        drawn = {m: m.draw(self.samples, autocast_dtype(m.loc.device)) for m in few}
        held = {m: own.detach().requires_grad_() for m, own in drawn.items()}

        def group(first: int, count: int) -> Part:
            weights = tuple(
                held[m][first : first + count]
                if m in held
                else draw_of(m, posteriors.get(m), count, autocast_dtype(m.loc.device))
                for m in modules
            )
            nll = share * (count / self.samples) * self._nll(model, weights, x, y)
            return Part(_finite_sum(nll), nll)

        def penalty() -> Part:
            divergence = self._divergence(model, None)
            total = self._penalty(divergence, sum(module.layout.size for module in modules))
            return Part(_finite_sum(total), divergence)

        # The penalty first: what it needs beside its gradients is gone before a draw is made.
        firsts = accumulate(counts, initial=0)
        groups = (partial(group, *cut) for cut in zip(firsts, counts, strict=False))
        parts: list[Callable[[], Part]] = [penalty, *groups]
        learned = [p for part in (model, self) for p in part.parameters() if p.requires_grad]
        inputs = (*learned, *scales.values(), *drawn.values())
        own = (*learned, *shared.values(), *held.values())
        again = any(module.may_recompute for module in modules)
        total, nll, divergence = in_turn(parts, inputs, own, again)
        return Loss(total, nll, _as_many(divergence, nll))

    def prepare(self, model: nn.Module) -> None:
        """Look up the rules for this model's posteriors and priors, once, before compiling."""
        modules = bayesian_modules(model)
        with torch.inference_mode(False):  # what is kept serves training too
            self._known = ref(model), {m: m.inside(partial(self._fact, m)) for m in modules}
        self._tried = False

    def _facts(self, model: nn.Module) -> dict[Bayesian, _Fact | None]:
        """What is known of each Bayesian module of a model."""
        if self._known is None or self._known[0]() is not model:
            if compiling():
                return dict.fromkeys(bayesian_modules(model))
            self.prepare(model)
        return cast(tuple[Any, dict[Bayesian, _Fact | None]], self._known)[1]

    def _fact(self, module: Bayesian) -> _Fact:
        q, p, numbers = module.q(), module.p(), _numbers(module)
        way = self.estimator
        if isinstance(way, Auto) and not q.event_shape:
            way = way.choose(self.divergence.reduced(), q, p)
        samples = bool(q.event_shape) or not isinstance(way, Exact | Quadrature)
        kept = p if numbers is not None and module.layout.size <= SMALL else None
        return _Fact(_kind(q, p), self._found(q, p), kept, numbers, samples)

    def _found(self, q: Distribution, p: Distribution) -> Prepared:
        """The rule for pairs like this one, of a product, of its members or of all weights."""
        if isinstance(q, joint.Members):
            rule = self._found(*joint.members(q, p))
            return Prepared(lambda q, p, _: rule.total(*joint.members(q, p)).mean(-1, keepdim=True))
        if not q.event_shape:
            return prepare(self.estimator, self.divergence, q, p)
        divergence = self.divergence
        return Prepared(lambda q, p, drawn: joint.total(divergence, q, p, drawn).unsqueeze(-1))

    def _rule(self, fact: _Fact | None, q: Distribution, p: Distribution) -> Prepared:
        """The rule looked up before, unless the module was of another kind then."""
        return self._found(q, p) if fact is None or fact.kind != _kind(q, p) else fact.rule

    def _drawn(self, model: nn.Module) -> tuple[Weights, Tensor | None]:
        """Draws of all Bayesian modules, and the divergence, from one pass where there is one."""
        facts = self._facts(model).items()
        pairs = [m.inside(partial(self._one_drawn, m, fact)) for m, fact in facts]
        weights = tuple(drawn for drawn, _ in pairs)
        return weights, _added_up([total for _, total in pairs]) if pairs else None

    def _one_drawn(self, module: Bayesian, fact: _Fact | None) -> tuple[Tensor, Tensor]:
        dtype = autocast_dtype(module.loc.device)
        if type(module.posterior) is not MeanField:
            drawn = module.draw(self.samples, dtype)
            return drawn, self._total(module, fact, drawn)
        q, p = module.q(), None
        if fact is not None and not compiling() and fact.numbers == _numbers(module):
            p = fact.prior
        p = module.p() if p is None else p
        drawn, total = self._rule(fact, q, p).draw_and_total(q, p, self.samples, dtype)
        return drawn, total if drawn.dim() > 2 or not total.dim() else total.sum()

    def _divergence(self, model: nn.Module, weights: Weights | None) -> Tensor:
        """Summed over all weights of all Bayesian modules."""
        facts = self._facts(model).items()
        pairs = zip(facts, [None] * len(facts) if weights is None else weights, strict=True)
        return _added_up([self._total(module, fact, own) for (module, fact), own in pairs])

    def _total(self, module: Bayesian, fact: _Fact | None, weights: Tensor | None) -> Tensor:
        q, p = module.q(), module.p()
        total = self._rule(fact, q, p).total(q, p, weights)
        return total if module.loc.dim() > 1 else total.sum()

    def _log_likelihoods(self, conditional: Distribution, y: Tensor, trials: int) -> Tensor:
        """The mean over the examples of the batch, (draws, trials…)."""
        if not isinstance(y, Tensor):
            raise TypeError(f"targets must be a tensor, got {type(y).__name__}: torch.as_tensor(y)")
        if y.shape != (wanted := conditional.batch_shape[1:] + conditional.event_shape):
            told = f"targets must have shape {tuple(wanted)}, got {tuple(y.shape)}"
            column, remedy = y.shape == (*wanted, 1), "squeeze them, y.squeeze(-1)"
            raise ValueError(f"{told}: {remedy if column else 'reshape them to fit the outputs'}")
        if isinstance(conditional, Bernoulli):
            y = y.to(conditional.logits.dtype)
        own = self.likelihood if isinstance(self.likelihood, Likelihood) else None
        counted = None if own is None else own.counted(y)
        y = y if counted is None else y.where(counted, 0)
        # A GPU would have to wait for the answer: there the first batch speaks for all.
        looks = not traced() and (not self._tried or (self.epoch == 0 and on_cpu(y)))
        if looks and not recording(y):
            _check_support(conditional, y, counted)
            self._tried = True
        each = conditional.log_prob(y)  # (S, trials…, B, …)
        weight = None if own is None else own.example_weight(y)
        each = each if weight is None else each * weight
        # Examples are averaged, and what one example has several of, such as the words of a
        # sentence, is added up; so are the trials by `given`: each then learns as it would alone.
        each = each.mean(trials + 1) if counted is None else _mean_of(each, counted, trials)
        return each.flatten(trials + 1).sum(-1) if each.dim() > trials + 1 else each


class LossModule(nn.Module):
    """Model and objective as one module whose forward pass is the loss, so gradients synchronise.

    `fit` trains it, and `DistributedDataParallel` and `fully_shard` accept it: only its forward
    pass reads parameters. Per-weight values of the prior become frozen parameters, so that they are
    sharded too. Give every process its own seed to draw its own weights.

    Examples:
        >>> from bayesdiv import Gaussian
        >>> module = LossModule(nn.Linear(2, 1), Objective(Gaussian(), num_data=4))
        >>> module(torch.ones(4, 2), torch.ones(4)).total.shape
        torch.Size([])
    """

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        for module in bayesian_modules(model):
            module.make_shardable()

    def forward(self, x: Inputs, y: Tensor, share: float = 1.0) -> Loss:
        """What is minimised, and its parts for each trial, see `Objective.terms`."""
        return self.objective.terms(self.model, x, y, share)


def _added_up(totals: Sequence[Tensor]) -> Tensor:
    first = totals[0]
    return sum((total.to(first.device) for total in totals[1:]), first)


def _as_many(divergence: Tensor, nll: Tensor) -> Tensor:
    """One per trial; not a view without need, of which `fully_shard` warns."""
    return divergence if divergence.shape == nll.shape else divergence.expand_as(nll)


def _check_support(conditional: Distribution, y: Tensor, counted: Tensor | None) -> None:
    """Refuse targets that no output can describe, such as a class that there is not."""
    family = conditional.base_dist if isinstance(conditional, Independent) else conditional
    try:  # a share of two classes is a target too
        support: Any = unit_interval if isinstance(family, Bernoulli) else family.support
    except NotImplementedError:  # of somebody's own family
        return
    if support is real:  # NaN alone is outside, which the loss shows
        return
    fine = support.check(y)
    while fine.dim() > y.dim():  # a support that depends on the draw
        fine = fine.all(0)
    wrong = y[~fine if counted is None else ~fine & counted].flatten()
    if wrong.numel() and not wrong[0].isnan():
        rule = f"targets of {type(family).__name__} must lie in {support}"
        low, top = (getattr(support, f"{end}_bound", None) for end in ("lower", "upper"))
        if isinstance(low, int) or support is unit_interval:
            ends = f"{low:g} " + ("up" if top is None else f"to {top}".removesuffix(".0"))
            kind = "class labels" if isinstance(family, Categorical) else "targets"
            rule = f"{kind} must be {'whole ' * support.is_discrete}numbers from {ends}"
        raise ValueError(f"{rule}, got {wrong[0].item()}: correct them, or take another likelihood")


def _mean_of(each: Tensor, counted: Tensor, trials: int) -> Tensor:
    """The mean over the examples of which anything counts, (draws, trials…, …); 0 of none."""
    examples = counted.flatten(trials + 1).any(-1) if counted.dim() > trials + 1 else counted
    count = examples.sum(-1).clamp(min=1)
    total = each.where(counted, 0.0).sum(trials + 1)
    return total / count[(..., *(None,) * (total.dim() - 1 - trials))]


def _kind(q: Distribution, p: Distribution) -> object:
    return type(q), type(p), q.mean.dtype, q.mean.device


def _numbers(module: Bayesian) -> object:
    """What our small priors are made from, where a look costs nothing; None of any other."""
    prior = module.prior
    if type(prior) is not Prior or prior._parameters or traced():
        return None
    held = [x for x in prior._buffers.values() if x is not None]
    if any(x.requires_grad or x.numel() > FEW or not on_cpu(x) for x in held):
        return None
    return prior.family, [(x.dtype, x.tolist()) for x in held]


def _finite_sum(each: Tensor) -> Tensor:
    """The sum over trials that are finite; a single number as it is, for it to be found out."""
    return each if each.dim() == 0 else torch.where(each.isfinite(), each, 0.0).sum()
