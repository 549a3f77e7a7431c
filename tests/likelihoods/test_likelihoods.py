"""From outputs to a distribution of the targets."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.distributions import Normal

import bayesdiv as bd

OUTPUTS = torch.tensor([[0.3], [-1.2], [2.0]])
TARGETS = torch.tensor([0.0, -1.0, 5.0])


def test_gaussian_has_the_density_of_a_normal_around_the_output():
    found = bd.Gaussian(scale=0.5)(OUTPUTS).log_prob(TARGETS)
    wanted = stats.norm(OUTPUTS[:, 0], 0.5).logpdf(TARGETS)
    assert torch.allclose(found, torch.as_tensor(wanted, dtype=torch.float32), atol=1e-5)


def test_several_outputs_are_independent_with_the_same_noise():
    outputs, y = torch.randn(3, 2), torch.randn(3, 2)
    conditional = bd.Gaussian(scale=0.5)(outputs)
    assert (conditional.batch_shape, conditional.event_shape) == ((3,), (2,))
    wanted = stats.norm(outputs, 0.5).logpdf(y).sum(1)
    assert torch.allclose(conditional.log_prob(y), torch.as_tensor(wanted).float(), atol=1e-5)
    assert bd.Gaussian()(outputs[0]).batch_shape == ()


def test_student_t_noise_has_its_density():
    found = bd.StudentTNoise(df=3.0, scale=0.5)(OUTPUTS).log_prob(TARGETS)
    wanted = stats.t(3.0, OUTPUTS[:, 0], 0.5).logpdf(TARGETS)
    assert torch.allclose(found, torch.as_tensor(wanted, dtype=torch.float32), atol=1e-5)


def test_heteroscedastic_noise_comes_from_the_second_output():
    outputs = torch.tensor([[0.3, -1.0], [1.0, 2.0]])
    conditional = bd.HeteroscedasticGaussian()(outputs)
    assert torch.equal(conditional.loc, outputs[:, 0])
    wanted = np.logaddexp(0.0, outputs[:, 1].numpy())
    assert conditional.scale.tolist() == pytest.approx(wanted.tolist(), abs=1.01e-4)
    floor = bd.HeteroscedasticGaussian()(torch.tensor([[0.0, -200.0]])).scale
    assert floor.item() == pytest.approx(1e-4)


def test_classes_are_softmax_and_binary_is_sigmoid_of_the_outputs():
    logits = torch.tensor([[0.5, -1.0, 2.0]])
    y = torch.tensor([2])
    found = bd.Classes()(logits).log_prob(y)
    assert torch.allclose(found, -nn.functional.cross_entropy(logits, y, reduction="none"))
    one = torch.tensor([[0.7]])
    wanted = -nn.functional.binary_cross_entropy_with_logits(one[:, 0], torch.ones(1))
    assert torch.allclose(bd.Binary()(one).log_prob(torch.ones(1)), wanted)


@pytest.mark.parametrize(
    ("likelihood", "wrong", "message"),
    [
        (bd.HeteroscedasticGaussian(), 1, "outputs must be two"),
        (bd.StudentTNoise(), 2, "outputs must be one"),
        (bd.Binary(), 2, "outputs must be one"),
        (bd.Classes(), 1, "outputs must be one per class"),
    ],
)
def test_a_wrong_number_of_outputs_is_refused(likelihood, wrong, message):
    with pytest.raises(ValueError, match=message):
        likelihood(torch.zeros(5, wrong))


@pytest.mark.parametrize("kind", [bd.Gaussian, bd.StudentTNoise])
def test_the_noise_starts_where_it_is_told_and_is_learned(kind):
    likelihood = kind(scale=0.05)
    assert likelihood.scale.item() == pytest.approx(0.05, rel=1e-5)
    assert [name for name, _ in likelihood.named_parameters()] == ["rho"]
    with pytest.raises(ValueError, match="scale must be positive"):
        kind(scale=0.0)


@pytest.mark.parametrize("kind", [bd.Gaussian, bd.StudentTNoise])
def test_a_noise_level_a_trial_stands_in_line_with_its_outputs(kind):
    outputs = torch.zeros(7, 3, 5, 1)  # draws, trials, rows, one output
    conditional = kind(scale=torch.tensor([0.1, 1.0, 10.0]))(outputs)
    assert conditional.batch_shape == (7, 3, 5)
    assert conditional.scale[0, :, 0].tolist() == pytest.approx([0.1, 1.0, 10.0], rel=1e-4)


def test_a_noise_level_a_trial_serves_several_outputs():
    conditional = bd.Gaussian(scale=torch.tensor([0.1, 1.0]))(torch.zeros(7, 2, 5, 3))
    assert (conditional.batch_shape, conditional.event_shape) == ((7, 2, 5), (3,))
    assert conditional.stddev[0, :, 0, 0].tolist() == pytest.approx([0.1, 1.0], rel=1e-4)


def test_degrees_of_freedom_must_be_positive():
    with pytest.raises(ValueError, match="df must be positive and finite, got 0"):
        bd.StudentTNoise(df=0)


# Examples that count differently --------------------------------------------------------------


def objective(likelihood):
    return bd.Objective(likelihood, num_data=6)


class Weighted(bd.Classes):
    """Classes that count differently: what a user would write."""

    def example_weight(self, y):
        return torch.tensor([0.5, 1.0, 3.0])[y]


def test_examples_count_as_their_likelihood_says():
    torch.manual_seed(0)
    module, x = nn.Linear(4, 3), torch.randn(6, 4)
    y, shares = torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([0.5, 1.0, 3.0])
    loss = objective(Weighted())(module, x, y)
    each = nn.functional.cross_entropy(module(x), y, shares, reduction="none")
    assert loss.nll.item() == pytest.approx(each.mean().item(), rel=1e-6)


# Training ------------------------------------------------------------------------------------

X = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
SIGNAL = X[:, 0] - X[:, 1]
TASKS = {
    "gaussian": (bd.Gaussian, 1, SIGNAL),
    "two outputs": (bd.Gaussian, 2, X[:, :2]),
    "heteroscedastic": (bd.HeteroscedasticGaussian, 2, SIGNAL),
    "student": (bd.StudentTNoise, 1, SIGNAL.index_fill(0, torch.tensor([0, 9]), 20.0)),
    "classes": (bd.Classes, 3, (SIGNAL > -0.5).long() + (SIGNAL > 0.5)),
    "binary": (bd.Binary, 1, (SIGNAL > 0).long()),
    "weighted": (Weighted, 2, (SIGNAL > 0).long()),
}


@pytest.mark.parametrize("task", TASKS)
def test_a_few_steps_lower_the_loss(task):
    make, outputs, y = TASKS[task]
    torch.manual_seed(0)
    net = bd.bayesianize(nn.Linear(3, outputs), bd.Prior(Normal, loc=0.0, scale=1.0))
    objective = bd.Objective(make(), bd.JSA(0.3), num_data=64, samples=4)
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=0.05)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = objective(net, X, y)
        loss.total.backward()
        optimizer.step()
        losses.append(loss.nll.item())
    assert sum(losses[-5:]) / 5 < 0.8 * sum(losses[:5]) / 5


# Labels that say there is none -------------------------------------------------------------------


def loss_of(logits, y, ignore, kind=bd.Classes):
    """The nll that the objective forms of the outputs of a network that returns its input."""
    objective = bd.Objective(kind(ignore), num_data=4)
    return objective(nn.Identity(), logits, y).nll


def test_ignored_labels_are_left_out_of_likelihood_and_mean():
    torch.manual_seed(0)
    logits, y = torch.randn(4, 3), torch.tensor([2, -100, 0, -100])
    wanted = nn.functional.cross_entropy(logits, y, ignore_index=-100)
    assert torch.allclose(loss_of(logits, y, ignore=-100), wanted)
    weights = torch.tensor([0.5, 1.0, 3.0])
    each = nn.functional.cross_entropy(logits[::2], y[::2], weights, reduction="none")
    assert torch.allclose(loss_of(logits, y, ignore=-100, kind=Weighted), each.mean())


def test_words_without_a_label_are_left_out_of_the_sum_over_a_sentence():
    torch.manual_seed(0)
    logits, y = torch.randn(3, 5, 4), torch.randint(0, 4, (3, 5))
    y[0, 2:], y[1] = -100, -100  # a sentence that is padded, and one without a label
    total = nn.functional.cross_entropy(logits.mT, y, ignore_index=-100, reduction="sum")
    assert torch.allclose(loss_of(logits, y, ignore=-100), total / 2)


def test_a_batch_without_labels_has_no_loss_and_finite_gradients():
    logits = torch.randn(4, 3, requires_grad=True)
    loss = loss_of(logits, torch.full((4,), -100), ignore=-100)
    loss.backward()
    assert loss == 0
    assert not logits.grad.any()


def test_each_trial_of_a_stack_leaves_out_its_own():
    torch.manual_seed(0)
    nets = [bd.bayesianize(nn.Linear(2, 3), bd.FanIn(), posterior=bd.Point) for _ in range(2)]
    x, y = torch.randn(2, 4, 2), torch.tensor([[0, -100, 1, 2], [-100, -100, -100, 1]])
    objective = bd.Objective(bd.Classes(ignore=-100), num_data=4, strength=0.0)
    both = objective.terms(bd.stacked(nets), x, y).nll
    for net, own, found, at in zip(nets, y, both, x, strict=True):
        wanted = nn.functional.cross_entropy(bd.plain(net)(at), own, ignore_index=-100)
        assert torch.allclose(found, wanted)


def test_metrics_of_the_labels_that_are_there():
    logits, y = torch.randn(2, 4, 3), torch.tensor([2, -100, 0, -100])
    likelihood, keep = bd.Classes(ignore=-100), y != -100
    predictive = bd.Predictive(likelihood(logits))
    with pytest.raises(ValueError, match="labels must be integers from 0 to 2, got -100"):
        bd.metrics.nll(predictive, y)
    rest = bd.Predictive(likelihood(predictive.conditional.logits[:, keep]))
    wanted = -logits[:, keep].softmax(-1).mean(0)[[0, 1], y[keep]].log().mean()
    assert torch.allclose(bd.metrics.nll(rest, y[keep]), wanted)
