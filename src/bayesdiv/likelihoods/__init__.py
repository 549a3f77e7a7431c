"""From a network's outputs to a distribution of the targets: one file per family."""
