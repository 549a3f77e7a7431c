"""The loop: what it repeats exactly, what it refuses, and that it can be stopped and resumed."""

import copy
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from torch.distributions import Normal, Uniform
from torch.utils.data import DataLoader, TensorDataset

import bayesdiv as bd
from bayesdiv.objective.objective import Loss
from bayesdiv.training.fit import own_draws, same_draws
from processes import CHECKPOINT, EPOCHS, by_ranks, problem, train

SCRIPT = Path(__file__).parents[1] / "processes.py"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def weights_after(epochs=3, **settings):
    net, objective, batches, optimizer = problem()
    losses = [
        epoch.loss for epoch in bd.fit(net, objective, batches, optimizer, epochs, **settings)
    ]
    return net.state_dict(), losses


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


# Batches -------------------------------------------------------------------------------------


def test_batches_hold_every_example_once_an_epoch_in_another_order():
    batches = bd.Batches(torch.arange(10.0).unsqueeze(1), torch.arange(10), size=4, seed=1)
    orders = []
    for epoch in (0, 1, 0):
        batches.set_epoch(epoch)
        pairs = [(x, y) for x, y in batches]
        assert [len(y) for _, y in pairs] == [4, 4, 2]
        assert len(batches) == 3
        assert all(torch.equal(x[:, 0], y.float()) for x, y in pairs)
        orders.append(torch.cat([y for _, y in pairs]).tolist())
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert orders[0] == orders[2] != orders[1]
    assert orders[0] != list(range(10))


def test_the_order_depends_on_the_seed_and_not_on_the_state_of_torch():
    def order(seed):
        torch.manual_seed(int(time.time()))
        return torch.cat([y for _, y in bd.Batches(torch.zeros(20, 1), torch.arange(20), 8, seed)])

    assert torch.equal(order(1), order(1))
    assert not torch.equal(order(1), order(2))


@pytest.mark.parametrize(
    ("rows", "targets", "size", "message"),
    [
        (3, 4, 2, "equally many examples, got 3 and 4"),
        (0, 0, 2, "at least one example"),
        (3, 3, 0, "size must be at least 1, got 0"),
    ],
)
def test_batches_without_sense_are_refused(rows, targets, size, message):
    with pytest.raises(ValueError, match=message):
        bd.Batches(torch.zeros(rows, 1), torch.zeros(targets), size)


# The loop ------------------------------------------------------------------------------------


def test_training_lowers_the_loss_and_tells_its_parts():
    net, objective, batches, optimizer = problem()
    epochs = list(bd.fit(net, objective, batches, optimizer, 30, seed=0))
    assert [epoch.number for epoch in epochs] == list(range(1, 31))
    assert epochs[-1].loss.nll < epochs[0].loss.nll
    assert [epoch.strength for epoch in epochs[:5]] == [0.25, 0.5, 0.75, 1.0, 1.0]
    for epoch in epochs:
        assert epoch.seconds > 0
        parts = epoch.loss.nll + epoch.strength / 29 * epoch.loss.divergence
        assert epoch.loss.total == pytest.approx(parts, rel=1e-5)


def test_a_seed_repeats_a_run_exactly():
    one, losses = weights_after(seed=1)
    torch.rand(17)
    two, same_losses = weights_after(seed=1)
    other, _ = weights_after(seed=2)
    assert same(one, two)
    assert losses == same_losses
    assert not same(one, other)


def test_what_the_caller_draws_between_epochs_changes_nothing():
    net, objective, batches, optimizer = problem()
    for epoch in bd.fit(net, objective, batches, optimizer, 3, seed=1):
        bd.predict(net, objective.likelihood, batches.x, samples=epoch.number)
    assert same(net.state_dict(), weights_after(seed=1)[0])


def test_the_loss_of_an_epoch_is_weighted_by_the_size_of_the_batches():
    net, objective, _, _ = problem()
    x, y = torch.randn(7, 3), torch.randn(7)
    seen = []

    def noting(loss_of, batch, optimizer, backward):
        loss = loss_of(*batch)
        seen.append((len(batch[0]), loss.nll.item()))
        return loss

    optimizer = torch.optim.SGD([*net.parameters(), *objective.parameters()], lr=0.0)
    batches = [(x[:5], y[:5]), (x[5:], y[5:])]
    (epoch,) = bd.fit(net, objective, batches, optimizer, 1, step=noting)
    assert [size for size, _ in seen] == [5, 2]
    wanted = sum(size * nll for size, nll in seen) / 7
    assert epoch.loss.nll == pytest.approx(wanted, rel=1e-6)


def test_breaking_out_leaves_a_model_that_works_and_can_go_on():
    net, objective, batches, optimizer = problem()
    for epoch in bd.fit(net, objective, batches, optimizer, 100, seed=1):
        if epoch.number == 2:
            break
    rest = bd.fit(net, objective, batches, optimizer, 3, first=2, seed=1)
    assert [epoch.number for epoch in rest] == [3]
    assert same(net.state_dict(), weights_after(epochs=3, seed=1)[0])


def test_nothing_is_done_where_all_epochs_are():
    net, objective, batches, optimizer = problem()
    before = copy.deepcopy(net.state_dict())
    assert list(bd.fit(net, objective, batches, optimizer, 3, first=3)) == []
    assert same(net.state_dict(), before)


def test_the_model_is_in_training_mode_in_every_epoch():
    net, objective, batches, optimizer = problem()
    for _ in bd.fit(net, objective, batches, optimizer, 2):
        assert net.training
        net.eval()


def test_a_deterministic_model_trains_by_the_same_loop():
    torch.manual_seed(0)
    net, x = nn.Linear(3, 1), torch.randn(32, 3)
    objective = bd.Objective(bd.Gaussian(), num_data=32)
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=0.1)
    epochs = list(bd.fit(net, objective, bd.Batches(x, x[:, 0], 8), optimizer, 20))
    assert epochs[-1].loss.total < 0.5 * epochs[0].loss.total
    assert all(epoch.loss.divergence == 0 for epoch in epochs)


def test_a_constraint_is_learned_along_and_told():
    net, objective, batches, _ = problem()
    objective.strength = bd.Constraint(epsilon=0.01)
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=0.02)
    strengths = [epoch.strength for epoch in bd.fit(net, objective, batches, optimizer, 3)]
    assert 1.0 < strengths[0] < strengths[1] < strengths[2]


def test_a_loader_of_torch_serves_as_batches():
    net, objective, batches, optimizer = problem()
    loader = DataLoader(TensorDataset(batches.x, batches.y), batch_size=6, shuffle=True)
    results = []
    for _ in range(2):
        net, objective, _, optimizer = problem()
        epochs = list(bd.fit(net, objective, loader, optimizer, 5, seed=1))
        results.append(net.state_dict())
    assert epochs[-1].loss.nll < epochs[0].loss.nll
    assert same(*results)


def test_another_step_may_clip_the_gradients():
    def clipped(loss_of, batch, optimizer, backward):
        optimizer.zero_grad()
        loss = loss_of(*batch)
        backward(loss.total)
        nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
        optimizer.step()
        return Loss(*(part.detach() for part in loss))

    net, objective, batches, _ = problem()
    before = net.loc.detach().clone()
    optimizer = torch.optim.SGD([*net.parameters(), *objective.parameters()], lr=1.0)
    list(bd.fit(net, objective, batches, optimizer, 1, step=clipped))
    assert 0 < (net.loc - before).norm() <= len(batches) * 1e-3


# torch's own: dynamo makes an instance of a class that it has deprecated itself.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_compiled_loss_trains_as_the_plain_one_does():
    torch._dynamo.reset()

    def compiled(module):
        return torch.compile(module, backend="aot_eager", fullgraph=True)

    one, losses = weights_after(seed=1)
    two, other = weights_after(seed=1, transform=compiled)
    assert all(torch.allclose(one[key], two[key], atol=1e-5) for key in one)
    assert losses[-1].total == pytest.approx(other[-1].total, rel=1e-4)


@pytest.fixture
def fresh_accelerate():
    """Accelerate keeps its precision for the whole process; a test must not leave one behind."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.usefixtures("fresh_accelerate")
def test_mixed_precision_keeps_the_weights_in_full_precision():
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    state, losses = weights_after(epochs=20, seed=1, accelerator=accelerator)
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
    assert losses[-1].nll < losses[0].nll


# What goes wrong -----------------------------------------------------------------------------


def diverges(net, x, y, divergence=None, size=4):
    torch.manual_seed(0)
    objective = bd.Objective(bd.Gaussian(), divergence, num_data=len(x))
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=0.01)
    before = copy.deepcopy(net.state_dict())
    batches = list(zip(x.split(size), y.split(size), strict=True))
    with pytest.raises(bd.Diverged) as caught:
        list(bd.fit(net, objective, batches, optimizer, 2))
    return str(caught.value), same(before, net.state_dict())


def linear(prior=None):
    torch.manual_seed(0)
    return bd.bayesianize(nn.Linear(2, 1), prior or bd.Prior(Normal, loc=0.0, scale=1.0))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("side", ["x", "y"])
def test_values_that_are_no_numbers_are_found_in_the_data(side, bad):
    x, y = torch.zeros(12, 2), torch.zeros(12)
    (x if side == "x" else y)[6] = bad
    message, _ = diverges(linear(), x, y)
    assert message.startswith("the data of batch 2 of epoch 1 hold NaN or infinite values")
    assert "clean them" in message


def test_an_infinite_nll_names_the_batch_and_the_remedy():
    x, y = torch.zeros(8, 2), torch.zeros(8)
    y[2] = 1e30  # its square is infinite in float32
    message, untouched = diverges(linear(), x, y)
    assert message.startswith("the nll of batch 1 of epoch 1 is inf")
    assert "learning rate" in message
    assert untouched


def test_an_infinite_divergence_names_the_batch_and_the_remedy():
    net = linear(bd.Prior(Uniform, low=-1.0, high=1.0))
    message, untouched = diverges(net, torch.zeros(8, 2), torch.zeros(8), bd.KL())
    assert message.startswith("the divergence in batch 1 of epoch 1 is not finite")
    assert "JSA" in message
    assert message.endswith("a wider start, such as bayesianize(…, start=0.8)")
    assert untouched


def test_js_a_trains_against_a_prior_with_edges():
    net = linear(bd.Prior(Uniform, low=-1.0, high=1.0))
    objective = bd.Objective(bd.Gaussian(), bd.JSA(0.3), num_data=8)
    optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=0.01)
    batches = bd.Batches(torch.randn(8, 2), torch.randn(8), 4)
    assert all(
        math.isfinite(epoch.loss.total) for epoch in bd.fit(net, objective, batches, optimizer, 2)
    )


def test_a_step_that_overlooks_a_loss_is_found_out_at_once():
    def careless(loss_of, batch, optimizer, backward):
        return Loss(*(torch.tensor(math.nan) for _ in range(3)))

    net, objective, batches, optimizer = problem()
    with pytest.raises(bd.Diverged, match="the nll of batch 1 of epoch 1 is nan"):
        list(bd.fit(net, objective, batches, optimizer, 1, step=careless))


def test_batches_that_run_dry_are_told():
    net, objective, batches, optimizer = problem()
    once = iter(list(batches))
    with pytest.raises(ValueError, match="at least one batch per epoch"):
        list(bd.fit(net, objective, once, optimizer, 2))


# Stopped and resumed -------------------------------------------------------------------------


def epochs_saved(folder):
    """The epoch of the checkpoint, 0 before there is one."""
    path = folder / CHECKPOINT
    if not path.exists():
        return 0
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["bayesdiv"])["epoch"]


def test_a_run_killed_in_the_middle_resumes_bit_for_bit(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    with subprocess.Popen([sys.executable, SCRIPT, "resume", killed], env=ENVIRONMENT) as process:
        deadline = time.monotonic() + 120
        while epochs_saved(killed) < 2 and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(0.1)  # into the next epoch, which has five steps of 0.05 s
        process.kill()
    assert 2 <= epochs_saved(killed) < EPOCHS
    uninterrupted = train(whole)
    assert same(train(killed), uninterrupted)


class Stopped(Exception):
    pass


def stopping_after(steps):
    left = iter(range(steps))

    def step(*arguments):
        if next(left, None) is None:
            raise Stopped
        return bd.Eager()(*arguments)

    return step


def test_resuming_from_every_epoch_ends_in_the_same_weights(tmp_path):
    wanted = train(tmp_path / "whole")
    for epochs in range(1, EPOCHS):
        folder = tmp_path / str(epochs)
        with pytest.raises(Stopped):
            train(folder, stopping_after(5 * epochs + 2))
        assert epochs_saved(folder) == epochs
        assert same(train(folder), wanted)


# Several processes ---------------------------------------------------------------------------


def test_noise_seeds_differ_by_rank_unless_shared():
    assert len({own_draws(5, rank) for rank in range(8)}) == 8
    assert len({same_draws(5, rank) for rank in range(8)}) == 1
    assert own_draws(5, 0) == 5


def test_two_processes_with_shared_noise_train_as_one_with_the_whole_batch(tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    command = [*launcher, "--master_port=0", "--standalone", SCRIPT, "ranks", tmp_path]
    done = subprocess.run(
        command, env=ENVIRONMENT, check=False, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    ranks = [load_file(tmp_path / f"{rank}.safetensors") for rank in range(2)]
    alone = by_ranks()
    for result in ranks:
        assert torch.allclose(result["shared/trajectory"], alone["trajectory"], atol=1e-5)
        assert torch.allclose(result["shared/losses"], alone["losses"], rtol=1e-4)
    for way in ("shared", "default"):
        assert torch.equal(*(result[f"{way}/trajectory"] for result in ranks))
        assert torch.equal(*(result[f"{way}/losses"] for result in ranks))
    assert torch.equal(*(result["shared/seeds"] for result in ranks))
    assert not (ranks[0]["default/seeds"] == ranks[1]["default/seeds"]).any()
    assert not torch.allclose(ranks[0]["default/trajectory"], alone["trajectory"], atol=1e-3)


def test_what_is_easily_forgotten_is_told():
    x, y = torch.randn(8, 2), torch.randn(8)
    net = bd.bayesianize(nn.Linear(2, 1), bd.FanIn())
    objective = bd.Objective(bd.Gaussian(), num_data=8)
    whole = [*net.parameters(), *objective.parameters()]
    with pytest.raises(ValueError, match=r"it lacks likelihood.rho: add objective.parameters\(\)"):
        next(bd.fit(net, objective, bd.Batches(x, y, 4), torch.optim.Adam(net.parameters()), 1))
    wrong = bd.Objective(bd.Gaussian(), num_data=1)
    optimizer = torch.optim.Adam([*net.parameters(), *wrong.parameters()])
    with pytest.raises(ValueError, match="num_data must be the number of training examples, 8"):
        next(bd.fit(net, wrong, bd.Batches(x, y, 4), optimizer, 1))
    objective.likelihood.rho.requires_grad_(False)
    assert next(bd.fit(net, objective, bd.Batches(x, y, 4), torch.optim.Adam(whole), 1)).number == 1
    with pytest.raises(ValueError, match="must not be Bayesian already"):
        bd.bayesianize(net, bd.FanIn())
