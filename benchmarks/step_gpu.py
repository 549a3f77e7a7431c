"""Time of a whole training step on a GPU, through `bd.fit` alone, beside a deterministic network.

    python benchmarks/step_gpu.py [--rounds 5] [--only NAME …] [--out FOLDER]

Every contender is trained by the call that users make: `bd.fit` with images on the device,
`autocast=torch.bfloat16`, channels last, Adam in one kernel. The deterministic network takes the
same call without `bayesianize`. `recorded` is `step=bd.Recorded()`; `compiled` is
`transform=torch.compile`. Contenders take turns, an epoch each; medians of the rounds are printed.
IVON is timed from its own package where that can be imported: its step cannot be recorded, so it
stands in the compiled table alone.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
import bayesdiv as bd
from bayesdiv.app.nets.images import Norm, ResNet, imagenet_stem, small_stem

DEVICE = torch.device("cuda")
STEPS = 20  # per epoch
LOSSES = {
    "deterministic": None,
    "KL": bd.KL(),
    "JS-G": bd.JSG(0.3),
    "JS-A": bd.JSA(0.3),
}


class Encoder(nn.Module):
    """Six layers of attention over 128 tokens of width 512, and a mean over them."""

    def __init__(self, width: int = 512, layers: int = 6) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.out(self.encoder(x).mean(1))


@dataclass(frozen=True)
class Case:
    """A network and the inputs of one batch."""

    name: str
    build: Callable[[], nn.Module]
    batch: int
    shape: tuple[int, ...]

    def network(self) -> nn.Module:
        """The network where it is trained."""
        torch.manual_seed(0)
        format = torch.channels_last if len(self.shape) == 3 else torch.preserve_format
        return self.build().to(DEVICE, memory_format=format)

    def data(self) -> tuple[Tensor, Tensor]:
        """Random inputs and labels of an epoch."""
        count = STEPS * self.batch
        x = torch.randn(count, *self.shape, device=DEVICE, dtype=torch.bfloat16)
        if len(self.shape) == 3:
            x = x.contiguous(memory_format=torch.channels_last)
        return x, torch.randint(10, (count,), device=DEVICE)


CASES = (
    Case("ResNet-18, 224 px", ResNet(10, imagenet_stem).build, 256, (3, 224, 224)),
    Case("ResNet-18, 32 px", ResNet(10, small_stem).build, 256, (3, 32, 32)),
    Case(
        "ResNet-18 with batch norm, 224 px",
        ResNet(10, imagenet_stem, norm=Norm.BATCH).build,
        256,
        (3, 224, 224),
    ),
    Case(
        "ResNet-18 with batch norm, 32 px",
        ResNet(10, small_stem, norm=Norm.BATCH).build,
        256,
        (3, 32, 32),
    ),
    Case("transformer, 6 layers, 128 tokens", Encoder, 64, (128, 512)),
)


def epochs(
    case: Case,
    data: tuple[Tensor, Tensor],
    loss: bd.Divergence | None,
    way: str,
    samples: int = 1,
    over: object = None,
) -> Iterator[float]:
    """Seconds per step of one epoch after the other, through the public door."""
    network = case.network()
    model = network if loss is None else bd.bayesianize(network, bd.FanIn())
    count = len(data[1])
    objective = bd.Objective(
        bd.Classes(), loss or bd.KL(), num_data=count, samples=samples, over=over
    )
    parameters = [*model.parameters(), *objective.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-4, fused=True, capturable=True)
    batches = bd.Batches(*data, case.batch)
    for epoch in bd.fit(
        model,
        objective,
        batches,
        optimizer,
        10**9,
        step=bd.Recorded() if way == "recorded" else bd.Eager(),
        transform=torch.compile if way == "compiled" else None,
        autocast=torch.bfloat16,
        device=DEVICE,
    ):
        yield epoch.seconds / STEPS


def ivon_epochs(case: Case, data: tuple[Tensor, Tensor]) -> Iterator[float]:
    """The same for IVON with a compiled network, as its page describes a step."""
    import ivon

    network = case.network()
    compiled = torch.compile(network)
    optimizer = ivon.IVON(network.parameters(), lr=0.1, ess=len(data[1]))
    while True:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for x, y in bd.Batches(*data, case.batch):
            with optimizer.sampled_params(train=True):
                optimizer.zero_grad()
                with torch.autocast("cuda", torch.bfloat16):
                    loss = cross_entropy(compiled(x), y)
                loss.backward()
            optimizer.step()
        torch.cuda.synchronize()
        yield (time.perf_counter() - began) / STEPS


def medians(contenders: dict[str, Iterator[float]], rounds: int) -> dict[str, float]:
    """Milliseconds of each, who take turns; the first two epochs of each warm up."""
    for each in contenders.values():
        next(each), next(each)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, each in contenders.items():
            times[name].append(1e3 * next(each))
    return {name: statistics.median(each) for name, each in times.items()}


def rows_of(case: Case, way: str, rounds: int) -> list[dict[str, object]]:
    """One row per loss."""
    data = case.data()
    contenders = {name: epochs(case, data, loss, way) for name, loss in LOSSES.items()}
    if way == "compiled" and find_spec("ivon") is not None:
        contenders["IVON"] = ivon_epochs(case, data)
    found = medians(contenders, rounds)
    plain, kl = found["deterministic"], found["KL"]
    return [
        {
            "network": case.name,
            "way": way,
            "loss": name,
            "ms": round(each, 3),
            "over deterministic": round(each / plain, 3),
            "over KL": round(each / kl, 3),
        }
        for name, each in found.items()
    ]


def draws_rows(rounds: int) -> list[dict[str, object]]:
    """Several draws at 32 pixels: one after the other, and in one vectorised call."""
    case = Case("ResNet-18, 32 px", ResNet(10, small_stem).build, 64, (3, 32, 32))
    rows = []
    for samples in (4, 16):
        data = case.data()
        ways = {"Looped": bd.Looped(), "Vectorized": bd.Vectorized()}
        contenders = {
            name: epochs(case, data, bd.KL(), "recorded", samples, over)
            for name, over in ways.items()
        }
        found = medians(contenders, rounds)
        rows += [
            {
                "draws": samples,
                "batch": case.batch,
                "over": name,
                "ms": round(each, 2),
                "looped over it": round(found["Looped"] / each, 2),
            }
            for name, each in found.items()
        ]
    return rows


def table(rows: list[dict[str, object]]) -> str:
    """Rows as Markdown."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row.values())) + " |" for row in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=["recorded", "compiled", "draws"])
    parser.add_argument("--compiled", nargs="*", default=["ResNet-18 with batch norm, 224 px"])
    parser.add_argument("--limit", type=float, default=540, help="seconds; what is left is skipped")
    parser.add_argument("--out", type=Path, default=None, help="folder for step_gpu.json")
    given = parser.parse_args()
    began, found = time.perf_counter(), {"steps": [], "draws": []}
    jobs = [(case, way) for way in ("recorded", "compiled") if way in given.only for case in CASES]
    jobs = [(case, way) for case, way in jobs if way == "recorded" or case.name in given.compiled]
    print(torch.cuda.get_device_name(), torch.__version__, f"load {os.getloadavg()[0]:.1f}")
    with nullcontext() if given.out is None else open(given.out / "step_gpu.json", "w") as file:
        for case, way in jobs:
            if time.perf_counter() - began > given.limit:
                print(f"skipped for time: {case.name}, {way}")
                continue
            rows = rows_of(case, way, given.rounds)
            found["steps"] += rows
            print(table(rows), flush=True)
            torch.cuda.empty_cache()
        if "draws" in given.only and time.perf_counter() - began < given.limit:
            found["draws"] = draws_rows(given.rounds)
            print(table(found["draws"]), flush=True)
        if file is not None:
            json.dump({"device": torch.cuda.get_device_name(), **found}, file, indent=1)


if __name__ == "__main__":
    main()
