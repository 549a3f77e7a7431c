"""Draws of many weights on a CPU: the same noise from the same seed, and none of it kept."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus

import bayesdiv as bd
from bayesdiv.compute import blocks
from bayesdiv.compute.backend import draw, prepare
from bayesdiv.compute.noise import MANY
from bayesdiv.divergence.gaussian import SoftplusNormal

PRIOR = Normal(torch.tensor(0.1), torch.tensor(0.5), validate_args=False)
SEED = torch.tensor(11)
sizes = pytest.mark.parametrize("count", [300, MANY + 3, blocks.ONE_PIECE + 5])


def posterior(count, dtype=torch.float32):
    generator = torch.Generator().manual_seed(count)
    loc = torch.randn(count, generator=generator, dtype=dtype)
    rho = torch.randn(count, generator=generator, dtype=dtype).clamp(max=0.5) - 3
    return SoftplusNormal(loc.requires_grad_(), rho.requires_grad_())


def noise_of(drawn, q):
    """In double precision, as accurate as the draws hold it."""
    return (drawn.detach().double() - q.loc.detach().double()) / softplus(q.rho.detach().double())


def by_hand(weights, noise, q):
    """Σ g and Σ g ε σ'(rho) of the loss Σ g w."""
    return weights.sum(0), (weights * noise).sum(0) * q.rho.detach().double().sigmoid()


@sizes
@pytest.mark.parametrize("samples", [1, 2, 4])
def test_the_same_seed_makes_the_same_noise_again(count, samples):
    q = posterior(count)
    first, second = (draw(q, samples, seed=SEED) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, draw(q, samples, seed=SEED + 1))
    torch.manual_seed(0)
    free = draw(q, samples)
    torch.manual_seed(0)
    assert torch.equal(free, draw(q, samples))


def test_the_first_of_many_draws_is_the_only_draw_of_the_same_seed():
    q = posterior(MANY)
    assert torch.equal(draw(q, 3, seed=SEED)[0], draw(q, 1, seed=SEED)[0])


def test_draws_of_one_generator_do_not_depend_on_each_other():
    q = posterior(100_001)
    noise = noise_of(draw(q, 4, seed=SEED), q)
    assert (noise.corrcoef() - torch.eye(4)).abs().max() < 5 / 100_001**0.5


def test_scales_that_are_known_are_not_computed_again(monkeypatch):
    q = posterior(MANY)
    wanted = draw(q, 2, seed=SEED)
    slopes = torch.autograd.grad(wanted.square().sum(), (q.loc, q.rho))
    assert torch.equal(q.scale, softplus(q.rho))
    monkeypatch.setattr(blocks, "softplus", None)
    found = draw(q, 2, seed=SEED)
    assert torch.equal(found, wanted)
    for one, two in zip(
        torch.autograd.grad(found.square().sum(), (q.loc, q.rho)), slopes, strict=True
    ):
        assert torch.equal(one, two)


@sizes
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("large", [blocks.LARGE, 0], ids=["read off", "made again"])
def test_gradients_of_draws_are_those_of_their_noise(count, samples, dtype, large, monkeypatch):
    monkeypatch.setattr(blocks, "LARGE", large)
    q = posterior(count)
    noise = noise_of(draw(q, samples, seed=SEED), q)
    drawn = draw(q, samples, dtype, SEED)
    assert drawn.dtype == dtype
    weights = torch.randn(drawn.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    found = torch.autograd.grad(drawn, (q.loc, q.rho), weights)
    for one, two in zip(found, by_hand(weights.double(), noise, q), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), two, rtol=1e-3, atol=1e-4)


@sizes
@pytest.mark.parametrize("samples", [1, 3])
def test_draws_and_total_of_one_pass_are_those_of_two(count, samples, monkeypatch):
    for large in (blocks.LARGE, 0):  # with the noise read off the draws, and made again
        monkeypatch.setattr(blocks, "LARGE", large)
        q = posterior(count)
        prepared = prepare(bd.Auto(), bd.KL(), q, PRIOR)
        drawn, total = prepared.draw_and_total(q, PRIOR, samples, seed=SEED)
        apart = draw(q, samples, seed=SEED), prepared.total(q, PRIOR)
        torch.testing.assert_close((drawn, total), apart)
        weights = torch.randn(drawn.shape, generator=torch.Generator().manual_seed(1))
        found, wanted = (
            torch.autograd.grad((w * weights).sum() + 2 * value, (q.loc, q.rho))
            for w, value in ((drawn, total), apart)
        )
        for one, two in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)


def test_a_second_backward_pass_through_the_same_graph_gives_the_same():
    q = posterior(blocks.ONE_PIECE + 5)
    drawn, total = prepare(bd.Auto(), bd.KL(), q, PRIOR).draw_and_total(q, PRIOR, 2)
    loss = drawn.square().sum() + total
    first = torch.autograd.grad(loss, (q.loc, q.rho), retain_graph=True)
    kept = [one.clone() for one in first]
    second = torch.autograd.grad(loss, (q.loc, q.rho))
    for one, same, two in zip(first, kept, second, strict=True):
        assert torch.equal(one, same)
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)


def test_many_doubles_are_drawn_in_double_precision():
    q = posterior(MANY, torch.float64)
    drawn = draw(q, 1, seed=SEED)
    assert drawn.dtype == torch.float64
    assert torch.equal(drawn, draw(q, 1, seed=SEED))
    noise = noise_of(drawn, q)
    assert abs(noise.mean().item()) < 0.01
    assert noise.std().item() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("count", [600, 2 * MANY])
def test_trials_draw_like_one_long_vector(count):
    q = posterior(count)
    stacked = SoftplusNormal(q.loc.reshape(2, -1), q.rho.reshape(2, -1))
    drawn, total = prepare(bd.Auto(), bd.KL(), stacked, PRIOR).draw_and_total(
        stacked, PRIOR, 2, seed=SEED
    )
    assert torch.equal(drawn.reshape(2, -1), draw(q, 2, seed=SEED))
    assert total.shape == (2,)
    apart = [
        kl_divergence(Normal(*half), PRIOR).sum()
        for half in zip(stacked.loc, stacked.scale, strict=True)
    ]
    torch.testing.assert_close(total, torch.stack(apart), rtol=1e-4, atol=0)
    loss = drawn[0].square().sum() + (total * torch.tensor([1.0, 3.0])).sum()
    wanted = draw(q, 2, seed=SEED)[0].square().sum() + apart[0] + 3 * apart[1]
    for one, two in zip(
        *(torch.autograd.grad(w, (q.loc, q.rho)) for w in (loss, wanted)), strict=True
    ):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)
