"""Names and shapes on one side, one flat vector on the other."""

import pytest
import torch
from torch import nn

from bayesdiv.model.layout import Layout, everything, unfrozen


def parameters_of(module):
    return list(module.named_parameters(remove_duplicate=False))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5)
        self.head.weight = self.embed.weight


def test_flatten_and_unflatten_are_inverse():
    module = nn.Sequential(nn.Conv2d(2, 3, (1, 4)), nn.Linear(7, 2), nn.PReLU())
    layout = Layout.of(parameters_of(module))
    vector = torch.randn(layout.size)
    tensors = layout.unflatten(vector)
    assert {name: t.shape for name, t in tensors.items()} == {
        name: parameter.shape for name, parameter in module.named_parameters()
    }
    assert torch.equal(layout.flatten(tensors), vector)


def test_entries_stand_one_after_the_other():
    layout = Layout.of(parameters_of(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 4, bias=False))))
    tensors = layout.unflatten(torch.arange(16))
    assert [tensor.flatten()[0].item() for tensor in tensors.values()] == [0, 6, 8]
    assert [entry.size for entry in layout.entries] == [6, 2, 8]
    assert layout.size == 16


def test_tied_weights_stand_once_under_all_their_names():
    layout = Layout.of(parameters_of(Tied()))
    assert layout.size == 5 * 3 + 5
    assert layout.entries[0].names == ("embed.weight", "head.weight")
    tensors = layout.unflatten(torch.arange(20.0))
    assert torch.equal(tensors["embed.weight"], tensors["head.weight"])


def test_tensors_that_live_no_longer_than_their_turn_are_not_taken_for_tied():
    layout = Layout.of((name, torch.zeros(3)) for name in "abcdef")
    assert layout.size == 18
    assert [entry.names for entry in layout.entries] == [(name,) for name in "abcdef"]


def test_flatten_expands_a_number_a_layer_to_one_a_weight():
    layout = Layout.of(parameters_of(nn.Linear(2, 3)))
    scales = {"weight": torch.tensor(0.5), "bias": torch.tensor(2.0)}
    assert layout.flatten(scales).tolist() == [0.5] * 6 + [2.0] * 3


def test_gradients_of_the_pieces_meet_in_the_vector():
    layout = Layout.of(parameters_of(nn.Linear(2, 3)))
    vector = torch.zeros(layout.size, requires_grad=True)
    tensors = layout.unflatten(vector)
    (2 * tensors["weight"].sum() + 5 * tensors["bias"].sum()).backward()
    assert vector.grad.tolist() == [2.0] * 6 + [5.0] * 3


def test_fan_in_is_that_of_torch():
    for module in (nn.Linear(7, 3), nn.Conv1d(4, 6, 5, groups=2), nn.Conv3d(2, 3, (1, 2, 3))):
        entry, bias = Layout.of(parameters_of(module)).entries
        assert entry.fan_in == nn.init._calculate_correct_fan(module.weight, "fan_in")
        assert bias.fan_in == 1


def test_a_single_number_is_a_weight_too():
    layout = Layout.of([("gain", torch.tensor(2.0))])
    assert (layout.size, layout.entries[0].fan_in) == (1, 1)
    assert layout.unflatten(torch.tensor([3.0]))["gain"].shape == ()


def test_everything_picks_every_weight():
    assert all(everything(name, parameter) for name, parameter in parameters_of(Tied()))


def test_unfrozen_picks_what_is_to_be_trained():
    module = Tied()
    module.head.bias.requires_grad_(False)
    picked = [name for name, parameter in parameters_of(module) if unfrozen(name, parameter)]
    assert picked == ["embed.weight", "head.weight"]
    assert everything("head.bias", module.head.bias)


def test_filters_stored_with_channels_last_are_read_without_a_copy():
    source = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    layout = Layout.of(source.named_parameters())
    flat = layout.flatten(dict(source.named_parameters())).detach()
    found = layout.unflatten(flat)["weight"]
    assert torch.equal(found, source.weight)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert found.data_ptr() == flat.data_ptr()
    assert torch.equal(flat[:108], source.weight.permute(0, 2, 3, 1).flatten())


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_several_vectors_are_cut_like_each_of_them(memory_format):
    module = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Linear(4, 1)).to(memory_format=memory_format)
    layout = Layout.of(parameters_of(module))
    vectors = torch.randn(5, 2, layout.size)
    together = layout.unflatten(vectors)
    for name, tensor in layout.unflatten(vectors[3, 1]).items():
        assert torch.equal(together[name][3, 1], tensor)
