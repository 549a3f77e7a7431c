"""Settings shared by all tests."""

import os
import shutil
import subprocess
import tarfile

import pytest
import torch
from hypothesis import settings

AXE = "axe-core@4.14.0"

settings.register_profile("bayesdiv", max_examples=150, deadline=None, derandomize=True)
settings.load_profile("bayesdiv")

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers that each start as many threads as there are cores only wait for one another.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def axe(request):
    """The script of axe-core, fetched once by npm."""
    folder = request.config.cache.mkdir("axe")
    script = folder / "package/axe.min.js"
    if not script.is_file():
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed: axe-core cannot be had")
        command = ["npm", "pack", AXE, "--pack-destination", str(folder)]
        if subprocess.run(command, capture_output=True, timeout=120).returncode:
            pytest.skip("npm could not fetch axe-core")
        with tarfile.open(next(folder.glob("axe-core-*.tgz"))) as archive:
            archive.extract("package/axe.min.js", folder, filter="data")
    return script.read_text(encoding="utf-8")
