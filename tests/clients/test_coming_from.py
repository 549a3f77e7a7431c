"""Pages for people who come from another library: both columns run, and what they say is so."""

from importlib import import_module

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus

from pages import ROOT, run

PEERS = {
    "bayesian-torch": "bayesian_torch",
    "blitz": "blitz",
    "laplace": "laplace",
    "pyro": "pyro",
    "torchbnn": "torchbnn",
}


def imported(name):
    """A module of a peer, which may be broken by a torch that is newer than it."""
    try:
        return import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} cannot be imported: {error}")


@pytest.mark.parametrize("page", PEERS)
def test_both_columns_learn_the_same_task(page):
    imported(PEERS[page])
    names = run(ROOT / f"docs/coming-from/{page}.md")
    y = names["y"]
    for probabilities in (names["their_probabilities"], names["our_probabilities"]):
        assert probabilities.shape == (400, 2)
        torch.testing.assert_close(probabilities.sum(1), torch.ones(400))
        assert (probabilities.argmax(1) == y).float().mean() > 0.9


@pytest.mark.parametrize("page", PEERS)
def test_code_of_both_columns_fits_beside_the_other(page):
    text = (ROOT / f"docs/coming-from/{page}.md").read_text()
    columns = text.split('<div class="side"')[1].split("## Names")[0]
    assert max(map(len, columns.splitlines())) <= 58


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 2))


def test_bayesian_torch_averages_within_a_tensor_and_takes_a_variance_for_a_scale():
    conversion = imported("bayesian_torch.models.dnn_to_bnn")
    net = network()
    settings = {"prior_mu": 0.0, "prior_sigma": 0.5, "posterior_mu_init": 0.0}
    settings |= {"posterior_rho_init": -3.0, "type": "Reparameterization", "moped_enable": False}
    conversion.dnn_to_bnn(net, settings)
    expected = 0.0
    for layer in (net[0], net[2]):
        for kind in ("weight", "bias"):
            loc, rho = getattr(layer, f"mu_{kind}"), getattr(layer, f"rho_{kind}")
            expected += kl_divergence(Normal(loc, softplus(rho)), Normal(0.0, 0.5)).mean()
    torch.testing.assert_close(conversion.get_kl_loss(net), expected)


def test_torchbnn_sums_or_divides_by_the_number_of_weights_and_starts_at_the_prior():
    bnn = imported("torchbnn")
    torch.manual_seed(0)
    layer = bnn.BayesLinear(prior_mu=0, prior_sigma=0.5, in_features=3, out_features=7)
    expected = 0.0
    for kind in ("weight", "bias"):
        scale = getattr(layer, f"{kind}_log_sigma").exp()
        torch.testing.assert_close(scale, torch.full_like(scale, 0.5))
        q = Normal(getattr(layer, f"{kind}_mu"), scale)
        expected += kl_divergence(q, Normal(0.0, 0.5)).sum()
    net = nn.Sequential(layer)
    torch.testing.assert_close(bnn.BKLLoss(reduction="sum")(net)[0], expected)
    torch.testing.assert_close(bnn.BKLLoss()(net)[0], expected / (3 * 7 + 7))


def test_blitz_lets_go_of_a_weight_far_from_its_prior_and_ignores_the_second_scale():
    sampler = imported("blitz.modules.weight_sampler")

    def pull(at, **scales):
        w = torch.tensor(at, requires_grad=True)
        sampler.PriorWeightDistribution(sigma1=1.0, **scales).log_prior(w).backward()
        return -w.grad.item()

    assert pull(2.0) == pytest.approx(2.0, rel=1e-3)  # KL's pull, one weight at its mean
    assert pull(7.0) < 0.01  # KL's would be 7
    assert pull(2.0, sigma2=0.1) == pull(2.0, sigma2=10.0)


def test_pyro_sums_over_the_rows_what_ours_averages():
    imported("pyro")
    names = run(ROOT / "docs/coming-from/pyro.md")
    x, y = names["x"], names["y"]
    total = sum(names["svi"].evaluate_loss(x, y) for _ in range(20)) / 20
    objective, net = names["objective"], names["net"]
    ours = sum(objective(net, x, y).total.item() for _ in range(20)) / 20
    assert total / 400 == pytest.approx(ours, rel=0.15)
