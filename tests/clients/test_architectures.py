"""Every architecture, with one draw and four, in both precisions, saved and loaded."""

from pathlib import Path

import pytest

from clients.architectures import ARCHITECTURES
from clients.cases import CASES
from clients.table import cells_of

PAGE = Path(__file__).parents[2] / "docs/reference/architectures.md"
# What does not work yet, and why.
FULL = (
    *("ALBERT", "Attention U-Net", "BERT", "Basic U-Net", "Batch norm", "DeBERTa-v2", "DenseNet"),
    *("DistilBERT", "ELECTRA", "GIN", "Graph transformer", "GraphSAGE", "ModernBERT", "Orthogonal"),
    *("Phi", "RoBERTa", "SegResNet", "Transformer", "U-Net", "UNETR", "Weight norm", "Whisper"),
    "wav2vec 2.0",
)
SPECTRAL = ("Spectral norm", "Spectral norm, legacy")
KEYS = (
    *("Chebyshev", "Edge-conditioned", "GATv2", "GCN", "Graph transformer", "GraphSAGE"),
    *("Orthogonal", "Spectral norm, legacy"),
)
KNOWN: dict[tuple[str, str], str] = {
    **{(name, "K = 4, bfloat16"): "autocast under vmap" for name in (*FULL, *SPECTRAL)},
    **{(name, "K = 1, bfloat16"): "drawn in bfloat16" for name in SPECTRAL},
    **{(name, "save and load"): "placeholders in the state" for name in KEYS},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda one: one.name)
def test_an_architecture_runs(architecture, case, tmp_path, record_property):
    reason = KNOWN.get((architecture.name, case))
    record_property("cell", [architecture.name, case, "yes" if reason is None else f"no: {reason}"])
    if reason is None:
        CASES[case](architecture, tmp_path)
    else:
        with pytest.raises((AssertionError, RuntimeError, ValueError)):
            CASES[case](architecture, tmp_path)


def test_the_page_says_what_was_run(request):
    if request.config.getoption("--table") is not None:
        pytest.skip("the page is being written")
    wanted = {
        (one.name, case): f"no: {KNOWN[one.name, case]}" if (one.name, case) in KNOWN else "yes"
        for one in ARCHITECTURES
        for case in CASES
    }
    assert cells_of(PAGE.read_text()) == wanted
