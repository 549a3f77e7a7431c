"""Machine code for what a CPU repeats for every weight, where the machine has a C compiler.

Operation by operation, a look-up in the table of JS-A or a batch of noise takes dozens of passes
over the weights; `native.c` takes one. It is compiled, in a fraction of a second, when a model of
many weights first asks for it. Plain operations do the same, to rounding, everywhere else.
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

from torch import Tensor

SOURCE = Path(__file__).with_name("native.c")
_FLAGS = ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fPIC")
_log = logging.getLogger("bayesdiv.compute.native")


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """The compiled source, None where it cannot be had.

    Made once a process and kept nowhere: it holds instructions of this very processor.
    """
    compiler = _command(os.environ.get("CC", ""))
    if shutil.which(compiler[0]) is None:
        _log.info("there is no C compiler: JS-A and draws of many weights take several passes")
        return None
    try:
        return _compiled(compiler)
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", None) or str(error).encode()
        line = " ".join(told.decode(errors="replace").split())[:200]
        _log.info("JS-A and draws take several passes, because %s fails: %s", compiler[0], line)
        return None


def _command(text: str) -> list[str]:
    """The compiler, which may have arguments of its own; `cc` where none is named."""
    try:
        return shlex.split(text) or ["cc"]
    except ValueError:  # a quotation without its end: no command, and told as one
        return [text]


def _compiled(compiler: list[str]) -> ctypes.CDLL:
    with TemporaryDirectory(prefix="bayesdiv-", ignore_cleanup_errors=True) as folder:
        made = Path(folder) / "native.so"
        command = [*compiler, *_FLAGS, "-shared", str(SOURCE), "-o", str(made), "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        found = ctypes.CDLL(str(made))
    found.chunk_size.restype = ctypes.c_int64
    found.table_sums.restype = found.normals.restype = None
    return found


def address(tensor: Tensor) -> ctypes.c_void_p:
    """Where a contiguous tensor on the CPU begins."""
    return ctypes.c_void_p(tensor.data_ptr())


def disagrees(what: str) -> None:
    """Tell that machine code is left alone because it computes something else."""
    _log.warning("machine code for %s is not used: it disagrees with plain operations", what)
