"""The example on movie reviews: it runs, and the page shows what its committed run found."""

import json
import statistics
import subprocess
import sys

from pages import ROOT

PAGE = ROOT / "docs/howto/lora.md"
FOUND = json.loads((ROOT / "results/clients/lora.json").read_text())


def row(name, scores):
    cells = [
        f"{statistics.mean(of):.3f} ± {statistics.stdev(of):.3f}"
        for of in (scores["accuracy"], scores["nll"], scores["ece"])
    ]
    return f"| {name} | {' | '.join(cells)} |"


def test_the_page_shows_the_committed_run():
    page = PAGE.read_text()
    for way in ("plain", "KL", "JS-A"):
        title = "plain adapter" if way == "plain" else f"Bayesian adapter, {way}"
        assert row(title, FOUND[way]) in page
    alone = FOUND["encoder"]
    cells = " | ".join(f"{alone[name]:.3f}" for name in ("accuracy", "nll", "ece"))
    assert f"| encoder without an adapter | {cells} |" in page
    assert f"{FOUND['rows']['test']:,} sentences" in page.replace("\n", " ")
    assert f"{len(FOUND['KL']['nll'])} seeds" in page.replace("\n", " ")


def test_the_example_runs(tmp_path):
    command = [sys.executable, "-W", "ignore", str(ROOT / "examples/lora.py")]
    small = ["--limit", "48", "--seeds", "1", "--epochs", "1", "--pretraining", "1"]
    out = tmp_path / "lora.json"
    subprocess.run([*command, *small, "--out", str(out)], check=True, timeout=500)
    found = json.loads(out.read_text())
    assert found["rows"]["test"] == 48
    assert all(0 < found[way]["nll"][0] < 2 for way in ("plain", "KL", "JS-A"))
