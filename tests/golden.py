"""The reference values: 320 cases computed in 50-digit arithmetic, read as torch distributions."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributions import (
    Categorical,
    Distribution,
    Laplace,
    MixtureSameFamily,
    Normal,
    StudentT,
    Uniform,
)

import bayesdiv as bd
from bayesdiv.divergence import UnmodifiedJSA, UnmodifiedJSG

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "golden_values" / "divergences.json").read_text()
)["cases"]
GAUSSIAN = [case for case in CASES if case["prior"]["family"] == "gaussian"]
OTHER = [case for case in CASES if case["prior"]["family"] != "gaussian"]

FIELDS: dict[str, Callable[[float], bd.Divergence]] = {
    "kl_qP": lambda alpha: bd.KL(),
    "kl_Pq": lambda alpha: bd.ReverseKL(),
    "js_g_normalised": bd.JSG,
    "js_g_unnormalised": bd.WeightedKL,
    "js_a": bd.JSA,
    "js_a_unmodified": UnmodifiedJSA,
    "js_g_unmodified_normalised": UnmodifiedJSG,
    "renyi_qP": bd.Renyi,
    "log1p_chi2_Pq": lambda alpha: bd.ChiSquared(),
    "tv": lambda alpha: bd.TotalVariation(),
}
WITHOUT_ALPHA = ("kl_qP", "kl_Pq", "log1p_chi2_Pq", "tv")
BY_NODES = ("js_a", "js_a_unmodified")


Case = dict[str, Any]


def batches(cases: list[Case]) -> list[list[Case]]:
    """Cases of one family and one alpha together: they are computed in one call."""
    found: dict[tuple[str, float], list[Case]] = {}
    for case in cases:
        found.setdefault((case["prior"]["family"], case["alpha"]), []).append(case)
    return list(found.values())


def posterior(cases: list[Case], dtype: torch.dtype) -> Normal:
    return Normal(
        *(torch.tensor([case["q"][key] for case in cases], dtype=dtype) for key in ("mu", "sigma"))
    )


def prior(cases: list[Case], dtype: torch.dtype) -> Distribution:
    def read(*keys: str) -> list[torch.Tensor]:
        return [torch.tensor([case["prior"][key] for case in cases], dtype=dtype) for key in keys]

    match cases[0]["prior"]["family"]:
        case "gaussian":
            return Normal(*read("mu", "sigma"))
        case "uniform":
            return Uniform(*read("low", "high"))
        case "laplace":
            return Laplace(*read("loc", "scale"))
        case "student_t":
            return StudentT(*read("df", "loc", "scale"))
    (share,) = read("pi")
    share = torch.stack([share, 1 - share], -1)
    scales = torch.stack(read("sigma1", "sigma2"), -1)
    return MixtureSameFamily(Categorical(probs=share), Normal(torch.zeros_like(scales), scales))


def expected(case: Case, field: str) -> float | None:
    """The value of a field; None where the file says it is undefined or beyond a double."""
    value = case["values"][field]
    return math.inf if value == "inf" else value
