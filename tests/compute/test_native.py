"""Machine code for JS-A of many weights: what it computes, and what happens without a compiler."""

import logging
import math
import os
import shutil

import numpy as np
import pytest
import torch
from torch.distributions import Normal

import bayesdiv as bd
from bayesdiv.compute import backend, native, table
from bayesdiv.compute.backend import prepare
from bayesdiv.divergence import UnmodifiedJSA

needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CC") or "cc") is None, reason="there is no C compiler"
)
UNIT = torch.tensor(0.1), torch.tensor(0.5)


def compiled(alpha=0.3, kind=bd.JSA):
    """The rule, made for many weights, which takes any number of them."""
    return table.looked_up(kind.mixture(alpha))


def prepared(alpha, count=native.MANY):
    q = Normal(torch.zeros(count), torch.ones(count))
    return prepare(bd.Auto(), bd.JSA(alpha), q, Normal(0.0, 1.0))


def by_machine_code(found):
    """Whether the fastest backend is the compiled one, of which no second is needed."""
    return found.backend.rule.__qualname__.startswith("looked_up")


@pytest.fixture(autouse=True)
def _tried_anew(monkeypatch):
    monkeypatch.setattr(backend, "_trusted", {})


def exact(divergence, loc, scale, prior_loc, prior_scale):
    """Sum and derivatives in double precision, by the rule of 96 nodes and torch's chain rule."""
    loc, scale = (x.double().requires_grad_() for x in (loc, scale))
    p = Normal(prior_loc.double(), prior_scale.double())
    value = bd.Exact(nodes=96)(divergence, Normal(loc, scale), p).sum()
    return value.detach(), *torch.autograd.grad(value, (loc, scale))


def assert_equal(found, wanted, scale):
    torch.testing.assert_close(found.value.double(), wanted[0], rtol=1e-6, atol=1e-4)
    for one, two in zip(found[1:], wanted[1:], strict=True):
        # In units of the scale, by which a narrow posterior's derivative is large.
        one, two = one.double() * scale, two * scale
        torch.testing.assert_close(one, two, rtol=2e-3, atol=5e-4)


@needs_compiler
@pytest.mark.parametrize("count", [1, 511, 512, 5003])
@pytest.mark.parametrize(
    ("kind", "alpha"), [(bd.JSA, 0.01), (bd.JSA, 0.3), (bd.JSA, 0.99), (UnmodifiedJSA, 0.3)]
)
def test_the_sum_and_its_derivatives_are_those_of_the_exact_rule(kind, alpha, count):
    generator = torch.Generator().manual_seed(count)
    loc = torch.randn(count, generator=generator)
    scale = (torch.randn(count, generator=generator) - 1.5).exp()
    found = compiled(alpha, kind)(loc, scale, *UNIT)
    assert_equal(found, exact(kind(alpha), loc, scale, *UNIT), scale)


@needs_compiler
def test_a_prior_for_each_weight_is_read_weight_by_weight():
    generator = torch.Generator().manual_seed(0)
    loc, prior_loc = torch.randn(2, 3001, generator=generator)
    scale, prior_scale = torch.rand(2, 3001, generator=generator) + 0.05
    for prior in ((prior_loc, prior_scale), (UNIT[0], prior_scale), (prior_loc, UNIT[1])):
        found = compiled()(loc, scale, *prior)
        assert_equal(found, exact(bd.JSA(0.3), loc, scale, *prior), scale)


@needs_compiler
@pytest.mark.parametrize("alpha", [0.0729, 0.3, 0.99])
def test_it_is_the_plain_pass_on_the_whole_range(alpha):
    ratio = torch.logspace(-9, 9, 181)
    delta = torch.cat([torch.linspace(-1e3, 1e3, 101), torch.tensor([-1e30, -0.0, 1e30])])
    loc, scale = (x.flatten() for x in torch.meshgrid(delta, ratio, indexing="ij"))
    found = compiled(alpha)(loc, scale, torch.tensor(0.0), torch.tensor(1.0))
    wanted = table.of(bd.JSA.mixture(alpha)).total(loc, scale, torch.tensor(0.0), torch.tensor(1.0))
    assert all(part.isfinite().all() for part in found)
    assert found.value.item() == pytest.approx(wanted.value.item(), rel=1e-6)
    assert found.value <= loc.numel() * bd.JSA(alpha).bound * (1 + 1e-6)
    for one, two in zip(found[1:], wanted[1:], strict=True):
        torch.testing.assert_close(one * scale, two * scale, rtol=1e-3, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("place", [0, 1])
def test_nan_reaches_the_sum(place):
    given = [torch.ones(600), torch.ones(600)]
    given[place][555] = math.nan
    assert compiled()(*given, *UNIT).value.isnan()


@needs_compiler
def test_threads_do_not_change_the_last_digit():
    loc, scale = torch.randn(2, 100_001, generator=torch.Generator().manual_seed(0))
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append(compiled()(loc, scale.exp(), *UNIT))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))


@needs_compiler
def test_doubles_and_strided_weights_are_served_too():
    loc, scale = torch.rand(2, 4000, generator=torch.Generator().manual_seed(0)) + 0.1
    wanted = exact(bd.JSA(0.3), loc[::2], scale[::2], *UNIT)
    assert_equal(compiled()(loc[::2], scale[::2], *UNIT), wanted, scale[::2])
    doubles = [x.double() for x in (loc[::2], scale[::2], *UNIT)]
    assert compiled()(*doubles).value.dtype == torch.float64
    assert_equal(compiled()(*doubles), wanted, scale[::2])


@needs_compiler
def test_an_objective_over_many_weights_takes_it():
    torch.manual_seed(0)
    net = bd.bayesianize(torch.nn.Linear(400, 400), bd.FanIn())
    objective = bd.Objective(bd.Gaussian(), bd.JSA(0.3), num_data=1)
    objective.prepare(net)
    prepared = prepare(objective.estimator, objective.divergence, net.q(), net.p())
    assert by_machine_code(prepared)
    loss = objective(net, torch.randn(3, 400), torch.randn(3, 400))
    loss.total.backward()
    q, p = net.q(), net.p()
    value, by_loc, _ = exact(bd.JSA(0.3), q.loc.detach(), q.scale.detach(), p.loc, p.scale)
    assert loss.divergence.item() == pytest.approx(value.item(), rel=1e-6)
    (only,) = torch.autograd.grad(prepared.total(q, p), q.loc)
    np.testing.assert_allclose(only, by_loc, rtol=2e-3, atol=1e-2)


# Without it ----------------------------------------------------------------------------------


def test_few_weights_start_no_compiler(monkeypatch):
    monkeypatch.setattr(native, "library", lambda: pytest.fail("the compiler was started"))
    assert not by_machine_code(prepared(0.3125, native.MANY - 1))


@pytest.mark.parametrize(
    ("compiler", "told"),
    [
        ("no-such-compiler", "there is no C compiler"),
        ('cc "', "there is no C compiler"),
        ("false", "take several passes"),
    ],
)
def test_without_a_compiler_the_plain_pass_serves_and_it_is_told(
    monkeypatch, caplog, compiler, told
):
    if compiler == "false" and shutil.which("false") is None:
        pytest.skip("there is no command that fails")
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setattr(native, "library", native.library.__wrapped__)
    with caplog.at_level(logging.INFO, logger="bayesdiv.compute.native"):
        found = prepared(0.3)
    assert not by_machine_code(found)
    assert found.backend
    assert told in caplog.text


@pytest.mark.parametrize("text", ["", "  "])
def test_a_blank_name_of_a_compiler_is_none(monkeypatch, text):
    monkeypatch.setenv("CC", text)
    assert (native.library.__wrapped__() is None) == (shutil.which("cc") is None)


def test_a_table_is_built_once_however_its_device_is_named():
    before, mixture = table.built.cache_info().misses, bd.JSA.mixture(0.1234)
    table.of(mixture)
    table.of(mixture, torch.device("cpu"))
    table.packed(mixture)
    assert table.built.cache_info().misses == before + 1


@pytest.fixture(params=["dtype", "device"])
def other_default(request):
    """Defaults of torch that are not those of the weights."""
    if request.param == "device":
        with torch.device("meta"):
            yield
    else:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def test_no_default_of_torch_disturbs_the_table(other_default):
    mixture = bd.JSA.mixture(0.3)
    fresh, cached = table.built.__wrapped__(mixture), table.of(mixture).numbers
    assert fresh.dtype == torch.float32
    assert torch.equal(fresh, cached)
    loc, scale, prior_loc, prior_scale = (
        torch.full((), x, dtype=torch.float32, device="cpu") for x in (0.2, 0.3, 0.1, 0.5)
    )
    loc, scale = loc.expand(native.MANY), scale.expand(native.MANY)
    compiled = native.library() is not None
    rule = table.looked_up(mixture) if compiled else table.of(mixture).total
    found = rule(loc, scale, prior_loc, prior_scale)
    wanted = bd.Exact(nodes=96)(
        bd.JSA(0.3),
        Normal(loc[:1], scale[:1], validate_args=False),
        Normal(prior_loc, prior_scale, validate_args=False),
    )
    assert found.value.item() == pytest.approx(native.MANY * wanted.item(), rel=1e-5)


@needs_compiler
def test_code_that_computes_something_else_is_left_alone(monkeypatch, caplog):
    wrong = torch.zeros_like(table.packed(bd.JSA.mixture(0.3)))
    monkeypatch.setattr(table, "packed", lambda mixture: wrong)
    with caplog.at_level(logging.WARNING, logger="bayesdiv.compute.native"):
        found = prepared(0.3)
    assert not by_machine_code(found)
    assert found.backend
    assert "native is not used for JSA(alpha=0.3)" in caplog.text
