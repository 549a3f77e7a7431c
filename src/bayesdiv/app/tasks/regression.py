"""A target that is a quantity."""

from dataclasses import dataclass

from bayesdiv.app.quantity import Quantity


@dataclass(frozen=True)
class Regression(Quantity):
    """A target that is a quantity; y is standardised by the moments of training rows.

    Examples:
        >>> import torch
        >>> Regression(loc=150.0, scale=50.0).to_units(torch.tensor([0.0, 2.0]))
        tensor([150., 250.], dtype=torch.float64)
    """

    @property
    def description(self) -> str:
        """What the target is, for people."""
        under = f", {self.family} noise" if self.family else ""
        return f"regression: the target is a quantity{under}"
