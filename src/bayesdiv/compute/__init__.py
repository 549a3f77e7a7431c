"""How fast: draws and summed divergences on each kind of machine."""

import bayesdiv.divergence  # noqa: F401  # first, whichever file of this room is asked for
