"""Targets with outliers."""

from torch import Tensor
from torch.distributions import StudentT

from bayesdiv.likelihoods.base import Noisy


class StudentTNoise(Noisy):
    """Targets with outliers: Student's t around the output, with a learned scale and a fixed df.

    Args:
        df: degrees of freedom; 4 forgives outliers and has a finite variance.
        scale: where the learned scale starts.
    """

    def __init__(self, df: float = 4.0, scale: float | Tensor = 1.0) -> None:
        super().__init__(scale)
        if not df > 0:
            raise ValueError(f"df must be positive, got {df}")
        self.df = df

    def forward(self, outputs: Tensor) -> StudentT:
        if outputs.shape[-1] != 1:
            raise ValueError(f"outputs must be one, got {outputs.shape[-1]}")
        loc = outputs.squeeze(-1)
        return StudentT(loc.new_tensor(self.df), loc, self.scale_for(1), validate_args=False)
