"""How fast densities fade: whether a mean over samples has a variance."""

import math

import torch
from torch import Tensor
from torch.distributions import Distribution

from bayesdiv.divergence.densities import log_density, parameter, part

_NEAR, _FAR = 1e30, 1e60  # so far out that location and scale no longer count


def index(distribution: Distribution) -> float:
    """The tail index ν of |x|^-(1+ν), the least over all weights and both sides; inf if lighter."""
    # Moments below ν exist. It is read off the density itself, far out.
    near, far = _logs(distribution)
    slope = (near - far) / math.log(_FAR / _NEAR) - 1
    # Where both are 0 there is no tail at all; a difference of two infinities says the same.
    return float(torch.where(far < -1e4, math.inf, slope).nan_to_num(math.inf, math.inf).min())


def growth(distribution: Distribution) -> float:
    """The power of |x| with which the log density falls, the largest of all weights."""
    # 2 for a Gaussian, 1 for Laplace, about 0 for a power of |x|, inf beyond any power.
    near, far = (logs.abs().clamp(min=1.0) for logs in _logs(distribution))
    power = (far / near).log() / math.log(_FAR / _NEAR)
    return float(torch.where(near == math.inf, math.inf, power).max())


def fair(source: Distribution, q: Distribution, p: Distribution) -> bool:
    """Whether log q - log p has four moments under draws of `source`."""
    # Two make the variance of a mean finite, four that of its estimate.
    power = max(growth(q), growth(p))
    return power < math.inf and index(source) > 4 * (power if power > 0.1 else 0.0)


def _logs(distribution: Distribution) -> tuple[Tensor, Tensor]:
    """Log densities at both far points of either side, (2, n) each."""
    with torch.no_grad():
        flat = part(distribution, slice(None))
        signs = parameter(flat).new_tensor([[-1.0], [1.0]])
        x = [signs.expand(-1, *flat.batch_shape) * place for place in (_NEAR, _FAR)]
        return log_density(flat, x[0]), log_density(flat, x[1])
