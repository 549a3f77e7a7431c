"""Mixtures over weight draws against NumPy, SciPy and sampling."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    Laplace,
    LogNormal,
    Normal,
    StudentT,
)

from bayesdiv.predictive import Predictive
from bayesdiv.quantiles import cdf

SAMPLES, BATCH, CLASSES = 7, 5, 4


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype)


def conditional(name: str, dtype: torch.dtype = torch.float64) -> Distribution:
    loc = normal(SAMPLES, BATCH, dtype=dtype)
    scale = (0.5 * normal(SAMPLES, BATCH, seed=1, dtype=dtype)).exp()
    wide = normal(SAMPLES, BATCH, CLASSES, seed=2, dtype=dtype)
    return {
        "normal": lambda: Normal(loc, scale),
        "student": lambda: StudentT(scale + 3, loc, scale),
        "independent": lambda: Independent(Normal(wide, 0.7), 1),
        "classes": lambda: Categorical(logits=2 * wide),
        "binary": lambda: Bernoulli(logits=2 * loc),
    }[name]()


NAMES = ["normal", "student", "independent", "classes", "binary"]
NUMBERS = ["normal", "student", "independent"]
DTYPES = [torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_log_prob_is_the_logarithm_of_the_mean_density(name, dtype):
    mixture = conditional(name, dtype)
    y = mixture.sample()[0]
    each = mixture.log_prob(y).double().numpy()
    found = Predictive(mixture).log_prob(y)
    assert found.shape == (BATCH,)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.numpy(), np.log(np.exp(each).mean(0)), rtol=1e-5, atol=1e-6)


@given(
    st.integers(1, 30), st.integers(0, 1000), st.floats(1e-3, 1e3), st.sampled_from(["n", "t", "c"])
)
def test_predictive_nll_never_exceeds_the_mean_nll(samples, seed, spread, family):
    """Jensen's inequality, and the two agree for a single draw."""
    outputs = spread * normal(samples, 3, 4, seed=seed)
    if family == "c":
        mixture, y = Categorical(logits=outputs), torch.tensor([0, 1, 3])
    else:
        loc, y = outputs[..., 0], normal(3, seed=seed + 1)
        mixture = Normal(loc, 1.0) if family == "n" else StudentT(4.0, loc, 1.0)
    predictive, mean = -Predictive(mixture).log_prob(y), -mixture.log_prob(y).mean(0)
    assert (predictive <= mean + 1e-12 * mean.abs() + 1e-12).all()
    if samples == 1:
        torch.testing.assert_close(predictive, mean)


def test_log_prob_stays_finite_where_every_density_underflows():
    mixture = Normal(torch.tensor([[100.0], [101.0]]), 1.0)
    found = Predictive(mixture).log_prob(torch.zeros(1))
    assert found.item() == pytest.approx(-5000 - 0.5 * math.log(2 * math.pi) - math.log(2))


@pytest.mark.parametrize("target", [0, 1])
def test_logits_of_a_hundred_lose_nothing(target):
    """Float32 probabilities are 0 and 1 there; the logarithm of the likelihood is not."""
    y = torch.tensor([target])
    binary = Predictive(Bernoulli(logits=torch.full((2, 1), 100.0)))
    classes = Predictive(Categorical(logits=torch.tensor([[[-100.0, 0.0]], [[-100.0, 0.0]]])))
    for predictive in (binary, classes):
        assert predictive.log_prob(y).item() == pytest.approx(-100.0 * (1 - target), abs=1e-5)
        for quantity in (predictive.entropy, predictive.mutual_information, predictive.variance):
            assert quantity.isfinite().all()
            assert quantity.abs().max() < 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_variance_splits_by_the_law_of_total_variance(name):
    predictive = Predictive(conditional(name))
    torch.testing.assert_close(predictive.variance, predictive.aleatoric + predictive.epistemic)
    if name in NUMBERS:
        means, noise = predictive.conditional.mean.numpy(), predictive.conditional.variance.numpy()
        second = (noise + means**2).mean(0)
        np.testing.assert_allclose(predictive.variance, second - means.mean(0) ** 2, rtol=1e-9)
        np.testing.assert_allclose(predictive.epistemic, means.var(0), rtol=1e-9)
    else:  # of the indicator of each class
        share = predictive.probabilities
        torch.testing.assert_close(predictive.variance, share * (1 - share))


@pytest.mark.parametrize("name", NAMES)
def test_samples_have_the_moments_of_the_mixture(name):
    torch.manual_seed(7)
    predictive, count = Predictive(conditional(name)), 200_000
    drawn = predictive.sample(count)
    assert drawn.shape[0] == count
    if not predictive.discrete:
        values, mean, variance = drawn, predictive.mean, predictive.variance
    else:
        classes = predictive.probabilities.shape[-1]
        values = torch.nn.functional.one_hot(drawn.long(), classes).double()
        mean, variance = predictive.probabilities, predictive.variance
    error = (variance / count).sqrt()
    assert ((values.mean(0) - mean).abs() < 5 * error).all()
    fourth = (values - mean).square().var(0)
    assert ((values.var(0) - variance).abs() < 6 * (fourth / count).sqrt()).all()


def test_few_samples_come_from_different_draws_in_random_order():
    torch.manual_seed(7)
    predictive = Predictive(Normal(torch.arange(50.0).unsqueeze(-1), 1e-6))
    drawn = predictive.sample(20).round().flatten()
    assert drawn.unique().numel() == 20
    assert not torch.equal(drawn, drawn.sort().values)
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        predictive.sample(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["classes", "binary"])
def test_entropy_and_mutual_information_agree_with_scipy(name, dtype):
    predictive = Predictive(conditional(name, dtype))
    each = predictive.conditional.probs.double().numpy()
    if name == "binary":
        each = np.stack([1 - each, each], -1)
    whole, noise = stats.entropy(each.mean(0), axis=-1), stats.entropy(each, axis=-1).mean(0)
    np.testing.assert_allclose(predictive.probabilities, each.mean(0), rtol=1e-5)
    np.testing.assert_allclose(predictive.entropy, whole, rtol=1e-5)
    np.testing.assert_allclose(predictive.mutual_information, whole - noise, atol=1e-6)


def test_draws_that_agree_leave_no_mutual_information():
    same = normal(1, BATCH, CLASSES, dtype=torch.float32).expand(SAMPLES, -1, -1)
    predictive = Predictive(Categorical(logits=same))
    assert (predictive.mutual_information >= 0).all()
    assert predictive.mutual_information.max() < 1e-6
    assert predictive.epistemic.max() < 1e-12


@pytest.mark.parametrize(
    "df", [0.3, 0.7, 1.0, 1.1, 1.5, 2.0, 2.001, 3.0, 7.5, 30.0, 100.0, 1e4, 1e8]
)
def test_cdf_of_students_t_agrees_with_scipy(df):
    far = np.logspace(-6, 3, 120)
    t = np.concatenate([-far[::-1], [0.0], far])
    distribution = StudentT(torch.tensor([[df]], dtype=torch.float64))
    found = cdf(distribution, torch.tensor(t).unsqueeze(-1)).flatten()
    np.testing.assert_allclose(found, stats.t.cdf(t, df), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("probability", [1e-6, 0.005, 0.05, 0.3, 0.5, 0.9, 0.975, 0.9999])
@pytest.mark.parametrize("name", NUMBERS)
def test_mixture_reaches_the_probability_at_its_quantile(name, probability):
    predictive = Predictive(conditional(name))
    found = predictive.quantile(probability).numpy()
    base = getattr(predictive.conditional, "base_dist", predictive.conditional)
    loc, scale = base.loc.numpy(), base.scale.numpy()
    below = stats.t.cdf(found, base.df, loc, scale) if name == "student" else None
    below = stats.norm.cdf(found, loc, scale) if below is None else below
    assert found.shape == predictive.mean.shape
    np.testing.assert_allclose(below.mean(0), probability, rtol=1e-8)


@pytest.mark.parametrize("df", [0.2, 0.5, 1.0, 1.9, 2.0, 2.0001, 5.0, 1e5])
@pytest.mark.parametrize("probability", [1e-4, 0.025, 0.5, 0.95])
def test_quantile_of_one_student_agrees_with_scipy(df, probability):
    """Also where the variance is infinite, or not even a mean exists."""
    mixture = StudentT(df, torch.tensor([[3.0]], dtype=torch.float64), 0.1)
    found = Predictive(mixture).quantile(probability).item()
    assert found == pytest.approx(stats.t.ppf(probability, df, 3.0, 0.1), rel=1e-6)


def test_quantile_finds_a_narrow_draw_beside_a_very_heavy_one():
    df = torch.tensor([[0.1], [50.0], [50.0]], dtype=torch.float64)
    loc = torch.tensor([[0.0], [5.0], [5.0]], dtype=torch.float64)
    scale = torch.tensor([[1e3], [1e-4], [1e-4]], dtype=torch.float64)
    for probability in (0.01, 0.4, 0.6, 0.99):
        found = Predictive(StudentT(df, loc, scale)).quantile(probability).numpy()
        below = stats.t.cdf(found, df.numpy(), loc.numpy(), scale.numpy()).mean()
        assert below == pytest.approx(probability, abs=1e-6)


@pytest.mark.parametrize("family", [Normal, Laplace])
def test_quantile_between_two_separate_modes_is_found(family):
    """The distribution function is flat between them, where Newton's steps leave the bracket."""
    predictive = Predictive(family(torch.tensor([[-1e3], [1e3]], dtype=torch.float64), 0.5))
    for probability in (0.1, 0.499, 0.501, 0.9):
        value = predictive.quantile(probability)
        below = predictive.conditional.cdf(value).mean()
        assert below.item() == pytest.approx(probability, abs=1e-9)


def test_quantile_of_positive_targets_is_found_too():
    predictive = Predictive(LogNormal(normal(SAMPLES, BATCH), 1.0))
    value = predictive.quantile(0.9)
    torch.testing.assert_close(
        predictive.conditional.cdf(value).mean(0), torch.full_like(value, 0.9)
    )


@pytest.mark.parametrize("name", ["normal", "student"])
def test_float32_quantiles_are_those_of_float64(name):
    single = Predictive(conditional(name, torch.float32))
    exact = Predictive(type(single.conditional)(**_parameters(single.conditional)))
    for probability in (0.01, 0.5, 0.95):
        found = single.quantile(probability)
        assert found.dtype == torch.float32
        torch.testing.assert_close(
            found.double(), exact.quantile(probability), rtol=1e-6, atol=1e-6
        )


def _parameters(distribution: Distribution) -> dict[str, torch.Tensor]:
    names = [name for name in ("df", "loc", "scale") if hasattr(distribution, name)]
    return {name: getattr(distribution, name).double() for name in names}


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_interval_of_one_normal_is_the_textbook_one(level):
    low, high = Predictive(Normal(torch.tensor([[2.0]]), 3.0)).interval(level)
    expected = stats.norm.interval(level, 2.0, 3.0)
    assert (low.item(), high.item()) == pytest.approx(expected, rel=1e-6)


def test_interval_holds_its_share_of_samples():
    torch.manual_seed(7)
    predictive = Predictive(conditional("student"))
    low, high = predictive.interval(0.8)
    drawn = predictive.sample(100_000)
    share = ((low <= drawn) & (drawn <= high)).double().mean(0)
    assert (share - 0.8).abs().max() < 5 * math.sqrt(0.16 / 100_000)


def test_student_without_variance_says_so():
    loc = torch.zeros(3, 1)
    heavy, heavier = Predictive(StudentT(2.0, loc, 1.0)), Predictive(StudentT(1.0, loc, 1.0))
    assert heavy.mean.item() == 0
    assert heavy.variance.item() == math.inf
    assert heavier.mean.isnan().all()
    assert heavier.variance.isnan().all()
    assert heavier.interval(0.9)[1].item() == pytest.approx(stats.t.ppf(0.95, 1), rel=1e-6)


def test_several_outputs_keep_their_axis():
    predictive = Predictive(conditional("independent"))
    for quantity in (predictive.mean, predictive.variance, *predictive.interval()):
        assert quantity.shape == (BATCH, CLASSES)
    assert predictive.sample(3).shape == (3, BATCH, CLASSES)
    y = predictive.mean
    each = stats.norm.logpdf(y, predictive.conditional.mean, 0.7).sum(-1)
    np.testing.assert_allclose(predictive.log_prob(y), np.log(np.exp(each).mean(0)), rtol=1e-9)


def test_a_quantile_does_not_hold_on_to_the_graph():
    loc = torch.zeros(2, 3, requires_grad=True)
    predictive = Predictive(StudentT(4.0, loc, 1.0))
    assert not predictive.quantile(0.1).requires_grad
    assert predictive.log_prob(torch.zeros(3)).requires_grad


@pytest.mark.parametrize(
    "y", [torch.tensor([0, 1]), torch.tensor([False, True]), torch.tensor([0.0, 1.0])]
)
def test_labels_may_be_of_any_type(y):
    probs = torch.tensor([[0.8, 0.4]])
    binary = Predictive(Bernoulli(probs)).log_prob(y)
    classes = Predictive(Categorical(torch.stack([1 - probs, probs], -1))).log_prob(y)
    expected = torch.tensor([0.2, 0.4]).log()
    torch.testing.assert_close(binary, expected)
    torch.testing.assert_close(classes, expected)


@pytest.mark.parametrize("shape", [(), (3,), (0, 3)])
def test_a_conditional_without_draws_or_rows_is_refused(shape):
    with pytest.raises(ValueError, match=r"\(samples, batch\), got \(.*x.unsqueeze\(0\)"):
        Predictive(Normal(torch.zeros(shape), 1.0))


@pytest.mark.parametrize("name", NAMES)
def test_targets_of_another_shape_are_refused(name):
    predictive = Predictive(conditional(name))
    for shape in [(BATCH, 1), (1,), (BATCH + 1,), (SAMPLES, BATCH)]:
        with pytest.raises(ValueError, match=r"targets must have shape \(5.*\), got"):
            predictive.log_prob(torch.zeros(shape))


def test_a_column_of_targets_is_to_be_squeezed():
    predictive = Predictive(Normal(torch.zeros(2, 5), 1.0))
    with pytest.raises(ValueError, match=r"got \(5, 1\): squeeze them, y.squeeze\(-1\)"):
        predictive.log_prob(torch.zeros(5, 1))
    with pytest.raises(ValueError, match=r"got \(4,\): reshape them to fit the outputs"):
        predictive.log_prob(torch.zeros(4))


@pytest.mark.parametrize("validate", [True, False])
def test_labels_that_are_no_classes_are_refused(validate):
    binary = Predictive(Bernoulli(torch.tensor([[0.5]]), validate_args=validate))
    classes = Predictive(Categorical(logits=torch.zeros(1, 1, 3), validate_args=validate))
    for predictive, last, wrong in [(binary, 1, 2), (classes, 2, 3)]:
        for label in (wrong, -1, 0.5, math.nan):
            match = rf"labels must be integers from 0 to {last}, got {label}"
            with pytest.raises(ValueError, match=match):
                predictive.log_prob(torch.tensor([label]))


def test_targets_that_are_nan_are_refused():
    predictive = Predictive(Normal(torch.zeros(1, 2), 1.0, validate_args=False))
    with pytest.raises(ValueError, match="targets must be numbers, got 1 NaN"):
        predictive.log_prob(torch.tensor([0.0, math.nan]))


def test_questions_of_the_wrong_kind_are_refused():
    numbers, classes = Predictive(conditional("normal")), Predictive(conditional("classes"))
    for name in ("probabilities", "entropy", "mutual_information"):
        with pytest.raises(ValueError, match="need targets that are classes, got numbers"):
            getattr(numbers, name)
    with pytest.raises(ValueError, match="needs targets that are numbers, got classes"):
        classes.interval(0.9)
    for level in (0.0, 1.0, 90):
        with pytest.raises(ValueError, match=rf"level must lie inside \(0, 1\), got {level}"):
            numbers.interval(level)
    with pytest.raises(ValueError, match=r"probability must lie inside \(0, 1\), got 1.5"):
        numbers.quantile(1.5)


@pytest.mark.parametrize("asked_before", [(), ("logits",), ("probs",)], ids=repr)
def test_class_probabilities_are_the_mean_over_draws_however_the_draws_are_told(asked_before):
    outputs = 9 * torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(0))
    each = special.softmax(outputs.double().numpy(), -1)
    each[0, 0] = np.eye(5)[2]  # of probability 0, which logits would not keep
    told = [Categorical(logits=outputs[1:]), Categorical(torch.from_numpy(each))]
    for conditional, wanted in zip(told, (each[1:], each), strict=True):
        for name in asked_before:
            getattr(conditional, name)
        found = Predictive(conditional).probabilities
        np.testing.assert_allclose(found, wanted.mean(0), rtol=1e-5, atol=1e-12)
