"""Machine code for what a CPU repeats for every weight, where the machine has a C compiler.

`native.c` takes one pass over many weights; operations of torch, which do the same, take dozens.
"""

import ctypes
import logging
import os
import shlex
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import torch
from torch import Tensor
from torch.distributions import Distribution

from bayesdiv.compute import table
from bayesdiv.compute.reference import Total, TotalRule
from bayesdiv.divergence.arithmetic import Mixture
from bayesdiv.divergence.base import Divergence
from bayesdiv.divergence.closed_form import Rule

MANY = 1 << 16  # below, plain operations take a millisecond: no compiler is started for them
SOURCE = Path(__file__).with_name("native.c")
_FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
_log = logging.getLogger("bayesdiv.compute.native")


def offer(rule: Rule, divergence: Divergence, q: Distribution, p: Distribution) -> TotalRule | None:
    """The sum of JS-A over a block of many weights."""
    mixture = table.served(rule, divergence, q, p)
    if mixture is None or q.batch_shape[-1:].numel() < MANY or library() is None:
        return None
    return looked_up(mixture)


def looked_up(mixture: Mixture) -> TotalRule:
    """The same as the table's own rule, in one pass over the weights."""
    found = cast(ctypes.CDLL, library())
    rows, bound, chunk = table.packed(mixture), float(mixture.bound), found.chunk_size()
    sizes = [table.LOWEST, table.HIGHEST, table.STEPS, table.FARTHEST, table.COLUMNS]
    grid = torch.tensor(sizes, dtype=torch.float32, device="cpu")

    def total(loc: Tensor, scale: Tensor, prior_loc: Tensor, prior_scale: Tensor) -> Total:
        if loc.dim() > 1:  # trials, one after the other
            sides = (x.expand_as(loc) for x in (loc, scale, prior_loc, prior_scale))
            return Total(*map(torch.stack, zip(*map(total, *sides), strict=True)))
        each = prior_loc.dim() + prior_scale.dim() > 0
        prior = [x.expand_as(loc) if each else x for x in (prior_loc, prior_scale)]
        given = [x.float().contiguous() for x in (loc, scale, *prior)]
        by_loc, by_scale = (torch.empty_like(x) for x in given[:2])
        values = torch.empty(-(-loc.numel() // chunk), dtype=torch.float64, device="cpu")
        found.table_sums(
            *map(address, (grid, rows, *given)),
            int(each),
            *map(address, (by_loc, by_scale, values)),
            ctypes.c_int64(loc.numel()),
            torch.get_num_threads(),
        )
        value = values.sum().clamp(0.0, loc.numel() * bound)
        return Total(*(x.to(loc.dtype) for x in (value, by_loc, by_scale)))

    return total


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """The compiled source, None where it cannot be had."""
    # Made once a process and kept nowhere: it holds instructions of this very processor.
    named = os.environ.get("CC", "")
    try:
        compiler = shlex.split(named) or ["cc"]  # which may have arguments of its own
    except ValueError:  # a quotation without its end: no command, and reported as one
        compiler = [named]
    if shutil.which(compiler[0]) is None:
        _log.info("there is no C compiler: JS-A and draws of many weights take several passes")
        return None
    try:
        with TemporaryDirectory(prefix="bayesdiv-", ignore_cleanup_errors=True) as folder:
            made = Path(folder) / "native.so"
            command = [*compiler, *_FLAGS, "-shared", str(SOURCE), "-o", str(made), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            found = ctypes.CDLL(str(made))
        found.chunk_size.restype = ctypes.c_int64
        found.table_sums.restype = found.normals.restype = None
        return found
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", None) or str(error).encode()
        line = " ".join(told.decode(errors="replace").split())[:200]
        _log.info("JS-A and draws take several passes, because %s fails: %s", compiler[0], line)
        return None


def address(tensor: Tensor) -> ctypes.c_void_p:
    """Where a contiguous tensor on the CPU begins."""
    return ctypes.c_void_p(tensor.data_ptr())


def disagrees(what: str) -> None:
    """Log that machine code is not used because it computes something else."""
    _log.warning("machine code for %s is not used: it disagrees with plain operations", what)
