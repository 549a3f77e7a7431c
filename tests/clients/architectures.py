"""45 networks of other people, tiny and at random weights, each with a batch to run it on."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from monai.networks import nets as monai_nets
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils import spectral_norm as legacy_spectral_norm
from torch_geometric import nn as graphs

from clients.transformer_nets import CLASSES, FAMILIES, ROWS, made

NODES, FEATURES = 10, 6


@dataclass(frozen=True)
class Architecture:
    """A network, a batch of inputs for it, and what a likelihood of classes reads of its outputs.

    Args:
        name: in the table.
        family: where it comes from.
        network: makes it.
        inputs: a tensor, a tuple of arguments or a mapping of named ones.
        outputs: the tensor out of what it returns, classes last; None for a tensor or `logits`.
    """

    name: str
    family: str
    network: Callable[[], nn.Module]
    inputs: Callable[[], object]
    outputs: Callable[[object], Tensor] | None = None


def _family(name: str, cls: str, settings: object, inputs: object) -> Architecture:
    outputs = _images_by_text if name == "CLIP" else None
    return Architecture(name, "transformers", lambda: made(cls, settings), inputs, outputs)


def _images_by_text(output: object) -> Tensor:
    return output.logits_per_image


class Graph(nn.Module):
    """Two layers of one kind over the nodes of a graph."""

    def __init__(self, layer: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = layer(FEATURES, 8), layer(8, CLASSES)

    def forward(self, x: Tensor, edges: Tensor, *rest: Tensor) -> Tensor:
        return self.second(self.first(x, edges, *rest).relu(), edges, *rest)


def _graph() -> tuple[Tensor, Tensor]:
    """Nodes in a ring, each joined to both neighbours."""
    ring = torch.arange(NODES)
    one, two = torch.stack([ring, ring.roll(1)]), torch.stack([ring.roll(1), ring])
    return torch.randn(NODES, FEATURES), torch.cat([one, two], 1)


def _graph_and_kinds() -> tuple[Tensor, Tensor, Tensor]:
    x, edges = _graph()
    return x, edges, torch.arange(edges.shape[1]) % 2


def _graph_and_features() -> tuple[Tensor, Tensor, Tensor]:
    x, edges = _graph()
    return x, edges, torch.randn(edges.shape[1], 2)


def _geometric(name: str, layer: Callable[[int, int], nn.Module], inputs=_graph) -> Architecture:
    return Architecture(name, "PyTorch Geometric", lambda: Graph(layer), inputs)


def _isomorphic(i: int, o: int) -> nn.Module:
    return graphs.GINConv(nn.Sequential(nn.Linear(i, 8), nn.ReLU(), nn.Linear(8, o)))


def _by_edge(i: int, o: int) -> nn.Module:
    return graphs.NNConv(i, o, nn.Linear(2, i * o))


def _monai(name: str, network: Callable[[], nn.Module], outputs=None) -> Architecture:
    return Architecture(name, "MONAI", network, _slices, outputs or _classes_last)


def _segresnet() -> nn.Module:
    return monai_nets.SegResNet(2, 8, 1, CLASSES, blocks_down=(1, 1), blocks_up=(1,))


def _slices() -> Tensor:
    return torch.randn(2, 1, 32, 32)


def _classes_last(output: Tensor) -> Tensor:
    return output.movedim(1, -1)


def _torch(name: str, network: Callable[[], nn.Module], inputs, outputs=None) -> Architecture:
    return Architecture(name, "torch", network, inputs, outputs)


def _rows() -> Tensor:
    return torch.randn(ROWS, FEATURES)


def _series() -> Tensor:
    return torch.randn(ROWS, 5, FEATURES)


def _first(output: tuple[Tensor, object]) -> Tensor:
    return output[0]


def _perceptron(around: Callable[[nn.Module], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        around(nn.Linear(FEATURES, 8)), nn.Tanh(), around(nn.Linear(8, CLASSES))
    )


class Residual(nn.Module):
    """A convolution with batch norm, and the way past it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.block = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        return self.head((h + self.block(h)).mean((-1, -2)))


class Tied(nn.Module):
    """A language model of one layer whose embedding is its last layer too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.layer = nn.Linear(8, 8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embedding(tokens)).tanh())


ARCHITECTURES: tuple[Architecture, ...] = (
    *(_family(*family) for family in FAMILIES),
    _geometric("GCN", graphs.GCNConv),
    _geometric("GATv2", graphs.GATv2Conv),
    _geometric("GraphSAGE", graphs.SAGEConv),
    _geometric("GIN", _isomorphic),
    _geometric("Graph transformer", graphs.TransformerConv),
    _geometric("Chebyshev", lambda i, o: graphs.ChebConv(i, o, K=2)),
    _geometric("Relational GCN", lambda i, o: graphs.RGCNConv(i, o, 2), _graph_and_kinds),
    _geometric("Edge-conditioned", _by_edge, _graph_and_features),
    _monai("U-Net", lambda: monai_nets.UNet(2, 1, CLASSES, (4, 8, 16), (2, 2), num_res_units=1)),
    _monai("Basic U-Net", lambda: monai_nets.BasicUNet(2, 1, CLASSES, (4, 4, 8, 8, 16, 4))),
    _monai("Attention U-Net", lambda: monai_nets.AttentionUnet(2, 1, CLASSES, (4, 8), (2,))),
    _monai(
        "SegResNet",
        lambda: monai_nets.SegResNet(2, 8, 1, CLASSES, blocks_down=(1, 1), blocks_up=(1,)),
    ),
    _monai("UNETR", lambda: monai_nets.UNETR(1, CLASSES, 32, 4, 24, 32, 2, spatial_dims=2)),
    _monai(
        "DenseNet",
        lambda: monai_nets.DenseNet(2, 1, CLASSES, 8, 4, (2, 2)),
        lambda output: output,
    ),
    _torch("Weight norm", _perceptron(parametrizations.weight_norm), _rows),
    _torch("Spectral norm", _perceptron(parametrizations.spectral_norm), _rows),
    _torch("Spectral norm, legacy", _perceptron(legacy_spectral_norm), _rows),
    _torch("Orthogonal", _perceptron(parametrizations.orthogonal), _rows),
    _torch(
        "LSTM", lambda: nn.LSTM(FEATURES, CLASSES, 2, batch_first=True), _series, lambda o: o[0]
    ),
    _torch(
        "Transformer",
        lambda: nn.TransformerEncoderLayer(FEATURES, 2, 16, batch_first=True),
        _series,
    ),
    _torch("Batch norm", Residual, lambda: torch.randn(ROWS, 1, 8, 8)),
    _torch("Tied weights", Tied, lambda: torch.randint(0, 16, (ROWS, 5))),
)
