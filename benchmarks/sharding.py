"""Memory per GPU of a sharded Bayesian network, by arithmetic: what docs/howto/sharding.md shows.

    python benchmarks/sharding.py

Counted are weights and what goes with them; activations come on top, as for any network.
"""

PARAMETERS = 8  # mean and raw scale of each weight, float32
ADAM = 16  # two moments of both
GRADIENTS = 8  # of both
DRAW = 4  # one draw in bfloat16, and the gradient by it
FROZEN = 2  # a weight that is not random, bfloat16
BLOCKS = 32  # of a transformer: groups of weights, or frozen blocks, that are gathered one by one
AHEAD = 2  # blocks that are gathered at a time: the one at work and the next
ADAPTERS = 0.005  # random weights of a LoRA, as a share of the frozen ones
SIZES = (1, 7, 70)  # billions of weights
CARDS = (1, 8, 64)


def random_bytes(cards: int, gathered: float = 1.0) -> float:
    """Bytes per random weight on each card; `gathered` is the share of them that is whole at once.

    One card holds everything once. Of several, each holds its part, the draw, and for the time of
    their use the whole of what is gathered: parameters and gradients.
    """
    part = (PARAMETERS + ADAM + GRADIENTS) / cards
    return part + DRAW + (0.0 if cards == 1 else gathered * (PARAMETERS + GRADIENTS))


def frozen_bytes(cards: int) -> float:
    """Bytes per frozen weight on each card."""
    return FROZEN / cards + (0.0 if cards == 1 else FROZEN * AHEAD / BLOCKS)


def row(billions: int, cards: int) -> tuple[float, float, float]:
    """Gigabytes per card: one vector, a group per block, adapters alone."""
    adapters = frozen_bytes(cards) + ADAPTERS * random_bytes(cards)
    each = (random_bytes(cards), random_bytes(cards, AHEAD / BLOCKS), adapters)
    return tuple(billions * size for size in each)  # type: ignore[return-value]


def table() -> str:
    """The table in Markdown."""
    lines = [
        "| weights | GPUs | all random, one vector | all random, a group per block | "
        "random adapters |",
        "|---:|---:|---:|---:|---:|",
    ]
    for billions in SIZES:
        for cards in CARDS:
            shown = " | ".join(f"{size:,.1f} GB" for size in row(billions, cards))
            lines.append(f"| {billions} billion | {cards} | {shown} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
