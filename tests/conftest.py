"""Settings shared by all tests."""

import os

import torch
from hypothesis import settings

settings.register_profile("bayesdiv", max_examples=150, deadline=None, derandomize=True)
settings.load_profile("bayesdiv")

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers that each start as many threads as there are cores only wait for one another.
    torch.set_num_threads(1)
