"""The page of `bayesdiv explore`, in a real browser: its values, its controls, its looks."""

import itertools
import json
import math
import re
from urllib.parse import parse_qs

import numpy as np
import pytest
import torch
from torch.distributions import Laplace, Normal, StudentT, Uniform

import browser
from bayesdiv import JSA, JSG, KL, Exact, Quadrature
from bayesdiv.app import console
from bayesdiv.app.explore import page as explore
from command import call
from reproduction import plots

DRAWN = "document.querySelector('#sweep circle') !== null"
# Sets controls as a person does: the number beside a slider, or a choice, then the event.
PUT = """
const put = (settings) => Object.entries(settings).forEach(([name, value]) => {
  const choice = document.getElementById(name).tagName === "SELECT";
  const control = document.getElementById(choice ? name : `${name}-number`);
  control.value = value;
  control.dispatchEvent(new Event(choice ? "change" : "input", { bubbles: true }));
});
const shown = () => ["KL", "JSG", "JSA", "bound"].map(
  (name) => document.getElementById(`${name}-nats`).value);
"""
FAMILIES = {
    "gaussian": [{"prior_loc": 0.0, "prior_scale": 1.0}, {"prior_loc": -3.0, "prior_scale": 0.05}],
    "laplace": [{"prior_loc": 0.0, "prior_scale": 1.0}, {"prior_loc": 2.0, "prior_scale": 0.1}],
    "student": [
        {"prior_loc": 0.0, "prior_scale": 1.0, "df": 1.5},
        {"prior_loc": 1.0, "prior_scale": 0.1, "df": 3.0},
        {"prior_loc": -3.0, "prior_scale": 20.0, "df": 50.0},
    ],
    "uniform": [{"low": -5.0, "high": 5.0}, {"low": 0.0, "high": 0.5}],
}
ALPHAS = (0.0, 0.0729, 0.5, 0.95, 1.0)
Q = list(itertools.product((-20.0, 0.3, 4.5), (0.001, 0.3, 1.0, 100.0)))
WIDE = {"prior": "student", "strength": 1e5, "loc": -20, "scale": 0.001, "axis": "logarithmic"}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("explore") / "explore.html"
    path.write_text(explore.page(), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def chromium():
    with browser.started() as running:
        yield running


@pytest.fixture(scope="module")
def opened_once(chromium, address):
    page = chromium.open(address)
    page.until(DRAWN)
    page.run(f"eval({json.dumps(PUT + 'globalThis.put = put; globalThis.shown = shown;')}), 0")
    yield page
    assert page.requests == [address]


@pytest.fixture
def page(opened_once):
    """The page as it begins; no test may leave an error behind."""
    opened_once.look(width=1200)
    opened_once.run("document.querySelector('[data-preset=gaussians]').click(); draw()")
    yield opened_once
    assert opened_once.problems == []


def put(page, **settings):
    page.run(f"put({json.dumps(settings)})")


def values(page):
    return [float(value.replace("Infinity", "inf")) for value in page.run("shown()")]


def prior(family, settings):
    loc, scale, df, low, high = (
        torch.tensor(settings.get(name, 1.0), dtype=torch.float64)
        for name in ("prior_loc", "prior_scale", "df", "low", "high")
    )
    if family == "uniform":
        return Uniform(low, high)
    return {
        "gaussian": lambda: Normal(loc, scale),
        "laplace": lambda: Laplace(loc, scale),
        "student": lambda: StudentT(df, loc, scale),
    }[family]()


def by_the_library(family, settings, alpha, locs_and_scales):
    q = Normal(*torch.tensor(locs_and_scales, dtype=torch.float64).T)
    p = prior(family, settings)
    exact = Exact(nodes=96) if family == "gaussian" else Quadrature()
    return torch.stack([d(q, p, exact) for d in (KL(), JSG(alpha), JSA(alpha))], 1).numpy()


# The scenes of the article ---------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.05, 0.5, 0.9])
def test_the_pull_is_the_gradient_of_the_library(page, alpha):
    cases = list(itertools.product((0.0, 0.3, 2.0, 5.0), (0.05, 0.4, 1.0, 2.5)))
    found = page.run(
        f"{json.dumps(cases)}.map(([m, r]) => NAMES.map((name) => {{"
        f"const pull = PULLS[name](m, r, {alpha}); return [pull.loc, pull.scale]; }}))"
    )
    loc, scale = (x.requires_grad_() for x in torch.tensor(cases, dtype=torch.float64).T)
    for k, divergence in enumerate((KL(), JSG(alpha), JSA(alpha))):
        total = divergence(Normal(loc, scale), Normal(0.0, 1.0), Exact(nodes=96)).sum()
        expected = torch.stack(torch.autograd.grad(total, (loc, scale)), 1)
        np.testing.assert_allclose(np.array(found)[:, k], expected, rtol=1e-3, atol=1e-3)


def test_a_number_in_the_text_moves_by_the_keyboard_and_all_scenes_follow(page):
    drawn = "document.querySelector('#pull path.JSA').getAttribute('d')"
    before = page.run(drawn)
    page.run("document.querySelector('#floor-title ~ p [data-number=alpha]').focus()")
    page.press("ArrowLeft")
    page.run("draw()")
    assert page.run("state.alpha") == pytest.approx(0.495)
    shown = page.run(
        "[...document.querySelectorAll('[data-number=alpha]')].map((s) => s.textContent)"
    )
    assert set(shown) == {"0.495"}
    assert page.run(drawn) != before
    limit = page.run("document.querySelector('.formula [data-value=bound]').textContent")
    assert float(limit) == pytest.approx(JSA(0.495).bound, abs=1e-4)


def test_bars_of_all_divergences_share_one_scale_and_say_when_they_leave_it(page):
    put(page, loc=4, alpha=0.5)
    page.run("draw()")
    widths = page.run("NAMES.map((name) => parseFloat(byId(`bar-${name}`).style.width))")
    _, jsg, jsa, _ = values(page)
    assert widths == pytest.approx([100, 100 * jsg / 4, 100 * jsa / 4], rel=1e-3)
    assert page.run("byId('bar-KL-value').textContent") == "8.0000 →"
    marks = page.run("[...document.querySelectorAll('#sweep .told')].map((t) => t.textContent)")
    assert marks == ["KL 8.0000 ↑"]


def test_the_bound_moves_with_alpha_on_axes_that_stay(page):
    places = []
    for alpha in (0.5, 0.1):
        put(page, alpha=alpha, loc=3)
        page.run("draw()")
        places.append(
            page.run("Number(document.querySelector('#sweep .limit').getAttribute('y1'))")
        )
    assert places[1] < places[0] - 10


def test_areas_of_the_three_divergences_have_one_scale(page):
    put(page, loc=8)
    page.run("draw()")
    ticks = page.run(
        "NAMES.map((n) => [...document.querySelectorAll(`#${n}-area text`)]"
        ".filter((t) => t.getAttribute('text-anchor') === 'end').map((t) => t.textContent).join())"
    )
    assert len(set(ticks)) == 1


def test_the_networks_of_the_page_learn_its_points(page):
    errors = page.run(
        "NAMES.map((name) => { const net = new Network(name);"
        "const error = () => net.band(firstPoints().map(([x]) => x)).reduce("
        "(s, [m], k) => s + (m - firstPoints()[k][1]) ** 2 / 40, 0);"
        "const before = error(); for (let k = 0; k < 800; k += 1) net.step(firstPoints(), 0.5, 1);"
        "return [before, error()]; })"
    )
    variance = page.run(
        "(() => { const y = firstPoints().map((p) => p[1]);"
        "const m = y.reduce((a, b) => a + b) / 40;"
        "return y.reduce((a, b) => a + (b - m) ** 2, 0) / 40; })()"
    )
    for before, after in errors:
        assert after < min(before, 0.6 * variance)


def test_points_are_added_by_a_button_and_by_a_click_where_one_clicks(page):
    count = page.run("live.points.length")
    page.run("byId('net-outlier').click()")
    page.run(
        "(() => { const box = byId('net-JSA').getBoundingClientRect();"
        "byId('net-JSA').dispatchEvent(new MouseEvent('click', {clientX: box.left + live.JSA.x(1),"
        "clientY: box.top + live.JSA.y(-2)})); })()"
    )
    points = page.run("live.points")
    assert len(points) == count + 2
    assert points[-1] == pytest.approx([1, -2], abs=0.05)  # a pixel
    page.run("byId('net-reset').click()")
    assert page.run("live.points.length") == count


@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_those_of_the_library(page, family):
    put(page, prior=family)
    for settings, alpha in itertools.product(FAMILIES[family], ALPHAS):
        put(page, **settings, alpha=alpha)
        pairs = json.dumps([{"loc": loc, "scale": scale} for loc, scale in Q])
        told = page.run(f"{pairs}.map((q) => {{ put(q); return shown().slice(0, 3); }})")
        found = np.array([[float(v.replace("Infinity", "inf")) for v in row] for row in told])
        expected = by_the_library(family, settings, alpha, Q)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6, err_msg=f"{settings}")


def test_kl_and_jsg_against_a_uniform_prior_are_infinite_and_jsa_is_not(page):
    put(page, prior="uniform", loc=0, scale=0.5, alpha=0.9)
    kl, jsg, jsa, _ = values(page)
    assert (kl, jsg) == (math.inf, math.inf)
    assert 0 < jsa < JSA(0.9).bound
    assert page.run("document.getElementById('KL-nats').textContent") == "∞"
    put(page, alpha=1)  # JS-G is KL(p ‖ q) there: ½ log 2πσ² + E_p[w²]/2σ² - log 10
    expected = 0.5 * math.log(2 * math.pi * 0.25) + (100 / 12) / 0.5 - math.log(10)
    assert values(page)[1] == pytest.approx(expected, rel=1e-12)


def test_the_bound_is_shown_where_there_is_one_and_all_is_multiplied_by_the_strength(page):
    put(page, alpha=0.25, strength=300)
    assert values(page)[3] == pytest.approx(JSA(0.25).bound)
    strong = page.run(
        "['KL', 'JSG', 'JSA', 'bound'].map("
        "(name) => Number(document.getElementById(`${name}-strong`).value))"
    )
    assert strong == pytest.approx([300 * value for value in values(page)])
    put(page, alpha=0)
    assert values(page)[3] == math.inf


def test_the_shaded_areas_have_the_size_of_the_divergences(page):
    x = np.linspace(-40, 40, 4001)
    for family in ("gaussian", "laplace"):
        put(page, prior=family, alpha=0.3)
        drawn = page.run(
            f"(({{ q, p }}) => {{ const f = curves(q, p, 0.3); const x = {x.tolist()};"
            "return ['KL', 'JSG', 'JSA', 'A', 'G'].map((name) => x.map(f[name])); })(pair())"
        )
        areas = np.trapezoid(np.array(drawn), x)
        np.testing.assert_allclose(areas, [*values(page)[:3], 1, 1], rtol=1e-3)


def test_the_divergences_over_the_mean_are_those_of_the_library_after_every_change(page):
    now = {"df": 4.0, "prior_loc": 0.0, "prior_scale": 1.0, "scale": 0.7, "alpha": 0.2}
    put(page, prior="student", **now)
    for name, value in [("df", 9.0), ("prior_scale", 2.0), ("scale", 0.4), ("alpha", 0.6)]:
        now[name] = value
        put(page, **{name: value})
        told = page.run("sweepPoints().map(({ loc, KL, JSG, JSA }) => [loc, KL, JSG, JSA])")
        loc, *found = np.array(told).T
        assert (loc.min(), loc.max()) == (-10, 10)
        pairs = [(mean, now["scale"]) for mean in loc[::5]]
        expected = by_the_library("student", now, now["alpha"], pairs)
        np.testing.assert_allclose(np.array(found).T[::5], expected, rtol=1e-6, atol=1e-6)
    assert page.run("document.querySelectorAll('#sweep line.limit').length") == 1


@pytest.mark.parametrize(
    ("name", "family"),
    [
        *((name, "gaussian") for name in ("loc", "scale", "prior_loc", "prior_scale", "alpha")),
        ("df", "student"),
        ("low", "uniform"),
        ("high", "uniform"),
    ],
)
def test_a_slider_moves_its_number_and_the_values(page, name, family):
    put(page, prior=family)
    before = values(page)
    number = page.run(
        f"(() => {{ const slider = document.getElementById('{name}');"
        "slider.value = Number(slider.value) + 40;"
        "slider.dispatchEvent(new Event('input', { bubbles: true }));"
        f"return [document.getElementById('{name}-number').value, slider.ariaValueText]; }})()"
    )
    assert number[0] == number[1]
    assert values(page) != before


def test_a_slider_moves_by_the_keyboard(page):
    page.run("document.getElementById('loc').focus()")
    for _ in range(5):
        page.press("ArrowRight")
    assert page.run("document.getElementById('loc-number').value") == "1.2"
    assert values(page)[0] == pytest.approx(0.5 * 1.2**2)
    page.press("Tab")
    assert page.run("document.activeElement.id") == "loc-number"


def test_every_control_has_a_name_and_the_values_are_announced(page):
    nameless = page.run(
        "[...document.querySelectorAll('input, select, button')].filter((control) =>"
        "!control.labels?.length && !control.ariaLabel && !control.textContent.trim()).length"
    )
    assert nameless == 0
    put(page, prior="uniform")
    page.until("document.getElementById('spoken').textContent.includes('KL infinite')")
    assert page.run("document.getElementById('spoken').ariaLive") == "polite"


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("scale", "-1", "scale must lie in [0.001, 100], got -1"),
        ("alpha", "-0.1", "alpha must lie in [0, 1], got -0.1"),
        ("loc", "1e9", "loc must lie in [-20, 20], got 1e9"),
        ("low", "7", "low must be below high, got 7 and 5"),
    ],
)
def test_a_number_that_makes_no_sense_is_told_and_changes_nothing(page, name, text, rule):
    put(page, prior="uniform")
    before = values(page)
    put(page, **{name: text})
    assert page.run("document.getElementById('problem').innerText") == rule
    assert values(page) == before
    put(page, **{name: "0.75"})
    assert page.run("document.getElementById('problem').hidden")
    assert values(page) != before


def test_the_address_keeps_a_view_and_restores_it(page, chromium, address):
    wanted = {"loc": -2.5, "scale": 0.2, "prior": "laplace", "prior_scale": 3, "alpha": 0.125}
    put(page, **wanted, view="p", axis="logarithmic")
    page.until("location.hash.includes('logarithmic')")
    link = page.run("location.href")
    kept = {name: text[0] for name, text in parse_qs(link.partition("#")[2]).items()}
    assert kept == {**{k: str(v) for k, v in wanted.items()}, "view": "p", "axis": "logarithmic"}
    again = chromium.open(link)
    names = [*(f"{name}-number" for name in wanted if name != "prior"), "prior", "view", "axis"]
    read = f"{json.dumps(names)}.map((name) => document.getElementById(name).value)"
    assert again.run(read) == page.run(read)
    shown = "document.getElementById('JSA-nats').value"
    assert again.run(shown) == page.run(shown)
    again.goto(f"{address}#loc=3")  # as with an address typed into the open page
    again.until("document.getElementById('loc-number').value === '3'")
    assert again.run("document.getElementById('prior').value") == "gaussian"


@pytest.mark.parametrize(
    ("hash_", "rule"),
    [
        ("scale=0", "scale must lie in [0.001, 100], got 0"),
        ("prior=cauchy", "prior must be one of gaussian, laplace, uniform, student, got cauchy"),
        ("prior=uniform&low=3&high=3", "low must be below high, got 3 and 3"),
        ("constructor=1", "the page has no setting constructor"),
    ],
)
def test_an_address_that_makes_no_sense_is_told_and_the_rest_of_it_holds(
    chromium, address, hash_, rule
):
    page = chromium.open(f"{address}#loc=2&{hash_}")
    page.until(DRAWN)
    assert page.run("document.getElementById('problem').innerText") == rule
    assert page.run("document.getElementById('loc-number').value") == "2"
    assert page.problems == []


def test_every_preset_draws_without_errors_or_requests(page, address):
    presets = page.run(
        "[...document.querySelectorAll('[data-preset]')].map((b) => b.dataset.preset)"
    )
    assert len(presets) >= 3
    for name in presets:
        # The page draws in the next frame; here at once, so that an error is that of this preset.
        page.run(f"document.querySelector('[data-preset={name}]').click(); draw()")
        paths = page.run(
            "[...document.querySelectorAll('.chart path')].map((p) => p.getAttribute('d'))"
        )
        assert len(paths) > 10
        assert not re.search("NaN|Infinity|undefined", " ".join(paths))
    assert page.problems == []
    assert page.requests == [address]  # itself, once


@pytest.mark.parametrize("width", [360, 700, 950, 1200])
def test_nothing_scrolls_sideways(page, width):
    page.look(width=width)
    for settings in ({}, {"prior": "uniform"}, WIDE):
        put(page, **settings)
        page.run("draw()")
        assert page.run("document.scrollingElement.scrollWidth") <= width
        cut = page.run(
            "[...document.querySelectorAll('td, th, label, legend, button, select')].filter("
            "(e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0).map((e) => e.outerHTML)"
        )
        assert cut == []


def luminance(colour):
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)
    ]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_and_lines_stand_out_in_light_and_dark(page, dark):
    page.look(width=1200, dark=dark)
    style = "getComputedStyle(document.querySelector('{}')).{}"
    back = page.run(style.format("#values", "backgroundColor"))
    assert (luminance(back) < 0.1) == dark
    for part in ("h1", "td", ".note", ".control label", "#problem"):
        assert contrast(page.run(style.format(part, "color")), back) >= 4.5, part
    for line in ("q", "p", "KL", "JSG", "JSA"):
        assert contrast(page.run(style.format(f".line.{line}", "stroke")), back) >= 3, line


def test_print_is_light_and_without_sliders(page):
    scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", media="print", features=scheme)
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.run("getComputedStyle(document.getElementById('loc')).display") == "none"
    assert page.run("getComputedStyle(document.getElementById('loc-number')).display") != "none"


def test_the_page_holds_all_it_needs_and_the_colours_of_the_plots():
    html = explore.page()
    assert "{{" not in html
    assert set(re.findall(r"https?://[^\s\"']+", html)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(
        r"@import|url\((?!#)|\bsrc=|\bfetch\(|import\(", html.replace("url(#$", "url(#")
    )
    for name in ("KL", "JSG", "JSA"):
        assert f"--{name}: {plots.COLOURS[name]}" in html


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """The addresses that a browser was asked to open; the working folder is an empty one."""
    addresses = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console.errors, "width", 200)
    monkeypatch.setattr("webbrowser.open", lambda address: addresses.append(address) or True)
    return addresses


def test_the_command_writes_the_page_and_says_where(opened, tmp_path, capsys):
    assert call("explore") == 0
    assert call("explore", "-o", "new/other.html") == 0
    assert "explore.html" in capsys.readouterr().out
    for name in ("explore.html", "new/other.html"):
        assert (tmp_path / name).read_text(encoding="utf-8") == explore.page()
    assert opened == []


def test_the_command_opens_a_browser_if_asked(opened, tmp_path, monkeypatch, capsys):
    assert call("explore", "--open") == 0
    assert opened == [(tmp_path / "explore.html").as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert call("explore", "--open") == 2
    assert "open explore.html yourself" in capsys.readouterr().err


@pytest.mark.parametrize("out", [".", "file/explore.html", "folder.html", "mydata.csv"])
def test_a_place_that_cannot_be_written_is_refused_in_one_sentence(opened, tmp_path, capsys, out):
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "mydata.csv").write_text("a,y\n1,2\n")
    assert call("explore", "-o", out) == 2
    told = capsys.readouterr().err.strip()
    assert out in told
    assert "\n" not in told
    assert (tmp_path / "mydata.csv").read_text() == "a,y\n1,2\n"
