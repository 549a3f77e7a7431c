"""Networks of many kinds, small enough to be exported in a test: their layers count, not size."""

import itertools

import torch
from torch import Tensor, nn


class Cnn(nn.Module):
    """Convolutions with batch norm, whose running statistics are not those of a fresh layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        )  # fmt: skip
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))


class Block(nn.Module):
    """The basic block of ResNet-18."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        straight = stride == 1 and inputs == outputs
        self.down = nn.Identity() if straight else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + self.down(x)).relu()


def resnet18(width: int = 64, classes: int = 10) -> nn.Module:
    """Eighteen layers as in the paper on residual networks, for small images with this width."""
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    stem = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    blocks = [
        block
        for stage, (a, b) in enumerate(itertools.pairwise(widths))
        for block in (Block(a, b, 1 if stage == 0 else 2), Block(b, b, 1))
    ]
    end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes)]
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *blocks, *end)


class Inverted(nn.Module):
    """An inverted bottleneck of EfficientNet-lite: no squeeze, ReLU6."""

    def __init__(self, inputs: int, outputs: int, expand: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = inputs * expand

        def layer(a: int, b: int, size: int, step: int, groups: int) -> list[nn.Module]:
            conv = nn.Conv2d(a, b, size, step, size // 2, groups=groups, bias=False)
            return [conv, nn.BatchNorm2d(b, eps=1e-3)]

        wide = [*layer(inputs, inner, 1, 1, 1), nn.ReLU6()] if expand > 1 else []
        self.body = nn.Sequential(
            *wide, *layer(inner, inner, kernel, stride, inner), nn.ReLU6(),
            *layer(inner, outputs, 1, 1, 1),
        )  # fmt: skip
        self.skips = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.skips else self.body(x)


# Expansion, outputs, repeats, stride and size of the filters, stage by stage.
LITE0 = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
)  # fmt: skip


def efficientnet_lite0(classes: int = 10) -> nn.Module:
    """EfficientNet-lite0: width and depth 1, sixteen inverted bottlenecks."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32, eps=1e-3)]
    layers.append(nn.ReLU6())
    inputs = 32
    for expand, outputs, repeats, stride, kernel in LITE0:
        for repeat in range(repeats):
            step = stride if repeat == 0 else 1
            layers.append(Inverted(inputs, outputs, expand, kernel, step))
            inputs = outputs
    layers += [nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280, eps=1e-3), nn.ReLU6()]
    end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, classes)]
    return nn.Sequential(*layers, *end)


class Recurrent(nn.Module):
    """Two LSTM layers, and a line from their last state."""

    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 12, num_layers=2, batch_first=True)
        self.head = nn.Linear(12, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Encoder(nn.Module):
    """torch's own transformer encoder over numbers in time."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.inside = nn.Linear(4, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.inside(x)).mean(1))


class Bert(nn.Module):
    """Words, places and a mask in, the logits of the first word out, by name as BERT does it."""

    def __init__(self, words: int = 50, width: int = 32, layers: int = 3, classes: int = 3) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(16, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(_Layer(width) for _ in range(layers))
        self.pooler, self.head = nn.Linear(width, width), nn.Linear(width, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        at = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.norm(self.words(input_ids) + self.places(at))
        mask = attention_mask[:, None, None, :].bool()
        for layer in self.layers:
            x = layer(x, mask)
        return {"logits": self.head(self.pooler(x[:, 0]).tanh())}


class _Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.one(x + self.out(seen.transpose(1, 2).flatten(2)))
        return self.two(x + self.down(nn.functional.gelu(self.up(x))))


def tried(net: nn.Module, *inputs: Tensor) -> nn.Module:
    """The network after a few batches: running means and variances are then its own."""
    with torch.no_grad():
        for _ in range(3):
            net.train()(*inputs)
    return net.eval()
