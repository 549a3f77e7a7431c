"""From a network's outputs to a distribution of the targets: classes, numbers, counts."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributions, nn
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, Normal, StudentT
from torch.nn.functional import softplus

from bayesdiv.model.posteriors import inverse_softplus


class Likelihood(nn.Module):
    """A module whose call turns outputs (…, batch, outputs) into a distribution of the targets."""

    def example_weight(self, y: Tensor) -> Tensor | None:
        """How much each example counts in the loss; None where all count alike."""
        return None

    def counted(self, y: Tensor) -> Tensor | None:
        """Which targets are part of the loss; None where all are."""
        return None


def joined(family: Callable[..., Distribution], *parts: Tensor, axis: int = -1) -> Distribution:
    """A distribution per row: of one number, or of several along an axis, independent."""
    if parts[0].shape[axis] == 1:
        return family(*(part.squeeze(axis) for part in parts), validate_args=False)
    return Independent(family(*parts, validate_args=False), 1, validate_args=False)


def _positive(name: str, value: float | Tensor) -> Tensor:
    found = torch.as_tensor(value, dtype=torch.get_default_dtype())
    if not bool((found.isfinite() & (found > 0)).all()):
        raise ValueError(f"{name} must be positive and finite, got {found.min().item()}")
    return found


def _one(outputs: Tensor, which: str = "") -> Tensor:
    """The single output of each row."""
    if outputs.shape[-1] != 1:
        raise ValueError(f"outputs must be one{which}, got {outputs.shape[-1]}")
    return outputs.squeeze(-1)


class Binary(Likelihood):
    """Targets are 0 or 1; the single output is the logit of 1."""

    def forward(self, outputs: Tensor) -> Bernoulli:
        return Bernoulli(logits=_one(outputs, ", the logit of class 1"), validate_args=False)


class Classes(Likelihood):
    """Targets are one of several classes; outputs are logits.

        p(y = k | x, w) = softmax(f_w(x))_k

    Args:
        ignore: a label that means no label, such as -100 for padding. It is left out of the
            likelihood and of the mean over the batch (of each process), so that `num_data` is the
            number of examples with a label. Metrics refuse it; give them the rest: with
            `keep = y != -100`, `Predictive(likelihood(predictive.conditional.logits[:, keep]))`.

    Examples:
        >>> Classes(ignore=-100).counted(torch.tensor([2, -100]))
        tensor([ True, False])
    """

    def __init__(self, ignore: int | None = None) -> None:
        super().__init__()
        self.ignore = ignore

    def counted(self, y: Tensor) -> Tensor | None:
        return None if self.ignore is None else y != self.ignore

    def forward(self, outputs: Tensor) -> Categorical:
        if outputs.shape[-1] < 2:
            raise ValueError(f"outputs must be one per class, two or more, got {outputs.shape[-1]}")
        return Categorical(logits=outputs, validate_args=False)


class Noisy(Likelihood):
    """One learned noise level, or one per trial: the leading axes of `scale`."""

    def __init__(self, scale: float | Tensor = 1.0) -> None:
        super().__init__()
        start = _positive("scale", scale)
        self.trials = start.shape
        # One axis at least: `fully_shard` takes no single numbers.
        self.rho = nn.Parameter(inverse_softplus(start.reshape(self.trials or (1,))))

    @property
    def scale(self) -> Tensor:
        return softplus(self.rho).reshape(self.trials)

    def scale_for(self, axes: int) -> Tensor:
        """The scale, its trials in line with those of outputs of which `axes` follow the trials."""
        scale = softplus(self.rho)  # of one axis without trials, which costs no view
        return scale.reshape(*self.trials, *(1,) * axes) if self.trials else scale


class Gaussian(Noisy):
    """Targets are normal around the output, with one learned noise level.

        y | x, w ~ N(f_w(x), scale²)

    One output gives one number per row; several give independent numbers with the same noise.

    Examples:
        >>> Gaussian(scale=0.5)(torch.zeros(4, 1)).scale
        tensor([0.5000, 0.5000, 0.5000, 0.5000], grad_fn=<ExpandBackward0>)
    """

    def forward(self, outputs: Tensor) -> Distribution:
        return joined(Normal, outputs, self.scale_for(2))


class StudentTNoise(Noisy):
    """Targets with outliers: Student's t around the output, with a learned scale and a fixed df.

    y | x, w ~ f_w(x) + scale · t_df

    Args:
        df: degrees of freedom; 4 forgives outliers and has a finite variance.
        scale: where the learned scale starts.
    """

    def __init__(self, df: float = 4.0, scale: float | Tensor = 1.0) -> None:
        super().__init__(scale)
        _positive("df", df)
        self.df = df

    def forward(self, outputs: Tensor) -> StudentT:
        loc = _one(outputs)
        return StudentT(loc.new_tensor(self.df), loc, self.scale_for(1), validate_args=False)


class Spread(Likelihood):
    """Two outputs per target: a location, and the raw value of a positive spread.

    Several targets have all locations first, then all raw spreads. `smallest` is a floor of the
    spread, without which a single row can be fitted exactly; `shift` is added to the raw value.
    """

    def __init__(self, smallest: float = 1e-4, shift: float = 0.0) -> None:
        super().__init__()
        _positive("smallest", smallest)
        self.smallest, self.shift = smallest, shift

    def parts(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Locations and spreads, (…, targets) each."""
        if outputs.shape[-1] % 2:
            raise ValueError(f"outputs must be two per target, got {outputs.shape[-1]}")
        loc, rho = outputs.chunk(2, -1)
        return loc, softplus(rho + self.shift) + self.smallest


def shift_to(scale: float, smallest: float) -> float:
    """The shift with which a `Spread` is `scale` where its output is 0."""
    return float(inverse_softplus(torch.tensor(scale - smallest, dtype=torch.float64)))


class HeteroscedasticGaussian(Spread):
    """Targets are normal, each with its own noise level: two outputs, the mean and its rho.

        y | x, w ~ N(f_1, (smallest + softplus(f_2 + shift))²)

    Several targets have two outputs each: all means first, then all rhos. A `smallest` scale of a
    hundredth of the targets' standard deviation suits targets with few different values.

    Examples:
        >>> HeteroscedasticGaussian()(torch.zeros(4, 6)).event_shape
        torch.Size([3])
    """

    def forward(self, outputs: Tensor) -> Distribution:
        return joined(Normal, *self.parts(outputs))


class GaussianMixture(Spread):
    """Targets are a mixture of normals, for what is skewed, heavy-tailed or has several modes.

        y | x, w ~ Σ_k softmax(f_logits)_k N(f_loc,k + d_k, (smallest + softplus(f_rho,k + shift))²)

    Three outputs per component and target: all locations first, then all logits, then all rhos.
    The offsets d_k, from -1 to 1, keep components apart before anything is learned.
    """

    offsets: Tensor

    def __init__(self, components: int = 3, smallest: float = 1e-4, shift: float = 0.0) -> None:
        super().__init__(smallest, shift)
        if components < 2:
            raise ValueError(f"components must be at least 2, got {components}")
        self.register_buffer("offsets", torch.linspace(-1, 1, components))

    def forward(self, outputs: Tensor) -> Distribution:
        count = len(self.offsets)
        if outputs.shape[-1] % (3 * count):
            raise ValueError(f"outputs must be {3 * count} per target, got {outputs.shape[-1]}")
        # (…, targets, components) each
        loc, logits, rho = (part.unflatten(-1, (-1, count)) for part in outputs.chunk(3, -1))
        return joined(self._mixed, loc, logits, softplus(rho + self.shift) + self.smallest, axis=-2)

    def _mixed(self, loc: Tensor, logits: Tensor, scale: Tensor, **kept: Any) -> Distribution:
        each = Normal(loc + self.offsets, scale, **kept)
        return distributions.MixtureSameFamily(Categorical(logits=logits, **kept), each, **kept)


class Logarithmic(Spread):
    """Two outputs per target, for what is positive: a logarithm, and a relative spread.

        log-location  centre + width · f_1,   spread  width · (smallest + softplus(f_2 + shift))

    Centre and width, one for all targets or one each, are the log-location at the output 0 and the
    unit of both outputs, such as the standard deviation of the targets' logarithms.
    """

    centre: Tensor
    width: Tensor

    def __init__(
        self,
        smallest: float = 1e-2,
        shift: float = 0.0,
        centre: float | Tensor = 0.0,
        width: float | Tensor = 1.0,
    ) -> None:
        super().__init__(smallest, shift)
        self.register_buffer("centre", torch.as_tensor(centre, dtype=torch.get_default_dtype()))
        self.register_buffer("width", _positive("width", width))

    def parts(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        loc, spread = super().parts(outputs)
        return self.centre + self.width * loc, self.width * spread


class LogNormal(Logarithmic):
    """Positive targets whose logarithm is normal, with a noise level of each row's own.

    log y | x, w ~ N(centre + width · f_1, (width · (smallest + softplus(f_2 + shift)))²)
    """

    def forward(self, outputs: Tensor) -> Distribution:
        return joined(distributions.LogNormal, *self.parts(outputs))


class Gamma(Logarithmic):
    """Positive targets, gamma distributed: a mean, and a standard deviation relative to it.

        y | x, w ~ Gamma(k, k / mean),   mean = exp(centre + width · f_1)
        1 / √k = width · (smallest + softplus(f_2 + shift))

    The standard deviation is mean / √k; the tail on the right is lighter than `LogNormal`'s.
    """

    def forward(self, outputs: Tensor) -> Distribution:
        log_mean, relative = self.parts(outputs)
        concentration = relative.pow(-2)
        return joined(distributions.Gamma, concentration, concentration * (-log_mean).exp())


class NegativeBinomial(Logarithmic):
    """Targets are counts 0, 1, 2, … that scatter more than a Poisson distribution would.

        E[y | x, w] = m = exp(centre + width · f_1),   Var[y | x, w] = m + (c m)²
        c = width · (smallest + softplus(f_2 + shift))

    At c = 0 this is `Poisson`.
    """

    def forward(self, outputs: Tensor) -> Distribution:
        log_mean, relative = self.parts(outputs)
        return joined(_counts, relative.pow(-2), log_mean + 2 * relative.log())


def _counts(total_count: Tensor, logits: Tensor, **kept: Any) -> Distribution:
    return distributions.NegativeBinomial(total_count, logits=logits, **kept)


class Poisson(Likelihood):
    """Targets are counts 0, 1, 2, …; the output is the logarithm of their expected number.

        y | x, w ~ Poisson(exp(centre + f_w(x)))

    One output gives a count per row, several give independent counts.

    Args:
        centre: the logarithm of the expected number at the output 0, one for all or one each.

    Examples:
        >>> Poisson()(torch.zeros(4, 1)).mean
        tensor([1., 1., 1., 1.])
    """

    centre: Tensor

    def __init__(self, centre: float | Tensor = 0.0) -> None:
        super().__init__()
        self.register_buffer("centre", torch.as_tensor(centre, dtype=torch.get_default_dtype()))

    def forward(self, outputs: Tensor) -> Distribution:
        return joined(distributions.Poisson, (outputs + self.centre).exp())
