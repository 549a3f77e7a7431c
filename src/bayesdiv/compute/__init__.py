"""How fast: draws and summed divergences on each kind of machine."""
