"""The same colour and line style for the same loss everywhere."""

# Okabe and Ito's colours, told apart by colour-blind eyes, as pages have them too; line styles tell
# them apart in print.
COLOURS = {"KL": "#0072B2", "JSG": "#009E73", "JSA": "#D55E00", "deterministic": "#555555"}
STYLES = {"KL": "-", "JSG": "--", "JSA": "-.", "deterministic": ":"}
OTHERS = ["#CC79A7", "#E69F00", "#56B4E9", "#000000"]


def colour(name: str, place: int = 0) -> str:
    """The colour of a loss, by the start of its name."""
    family = name.partition(":")[0].partition("(")[0]  # JSA of JSA:0.3 and of JSA(alpha=0.3)
    return COLOURS.get(family, OTHERS[place % len(OTHERS)])
