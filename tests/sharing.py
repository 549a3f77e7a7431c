"""Several processes that share the trials of one search, as several shells would."""

import multiprocessing
from collections.abc import Callable

import optuna

from bayesdiv.app.tuning.search import Search, opened, tune


def together(objective: Callable[[optuna.Trial], float], search: Search, count: int) -> None:
    """Run the same search in so many processes, and wait for their ends."""
    with opened(search):  # makes the tables
        pass
    context = multiprocessing.get_context("spawn")
    shells = [context.Process(target=tune, args=(objective, search)) for _ in range(count)]
    for shell in shells:
        shell.start()
    for shell in shells:
        shell.join(120)
        assert not shell.is_alive()
