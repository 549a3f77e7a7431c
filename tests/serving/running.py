"""Files of `bayesdiv.export` in their runtimes, and what they should return."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from bayesdiv.outliers import mutual_information
from bayesdiv.predictive import Predictive

Run = Callable[..., dict[str, Tensor]]


def runner(path: Path) -> Run:
    """From inputs by their order to outputs by name, by onnxruntime or torch."""
    if path.suffix == ".pt2":
        module = torch.export.load(path).module()
        return lambda *inputs: {name: value.detach() for name, value in module(*inputs).items()}
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [one.name for one in session.get_inputs()]
    outputs = [one.name for one in session.get_outputs()]

    def run(*inputs: Tensor) -> dict[str, Tensor]:
        fed = {name: given.numpy() for name, given in zip(names, inputs, strict=True)}
        return dict(zip(outputs, map(torch.from_numpy, session.run(None, fed)), strict=True))

    return run


def expected(predictive: Predictive, level: float = 0.9) -> dict[str, Tensor]:
    """What a graph must return, from `predict_at`."""
    if predictive.discrete:
        names = ("probabilities", "entropy", "mutual_information", "epistemic", "aleatoric")
        found = {name: getattr(predictive, name) for name in names}
    else:
        low, high = predictive.interval(level)
        found = {
            "mean": predictive.mean,
            "scale": predictive.variance.sqrt(),
            "low": low,
            "high": high,
            "epistemic": predictive.epistemic,
            "aleatoric": predictive.aleatoric,
        }
    return {**found, "outlier_score": mutual_information(predictive)}


def scale_of(name: str, wanted: dict[str, Tensor]) -> float:
    """The size of an output; a difference is as exact as what it is the difference of."""
    if name in ("mutual_information", "outlier_score"):
        return wanted.get("entropy", torch.ones(1)).max().item()
    if name in ("epistemic", "aleatoric"):
        return (wanted["epistemic"] + wanted["aleatoric"]).max().item()
    return wanted[name].abs().max().item()


def assert_equal(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    """To a share of each output's scale."""
    for name, value in wanted.items():
        off = (found[name] - value).abs().max().item()
        assert off <= tolerance * scale_of(name, wanted), f"{name} is off by {off}"
