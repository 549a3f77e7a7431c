"""Residual networks: size, start, draws of their weights."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import conv2d, cross_entropy, linear, max_pool2d, relu

import bayesdiv as bd
from bayesdiv.app.nets.images import Norm, ResNet, Stem, imagenet_stem, resnet20, small_stem

SMALL = ResNet(classes=5, stem=small_stem, width=4)


class NormedBlock(nn.Module):
    """A block with batch norm, as torchvision names its parts."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = None
        if stride != 1 or before != after:
            short = nn.Conv2d(before, after, 1, stride, bias=False)
            self.downsample = nn.Sequential(short, nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        short = x if self.downsample is None else self.downsample(x)
        return relu(self.bn2(self.conv2(relu(self.bn1(self.conv1(x))))) + short)


class Normed(nn.Module):
    """A residual network with batch norm, its statistics as if it had been trained."""

    def __init__(self, classes: int, stem: Stem, width: int) -> None:
        super().__init__()
        self.large = stem == imagenet_stem
        kernel, stride, padding = (7, 2, 3) if self.large else (3, 1, 1)
        self.conv1 = nn.Conv2d(3, width, kernel, stride, padding, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        for group in range(1, 5):
            before, after = widths[group - 1], widths[group]
            first = NormedBlock(before, after, 1 if group == 1 else 2)
            setattr(self, f"layer{group}", nn.Sequential(first, NormedBlock(after, after, 1)))
        self.fc = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.3)
                module.running_var.uniform_(0.3, 3.0)
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, std=0.3)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.bn1(self.conv1(x)))
        x = max_pool2d(x, 3, 2, 1) if self.large else x
        for group in range(1, 5):
            x = getattr(self, f"layer{group}")(x)
        return self.fc(x.mean((2, 3)))


def normed(classes: int, stem: Stem, width: int = 4) -> Normed:
    torch.manual_seed(1)
    return Normed(classes, stem, width).eval()


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in module.state_dict().items()}


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_papers_network_has_the_papers_number_of_weights():
    assert count(ResNet(classes=2).build()) == 11_167_938


def test_the_number_of_weights_is_that_of_resnet18_less_its_batch_norm():
    # 11,689,512 weights in torchvision, of which batch norm has a scale and a shift a channel.
    channels = 64 + 4 * 64 + 5 * (128 + 256 + 512)
    assert count(ResNet(classes=1000).build()) == 11_689_512 - 2 * channels


@pytest.mark.parametrize("stem", [imagenet_stem, small_stem])
def test_names_and_shapes_are_those_of_the_same_network_with_batch_norm(stem):
    with_norm = {
        key: value.shape
        for key, value in normed(7, stem).named_parameters()
        if "bn" not in key and "downsample.1" not in key
    }
    network = ResNet(classes=7, stem=stem, width=4).build()
    assert {key: value.shape for key, value in network.named_parameters()} == with_norm


@pytest.mark.parametrize(
    ("stem", "side", "left"), [(imagenet_stem, 224, 7), (imagenet_stem, 64, 2), (small_stem, 32, 4)]
)
def test_each_stem_leaves_its_share_of_the_pixels(stem, side, left):
    network = ResNet(classes=2, stem=stem, width=2).build()
    seen = network[:-2](torch.zeros(1, 3, side, side))  # all but the mean and the output layer
    assert seen.shape == (1, 16, left, left)


@pytest.mark.parametrize("blocks", [(2, 2, 2, 2), (8, 8, 8)])
@pytest.mark.parametrize("stem", [imagenet_stem, small_stem])
def test_outputs_at_the_start_are_of_order_one_and_gradients_reach_every_weight(stem, blocks):
    torch.manual_seed(0)
    recipe = ResNet(classes=10, stem=stem, width=16, blocks=blocks)
    squares = []
    for _ in range(4):
        network = recipe.build()
        output = network(torch.randn(4, 3, 32, 32))
        cross_entropy(output, torch.tensor([0, 1, 2, 3])).backward()
        squares.append(output.detach().pow(2).mean())
        for parameter in network.parameters():
            assert parameter.grad.isfinite().all()
            assert parameter.grad.abs().max() > 1e-6
    assert 0.1 < torch.stack(squares).mean() < 10


def test_every_layer_starts_with_its_variance():
    torch.manual_seed(0)
    network = ResNet(classes=200).build()
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            gain = 1 if name == "fc" else 1 / 8 if name.endswith("conv2") else 2
            fan_in = math.prod(layer.weight.shape[1:])
            assert layer.weight.var().item() * fan_in == pytest.approx(gain, rel=0.1)
    assert not network.fc.bias.any()


def test_a_network_without_normalisation_trains():
    torch.manual_seed(0)
    labels = torch.arange(64) % 2
    x = torch.randn(64, 3, 16, 16) + labels.reshape(-1, 1, 1, 1)
    network = ResNet(classes=2, stem=small_stem, width=4).build()
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(20):
        optimizer.zero_grad()
        cross_entropy(network(x), labels).backward()
        optimizer.step()
    assert (network(x).argmax(1) == labels).double().mean() > 0.95


@pytest.mark.parametrize(
    "fields", [{"classes": 0}, {"width": 0}, {"blocks": ()}, {"blocks": (2, 0)}]
)
def test_a_network_without_weights_is_refused(fields):
    with pytest.raises(ValueError, match="classes, width and blocks must be at least 1, got"):
        ResNet(**{"classes": 2, **fields})


def by_hand(weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """The network of one group of one block and one of another, written out."""

    def conv(name: str, x: Tensor, stride: int = 1, padding: int = 1) -> Tensor:
        return conv2d(x, weights[f"{name}.weight"], None, stride, padding)

    x = relu(conv("conv1", x))
    x = relu(x + conv("layer1.0.conv2", relu(conv("layer1.0.conv1", x))))
    short = conv("layer2.0.downsample.0", x, 2, 0)
    x = relu(short + conv("layer2.0.conv2", relu(conv("layer2.0.conv1", x, 2))))
    return linear(x.mean((2, 3)), weights["fc.weight"], weights["fc.bias"])


def test_the_network_is_what_its_formula_says():
    torch.manual_seed(0)
    network = ResNet(classes=3, stem=small_stem, width=4, blocks=(1, 1)).build()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = torch.randn(2, 3, 9, 9)
    torch.testing.assert_close(network(x), by_hand(dict(network.named_parameters()), x))


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("stem", [imagenet_stem, small_stem])
def test_several_draws_at_once_are_those_one_after_the_other(stem, order):
    torch.manual_seed(0)
    network = ResNet(classes=3, stem=stem, width=4).build()
    model = bd.bayesianize(network, bd.FanIn(), start=0.3)
    weights, x = bd.draw_weights(model, 3), torch.randn(2, 3, 32, 32)
    together = bd.draws(model, x.to(memory_format=order), weights)
    one_by_one = torch.stack(
        [functional_call(network, model.layout.unflatten(draw), x) for draw in weights[0]]
    )
    assert together.std(0).min() > 0
    torch.testing.assert_close(together, one_by_one, atol=1e-5, rtol=1e-4)


def test_a_bayesian_network_learns_by_the_objective():
    torch.manual_seed(0)
    labels = torch.arange(32) % 2
    x = torch.randn(32, 3, 16, 16) + labels.reshape(-1, 1, 1, 1)
    network = ResNet(classes=2, stem=small_stem, width=4, blocks=(1, 1)).build()
    model = bd.bayesianize(network, bd.FanIn(), start=0.05)
    objective = bd.Objective(bd.Classes(), bd.JSA(0.5), num_data=32, samples=2, strength=0.01)
    optimizer = torch.optim.Adam([*model.parameters(), *objective.parameters()], lr=1e-2)
    losses = [
        epoch.loss.nll
        for epoch in bd.fit(model, objective, bd.Batches(x, labels, 16), optimizer, 15, seed=0)
    ]
    assert losses[-1] < 0.5 * losses[0]


def test_images_by_channels_last_give_the_same_and_stay_so():
    torch.manual_seed(0)
    network = ResNet(classes=3, width=8).build().to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 64, 64)
    last = x.to(memory_format=torch.channels_last)
    assert network[:-2](last).is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(network(last), network(x), atol=1e-5, rtol=1e-4)
    model = bd.bayesianize(network, bd.FanIn())
    with bd.at_mean(model):
        torch.testing.assert_close(model(last), network(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("width", [4, 16])
def test_gradients_by_channels_last_are_the_same(width):
    torch.manual_seed(0)
    network = ResNet(classes=3, stem=small_stem, width=width).build()
    x = torch.randn(16, 3, 32, 32)
    found = []
    for images in (x, x.to(memory_format=torch.channels_last)):
        network.zero_grad()
        network(images).pow(2).mean().backward()
        found.append([parameter.grad for parameter in network.parameters()])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-3)


def test_bfloat16_autocast_is_near_and_its_gradients_finite():
    torch.manual_seed(0)
    network = ResNet(classes=3, stem=small_stem, width=8).build()
    model = bd.bayesianize(network, bd.FanIn())
    x = torch.randn(4, 3, 32, 32)
    expected = network(x)
    with torch.autocast("cpu", dtype=torch.bfloat16), bd.at_mean(model):
        found = model(x)
        cross_entropy(found, torch.tensor([0, 1, 2, 0])).backward()
    torch.testing.assert_close(found.float(), expected, atol=0.1, rtol=0.1)
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert model.posterior.loc.grad.abs().max() > 0


def test_a_network_with_batch_norm_computes_what_one_written_in_torchvisions_names_does():
    reference = normed(7, small_stem)
    network = ResNet(classes=7, stem=small_stem, width=4, norm=Norm.BATCH).build().eval()
    network.load_state_dict(reference.state_dict())
    x = torch.randn(3, 3, 32, 32)
    assert torch.allclose(network(x), reference(x), atol=1e-5)


def test_resnet20_with_filter_response_norm_trains_and_has_no_statistics_of_the_batch():
    torch.manual_seed(0)
    network = resnet20(4, Norm.FILTER_RESPONSE).build()
    x, y = torch.randn(8, 3, 32, 32), torch.arange(8) % 4
    assert torch.allclose(network(x)[:2], network(x[:2]), atol=1e-5)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        losses.append(cross_entropy(network(x), y))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
