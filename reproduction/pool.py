"""Jobs in several processes: handed out one by one, each with its result as it ends."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TypeVar

import torch

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


def finished(
    take: Callable[[], _Job | None], work: Callable[[_Job], _Result], processes: int
) -> Iterator[tuple[_Job, _Result]]:
    """Each job with its result, as they finish; several processes fill a GPU better than one.

    Args:
        take: the next job, None if none may begin now; asked again when a job has ended.
        work: from a job to its result; with several processes it must be one that pickles.
        processes: how many at a time.

    Examples:
        >>> list(finished(iter([1, 2, None]).__next__, str, processes=1))
        [(1, '1'), (2, '2')]
    """
    if processes == 1:
        while (job := take()) is not None:
            yield job, work(job)
        return
    spawn = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // processes)
    running: dict[Future[_Result], _Job] = {}
    with ProcessPoolExecutor(processes, spawn, torch.set_num_threads, (threads,)) as pool:
        while True:
            while len(running) < processes and (job := take()) is not None:
                running[pool.submit(work, job)] = job
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
