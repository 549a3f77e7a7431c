"""The distribution that is learned."""

import math

import pytest
import torch
from scipy import stats
from torch.distributions import Normal

from bayesdiv import MeanField, Point


def test_the_scale_starts_where_it_is_told_however_small_or_large():
    scale = torch.tensor([1e-12, 1e-6, 0.1, 1.0, 30.0, 1000.0])
    posterior = MeanField(torch.zeros(6), scale)
    assert torch.allclose(posterior.scale, scale, rtol=1e-5)
    exact = torch.tensor([math.log(math.expm1(0.1)), math.log(math.expm1(1.0))])
    assert torch.allclose(posterior.rho[2:4], exact)


def test_one_scale_serves_all_weights():
    posterior = MeanField(torch.zeros(4), torch.tensor(0.2))
    assert posterior.rho.shape == (4,)
    assert posterior.distribution().stddev.tolist() == pytest.approx([0.2] * 4)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_a_scale_that_is_not_positive_is_refused(bad):
    with pytest.raises(ValueError, match="scale must be positive"):
        MeanField(torch.zeros(2), torch.tensor([1.0, bad]))


def test_draws_have_the_mean_and_the_scale_of_the_posterior():
    torch.manual_seed(0)
    posterior = MeanField(torch.tensor([1.0, -2.0]), torch.tensor([0.5, 2.0]))
    drawn = posterior.rsample(100_000)
    assert drawn.shape == (100_000, 2)
    assert torch.allclose(drawn.mean(0), posterior.loc, atol=0.03)
    assert torch.allclose(drawn.std(0), posterior.scale, rtol=0.02)


def test_gradients_of_a_draw_are_those_of_torch_s_normal():
    posterior = MeanField(torch.randn(3).double(), torch.rand(3).double() + 0.1)
    torch.manual_seed(0)
    ours = torch.autograd.grad(posterior.rsample(4).pow(3).sum(), [posterior.loc, posterior.rho])
    torch.manual_seed(0)
    scale = torch.nn.functional.softplus(posterior.rho)
    drawn = Normal(posterior.loc, scale).rsample((4,))
    wanted = torch.autograd.grad(drawn.pow(3).sum(), [posterior.loc, posterior.rho])
    for one, two in zip(ours, wanted, strict=True):
        assert torch.allclose(one, two)


def test_leading_axes_are_trials():
    posterior = MeanField(torch.zeros(5, 3), torch.full((5, 3), 0.1))
    assert posterior.rsample(7).shape == (7, 5, 3)
    assert posterior.distribution().batch_shape == (5, 3)


def test_dtype_is_that_of_the_mean():
    posterior = MeanField(torch.zeros(3).double(), torch.ones(3).double())
    assert posterior.rsample(2).dtype == torch.float64
    assert posterior.float().rsample(2).dtype == torch.float32


def test_the_tensors_given_are_left_alone():
    loc, scale = torch.zeros(2), torch.ones(2)
    posterior = MeanField(loc, scale)
    with torch.no_grad():
        posterior.loc += 1.0
        posterior.rho += 1.0
    assert loc.tolist() == [0.0, 0.0]
    assert scale.tolist() == [1.0, 1.0]


def test_the_joint_density_is_the_product_of_the_marginal_ones():
    posterior = MeanField(torch.tensor([[1.0, -2.0], [0.5, 0.0]]), torch.tensor([0.5, 2.0]))
    drawn = posterior.rsample(4)
    means, scales = posterior.loc.detach().numpy(), posterior.scale.detach().numpy()
    wanted = stats.norm(means, scales).logpdf(drawn.detach().numpy()).sum(-1)
    assert posterior.log_prob(drawn).shape == (4, 2)
    assert torch.allclose(posterior.log_prob(drawn), torch.from_numpy(wanted).float(), atol=1e-4)


@pytest.mark.parametrize("family", [MeanField, Point])
def test_parameters_are_in_single_precision_at_least(family):
    coarse = family(torch.zeros(3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.bfloat16))
    assert {value.dtype for value in coarse.state_dict().values()} == {torch.float32}
    assert coarse.rsample(2, torch.bfloat16).dtype == torch.bfloat16
    fine = family(torch.zeros(3).double(), torch.ones(3))
    assert {value.dtype for value in fine.state_dict().values()} == {torch.float64}
