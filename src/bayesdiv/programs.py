"""Triton programs: what runs on each block of weights. `bayesdiv.kernels` makes operators of them.

Without Triton the module can be imported and nothing in it called.
"""

# Triton reads the signatures of its programs itself and has no types for the rest.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import math
from typing import Any

from bayesdiv.fused import Rule

try:
    import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]

    jit, constant = triton.jit, tl.constexpr
except ImportError:  # pragma: no cover - where Triton is installed

    def jit(function: Any) -> Any:
        """Leaves a kernel as it is, which nobody will call."""
        return function

    def constant(value: Any) -> Any:
        """Leaves a number as it is."""
        return value


KL = constant(Rule.KL.value)
REVERSE_KL = constant(Rule.REVERSE_KL.value)
WEIGHTED_KL = constant(Rule.WEIGHTED_KL.value)
JSG = constant(Rule.JSG.value)
TABLE = constant(Rule.TABLE.value)
# As in bayesdiv.divergences.table, which imports too much to be read here.
LOWEST, HIGHEST, STEPS = constant(-18.0), constant(18.0), constant(48.0)
FARTHEST, COLUMNS = constant(9.0), constant(384)
TURN, NEAR, TINY = constant(2 * math.pi), constant(0.05), constant(-15.0)


# --- the divergences -----------------------------------------------------------------------------


@jit
def forward(
    parts,
    loc,
    rho,
    count,
    prior_loc,
    loc_trial,
    loc_step,
    prior_scale,
    scale_trial,
    scale_step,
    table,
    alpha,
    beta,
    bound,
    rule: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The sum over one block of one trial."""
    block, trial = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = block * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    start = trial * count
    value, _, _ = _terms(
        tl.load(loc + start + place, mask=inside, other=0.0),
        tl.load(rho + start + place, mask=inside, other=0.0),
        tl.load(prior_loc + trial * loc_trial + place * loc_step, mask=inside, other=0.0),
        tl.load(prior_scale + trial * scale_trial + place * scale_step, mask=inside, other=1.0),
        table,
        alpha,
        beta,
        bound,
        rule,
    )
    whole = tl.sum(tl.where(inside, value, 0.0).to(tl.float64), 0)
    tl.store(parts + trial * tl.num_programs(0) + block, whole)


@jit
def backward(
    d_loc,
    d_rho,
    grad,
    loc,
    rho,
    count,
    prior_loc,
    loc_trial,
    loc_step,
    prior_scale,
    scale_trial,
    scale_step,
    table,
    alpha,
    beta,
    bound,
    rule: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Both gradients of one block of one trial."""
    block, trial = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = block * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    start = trial * count
    _, by_loc, by_rho = _terms(
        tl.load(loc + start + place, mask=inside, other=0.0),
        tl.load(rho + start + place, mask=inside, other=0.0),
        tl.load(prior_loc + trial * loc_trial + place * loc_step, mask=inside, other=0.0),
        tl.load(prior_scale + trial * scale_trial + place * scale_step, mask=inside, other=1.0),
        table,
        alpha,
        beta,
        bound,
        rule,
    )
    factor = tl.load(grad + trial)
    tl.store(d_loc + start + place, factor * by_loc, mask=inside)
    tl.store(d_rho + start + place, factor * by_rho, mask=inside)


@jit
def _terms(loc, rho, prior_loc, prior_scale, table, alpha, beta, bound, rule: tl.constexpr):
    """The divergence of each weight and its derivatives by loc and rho."""
    scale, sigmoid = _softplus(rho)
    # Far down softplus(rho) is e^rho, and leaves the range of float32: its logarithm stays.
    tiny = rho < TINY
    slope = tl.where(tiny, 1.0, sigmoid / scale)  # ∂ log scale / ∂ rho
    inverse = 1.0 / prior_scale
    delta = (loc - prior_loc) * inverse
    ratio = scale * inverse
    excess = (scale - prior_scale) * inverse
    log_ratio = tl.where(tiny, rho - tl.log(prior_scale), tl.log(ratio))
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
    small = tl.exp(-tl.abs(rho))
    up = 1.0 + small
    # What rounding takes from 1 + x it takes from the quotient too (Kahan).
    rest = tl.where(up == 1.0, 1.0, up - 1.0)
    log = tl.where(up == 1.0, small, tl.log(up) * (small / rest))
    return tl.maximum(rho, 0.0) + log, tl.where(rho >= 0, 1.0, small) / up


@jit
def _minus_log1p(y, log1p, near):
    """As `bayesdiv.gaussian.minus_log1p`: y - log(1+y) without cancellation near 0."""
    s = y / (2.0 + y)
    square = s * s
    series = (square * (1.0 / 7.0) + 1.0 / 5.0) * square + 1.0 / 3.0
    return tl.where(near, s * (y - 2.0 * square * series), y - log1p)


@jit
def _kl(delta, excess, log_ratio):
    """½(r² + δ² - 1) - log r."""
    y = (excess + 2.0) * excess
    rest = _minus_log1p(y, 2.0 * log_ratio, tl.abs(excess) < NEAR)
    return 0.5 * (rest + delta * delta), delta, y


@jit
def _reverse_kl(delta, ratio, excess, log_ratio):
    """½((1 + δ²)/r² - 1) + log r."""
    far = delta / ratio
    y = -(excess * (excess + 2.0)) / ratio / ratio
    rest = _minus_log1p(y, -2.0 * log_ratio, tl.abs(excess) < NEAR)
    square = far * far
    return 0.5 * (rest + square), far / ratio, -(y + square)


@jit
def _jsg(delta, ratio, excess, log_ratio, alpha, beta):
    """½[v²/r² - 1 + 2α log r - log v + δ² c], c = ((1-α)³ r² + α³/r²)/v, v = (1-α) r² + α."""
    near = tl.abs(excess) < NEAR
    y = (excess + 2.0) * excess
    square = ratio * ratio
    inverse = (1.0 / ratio) * (1.0 / ratio)
    log_square = 2.0 * log_ratio
    rest = _minus_log1p(y, log_square, near)
    inverse_rest = _minus_log1p(-y * inverse, -log_square, near)
    v = beta * square + alpha
    inverse_v = 1.0 / v
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
    """As `bayesdiv.divergences.table`, a row of eight numbers a node: one sector of memory."""
    root = 1.0 / tl.sqrt(ratio * ratio + 1.0)
    share = 1.0 / (1.0 + (1.0 / ratio) * (1.0 / ratio))  # r²/(1+r²), whatever overflows
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


# --- the draws -----------------------------------------------------------------------------------


@jit
def draw_forward(drawn, loc, rho, seed, count, samples, QUARTER: tl.constexpr):
    """All draws of four quarters of a block."""
    key = tl.load(seed)
    lane = tl.program_id(0).to(tl.int64) * QUARTER + tl.arange(0, QUARTER)
    place = tl.program_id(0).to(tl.int64) * (4 * QUARTER) + tl.arange(0, QUARTER)
    a, b, c, d = place, place + QUARTER, place + 2 * QUARTER, place + 3 * QUARTER
    loc_a, loc_b = tl.load(loc + a, mask=a < count), tl.load(loc + b, mask=b < count)
    loc_c, loc_d = tl.load(loc + c, mask=c < count), tl.load(loc + d, mask=d < count)
    scale_a, _slope = _softplus(tl.load(rho + a, mask=a < count))
    scale_b, _slope = _softplus(tl.load(rho + b, mask=b < count))
    scale_c, _slope = _softplus(tl.load(rho + c, mask=c < count))
    scale_d, _slope = _softplus(tl.load(rho + d, mask=d < count))
    lanes = tl.num_programs(0).to(tl.int64) * QUARTER
    for _ in range(samples):
        noise_a, noise_b, noise_c, noise_d = _normals(key, lane)
        tl.store(drawn + a, loc_a + scale_a * noise_a, mask=a < count)
        tl.store(drawn + b, loc_b + scale_b * noise_b, mask=b < count)
        tl.store(drawn + c, loc_c + scale_c * noise_c, mask=c < count)
        tl.store(drawn + d, loc_d + scale_d * noise_d, mask=d < count)
        drawn += count
        lane += lanes


@jit
def draw_gradients(d_loc, d_rho, grad, rho, seed, count, samples, QUARTER: tl.constexpr):
    """Σ_s g and Σ_s g ε σ'(rho), the noise made once more."""
    key = tl.load(seed)
    lane = tl.program_id(0).to(tl.int64) * QUARTER + tl.arange(0, QUARTER)
    place = tl.program_id(0).to(tl.int64) * (4 * QUARTER) + tl.arange(0, QUARTER)
    a, b, c, d = place, place + QUARTER, place + 2 * QUARTER, place + 3 * QUARTER
    none = tl.zeros([QUARTER], tl.float32)
    loc_a, loc_b, loc_c, loc_d = none, none, none, none
    scale_a, scale_b, scale_c, scale_d = none, none, none, none
    lanes = tl.num_programs(0).to(tl.int64) * QUARTER
    for _ in range(samples):
        noise_a, noise_b, noise_c, noise_d = _normals(key, lane)
        g_a = tl.load(grad + a, mask=a < count).to(tl.float32)
        g_b = tl.load(grad + b, mask=b < count).to(tl.float32)
        g_c = tl.load(grad + c, mask=c < count).to(tl.float32)
        g_d = tl.load(grad + d, mask=d < count).to(tl.float32)
        loc_a, loc_b, loc_c, loc_d = loc_a + g_a, loc_b + g_b, loc_c + g_c, loc_d + g_d
        scale_a, scale_b = scale_a + g_a * noise_a, scale_b + g_b * noise_b
        scale_c, scale_d = scale_c + g_c * noise_c, scale_d + g_d * noise_d
        grad += count
        lane += lanes
    tl.store(d_loc + a, loc_a, mask=a < count)
    tl.store(d_loc + b, loc_b, mask=b < count)
    tl.store(d_loc + c, loc_c, mask=c < count)
    tl.store(d_loc + d, loc_d, mask=d < count)
    _scale, by_a = _softplus(tl.load(rho + a, mask=a < count))
    _scale, by_b = _softplus(tl.load(rho + b, mask=b < count))
    _scale, by_c = _softplus(tl.load(rho + c, mask=c < count))
    _scale, by_d = _softplus(tl.load(rho + d, mask=d < count))
    tl.store(d_rho + a, scale_a * by_a, mask=a < count)
    tl.store(d_rho + b, scale_b * by_b, mask=b < count)
    tl.store(d_rho + c, scale_c * by_c, mask=c < count)
    tl.store(d_rho + d, scale_d * by_d, mask=d < count)


@jit
def _normals(key, counter):
    """Four blocks of independent standard normals, by Philox and Box and Muller."""
    one, two, three, four = tl.randint4x(key, counter)
    a, b = _box_muller(one, two)
    c, d = _box_muller(three, four)
    return a, b, c, d


@jit
def _box_muller(one, two):
    # All 32 bits and half a step up: never 0, so the tails reach 6.6 where `tl.randn` ends at 5.7.
    unit = tl.minimum(_unit(one), 1.0)
    radius = tl.sqrt(-2.0 * tl.log(unit))
    angle = TURN * _unit(two)
    return radius * tl.cos(angle), radius * tl.sin(angle)


@jit
def _unit(bits):
    number = bits.to(tl.uint32, bitcast=True).to(tl.float32)
    return number * 2.3283064365386963e-10 + 1.1641532182693481e-10
