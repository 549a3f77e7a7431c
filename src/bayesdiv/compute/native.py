"""Machine code of `native.c`, one pass over many weights, where there is a C compiler."""

import ctypes
import logging
import os
import shlex
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor

MANY = 1 << 16  # below, plain operations take a millisecond: no compiler is started for them
SOURCE = Path(__file__).with_name("native.c")
_FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
log = logging.getLogger("bayesdiv.compute.native")


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
        log.info("there is no C compiler: JS-A and draws of many weights take several passes")
        return None
    try:
        with TemporaryDirectory(prefix="bayesdiv-", ignore_cleanup_errors=True) as folder:
            made = Path(folder) / "native.so"
            command = [*compiler, *_FLAGS, "-shared", str(SOURCE), "-o", str(made), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
            found = ctypes.CDLL(str(made))
        found.chunk_size.restype = ctypes.c_int64
        found.table_sums.restype = found.normals.restype = found.words.restype = None
        return found
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", None) or str(error).encode()
        line = " ".join(told.decode(errors="replace").split())[:200]
        log.info("JS-A and draws take several passes, because %s fails: %s", compiler[0], line)
        return None


def address(tensor: Tensor) -> ctypes.c_void_p:
    """Where a contiguous tensor on the CPU begins."""
    return ctypes.c_void_p(tensor.data_ptr())
