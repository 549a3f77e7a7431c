"""Optimizers for posteriors, and how their learning rates run over the epochs."""
