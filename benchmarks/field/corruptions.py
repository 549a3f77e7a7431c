"""Common corruptions of images of 32 pixels as tensor operations, at five severities.

After Hendrycks and Dietterich (2019), with the parameters of their set for CIFAR-10, but written
anew for tensors on any device: results are not those of the published CIFAR-10-C to the last digit.
Fog, frost, snow, spatter and glass blur are left out.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, conv2d, grid_sample, interpolate, pad

Corruption = Callable[[Tensor, int], Tensor]


def corrupted(images: Tensor, name: str, severity: int, seed: int = 0) -> Tensor:
    """Images (N, 3, H, W), bytes or values from 0 to 1, corrupted; values from 0 to 1.

    Severity runs from 1 to 5; the same seed makes the same noise on one kind of device.
    """
    if not 1 <= severity <= 5:
        raise ValueError(f"severity must lie between 1 and 5, got {severity}")
    x = images.float() / 255 if images.dtype == torch.uint8 else images.float()
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.manual_seed(seed)
        return CORRUPTIONS[name](x, severity - 1).clamp(0, 1)


def gaussian_noise(x: Tensor, level: int) -> Tensor:
    """Noise of the same size everywhere."""
    return x + (0.04, 0.06, 0.08, 0.09, 0.10)[level] * torch.randn_like(x)


def shot_noise(x: Tensor, level: int) -> Tensor:
    """Counts of photons."""
    photons = (500, 250, 100, 75, 50)[level]
    return torch.poisson(x * photons) / photons


def impulse_noise(x: Tensor, level: int) -> Tensor:
    """Single values set to 0 or 1."""
    share = (0.01, 0.02, 0.03, 0.05, 0.07)[level]
    extreme = (torch.rand_like(x) < 0.5).to(x.dtype)
    return torch.where(torch.rand_like(x) < share, extreme, x)


def speckle_noise(x: Tensor, level: int) -> Tensor:
    """Noise in proportion to the value."""
    return x + x * (0.06, 0.1, 0.12, 0.16, 0.2)[level] * torch.randn_like(x)


def gaussian_blur(x: Tensor, level: int) -> Tensor:
    """A bell of a fraction of a pixel to one pixel."""
    return _blurred(x, _bell((0.4, 0.6, 0.7, 0.8, 1.0)[level], 4, x))


def defocus_blur(x: Tensor, level: int) -> Tensor:
    """A disk, its edge softened."""
    radius, soft = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))[level]
    away = torch.arange(-4.0, 5.0, device=x.device)
    disk = (away[:, None] ** 2 + away**2 <= radius**2).to(x.dtype)
    padded = pad(disk[None, None], [4] * 4)
    return _blurred(x, conv2d(padded, _bell(soft, 4, x)[None, None])[0, 0])


def motion_blur(x: Tensor, level: int) -> Tensor:
    """A line in a random direction, one for each image, brighter at its middle."""
    length, width = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))[level]
    steps = torch.arange(-length, length + 1, device=x.device, dtype=x.dtype)
    share = torch.exp(-(steps**2) / (2 * width**2))
    angle = (torch.rand(len(x), device=x.device) - 0.5) * math.pi / 2
    total = torch.zeros_like(x)
    for step, weight in zip(steps.tolist(), (share / share.sum()).tolist(), strict=True):
        total += weight * _moved(x, step * angle.cos(), step * angle.sin())
    return total


def zoom_blur(x: Tensor, level: int) -> Tensor:
    """The mean over several zooms."""
    count = (6, 11, 16, 21, 26)[level]
    zooms = [1 + 0.01 * number for number in range(count)]
    return (x + sum(_zoomed(x, zoom) for zoom in zooms)) / (count + 1)


def brightness(x: Tensor, level: int) -> Tensor:
    """The value of each pixel raised, its hue and saturation kept."""
    value = x.amax(1, keepdim=True)
    raised = (value + (0.05, 0.1, 0.15, 0.2, 0.3)[level]).clamp(max=1)
    return torch.where(value > 0, x / value.clamp(min=1e-6) * raised, raised)


def contrast(x: Tensor, level: int) -> Tensor:
    """Closer to the mean of each channel."""
    mean = x.mean((2, 3), keepdim=True)
    return mean + (x - mean) * (0.75, 0.5, 0.4, 0.3, 0.15)[level]


def saturate(x: Tensor, level: int) -> Tensor:
    """Saturation multiplied and raised, hue and value kept."""
    factor, shift = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))[level]
    value, least = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
    before = (value - least) / value.clamp(min=1e-6)
    after = (before * factor + shift).clamp(0, 1)
    # In hue, saturation and value each channel is value · (1 - saturation · its own share).
    share = (value - x) / (value - least).clamp(min=1e-6)
    return value * (1 - after * share)


def pixelate(x: Tensor, level: int) -> Tensor:
    """Fewer pixels, and back to as many."""
    side = int(x.shape[-1] * (0.95, 0.9, 0.85, 0.75, 0.65)[level])
    small = interpolate(x, size=(side, side), mode="area")
    return interpolate(small, size=x.shape[-2:], mode="nearest")


def jpeg(x: Tensor, level: int) -> Tensor:
    """Quantised cosines of blocks of 8 × 8, brightness and colour apart, without subsampling."""
    quality = (80, 65, 58, 50, 40)[level]
    factor = 50 / quality if quality < 50 else 2 - quality / 50
    colours = torch.tensor(_YCBCR, device=x.device)
    planes = torch.einsum("kc,nchw->nkhw", colours, 255 * x).round()
    planes[:, 0] -= 128
    n, _, height, width = planes.shape
    blocks = planes.reshape(n, 3, height // 8, 8, width // 8, 8).transpose(3, 4)
    basis = _cosines(x)
    coefficients = basis @ blocks @ basis.mT
    tables = torch.tensor((_BRIGHTNESS, _COLOUR, _COLOUR), device=x.device).reshape(3, 1, 1, 8, 8)
    steps = (tables * factor + 0.5).floor().clamp(1, 255)
    coefficients = (coefficients / steps).round() * steps
    blocks = basis.mT @ coefficients @ basis
    planes = blocks.transpose(3, 4).reshape(n, 3, height, width).clone()
    planes[:, 0] += 128
    return torch.einsum("ck,nkhw->nchw", torch.linalg.inv(colours), planes) / 255


def elastic(x: Tensor, level: int) -> Tensor:
    """Pixels moved along a smooth random field."""
    size, smooth = ((1.6, 2.6), (1.6, 2.2), (2.2, 2.2), (2.8, 2.0), (3.4, 1.8))[level]
    noise = 2 * torch.rand(len(x), 2, *x.shape[-2:], device=x.device) - 1
    field = _blurred(noise, _bell(smooth, 8, x))
    field = field / field.abs().amax((1, 2, 3), keepdim=True).clamp(min=1e-6) * size
    return _moved(x, field[:, 0], field[:, 1])


CORRUPTIONS: dict[str, Corruption] = {
    corruption.__name__: corruption
    for corruption in (
        gaussian_noise, shot_noise, impulse_noise, speckle_noise, gaussian_blur, defocus_blur,
        motion_blur, zoom_blur, brightness, contrast, saturate, pixelate, jpeg, elastic,
    )
}  # fmt: skip

_YCBCR = (
    (0.299, 0.587, 0.114),
    (-0.168735892, -0.331264108, 0.5),
    (0.5, -0.418687589, -0.081312411),
)
# The tables of annex K of the JPEG standard.
_BRIGHTNESS = (
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113,
    92, 49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip
_COLOUR = (
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99,
    47, 66, 99, 99, 99, 99, 99, 99, *[99] * 32,
)  # fmt: skip


def _bell(scale: float, reach: int, like: Tensor) -> Tensor:
    away = torch.arange(-reach, reach + 1, device=like.device, dtype=like.dtype)
    line = torch.exp(-(away**2) / (2 * scale**2))
    square = line[:, None] * line
    return square / square.sum()


def _blurred(x: Tensor, mask: Tensor) -> Tensor:
    """Each channel convolved with one mask that adds up to 1 after division by its sum."""
    reach = mask.shape[-1] // 2
    planes = pad(x.flatten(0, 1)[:, None], [reach] * 4, mode="reflect")
    return conv2d(planes, (mask / mask.sum())[None, None]).reshape(x.shape)


def _moved(x: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """Pixels taken from so many pixels further right and down, a shift for each image or pixel."""
    n, _, height, width = x.shape
    grid = affine_grid(
        torch.eye(2, 3, device=x.device).expand(n, 2, 3), [n, 1, height, width], False
    )
    across = (right.reshape(n, -1, 1) if right.dim() == 1 else right) * 2 / width
    along = (down.reshape(n, -1, 1) if down.dim() == 1 else down) * 2 / height
    places = grid + torch.stack(
        [across.expand(n, height, width), along.expand(n, height, width)], -1
    )
    return grid_sample(x, places, padding_mode="reflection", align_corners=False)


def _zoomed(x: Tensor, zoom: float) -> Tensor:
    n, _, height, width = x.shape
    matrix = torch.eye(2, 3, device=x.device).expand(n, 2, 3) / zoom
    return grid_sample(x, affine_grid(matrix, [n, 1, height, width], False), align_corners=False)


def _cosines(like: Tensor) -> Tensor:
    """The orthonormal cosine basis of 8 points, one a row."""
    number = torch.arange(8, device=like.device, dtype=like.dtype)
    basis = torch.cos(math.pi / 8 * (number + 0.5) * number[:, None]) / 2
    basis[0] /= math.sqrt(2)
    return basis
