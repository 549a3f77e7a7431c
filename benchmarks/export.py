"""How large exported files are and how long a call takes, beside `predict_at` and the network.

Networks: an MLP 784-400-400-10 and one for tables (13-50-50-2 from raw columns, with intervals),
both with 20 draws, and the MLP with its last layer alone random. The plain network runs once,
without draws, in torch. All take turns in each round, and the medians of the processor time of one
thread are printed, which other programs lengthen little. A file in fewer bits computes in single
precision, so only its size is smaller; the change of the NLL is measured on rows with labels of the
network itself.

Run: python benchmarks/export.py
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor, nn

import bayesdiv as bd
from bayesdiv.export import Exported
from bayesdiv.serving.graph import Number, Rounded, fewer, rounded

DRAWS, MANY = 20, 100
BATCHES = (1, 7, 512)
PRECISIONS = {
    "float32": Rounded(),
    "bfloat16": Rounded(torch.bfloat16),
    "int8": Rounded(torch.int8),
}


@dataclass(frozen=True)
class Case:
    """A model and rows for it."""

    name: str
    net: bd.Bayesian
    likelihood: nn.Module
    rows: Callable[[int], Tensor]
    columns: tuple[Number, ...] | None = None


def digits(name: str, where: Callable[[str, nn.Parameter], bool]) -> Case:
    layers = [nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10)]
    net = bd.bayesianize(nn.Sequential(*layers), bd.FanIn(), where=where, start=0.3)
    return Case(name, net, bd.Classes(), lambda rows: torch.randn(rows, 784))


def table() -> Case:
    layers = [nn.Linear(13, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 2)]
    net = bd.bayesianize(nn.Sequential(*layers), bd.FanIn(), start=0.3)
    columns = tuple(Number(f"x{k}", 0.0, 1.0) for k in range(13))
    rows = lambda count: torch.randn(count, 13)  # noqa: E731
    return Case("table", net, bd.HeteroscedasticGaussian(), rows, columns)


def called(made: Exported) -> Callable[[Tensor], object]:
    """A call of the file in its runtime, on one thread."""
    double = bool(made.metadata["columns"])
    if made.path.suffix == ".pt2":
        module = torch.export.load(made.path).module()
        return torch.no_grad()(lambda x: module(x.double() if double else x))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(made.path, options)
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: (x.double() if double else x).numpy()})


def outputs_of(case: Case, x: Tensor, weights: tuple[Tensor, ...]) -> object:
    """The same outputs by `predict_at`."""
    found = bd.predict_at(case.net, case.likelihood, x, weights)
    if found.discrete:
        return found.probabilities, found.entropy, found.mutual_information
    return found.mean, found.variance, found.interval(0.9), found.epistemic


def medians(
    ways: dict[str, Callable[[Tensor], object]], x: Tensor, rounds: int
) -> dict[str, float]:
    """Milliseconds of processor time of each way; all take turns in each round."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way(x)
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.process_time()
            way(x)
            times[name].append(1e3 * (time.process_time() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def measured(case: Case, folder: Path, rounds: int) -> None:
    weights = bd.draw_weights(case.net, DRAWS)
    plain = bd.plain(case.net).eval()
    ways: dict[str, Callable[[Tensor], object]] = {
        "plain network, torch": torch.no_grad()(plain),
        "`predict_at`": lambda x: outputs_of(case, x, weights),
    }
    sizes = {"plain network, torch": 4 * sum(p.numel() for p in plain.parameters())}
    sizes["`predict_at`"] = sum(4 * drawn.numel() for drawn in weights)
    for suffix in (".onnx", ".pt2"):
        made = bd.export(
            case.net, case.likelihood, case.rows(2), folder / f"{case.name}{suffix}",
            columns=case.columns, weights=weights,
        )  # fmt: skip
        name = f"`{suffix}`"
        ways[name], sizes[name] = called(made), made.size
    times = {batch: medians(ways, case.rows(batch), rounds) for batch in BATCHES}
    for name in ways:
        each = " | ".join(f"{times[batch][name]:.2f}" for batch in BATCHES)
        print(f"| {case.name} | {name} | {sizes[name] / 1e6:.2f} | {each} |", flush=True)


def shrunk(case: Case, folder: Path) -> None:
    """Sizes and losses of files in fewer bits, and with fewer draws."""
    many = bd.draw_weights(case.net, MANY)
    x = case.rows(300)
    everything = bd.predict_at(case.net, case.likelihood, x, many)
    y = everything.sample(1)[0]

    def nll(weights: tuple[Tensor, ...]) -> float:
        found = bd.predict_at(case.net, case.likelihood, x, weights)
        return -found.log_prob(y).mean().item()

    whole, few = nll(many), tuple(drawn[:DRAWS] for drawn in many)
    chosen = fewer(case.net, case.likelihood, case.rows(200), many, DRAWS)
    for name, precision in PRECISIONS.items():
        path = folder / f"{name}.onnx"
        made = bd.export(
            case.net, case.likelihood, case.rows(2), path, weights=chosen, precision=precision
        )
        changes = [nll(rounded(case.net, kept, precision)) - whole for kept in (few, chosen)]
        each = " | ".join(f"{change:+.4f}" for change in changes)
        print(f"| {case.name} | {name} | {made.size / 1e6:.2f} | {each} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    everything = digits("MLP", lambda name, weight: True)
    cases = [everything, digits("MLP, last layer", lambda name, _: name.startswith("4.")), table()]
    print(
        f"{DRAWS} draws; PyTorch {torch.__version__}, onnxruntime {onnxruntime.__version__}, ",
        end="",
    )
    print("one thread, medians\n")
    heads = " | ".join(f"ms, {batch} row{'s' * (batch > 1)}" for batch in BATCHES)
    print(f"| model | called by | MB | {heads} |")
    print("|---|---|---|" + "---|" * len(BATCHES))
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            measured(case, Path(folder), settings.rounds)
        print(f"\nNLL of {DRAWS} draws less that of {MANY}, in nats per row:\n")
        print("| model | stored in | MB (.onnx) | random draws | chosen draws |")
        print("|---|---|---|---|---|")
        shrunk(everything, Path(folder))


if __name__ == "__main__":
    main()
