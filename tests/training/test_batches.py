"""Batches of any shape: what a model is called with, and where it comes from."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal
from torch.utils.data import DataLoader

import bayesdiv as bd
from bayesdiv.training.batches import labelled
from bayesdiv.training.best import Best

PRIOR = bd.Prior(Normal, loc=0.0, scale=1.0)


class Two(nn.Module):
    """Takes two tensors by name, returns a mapping with logits."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.calls = 0

    def forward(self, left, right):
        self.calls += 1
        return {"logits": self.layer(torch.cat([left, right], -1)), "other": None}


def examples(rows=10):
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, rows, 2, generator=generator)
    return left, right, (left.sum(-1) > 0).long()


def trained(batches, samples=1, over=None, **settings):
    torch.manual_seed(0)
    net = bd.bayesianize(Two(), PRIOR)
    objective = bd.Objective(bd.Classes(), num_data=10, samples=samples, over=over)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    epochs = list(bd.fit(net, objective, batches, optimizer, 30, seed=0, **settings))
    assert epochs[-1].loss.nll < epochs[0].loss.nll
    return net


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("over", [None, bd.Looped()])
def test_tuples_and_mappings_train_the_same_network(samples, over):
    left, right, y = examples()
    by_place = trained(bd.Batches((left, right), y, 4), samples, over)
    by_name = trained(bd.Batches({"left": left, "right": right}, y, 4), samples, over)
    torch.testing.assert_close(by_place.loc, by_name.loc)


def test_a_loader_of_mappings_is_unpacked_by_its_label():
    left, right, y = examples()
    rows = [{"left": a, "right": b, "y": c} for a, b, c in zip(left, right, y, strict=True)]
    loader = DataLoader(rows, batch_size=5)
    net = trained(loader, unpack=labelled("y"))
    found = bd.predict(net, bd.Classes(), {"left": left, "right": right}, 5, batch_size=3)
    assert found.probabilities.shape == (10, 2)
    weights = bd.draw_weights(net, 4)
    again = bd.predict_at(net, bd.Classes(), (left, right), weights)
    torch.testing.assert_close(
        again.probabilities,
        torch.stack([net.with_weights(w, left, right)["logits"] for w in weights[0]])
        .softmax(-1)
        .mean(0),
    )
    with pytest.raises(ValueError, match=r"pair of inputs and targets, got a dict of 3"):
        trained(loader)
    with pytest.raises(ValueError, match=r"the key 'label' for its targets, got \['left'"):
        trained(loader, unpack=labelled("label"))


def test_num_data_is_compared_with_a_loader_too():
    left, right, y = examples()
    loader = DataLoader([((a, b), c) for a, b, c in zip(left, right, y, strict=True)], 5)
    net = bd.bayesianize(Two(), PRIOR)
    objective = bd.Objective(bd.Classes(), num_data=5)
    with pytest.raises(ValueError, match="training examples, 10 in batches, got 5"):
        next(bd.fit(net, objective, loader, torch.optim.Adam(net.parameters()), 1))


def test_images_stored_with_channels_last_stay_so_and_are_transformed():
    images = torch.randint(255, (6, 3, 4, 4), dtype=torch.uint8)
    stored = images.contiguous(memory_format=torch.channels_last)
    batches = bd.Batches(
        stored, torch.arange(6), 4, transform=lambda x: x.float() / 255, drop_last=True
    )
    (batch,) = batches
    x, y = batch
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(x, images[y].float() / 255)
    assert len(batches) == 1


def test_a_module_is_entered_through_its_call_so_that_hooks_hold():
    net = bd.bayesianize(nn.Linear(2, 1), PRIOR)
    seen = []
    net.register_forward_hook(lambda *_: seen.append(1))
    objective = bd.Objective(bd.Gaussian(), num_data=3, samples=2, over=bd.Looped())
    objective(net, torch.zeros(3, 2), torch.zeros(3))
    assert len(seen) == 2


def test_the_best_epoch_is_the_first_of_the_lowest_and_is_put_back():
    net = nn.Linear(1, 1, bias=False)
    best = Best(model=net)
    for epoch, score in enumerate((3.0, 1.0, 1.0, 2.0), start=1):
        nn.init.constant_(net.weight, float(epoch))
        best.after(epoch, score)
    assert best.restore() == 2
    assert net.weight.item() == 2.0


def test_a_schedule_moves_with_every_update():
    net = nn.Linear(2, 1)
    objective = bd.Objective(bd.Gaussian(), num_data=6)
    optimizer = torch.optim.SGD([*net.parameters(), *objective.parameters()], lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 0.5**update)
    batches = bd.Batches(torch.zeros(6, 2), torch.zeros(6), 2)
    list(bd.fit(net, objective, batches, optimizer, 2, schedule=schedule))
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5**6)


@pytest.mark.parametrize("samples", [1, 3])
def test_under_autocast_weights_are_drawn_in_its_dtype_and_parameters_keep_theirs(samples):
    seen = []

    class Noting(nn.Linear):
        def forward(self, x):
            seen.append((self.weight.dtype, self.bias.dtype))
            return super().forward(x)

    torch.manual_seed(0)
    net = bd.bayesianize(nn.Sequential(Noting(3, 4), nn.LayerNorm(4), Noting(4, 1)), PRIOR)
    objective = bd.Objective(bd.Gaussian(), num_data=8, samples=samples, over=bd.Looped())
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=0.01)
    batches = bd.Batches(torch.randn(8, 3), torch.randn(8), 4)
    epochs = list(bd.fit(net, objective, batches, optimizer, 3, autocast=torch.bfloat16))
    assert set(seen) == {(torch.bfloat16, torch.float32)}
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    assert all(epoch.loss.total == pytest.approx(epoch.loss.total) for epoch in epochs)


def test_arrays_are_batched_in_the_precision_of_torch():
    x, y = np.arange(12.0).reshape(4, 3), np.arange(4)
    ((seen, labels),) = bd.Batches(x, y, 4)
    assert (seen.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert torch.equal(seen[:, 0] / 3, labels.float())


@pytest.mark.parametrize(("x", "y"), [([[1.0]], torch.ones(1)), (torch.ones(1, 1), [1.0])])
def test_what_is_neither_tensor_nor_array_is_refused(x, y):
    with pytest.raises(TypeError, match=r"must be tensors or arrays, got .*: give torch.tensor"):
        bd.Batches(x, y, 1)


def test_numbers_of_numpy_are_sizes_and_seeds():
    x, y = torch.arange(12.0).unsqueeze(1), torch.arange(12.0)
    torch.testing.assert_close(
        list(bd.Batches(x, y, np.int64(5), np.int64(3))), list(bd.Batches(x, y, 5, 3))
    )
    torch.testing.assert_close(
        list(bd.Batches(x[None], y[None], 5, np.array([3]))),
        list(bd.Batches(x[None], y[None], 5, [3])),
    )
