import pytest
import torch
from torch import nn
from torch.distributions import Normal
from torch.nn.functional import cross_entropy, gaussian_nll_loss

import bayesdiv as bd
from bayesdiv.training.labelled import Labelled


class Named(nn.Module):
    """A network that is called by name and returns what transformers return."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(3, outputs)

    def forward(self, ids):
        return {"logits": self.layer(ids)}


def labelled(likelihood, outputs=4, **settings):
    """A network without noise: its predictions are those of the source."""
    source = Named(outputs)
    net = bd.bayesianize(source, bd.Prior(Normal, loc=0.0, scale=1.0), posterior=bd.Point)
    objective = bd.Objective(likelihood, num_data=10, strength=0.0, outputs=settings.get("outputs"))
    return source, Labelled(net, objective, samples=3)


def test_the_loss_in_training_is_that_of_the_objective():
    source, module = labelled(bd.Classes())
    ids, labels = torch.randn(5, 3), torch.randint(0, 4, (5,))
    made = module(ids=ids, labels=labels)
    assert made.keys() == {"loss"}
    torch.testing.assert_close(made["loss"], cross_entropy(source(ids)["logits"], labels))


def test_an_evaluation_averages_probabilities_over_draws():
    net = bd.bayesianize(Named(4), bd.Prior(Normal, loc=0.0, scale=1.0), start=1.0)
    module = Labelled(net, bd.Objective(bd.Classes(), num_data=10), samples=3).eval()
    ids, labels = torch.randn(5, 3), torch.randint(0, 4, (5,))
    torch.manual_seed(0)
    made = module(ids=ids, labels=labels)
    torch.manual_seed(0)
    (weights,) = bd.draw_weights(net, 3)
    each = [net.with_weights(drawn, ids)["logits"].softmax(-1) for drawn in weights]
    mean = torch.stack(each).mean(0).detach()
    torch.testing.assert_close(made["logits"], mean.log())
    torch.testing.assert_close(made["loss"], -mean[torch.arange(5), labels].log().mean())


def test_labels_to_be_ignored_are_left_out_of_an_evaluation():
    source, module = labelled(bd.Classes(ignore=-100))
    ids, labels = torch.randn(5, 3), torch.tensor([0, -100, 2, -100, 3])
    wanted = cross_entropy(source(ids)["logits"], labels, ignore_index=-100)
    torch.testing.assert_close(module.eval()(ids=ids, labels=labels)["loss"], wanted)


def test_numbers_are_predicted_by_their_mean():
    source, module = labelled(bd.Gaussian(1.0), outputs=1)
    ids, labels = torch.randn(5, 3), torch.randn(5)
    made = module.eval()(ids=ids, labels=labels)
    mean = source(ids)["logits"].squeeze(-1)
    torch.testing.assert_close(made["logits"], mean.detach())
    wanted = gaussian_nll_loss(mean, labels, torch.ones(5), full=True)
    torch.testing.assert_close(made["loss"], wanted.detach())


def test_rows_without_labels_are_predicted_and_not_learned_from():
    _, module = labelled(bd.Classes())
    assert module.eval()(ids=torch.randn(5, 3)).keys() == {"logits"}
    with pytest.raises(ValueError, match=r"labels in training, got \['ids'\]"):
        module.train()(ids=torch.randn(5, 3))


def test_an_evaluation_needs_a_draw():
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        Labelled(Named(4), bd.Objective(bd.Classes(), num_data=10), samples=0)
