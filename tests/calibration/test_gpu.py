"""Calibration, outliers and metrics on a GPU as on the CPU; run with `pytest -m gpu`."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Normal, StudentT

import bayesdiv as bd
from bayesdiv import metrics, outliers
from bayesdiv.calibration import Central, Intervals, Quantiles, Scaled, Sets, Spread, Temperature
from bayesdiv.predictive import Predictive

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICE = "cuda"


def numbers(device: str) -> tuple[Predictive, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    loc, y = torch.randn(3, 60, generator=generator), 2 * torch.randn(60, generator=generator)
    return Predictive(Normal(loc.to(device), 1.0)), y.to(device)


def classes(device: str) -> tuple[Predictive, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(3, 60, 4, generator=generator)
    y = torch.randint(4, (60,), generator=generator)
    return Predictive(Categorical(logits=logits.to(device))), y.to(device)


@pytest.mark.parametrize("score", [Scaled(), Quantiles(), Central()], ids=repr)
def test_intervals_agree_with_the_cpu_and_come_back_from_there(score):
    groups = torch.arange(60) % 2
    wanted = Intervals.fit(*numbers("cpu"), score=score, groups=groups)
    found = Intervals.fit(*numbers(DEVICE), score=score, groups=groups.to(DEVICE))
    again = Intervals.from_state(found.state())
    new, _ = numbers(DEVICE)
    for intervals in (found, again, wanted):
        ends = intervals(new, groups.to(DEVICE))
        for one, two in zip(ends, wanted(numbers("cpu")[0], groups), strict=True):
            torch.testing.assert_close(one.cpu(), two, rtol=1e-4, atol=1e-5)


def test_sets_and_temperature_agree_with_the_cpu():
    # At a level where the threshold is no sum of all probabilities, which is 1 but for rounding.
    wanted, found = (Sets.fit(*classes(device), 0.5, share=1.0) for device in ("cpu", DEVICE))
    assert torch.equal(found(classes(DEVICE)[0]).cpu(), wanted(classes("cpu")[0]))
    assert Sets.fit(*classes(DEVICE))(classes(DEVICE)[0]).device.type == DEVICE
    values = [Temperature.fit(*classes(device)).value for device in ("cpu", DEVICE)]
    assert values[0] == pytest.approx(values[1], rel=1e-3)


def test_a_spread_is_chosen_on_the_device_of_the_model():
    net = bd.bayesianize(nn.Linear(2, 1), bd.FanIn()).to(DEVICE)
    x, y = torch.randn(40, 2, device=DEVICE), torch.randn(40, device=DEVICE)
    spread = Spread.fit(net, bd.Gaussian().to(DEVICE), x, y, samples=10)
    assert spread(net, bd.draw_weights(net, 4))[0].device.type == DEVICE


def test_outliers_agree_with_the_cpu():
    generator = torch.Generator().manual_seed(0)
    usual = torch.randn(80, 3, generator=generator)
    y = torch.randint(2, (80,), generator=generator)
    wanted = outliers.Mahalanobis.fit(usual, y)(usual)
    found = outliers.Mahalanobis.fit(usual.to(DEVICE), y.to(DEVICE))(usual.to(DEVICE))
    torch.testing.assert_close(found.cpu(), wanted)
    limit = outliers.Threshold.fit(found)
    assert torch.equal(limit.flags(found).cpu(), outliers.Threshold.fit(wanted).flags(wanted))
    net = bd.bayesianize(nn.Linear(3, 2), bd.FanIn()).to(DEVICE)
    assert outliers.energy(outliers.features(net, usual.to(DEVICE))).shape == (80,)


@pytest.mark.parametrize("name", sorted(set(metrics.TABLE) - {"false_negative_rate"}))
def test_metrics_agree_with_the_cpu(name):
    metric, unit = metrics.TABLE[name].function, metrics.TABLE[name].unit
    made = numbers if unit == metrics.TARGET or name == "coverage" else classes
    torch.testing.assert_close(metric(*made(DEVICE)).cpu(), metric(*made("cpu")), rtol=1e-4, atol=0)


def test_curves_and_samples_run_on_the_device():
    found = (*metrics.brier_parts(*classes(DEVICE)), *metrics.risk_coverage(*classes(DEVICE)))
    wanted = (*metrics.brier_parts(*classes("cpu")), *metrics.risk_coverage(*classes("cpu")))
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.cpu(), two, rtol=1e-4, atol=1e-6)
    heavy = Predictive(StudentT(torch.tensor(4.0, device=DEVICE), torch.zeros(2, 9, device=DEVICE)))
    y = torch.zeros(9, device=DEVICE)
    assert metrics.crps(heavy, y).device.type == metrics.pit(heavy, y).device.type == DEVICE
    usual, unusual = torch.rand(9, device=DEVICE), 1 + torch.rand(9, device=DEVICE)
    assert metrics.outlier_auroc(usual, unusual).item() == 1
    assert metrics.outlier_aupr(usual, unusual).item() == 1
    assert metrics.outlier_false_alarms(usual, unusual).item() == 0
