"""Triton programs, run on each block of weights, of which `triton.py` makes operators."""

# Triton reads the signatures of its programs itself and has no types for the rest.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import math
import os
from enum import Enum

try:
    import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from triton.language.extra import libdevice  # type: ignore[import-not-found,import-untyped,unused-ignore]

    jit, constant = triton.jit, tl.constexpr
except ImportError:  # the module can be imported, and nothing in it called
    jit = constant = id


class Program(Enum):
    """What is added up: one of these divergences, or nothing where weights are only drawn."""

    KL = 0
    REVERSE_KL = 1
    WEIGHTED_KL = 2
    JSG = 3
    TABLE = 4
    NOTHING = 5


KL, REVERSE_KL, WEIGHTED_KL, JSG, TABLE, NOTHING = (constant(each.value) for each in Program)
# As in bayesdiv.compute.table, which imports too much to be read here.
LOWEST, HIGHEST, STEPS = constant(-18.0), constant(18.0), constant(48.0)
FARTHEST, COLUMNS = constant(9.0), constant(384)
TURN, NEAR, TINY = constant(2 * math.pi), constant(0.05), constant(-15.0)
GREAT = constant(1e38)
# Triton's interpreter has no functions of the card.
INTERPRETED = constant(os.environ.get("TRITON_INTERPRET") == "1")


# Arguments stand in groups: results, draws, posterior, prior, rule. A program is compiled for each
# rule, with draws and without, and then holds nothing of what it does not compute.
# fmt: off
@jit
def forward(
    parts, drawn, seed, samples, loc, rho, count,
    prior_loc, loc_trial, loc_step, prior_scale, scale_trial, scale_step,
    table, alpha, beta, bound, rule: tl.constexpr, draws: tl.constexpr, LANES: tl.constexpr,
):
    """The sum over one block of one trial, and all draws of it: loc and rho are read once."""
    trial, place, lane, inside = _block(count, LANES)
    at_loc = tl.load(loc + trial * count + place, mask=inside, other=0.0)
    at_rho = tl.load(rho + trial * count + place, mask=inside, other=0.0)
    if rule != NOTHING:
        value, _, _ = _terms(
            at_loc, at_rho,
            tl.load(prior_loc + trial * loc_trial + place * loc_step, mask=inside, other=0.0),
            tl.load(prior_scale + trial * scale_trial + place * scale_step, mask=inside, other=1.0),
            table, alpha, beta, bound, rule,
        )
        whole = tl.sum(tl.where(inside, value, 0.0).to(tl.float64), 0)
        tl.store(parts + trial * tl.num_programs(0) + tl.program_id(0), whole)
    if draws:
        scale, _slope = _softplus(at_rho)
        key, lanes = tl.load(seed), tl.num_programs(0).to(tl.int64) * LANES
        drawn += place
        for _ in range(samples):
            tl.store(drawn, at_loc + scale * _normals(key, lane, LANES), mask=inside)
            drawn += count
            lane += lanes


@jit
def backward(
    d_loc, d_rho, by_total, by_drawn, seed, samples, loc, rho, count,
    prior_loc, loc_trial, loc_step, prior_scale, scale_trial, scale_step,
    table, alpha, beta, bound, rule: tl.constexpr, draws: tl.constexpr, LANES: tl.constexpr,
):
    """The gradients by way of the sum, and Σ_s g, Σ_s g ε σ'(rho): the noise is made once more."""
    trial, place, lane, inside = _block(count, LANES)
    at_rho = tl.load(rho + trial * count + place, mask=inside, other=0.0)
    by_loc = tl.zeros([4 * LANES], tl.float32)
    by_rho = tl.zeros([4 * LANES], tl.float32)
    if rule != NOTHING:
        _, one, two = _terms(
            tl.load(loc + trial * count + place, mask=inside, other=0.0),
            at_rho,
            tl.load(prior_loc + trial * loc_trial + place * loc_step, mask=inside, other=0.0),
            tl.load(prior_scale + trial * scale_trial + place * scale_step, mask=inside, other=1.0),
            table, alpha, beta, bound, rule,
        )
        factor = tl.load(by_total + trial)
        by_loc, by_rho = factor * one, factor * two
    if draws:
        by_scale = tl.zeros([4 * LANES], tl.float32)
        key, lanes = tl.load(seed), tl.num_programs(0).to(tl.int64) * LANES
        by_drawn += place
        for _ in range(samples):
            g = tl.load(by_drawn, mask=inside, other=0.0).to(tl.float32)
            by_loc += g
            by_scale += g * _normals(key, lane, LANES)
            by_drawn += count
            lane += lanes
        _scale, slope = _softplus(at_rho)
        by_rho += by_scale * slope
    tl.store(d_loc + trial * count + place, by_loc, mask=inside)
    tl.store(d_rho + trial * count + place, by_rho, mask=inside)


# fmt: on
@jit
def _block(count, LANES: tl.constexpr):
    """The trial, places of four weights per lane, the lanes' counters, which places exist."""
    # Draws have no trials: theirs are one after the other.
    block = tl.program_id(0).to(tl.int64)
    place = block * (4 * LANES) + tl.arange(0, 4 * LANES)
    lane = block * LANES + tl.arange(0, LANES)
    return tl.program_id(1).to(tl.int64), place, lane, place < count


@jit
def _over(x, y):
    """A quotient to two units in the last place, in a third of the exact one's instructions."""
    return x / y if INTERPRETED else libdevice.fast_dividef(x, y)


@jit
def _circle(angle):
    """Cosine and sine to 1e-6 for angles of one turn, which is enough for noise."""
    if INTERPRETED:
        cosine, sine = tl.cos(angle), tl.sin(angle)
    else:
        cosine, sine = libdevice.fast_cosf(angle), libdevice.fast_sinf(angle)
    return cosine, sine


@jit
def _terms(loc, rho, prior_loc, prior_scale, table, alpha, beta, bound, rule: tl.constexpr):
    """The divergence of each weight and its derivatives by loc and rho."""
    scale, sigmoid = _softplus(rho)
    # Far down softplus(rho) is e^rho, and leaves the range of float32: its logarithm stays.
    tiny = rho < TINY
    slope = tl.where(tiny, 1.0, _over(sigmoid, scale))  # ∂ log scale / ∂ rho
    inverse = _over(1.0, prior_scale)
    delta = (loc - prior_loc) * inverse
    ratio = scale * inverse
    excess = (scale - prior_scale) * inverse
    log = tl.log(tl.where(tiny, prior_scale, ratio))
    log_ratio = tl.where(tiny, rho - log, log)
    if rule == KL:
        value, d_delta, d_log_ratio = _kl(delta, excess, log_ratio)
    elif rule == REVERSE_KL:
        value, d_delta, d_log_ratio = _reverse_kl(delta, ratio, excess, log_ratio)
    elif rule == WEIGHTED_KL:
        one, one_delta, one_ratio = _kl(delta, excess, log_ratio)
        two, two_delta, two_ratio = _reverse_kl(delta, ratio, excess, log_ratio)
        forward, reverse = beta * beta, alpha * alpha
        value = forward * one + reverse * two
        d_delta = forward * one_delta + reverse * two_delta
        d_log_ratio = forward * one_ratio + reverse * two_ratio
    elif rule == JSG:
        value, d_delta, d_log_ratio = _jsg(delta, ratio, excess, log_ratio, alpha, beta)
    else:
        value, d_delta, d_log_ratio = _look_up(delta, ratio, log_ratio, table, bound)
    return value, d_delta * inverse, d_log_ratio * slope


@jit
def _softplus(rho):
    """log(1 + e^rho) and its derivative."""
    # 2 artanh(x / (2 + x)): the series needs no logarithm and ends at 1e-8 for x ≤ 1.
    small = tl.exp(-tl.abs(rho))
    t = _over(small, 2.0 + small)
    square = t * t
    series = (square * (1.0 / 13.0) + 1.0 / 11.0) * square + 1.0 / 9.0
    series = ((series * square + 1.0 / 7.0) * square + 1.0 / 5.0) * square + 1.0 / 3.0
    log = 2.0 * (t + t * square * series)
    return tl.maximum(rho, 0.0) + log, _over(tl.where(rho >= 0, 1.0, small), 1.0 + small)


@jit
def _minus_log1p(y, log1p, near):
    """The positive y - log(1+y), near 0 without cancellation."""
    # There, for |y| ≤ 0.11, by y²/2 - y³/3 + y⁴/4 - …, which needs no division.
    series = (y * (1.0 / 8.0) - 1.0 / 7.0) * y + 1.0 / 6.0
    series = ((series * y - 1.0 / 5.0) * y + 1.0 / 4.0) * y - 1.0 / 3.0
    return tl.where(near, (series * y + 0.5) * (y * y), y - log1p)


@jit
def _kl(delta, excess, log_ratio):
    """½(r² + δ² - 1) - log r."""
    y = (excess + 2.0) * excess
    rest = _minus_log1p(y, 2.0 * log_ratio, tl.abs(excess) < NEAR)
    return 0.5 * (rest + delta * delta), delta, y


@jit
def _reverse_kl(delta, ratio, excess, log_ratio):
    """½((1 + δ²)/r² - 1) + log r."""
    inverse = _over(1.0, ratio)
    far = delta * inverse
    y = -(excess * inverse) * ((excess + 2.0) * inverse)
    rest = _minus_log1p(y, -2.0 * log_ratio, tl.abs(excess) < NEAR)
    square = far * far
    return 0.5 * (rest + square), far * inverse, -(y + square)


@jit
def _jsg(delta, ratio, excess, log_ratio, alpha, beta):
    """½[v²/r² - 1 + 2α log r - log v + δ² c], c = ((1-α)³ r² + α³/r²)/v, v = (1-α) r² + α."""
    near = tl.abs(excess) < NEAR
    # Kept finite, or an infinity would meet a zero further down and leave NaN.
    y = tl.minimum((excess + 2.0) * excess, GREAT)
    square = tl.minimum(ratio * ratio, GREAT)
    inverse = _over(1.0, ratio)
    inverse = tl.minimum(inverse * inverse, GREAT)
    log_square = 2.0 * log_ratio
    rest = _minus_log1p(y, log_square, near)
    inverse_rest = _minus_log1p(-y * inverse, -log_square, near)
    v = beta * square + alpha
    inverse_v = _over(1.0, v)
    log_v = tl.log(v)
    close = _minus_log1p(beta * y, log_v, near) - beta * rest
    log_z = tl.where(near, close, beta * log_square - log_v)
    top, tail = beta * beta * beta * square, alpha * alpha * alpha * inverse
    c = (top + tail) * inverse_v
    away = delta * delta
    one, two = beta * beta, alpha * alpha
    value = 0.5 * (one * rest + two * inverse_rest + log_z + away * c)
    half_d_c = (top - tail - beta * square * c) * inverse_v
    d_log_ratio = y * (one + two * inverse - alpha * beta * inverse_v) + away * half_d_c
    return value, delta * c, d_log_ratio


@jit
def _look_up(delta, ratio, log_ratio, table, bound):
    """As `bayesdiv.compute.table`, a row of eight numbers a node: one sector of memory."""
    root = tl.rsqrt(ratio * ratio + 1.0)
    inverse = _over(1.0, ratio)
    share = _over(1.0, 1.0 + inverse * inverse)  # r²/(1+r²), whatever overflows
    # NaN is caught here, or the place it is looked up at would be anywhere.
    right = (delta == delta) & (log_ratio == log_ratio)
    distance = tl.minimum(tl.where(right, tl.abs(delta) * root, 0.0), FARTHEST)
    eta = tl.maximum(tl.minimum(tl.where(right, log_ratio, 0.0), HIGHEST), LOWEST) - LOWEST
    row = (eta * STEPS + 0.5).to(tl.int32)
    column = (distance * (COLUMNS / FARTHEST) + 0.5).to(tl.int32)
    eta -= row.to(tl.float32) * (1.0 / STEPS)
    off = distance - column.to(tl.float32) * (FARTHEST / COLUMNS)
    node = table + (row * (COLUMNS + 1) + column) * 8
    value, by_eta, by_distance = tl.load(node), tl.load(node + 1), tl.load(node + 2)
    eta_twice, both, distance_twice = tl.load(node + 3), tl.load(node + 4), tl.load(node + 5)
    eta_step = eta_twice * eta + both * off
    distance_step = both * eta + distance_twice * off
    value += eta * (by_eta + 0.5 * eta_step) + off * (by_distance + 0.5 * distance_step)
    by_eta += eta_step
    by_distance += distance_step
    value = tl.minimum(tl.maximum(value, 0.0), bound)
    d_log_ratio = by_eta - by_distance * distance * share
    d_delta = tl.where(delta < 0, -by_distance, by_distance) * root
    lost = float("nan")
    return (
        tl.where(right, value, lost),
        tl.where(right, d_delta, lost),
        tl.where(right, d_log_ratio, lost),
    )


@jit
def _normals(key, counter, LANES: tl.constexpr):
    """Four independent standard normals a counter, side by side, by Philox and Box and Muller."""
    one, two, three, four = tl.randint4x(key, counter)
    a, b = _box_muller(one, two)
    c, d = _box_muller(three, four)
    return tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), [4 * LANES])


@jit
def _box_muller(one, two):
    # 32 bits of one word and, below them, the 17 that turn the angle least: never 0, and the tails
    # reach 8.3 standard deviations where `tl.randn` ends at 5.7.
    low = (two & 0x1FFFF).to(tl.float32) * 1.7763568394002505e-15 + 8.881784197001252e-16
    unit = tl.minimum(
        one.to(tl.uint32, bitcast=True).to(tl.float32) * 2.3283064365386963e-10 + low, 1.0
    )
    radius = tl.sqrt(-2.0 * tl.log(unit))
    turn = two.to(tl.uint32, bitcast=True).to(tl.float32) * 2.3283064365386963e-10
    cosine, sine = _circle((turn + 1.1641532182693481e-10) * TURN)
    return radius * cosine, radius * sine
