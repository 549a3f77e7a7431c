"""What an architecture must do, each a function that raises where it does not."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

import bayesdiv as bd
from bayesdiv.draws import called, tensor_of
from bayesdiv.model.bayesian import Bayesian
from clients.architectures import Architecture

Case = Callable[[Architecture, Path], None]
BFLOAT16 = torch.bfloat16


def _bayesian(architecture: Architecture) -> tuple[nn.Module, Bayesian]:
    """The network as it comes, in evaluation mode, and the Bayesian one around a copy."""
    source = architecture.network().eval()
    return source, bd.bayesianize(source, bd.FanIn()).eval()


@contextmanager
def _unfused() -> Iterator[None]:
    """The layers of torch's transformer as they are trained: not fused for evaluation."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _precision(dtype: torch.dtype | None):
    return nullcontext() if dtype is None else torch.autocast("cpu", dtype)


def _filled(source: nn.Module, net: Bayesian, weights: Tensor) -> nn.Module:
    """The network as it comes with these weights written into it: no code of ours runs it."""
    filled = copy.deepcopy(source)
    with torch.no_grad():
        tensors = net.layout.unflatten(weights)
        for name, parameter in filled.named_parameters():
            parameter.copy_(tensors.get(name, parameter))  # frozen ones stay
    return filled


def _runs(samples: int, dtype: torch.dtype | None) -> Case:
    def case(architecture: Architecture, _: Path) -> None:
        source, net = _bayesian(architecture)
        inputs, take = architecture.inputs(), architecture.outputs or tensor_of
        with torch.no_grad(), _precision(dtype), _unfused():
            weights = bd.draw_weights(net, samples)
            made = bd.draws(net, inputs, weights, outputs=architecture.outputs)
            wanted = torch.stack(
                [take(called(_filled(source, net, w), inputs)) for w in weights[0]]
            )
        _check_outputs(made, wanted, dtype)
        _check_training(architecture, net, inputs, made, dtype)

    return case


def _check_outputs(made: Tensor, wanted: Tensor, dtype: torch.dtype | None) -> None:
    assert made.dtype == wanted.dtype, f"outputs are {made.dtype}, not {wanted.dtype}"
    size = wanted.float().abs().max().item()
    near = size * (1e-4 if dtype is None else 4e-2)
    apart = (made.float() - wanted.float()).abs().max().item()
    assert apart <= near, f"outputs are {apart:.1g} from those of the plain network, {size:.1g}"


def _check_training(
    architecture: Architecture,
    net: Bayesian,
    inputs: object,
    made: Tensor,
    dtype: torch.dtype | None,
) -> None:
    """A step moves every parameter by finite gradients, in the parameters' own precision."""
    targets = torch.randint(0, made.shape[-1], made.shape[1:-1])
    objective = bd.Objective(
        bd.Classes(), bd.JSA(0.3), num_data=64, samples=len(made), outputs=architecture.outputs
    )
    with _precision(dtype):
        loss = objective(net.train(), inputs, targets)
    loss.total.backward()
    for name, parameter in net.named_parameters():
        if not parameter.requires_grad:
            continue
        assert parameter.grad is not None, f"{name} has no gradient"
        assert parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"
        assert parameter.grad.dtype == torch.float32, f"{name} has {parameter.grad.dtype} gradients"
        assert parameter.grad.any(), f"the gradient of {name} is zero"


def _saves(architecture: Architecture, folder: Path) -> None:
    source, net = _bayesian(architecture)
    inputs, path = architecture.inputs(), folder / "net.safetensors"
    bd.save(path, net)
    _, other = _bayesian(architecture)
    bd.load(path, into=other)
    take = architecture.outputs or tensor_of
    with torch.no_grad(), bd.at_mean(other):
        assert torch.equal(take(called(other, inputs)), take(called(source, inputs)))


CASES: dict[str, Case] = {
    "K = 1": _runs(1, None),
    "K = 4": _runs(4, None),
    "K = 1, bfloat16": _runs(1, BFLOAT16),
    "K = 4, bfloat16": _runs(4, BFLOAT16),
    "save and load": _saves,
}
