"""Several optimizers as one."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from bayesdiv.training.optimizers.natural import Cosine
from benchmarks.field.several import Several


def pair() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(3)) for _ in range(2)]


def both(loc: nn.Parameter, rho: nn.Parameter) -> Several:
    return Several(
        torch.optim.SGD([loc], lr=torch.tensor(0.1), momentum=0.9), torch.optim.Adam([rho], lr=0.01)
    )


def steps(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], count: int) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        sum((p**4).sum() for p in parameters).backward()
        optimizer.step()


def test_each_part_moves_its_own_parameters_as_it_would_alone():
    together, (loc, rho) = pair(), pair()
    steps(both(*together), together, 5)
    steps(torch.optim.SGD([loc], lr=0.1, momentum=0.9), [loc], 5)
    steps(torch.optim.Adam([rho], lr=0.01), [rho], 5)
    assert torch.allclose(together[0], loc)
    assert torch.allclose(together[1], rho)


def test_a_run_goes_on_from_its_state_as_if_it_had_not_stopped():
    whole = pair()
    optimizer = both(*whole)
    steps(optimizer, whole, 3)
    stopped = copy.deepcopy(whole)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other = both(*stopped)
    other.load_state_dict(torch.load(file))
    steps(optimizer, whole, 3)
    steps(other, stopped, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole, stopped, strict=True))


def test_a_schedule_reaches_every_part_and_keeps_tensors():
    optimizer = both(*pair())
    rate = optimizer.param_groups[0]["lr"]
    schedule = LambdaLR(optimizer, Cosine(10))
    for _ in range(5):
        optimizer.step()
        schedule.step()
    assert optimizer.parts[0].param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.05)
    assert optimizer.parts[1].param_groups[0]["lr"] == pytest.approx(0.005)


def test_a_parameter_in_two_parts_is_refused():
    loc, _ = pair()
    with pytest.raises(ValueError, match="each parameter must belong to one optimizer"):
        Several(torch.optim.SGD([loc], lr=0.1), torch.optim.Adam([loc], lr=0.1))


def test_a_copy_steps_copies_of_the_parameters():
    parameters = pair()
    optimizer = both(*parameters)
    steps(optimizer, parameters, 1)
    again, other = copy.deepcopy((parameters, optimizer))
    steps(optimizer, parameters, 2)
    steps(other, again, 2)
    assert all(torch.equal(a, b) for a, b in zip(parameters, again, strict=True))
    assert other.param_groups[0] is other.parts[0].param_groups[0]
