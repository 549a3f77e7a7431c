#!/usr/bin/env bash
# What other libraries do with a network of transformers (benchmarks/transformer_peers.py), in an
# environment of their own, .transformer-peers/; the result goes to results/benchmarks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.transformer-peers
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install -qq --disable-pip-version-check torch==2.13.0 transformers==5.22.2 \
  peft==0.21.2 bayesian-torch==0.5.0 posteriors==0.1.3 laplace-torch==0.3 --editable .
# A dependency that is built for another torch than the CPU's, and imported wherever it is found.
"$venv/bin/python" -m pip uninstall -qq --yes torchvision
"$venv/bin/python" -W ignore benchmarks/transformer_peers.py \
  --out results/benchmarks/transformer_peers.json
