"""Random numbers: standard normal noise for draws, and generators and turns of threads."""

import ctypes
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdiv.compute import native

Dtype = torch.dtype | None  # of draws; None is that of the parameters
Seed = Tensor | None  # of noise; None takes one from torch's generator
MANY = 1 << 18  # below, the noise of torch takes a millisecond: no compiler is started for it
_own = threading.local()
_turn = threading.RLock()


def standard_normal(shape: Sequence[int], like: Tensor, seed: int | None = None) -> Tensor:
    """Noise of this shape, of the dtype and on the device of `like`."""
    # A seed makes the same noise again and leaves torch's generator alone. Many numbers at once
    # come from a generator of NumPy that is faster than torch's.
    size = torch.Size(shape)
    plain = like.device.type != "cpu" or like.dtype != torch.float32 or size.numel() < MANY
    # What is traced or batched must be an operation of torch.
    traced = torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(like)
    if plain or traced or torch._C._functorch.peek_interpreter_stack() is not None:
        generator = None if traced or like.device.type != "cpu" else own()
        if seed is not None:
            generator = torch.Generator(like.device).manual_seed(seed)
        return torch.randn(size, dtype=like.dtype, device=like.device, generator=generator)
    return many(size.numel(), seed).reshape(size)


def fresh_seed() -> int:
    """A seed for `standard_normal` from this thread's generator, or that of `torch.manual_seed`."""
    return int(torch.randint(1 << 62, (), device="cpu", generator=own()))


def many(count: int, seed: int | None = None) -> Tensor:
    """Make so many numbers on the CPU, by Box and Muller's transformation."""
    #     √(-2 log u) (cos π t, sin π t),   u uniform in (0, 1), t in [-1, 1)
    # The least u is 2⁻⁴⁹, 8.2 standard deviations out: 31 bits come from the first of two random
    # words, 17 more from the low end of the second, where they turn t by less than 2⁻¹⁴.
    return in_rows(np.random.SFC64(fresh_seed() if seed is None else seed), 1, count)[0]


def in_rows(generator: np.random.SFC64, rows: int, count: int) -> Tensor:
    """The next numbers of a generator, (rows, count): those of a row do not depend on how many."""
    words = _words()(generator, rows * -(-count // 2))  # two numbers each
    return _transform()(torch.from_numpy(words.view(np.int32)).view(rows, -1))[:, :count]


@lru_cache(maxsize=1)
def _words() -> Callable[[np.random.SFC64, int], NDArray[np.uint64]]:
    """From a generator to its next words of 64 bits, in less than half the time of NumPy."""
    library, plain = native.library(), np.random.SFC64.random_raw
    if library is None:
        return plain

    def at_once(generator: np.random.SFC64, count: int) -> NDArray[np.uint64]:
        made = np.empty(count, dtype=np.uint64)
        places = generator.ctypes.state_address, made.ctypes.data
        library.words(*map(ctypes.c_void_p, places), ctypes.c_int64(count))
        return made

    one, two = np.random.SFC64(0), np.random.SFC64(0)
    # The second time from the state that was left.
    same = all(np.array_equal(at_once(one, count), plain(two, count)) for count in (1001, 2))
    return at_once if same else plain


@lru_cache(maxsize=1)
def _transform() -> Callable[[Tensor], Tensor]:
    """From random words of 32 bits, (…, words), to as many normal numbers, in their place."""
    library = native.library()
    if library is None:
        return in_passes

    def at_once(words: Tensor) -> Tensor:
        pairs, rows = words.shape[-1] // 2, words.shape[:-1].numel()
        sizes = ctypes.c_int64(rows), ctypes.c_int64(pairs)
        library.normals(native.address(words), *sizes, torch.get_num_threads())
        return words.view(torch.float32)

    words = torch.from_numpy(np.random.SFC64(0).random_raw(1001).view(np.int32))
    if torch.allclose(at_once(words.clone()), in_passes(words.clone()), rtol=1e-4, atol=1e-5):
        return at_once
    native.log.warning("machine code for noise is not used: it disagrees with plain operations")
    return in_passes


def in_passes(words: Tensor) -> Tensor:
    """The transformation by operations of torch."""
    first, second = words.chunk(2, -1)
    numbers = words.view(torch.float32)
    # Shifted as a signed word, which fills with its sign: the mask takes that away.
    uniform = ((first >> 1) & 0x7FFFFFFF).float().mul_(2.0**-31)
    uniform += (second & 0x1FFFF).float().add_(0.5).mul_(2.0**-48)
    radius = uniform.log_().mul_(-2).sqrt_()
    angle = second.float().mul_(math.pi * 2.0**-31)
    one, two = numbers.chunk(2, -1)
    torch.mul(radius, angle.cos(), out=one)
    torch.mul(radius, angle.sin(), out=two)
    return numbers


def own() -> torch.Generator | None:
    """The generator of this thread, for noise on a CPU; None is torch's."""
    return getattr(_own, "generator", None)


@contextmanager
def drawing(generator: torch.Generator | None) -> Iterator[None]:
    """For the time of the context, noise of this thread comes from this generator."""
    before = own()
    _own.generator = generator
    try:
        yield
    finally:
        _own.generator = before


def turn() -> AbstractContextManager[object]:
    """What one thread at a time may be in: networks are lent weights, and torch's generator."""
    return _turn


@contextmanager
def seeded(seed: int, devices: Sequence[torch.device | int] = ()) -> Iterator[None]:
    """Alone among threads, with torch's generators at a seed; afterwards as they were."""
    with turn(), torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


@contextmanager
def preserved() -> Iterator[None]:
    """Torch's generators are afterwards where they were, on a GPU too if it is in use."""
    cards = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    fork = torch.random.fork_rng(devices=cards)
    with turn():
        fork.__enter__()
    try:
        yield
    finally:
        with turn():
            fork.__exit__(None, None, None)


def _renew() -> None:
    """A new lock for a forked process, in which no other thread is left to give it up."""
    global _turn
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    # A fork waits for its turn, so that the child gets no network in the middle of a prediction.
    os.register_at_fork(
        before=lambda: _turn.acquire(),
        after_in_parent=lambda: _turn.release(),
        after_in_child=_renew,
    )
