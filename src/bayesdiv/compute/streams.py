"""Random numbers in threads: generators of their own, and turns for what uses torch's."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch

_own = threading.local()
_turn = threading.RLock()


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
    with turn():
        before, on_cards = torch.get_rng_state(), [torch.cuda.get_rng_state(k) for k in cards]
    try:
        yield
    finally:
        with turn():
            torch.set_rng_state(before)
            for card, state in zip(cards, on_cards, strict=True):
                torch.cuda.set_rng_state(state, card)


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
