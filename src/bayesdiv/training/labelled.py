"""A module for trainers that call `model(**batch)` and read the loss out of what it returns."""

from typing import ClassVar

from torch import Tensor, nn

from bayesdiv.draws import Inputs
from bayesdiv.likelihoods import Likelihood
from bayesdiv.objective.objective import Objective
from bayesdiv.prediction import predict


class Labelled(nn.Module):
    """Model and objective as one module that is called with the parts of a batch by their names.

    In training it returns the loss of the objective. In evaluation, over `samples` draws, it
    returns the negative log predictive density of the labels as the loss and, as logits, the
    logarithm of the mean class probabilities; the predictive mean where targets are numbers. This
    is what the `Trainer` of transformers asks of a model.

    Examples:
        >>> import torch, bayesdiv as bd
        >>> net = bd.bayesianize(nn.Linear(2, 3), bd.FanIn())
        >>> module = Labelled(net, bd.Objective(bd.Classes(), num_data=4), samples=10)
        >>> batch = {"input": torch.ones(4, 2), "labels": torch.tensor([0, 1, 2, 0])}
        >>> sorted(module(**batch)), sorted(module.eval()(**batch))
        (['loss'], ['logits', 'loss'])
    """

    # The Trainer of transformers then divides the loss of each of several batches of one update.
    accepts_loss_kwargs: ClassVar[bool] = False

    def __init__(self, model: nn.Module, objective: Objective, samples: int = 20) -> None:
        super().__init__()
        if samples < 1:
            raise ValueError(f"samples must be at least 1, got {samples}")
        self.model = model
        self.objective = objective
        self.samples = samples

    def forward(self, labels: Tensor | None = None, **inputs: Inputs) -> dict[str, Tensor]:
        """The loss of a batch in training; loss and logits over the draws in evaluation."""
        if self.training:
            if labels is None:
                raise ValueError(f"a batch must have labels in training, got {sorted(inputs)}")
            return {"loss": self.objective(self.model, inputs, labels).total}
        own, likelihood = self.objective, self.objective.likelihood
        predictive = predict(
            self.model, likelihood, inputs, self.samples, over=own.over, outputs=own.outputs
        )
        made = predictive.probabilities.log() if predictive.discrete else predictive.mean
        if labels is None:
            return {"logits": made}
        counted = likelihood.counted(labels) if isinstance(likelihood, Likelihood) else None
        each = predictive.log_prob(labels if counted is None else labels.where(counted, 0))
        each = each if counted is None else each[counted]
        return {"loss": -each.mean(), "logits": made}
