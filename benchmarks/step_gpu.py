"""Time of a training step on a GPU over that of a deterministic network, as any user calls it.

    python benchmarks/step_gpu.py [--out results/benchmarks] [--rounds 5] [--toy]

Every row is `bd.fit` with `Recorded()`, and once more with a compiled loss: batch 256 (the
transformer 64), bfloat16 autocast, images and filters with channels last, data that live on the
device, fused Adam. The deterministic network is a plain module in the same call. Networks take
turns in each round; the table has the median over rounds of each round's ratio. IVON is timed from
its own package, if that can be imported, with the step that its documentation shows, recorded like
the others where it can be. `--toy` runs everything at a small size on a CPU.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import bayesdiv as bd
from bayesdiv.app.nets.norms import Norm
from bayesdiv.app.nets.resnet import ResNet, imagenet_stem, small_stem

CLASSES = 10
STEPS = 20  # per round and network
AIMS = {
    "ResNet-18, 224 px": 1.03,
    "ResNet-18 with batch norm, 224 px": 1.05,
    "ResNet-18, 32 px": 1.10,
    "ResNet-18 with batch norm, 32 px": 1.10,
    "transformer": 1.10,
}


class Case(NamedTuple):
    """A network and its batch."""

    build: Callable[[], nn.Module]
    data: Callable[[int, torch.device], Tensor]
    batch: int


class Encoder(nn.Module):
    """Six layers of a transformer encoder over 128 tokens, and a class of each text."""

    def __init__(self, width: int = 512, layers: int = 6, words: int = 1000) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(
            width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        """One row of class scores per text."""
        found: Tensor = self.head(self.layers(self.words(tokens)).mean(1))
        return found


def images(pixels: int) -> Callable[[int, torch.device], Tensor]:
    """Random images in bfloat16, channels last."""

    def made(rows: int, device: torch.device) -> Tensor:
        x = torch.randn(rows, 3, pixels, pixels, device=device, dtype=torch.bfloat16)
        return x.contiguous(memory_format=torch.channels_last)

    return made


def tokens(length: int) -> Callable[[int, torch.device], Tensor]:
    """Random words."""
    return lambda rows, device: torch.randint(1000, (rows, length), device=device)


def cases(toy: bool) -> dict[str, Case]:
    """The networks of the table."""
    width, batch = (8, 4) if toy else (64, 256)
    found = {}
    for title, norm in (("ResNet-18", Norm.NONE), ("ResNet-18 with batch norm", Norm.BATCH)):
        for pixels, stem in ((224, imagenet_stem), (32, small_stem)):
            recipe = ResNet(CLASSES, stem, width=width, norm=norm, bias=norm is Norm.NONE)
            seen = 32 if toy else pixels
            found[f"{title}, {pixels} px"] = Case(recipe.build, images(seen), batch)
    small = {"width": 16, "layers": 2} if toy else {}
    found["transformer"] = Case(
        lambda: Encoder(**small), tokens(8 if toy else 128), 4 if toy else 64
    )
    return found


class Way(NamedTuple):
    """How both sides run: a step and what is done to the loss before."""

    step: Callable[[], Any]
    transform: Callable[[nn.Module], nn.Module] | None


def ways(device: torch.device) -> dict[str, Way]:
    """Recorded as it is, and compiled."""
    if device.type == "cpu":
        return {"recorded": Way(bd.Recorded, None)}
    return {
        "recorded": Way(bd.Recorded, None),
        "compiled and recorded": Way(bd.Recorded, torch.compile),
    }


def trained(
    case: Case, divergence: bd.Divergence | None, way: Way, device: torch.device
) -> Iterator[float]:
    """Milliseconds per step of `bd.fit`, epoch after epoch of STEPS steps."""
    torch.manual_seed(0)
    module = case.build().to(device, memory_format=torch.channels_last)
    net = module if divergence is None else bd.bayesianize(module, bd.FanIn(1.4))
    rows = STEPS * case.batch if device.type == "cuda" else 2 * case.batch
    x = case.data(rows, device)
    y = torch.randint(CLASSES, (rows,), device=device)
    objective = bd.Objective(bd.Classes(), divergence, num_data=rows)
    cuda = device.type == "cuda"
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=cuda, capturable=cuda)
    epochs = bd.fit(
        net,
        objective,
        bd.Batches(x, y, case.batch),
        optimizer,
        1_000_000,
        seed=0,
        step=way.step(),
        transform=way.transform,
        autocast=torch.bfloat16,
        device=device,
    )
    for epoch in epochs:
        yield 1e3 * epoch.seconds / (rows / case.batch)


def ivon(case: Case, device: torch.device) -> Iterator[float]:
    """Milliseconds per step of IVON with one draw, as its documentation shows the step."""
    import ivon as package

    torch.manual_seed(0)
    module = case.build().to(device, memory_format=torch.channels_last)
    rows = STEPS * case.batch
    x = case.data(rows, device)
    y = torch.randint(CLASSES, (rows,), device=device)
    optimizer = package.IVON(module.parameters(), lr=0.1, ess=float(rows))

    def step(places: Tensor) -> None:
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16):
                loss = cross_entropy(module(x[places]), y[places])
            loss.backward()
        optimizer.step()

    while True:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for places in torch.randperm(rows, device=device).split(case.batch):
            step(places)
        torch.cuda.synchronize()
        yield 1e3 * (time.perf_counter() - began) / STEPS


CONTENDERS = {"deterministic": None, "KL": bd.KL(), "JS-G": bd.JSG(0.3), "JS-A": bd.JSA(0.3)}


def raced(case: Case, way: Way, rounds: int, device: torch.device) -> dict[str, list[float]]:
    """Milliseconds per step in each round, contenders in turn; each warms up first."""
    runs = {name: trained(case, of, way, device) for name, of in CONTENDERS.items()}
    with contextlib.suppress(ImportError):
        if device.type == "cuda":
            import ivon as _

            runs["IVON"] = ivon(case, device)
    for run in runs.values():
        for _ in range(3 if device.type == "cuda" else 1):
            next(run)
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(next(run))
    for run in runs.values():
        run.close()  # type: ignore[attr-defined]
    return found


def line(title: str, way: str, found: dict[str, list[float]]) -> dict[str, Any]:
    """Medians, and medians of the ratios within rounds."""
    base = found["deterministic"]
    ratios = {
        name: statistics.median(a / b for a, b in zip(each, base, strict=True))
        for name, each in found.items()
    }
    return {
        "network": title,
        "way": way,
        "ms": {name: statistics.median(each) for name, each in found.items()},
        "ratio": ratios,
        "jsa_over_kl": statistics.median(
            a / b for a, b in zip(found["JS-A"], found["KL"], strict=True)
        ),
        "aim": AIMS[title],
    }


def table(lines: list[dict[str, Any]], machine: str) -> str:
    """Markdown."""
    shown = [
        "# Training step on a GPU",
        "",
        f"`python benchmarks/step_gpu.py` on {time.strftime('%Y-%m-%d')}: {machine}, torch "
        f"{torch.__version__}; `bd.fit`, bfloat16 autocast, channels last, one draw.",
        "",
        "| network | both sides | deterministic, ms | KL | JS-G | JS-A | JS-A over KL | IVON "
        "| aim |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for each in lines:
        ratio = each["ratio"]
        cells = [each["network"], each["way"], f"{each['ms']['deterministic']:.2f}"]
        cells += [f"{ratio[name]:.3f}" for name in ("KL", "JS-G", "JS-A")]
        cells += [f"{each['jsa_over_kl']:.3f}"]
        cells += [f"{ratio['IVON']:.2f}" if "IVON" in ratio else "–", f"≤ {each['aim']:.2f}"]
        shown.append("| " + " | ".join(cells) + " |")
    return "\n".join(shown) + "\n"


def main() -> None:
    """Time every network both ways; a row that fails is named, and the others go on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--seconds", type=float, default=330.0, help="begin no row after this")
    given = parser.parse_args()
    device = torch.device("cpu" if given.toy or not torch.cuda.is_available() else "cuda")
    machine = "CPU, toy size"
    if device.type == "cuda":
        machine = torch.cuda.get_device_name()
        torch.backends.cudnn.benchmark = True
    lines, began = [], time.perf_counter()
    for way, how in ways(device).items():
        for title, case in cases(given.toy or device.type == "cpu").items():
            if time.perf_counter() - began > given.seconds:
                print(f"no time left for: {title}, {way}", file=sys.stderr)
                continue
            try:
                found = raced(case, how, given.rounds, device)
            except Exception as error:  # one network must not cost the others their row
                print(f"failed: {title}, {way}: {error!r}"[:2000], file=sys.stderr, flush=True)
                continue
            finally:
                torch._dynamo.reset()
                if device.type == "cuda":
                    torch.cuda.empty_cache()
            lines.append(line(title, way, found))
            print(json.dumps(lines[-1]), file=sys.stderr, flush=True)
    shown = table(lines, machine)
    print(shown)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "step_gpu.md").write_text(shown)
    told = {"machine": machine, "torch": torch.__version__, "rows": lines}
    (given.out / "step_gpu.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
