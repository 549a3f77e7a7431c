"""Seconds that ``import bayesdiv`` adds to ``import torch``.

Each measurement is a process of its own; with and without take turns, after one of each that fills
the disk's cache. Prints one Markdown table of medians and what is loaded besides torch's modules.

Run: python benchmarks/imports.py
"""

import argparse
import json
import statistics
import subprocess
import sys

CODE = """
import json, sys, time
start = time.perf_counter()
import {modules}
end = time.perf_counter()
print(json.dumps([end - start, sorted({{name.partition(".")[0] for name in sys.modules}})]))
"""
WITHOUT, WITH = "torch", "torch, bayesdiv"


def imported(modules: str) -> tuple[float, set[str]]:
    """Seconds for an import in a fresh process, and the packages that are loaded after it."""
    command = [sys.executable, "-c", CODE.format(modules=modules)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, packages = json.loads(output)
    return seconds, set(packages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    more = imported(WITH)[1] - imported(WITHOUT)[1] - {"bayesdiv"}
    times: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    for _ in range(rounds):
        for modules, values in times.items():
            values.append(imported(modules)[0])
    added = [b - a for a, b in zip(times[WITHOUT], times[WITH], strict=True)]
    alone = statistics.median(times[WITHOUT])
    print(f"Python {sys.version.partition(' ')[0]}, medians of {rounds} pairs of processes\n")
    print("| import | seconds | over torch |\n|---|---|---|")
    for modules, values in times.items():
        value = statistics.median(values)
        print(f"| {modules} | {value:.2f} | {value / alone:.2f} |")
    value = statistics.median(added)
    print(f"| added by bayesdiv | {value:.2f} | {value / alone:.2f} |")
    print("\nLoaded besides torch's:", ", ".join(sorted(more)) or "nothing")


if __name__ == "__main__":
    main()
