"""A Gaussian posterior in one pass: its divergence summed over the weights, and draws of it.

The loss needs the sum of a divergence alone, so no value a weight is kept: a `SumRule` turns loc
and scale of all weights into the sum and the derivatives. On a GPU the kernels of
`bayesdiv.compute.triton` go from loc and rho straight to the sum, and again to the gradients.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeGuard, cast

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from bayesdiv.compute.noise import standard_normal
from bayesdiv.divergence.gaussian import BLOCK, GaussianRule, SoftplusNormal, _Once, _part, _terms

# Below, trials one after the other cost more than the passes over all of them that they spare.
FEWEST_A_TRIAL = 1 << 14
_TRITON = find_spec("triton") is not None
_told: list[bool] = []
_tried: dict[torch.device, bool] = {}


class Sums(NamedTuple):
    """The sum of a divergence over weights and its derivatives by loc and scale."""

    value: Tensor
    d_loc: Tensor
    d_scale: Tensor


class Rule(Enum):
    """The divergences that the kernels know."""

    KL = 0
    REVERSE_KL = 1
    WEIGHTED_KL = 2
    JSG = 3
    TABLE = 4


class Kernel(NamedTuple):
    """What a kernel computes: a rule by its number, alpha, a bound and a table where it has one."""

    rule: int
    alpha: float = 0.0
    bound: float = 0.0
    table: Tensor | None = None


# From loc and scale of the posterior and of the prior, those of the prior maybe single numbers.
SumRule = Callable[[Tensor, Tensor, Tensor, Tensor], Sums]


def summed(rule: GaussianRule, alpha: float = 0.0) -> SumRule:
    """The rule of one value a weight as one that sums."""

    def sums(*block: Tensor) -> Sums:
        value, d_loc, d_scale, _ = _terms(rule, *block, alpha)  # type: ignore[call-arg]
        return Sums(value.sum(), d_loc, d_scale)

    return sums


@dataclass(frozen=True, eq=False)
class Summed:
    """The sum over the last axis for pairs that are served: by `rule` on a CPU, else `kernel`."""

    rule: SumRule | None
    kernel: Kernel

    def __call__(self, q: Distribution, p: Distribution) -> Tensor | None:
        """The sum; None for a pair that is not served."""
        q, p = cast(Normal, q), cast(Normal, p)
        if q.loc.is_cuda:
            if not has_kernels(q) or not _prior_serves(q, p):
                return None
            from bayesdiv.compute import triton as kernels

            return kernels.total(self.kernel, q.loc, q.rho, p.loc, p.scale)
        # A compiler fuses the values of all weights with their sum by itself.
        if self.rule is None or torch.compiler.is_compiling() or not _serves(q, p):
            return None
        link = q.loc.reshape(-1)[:0] + q.scale.reshape(-1)[:0]
        return cast(Tensor, _Total.apply(q.loc, q.scale, p.loc, p.scale, link, self.rule)[0])  # type: ignore[no-untyped-call]

    def drawn(
        self,
        q: Distribution,
        p: Distribution,
        samples: int,
        dtype: torch.dtype | None = None,
        seed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor] | None:
        """Draws of q and the sum from one pass over its parameters; None where no kernel serves."""
        q, p = cast(Normal, q), cast(Normal, p)
        if q.loc.dim() != 1 or not has_kernels(q) or not _prior_serves(q, p):
            return None
        from bayesdiv.compute import triton as kernels

        parameters = (q.loc, q.rho, p.loc, p.scale)
        return kernels.penalised(self.kernel, *parameters, samples, dtype or q.loc.dtype, seed)


def total(rule: SumRule | None, kernel: Kernel) -> Summed:
    """What sums a divergence by a rule or by a kernel."""
    if _TRITON and torch.cuda.is_available():
        import_module("bayesdiv.compute.triton")  # now, and not while a compiler traces
    return Summed(rule, kernel)


def has_kernels(q: Distribution) -> TypeGuard[SoftplusNormal]:
    """Whether kernels serve this posterior: on a GPU, float32, told by rho, Triton installed."""
    if not isinstance(q, SoftplusNormal) or not q.loc.is_cuda:
        return False
    if not _TRITON:
        _tell_without_triton()
        return False
    single = q.loc.dtype == q.rho.dtype == torch.float32 and q.loc.dim() > 0
    return single and trusted(q.loc.device)


def trusted(device: torch.device) -> bool:
    """Whether the kernels, tried once on this device, gave what the plain pass gives.

    Drivers, cards and versions of Triton are many: kernels that do not run, or compute something
    else, are told of once and not used.
    """
    if device not in _tried:
        if torch.compiler.is_compiling() or torch.cuda.is_current_stream_capturing():
            return False
        try:
            _tried[device] = _agrees(device)
            problem = "they disagree with the plain pass"
        except Exception as error:  # of any kind: compilers and drivers have their own
            _tried[device] = False
            problem = " ".join(str(error).split())[:200]
        if not _tried[device]:
            logging.getLogger("bayesdiv.compute.triton").warning(
                "the kernels are not used on %s: %s", device, problem
            )
    return _tried[device]


def _agrees(device: torch.device) -> bool:
    """A small KL with its gradients, the moments of some draws, and both at once."""
    from bayesdiv.compute import triton as kernels

    cards = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cards), torch.enable_grad():
        torch.manual_seed(0)
        loc = torch.randn(3000, device=device).requires_grad_()
        rho = (3 * torch.randn(3000, device=device) - 3).requires_grad_()
        zero, one = torch.zeros((), device=device), torch.ones((), device=device)
        scale = torch.nn.functional.softplus(rho)
        plain = (0.5 * (scale.square() + loc.square() - 1) - scale.log()).sum()
        fast = kernels.total(Kernel(Rule.KL.value), loc, rho, zero, one)
        grads = [torch.autograd.grad(value, (loc, rho)) for value in (plain, fast)]
        noise = (kernels.draw(loc, rho, 64) - loc) / scale
        both, again = kernels.penalised(Kernel(Rule.KL.value), loc, rho, zero, one, 64)
        together = torch.autograd.grad(both.sum() + again, (loc, rho))
        noises = [noise, (both - loc) / scale]
        # By hand: draws move one by one with loc, and by their noise with the scale.
        by_draws = (torch.full_like(loc, 64.0), noises[1].sum(0) * rho.sigmoid())
        apart = [a + b for a, b in zip(grads[0], by_draws, strict=True)]
        return (
            all(torch.allclose(plain, value, rtol=1e-4) for value in (fast, again))
            and _close(grads[0], grads[1])
            and _close(apart, together)
            and all(abs(one.mean().item()) < 0.02 for one in noises)
            and all(abs(one.std().item() - 1) < 0.02 for one in noises)
        )


def _close(ones: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    pairs = zip(ones, others, strict=True)
    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in pairs)


def _tell_without_triton() -> None:
    if not torch.compiler.is_compiling() and not _told:
        _told.append(True)
        logging.getLogger("bayesdiv.compute.triton").info(
            "Triton is not installed: divergences and draws on a GPU take several passes"
        )


def _serves(q: Normal, p: Normal) -> bool:
    """Whether q is a vector a trial, of one device and dtype with a prior that is not learned."""
    shape = q.batch_shape
    many = len(shape) == 1 or (len(shape) > 1 and shape[-1] >= FEWEST_A_TRIAL)
    known = q.loc.device.type == "cpu" and q.loc.dtype in (torch.float32, torch.float64)
    same = q.scale.dtype == q.loc.dtype
    # Within torch.func the rules would have to do without operations in place.
    plain = not torch._C._functorch.is_functorch_wrapped_tensor(q.loc)
    return many and known and same and plain and shape.numel() > 0 and _prior_serves(q, p)


def _prior_serves(q: Normal, p: Normal) -> bool:
    """Whether the prior is not learned, of q's dtype and device, and spans no more axes than q."""
    sides = (p.loc, p.scale)
    fixed = not any(side.requires_grad for side in sides)
    alike = all(side.dtype == q.loc.dtype and side.device == q.loc.device for side in sides)
    return fixed and alike and torch.broadcast_shapes(q.batch_shape, p.batch_shape) == q.batch_shape


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(
        loc: Tensor,
        scale: Tensor,
        prior_loc: Tensor,
        prior_scale: Tensor,
        link: Tensor,
        rule: SumRule,
    ) -> tuple[Tensor, Tensor, Tensor]:
        prior = [x.reshape(()) if x.numel() == 1 else x for x in (prior_loc, prior_scale)]
        if loc.dim() == 1:
            return rule(loc, scale, *prior)
        rows = [
            x.expand(loc.shape).reshape(-1, loc.shape[-1]) if x.dim() else x
            for x in (loc, scale, *prior)
        ]
        each = [rule(*(x[row] if x.dim() else x for x in rows)) for row in range(len(rows[0]))]
        value, d_loc, d_scale = (torch.stack(parts) for parts in zip(*each, strict=True))
        return value.reshape(loc.shape[:-1]), d_loc.view_as(loc), d_scale.view_as(loc)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[4], *output[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        link, *derivatives = ctx.saved_tensors
        gradients = [
            grad.unsqueeze(-1) * derivative if needed else None
            for derivative, needed in zip(derivatives, ctx.needs_input_grad[:2], strict=True)
        ]
        if torch.is_grad_enabled() and link.requires_grad:
            gradients = [g if g is None else _Once.apply(g, link) for g in gradients]  # type: ignore
        return (*gradients, None, None, None, None)


def in_blocks(rule: SumRule) -> SumRule:
    """The rule over blocks that stay in cache, their sums added up in double precision."""

    def sums(*arguments: Tensor) -> Sums:
        count = arguments[0].numel()
        # A few blocks' worth fits the last cache, where one piece is faster than several.
        if count <= 4 * BLOCK:
            return rule(*arguments)
        pieces = []
        d_loc, d_scale = (torch.empty_like(x) for x in arguments[:2])
        for start in range(0, count, BLOCK):
            block = rule(*(cast(Tensor, _part(x, start, BLOCK)) for x in arguments))
            d_loc[start : start + BLOCK] = block.d_loc
            d_scale[start : start + BLOCK] = block.d_scale
            pieces.append(block.value)
        value = torch.stack(pieces).sum(dtype=torch.float64).to(d_loc.dtype)
        return Sums(value, d_loc, d_scale)

    return sums


def draw(
    q: Distribution, samples: int, dtype: torch.dtype | None = None, seed: Tensor | None = None
) -> Tensor:
    """Weights of Gaussians so that gradients reach their parameters, (samples, …, weights).

        w = loc + scale · ε

    On a GPU the noise is drawn inside a kernel, from a seed that torch's generator gives; float32
    parameters alone, and where Triton is installed.

    Args:
        q: the Gaussians.
        samples: how many draws.
        dtype: of the weights; None is that of the parameters.
        seed: of the noise; None takes one from torch's generator.
    """
    if has_kernels(q):
        from bayesdiv.compute import triton as kernels

        return kernels.draw(q.loc, q.rho, samples, dtype or q.loc.dtype, seed)
    drawn = _drawn(q.mean, q.stddev, samples, seed)
    return drawn if dtype is None else drawn.to(dtype)


def _drawn(loc: Tensor, scale: Tensor, samples: int, seed: Tensor | None) -> Tensor:
    if samples == 1 and seed is None:
        # Without an axis of its own: its backward pass then copies and sums nothing.
        return torch.addcmul(loc, scale, standard_normal(loc.shape, loc)).unsqueeze(0)
    shape = (samples, *loc.shape)
    if seed is None:
        noise = standard_normal(shape, loc)
    else:
        generator = torch.Generator(loc.device).manual_seed(int(seed))
        noise = torch.randn(shape, generator=generator, dtype=loc.dtype, device=loc.device)
    if torch.compiler.is_compiling():
        return torch.addcmul(loc, scale, noise)
    return cast(Tensor, _Draw.apply(loc, scale, noise))  # type: ignore[no-untyped-call]


class _Draw(torch.autograd.Function):
    """loc + scale · ε, whose backward pass makes nothing of the size of all draws."""

    generate_vmap_rule = True

    @staticmethod
    def forward(loc: Tensor, scale: Tensor, noise: Tensor) -> Tensor:
        return torch.addcmul(loc, scale, noise)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (noise,) = ctx.saved_tensors
        by_scale = grad[0] * noise[0]
        for one, its_noise in zip(grad[1:], noise[1:], strict=True):
            # Not in place where the gradient is to be differentiated once more.
            add = Tensor.addcmul if torch.is_grad_enabled() else Tensor.addcmul_
            by_scale = add(by_scale, one, its_noise)
        return grad.sum(0), by_scale, None
