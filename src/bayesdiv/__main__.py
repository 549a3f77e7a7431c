"""`python -m bayesdiv`: every divergence of one pair of Gaussians, as a table."""

from torch.distributions import Normal

import bayesdiv as bd


def main() -> None:
    """Print each divergence of N(0.5, 0.4) from N(0, 1), with its bound."""
    q, p = Normal(0.5, 0.4), Normal(0.0, 1.0)
    divergences = [
        bd.KL(),
        bd.ReverseKL(),
        bd.JSG(alpha=0.3),
        bd.WeightedKL(alpha=0.3),
        bd.JSA(alpha=0.3),
        bd.UnmodifiedJSG(alpha=0.3),
        bd.UnmodifiedJSA(alpha=0.3),
        bd.Renyi(alpha=0.5),
        bd.ChiSquared(),
        bd.TotalVariation(),
    ]
    print("Divergence of q = N(0.5, 0.4) from p = N(0, 1), in nats (scales, not variances)\n")
    print(f"{'divergence':<26}{'value':>8}{'bound':>9}  {'symmetric':<11}closed form")
    for divergence in divergences:
        bound = "none" if divergence.bound is None else f"{divergence.bound:.4f}"
        print(
            f"{divergence!r:<26}{divergence(q, p).item():>8.4f}{bound:>9}  "
            f"{_yes(divergence.symmetric):<11}{_yes(divergence.has_closed_form(q, p))}"
        )


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"


if __name__ == "__main__":
    main()
