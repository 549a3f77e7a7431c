"""Time of a whole training step of ResNet-18 on a GPU, beside that of a deterministic network.

    python benchmarks/step_gpu.py [--rounds 7]

First the step of the image experiments with one weight draw: bfloat16 images and activations,
weights drawn and penalised in one kernel, Adam over the flat parameters, all recorded as one CUDA
graph; the deterministic network takes the same way without noise and divergence. Then several draws
at 32 pixels through `Objective`: one after the other, and all at once. Contenders take turns in
each round, the medians of the rounds are printed.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
import bayesdiv as bd
from bayesdiv.app.data.splits import Part, Splits
from bayesdiv.app.nets.resnet import ResNet, Stem, imagenet_stem, small_stem
from bayesdiv.app.tasks.classification import Classification
from bayesdiv.draws import Over
from bayesdiv.objective.objective import Loss
from reproduction.contenders import title as contender_title
from reproduction.images.inputs import Execution
from reproduction.images.protocol import OURS, SEARCHES, Setting
from reproduction.images.training import Training, build

DEVICE = torch.device("cuda")
BATCH = 256
CASES = (
    (224, imagenet_stem, "7×7, stride 4"),
    (32, small_stem, "3×3, stride 1"),
    (32, imagenet_stem, "7×7, stride 4"),
)
NAMES = ("deterministic", "kl", "js_g", "js_a")
DRAWS = ((64, small_stem, "3×3"), (64, imagenet_stem, "7×7"), (256, imagenet_stem, "7×7"))


def milliseconds(run: Callable[[], object], repeats: int) -> float:
    """Of one call among several in a row, by the clock of the card."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / repeats


def medians(
    contenders: dict[str, Callable[[], object]], rounds: int, repeats: int
) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            times[name].append(milliseconds(run, repeats))
    return {name: statistics.median(values) for name, values in times.items()}


def images() -> Splits:
    """Some batches of noise: what a step costs depends on no image."""
    x = torch.rand(4 * BATCH, 3, 32, 32, device=DEVICE).bfloat16()
    y = torch.arange(len(x), device=DEVICE) % 10
    few = Part(x[:BATCH], y[:BATCH])
    return Splits(Part(x, y), few, few, Classification(tuple("0123456789")))


def single_draw(name: str, pixels: int, stem: Stem) -> Callable[[], None]:
    """The recorded step of an image experiment, as `fit` takes it."""
    setting = Setting(name, **SEARCHES[name].first)  # type: ignore[arg-type]
    protocol = replace(OURS, pixels=pixels, stem=stem, batch_size=BATCH)
    data = images()
    training = Training(build(data, setting, protocol, Execution.of(DEVICE)), data, seed=0)
    model, objective, batches = training.network.model, training.objective, training.batches
    objective.to(DEVICE).prepare(model)
    step, places = bd.Recorded(), next(iter(batches.places()))

    def loss(at: torch.Tensor) -> Loss:
        with torch.autocast("cuda", torch.bfloat16):
            found: Loss = objective(model, *batches.gathered(at))
            return found

    def run() -> None:
        step(loss, (places,), training.optimizer, lambda total: total.backward())

    for _ in range(4):
        run()
    return run


def several_draws(
    samples: int, stem: Stem, batch: int, over: Over, step: Callable[..., object]
) -> Callable[[], object]:
    """A step through `Objective`, as `fit` takes it."""
    torch.manual_seed(0)
    net = bd.bayesianize(ResNet(classes=10, stem=stem).build(), bd.FanIn(2**0.5)).to(DEVICE)
    objective = bd.Objective(bd.Classes(), bd.KL(), num_data=40_000, samples=samples, over=over)
    objective.prepare(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True, capturable=True)
    x = torch.randn(batch, 3, 32, 32, device=DEVICE).to(memory_format=torch.channels_last)
    y = torch.randint(10, (batch,), device=DEVICE)

    def loss(x: torch.Tensor, y: torch.Tensor) -> Loss:
        with torch.autocast("cuda", torch.bfloat16):
            found: Loss = objective(net, x, y)
            return found

    def run() -> object:
        return step(loss, (x, y), optimizer, lambda total: total.backward())

    for _ in range(3):
        run()
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    torch.backends.cudnn.benchmark = True
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}")
    told: list[dict[str, object]] = []
    print(f"\nOne draw, batch {BATCH}, 11.2 million weights\n")
    print(
        "| pixels | stem | loss | ms | over deterministic | over KL |\n"
        "|---:|---|---|---:|---:|---:|"
    )
    for pixels, stem, title in CASES:
        found = medians(
            {name: single_draw(name, pixels, stem) for name in NAMES}, rounds, 3000 // pixels
        )
        for name, value in found.items():
            over = value / found["deterministic"], value / found["kl"]
            told.append({"pixels": pixels, "stem": title, "loss": name, "ms": value})
            loss = contender_title(name)
            print(f"| {pixels} | {title} | {loss} | {value:.3f} | {over[0]:.3f} | {over[1]:.3f} |")
        torch.cuda.empty_cache()
    print("\nSeveral draws at 32 pixels, KL\n")
    print(
        "| draws | batch | stem | loop, ms | batched, ms | recorded loop, ms "
        "| recorded batched, ms | batched over loop | recorded over loop |\n"
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|"
    )
    for samples in (4, 16):
        for batch, stem, title in DRAWS:
            ways = {
                "loop": (bd.Looped(), bd.Eager()),
                "batched": (bd.Vectorized(), bd.Eager()),
                "recorded loop": (bd.Looped(), bd.Recorded()),
                "recorded batched": (bd.Vectorized(), bd.Recorded()),
            }
            found = medians(
                {name: several_draws(samples, stem, batch, *way) for name, way in ways.items()},
                min(rounds, 3),
                3,
            )
            told += [
                {"draws": samples, "batch": batch, "stem": title, "way": name, "ms": value}
                for name, value in found.items()
            ]
            times = " | ".join(f"{value:.2f}" for value in found.values())
            gains = " | ".join(
                f"{found['loop'] / found[name]:.1f} ×" for name in ("batched", "recorded batched")
            )
            print(
                f"| {samples} | {batch} | {title} | {times} | {gains} |",
                flush=True,
            )
            torch.cuda.empty_cache()
    if "OUT" in os.environ:
        Path(os.environ["OUT"], "step_gpu.json").write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
