"""One look for the pictures of all tutorials."""

import matplotlib as mpl

from tools.ink import INK

mpl.rcParams.update(
    {
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), INK),
        **dict.fromkeys(("xtick.color", "ytick.color"), INK),
        "axes.facecolor": "none",
        "savefig.transparent": True,
        "figure.figsize": (7.0, 3.2),
        "figure.constrained_layout.use": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": mpl.cycler(color=["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"]),
        "legend.frameon": False,
    }
)
