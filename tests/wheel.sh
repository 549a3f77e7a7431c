#!/usr/bin/env bash
# Build a wheel, install it into empty environments and use it: the library alone, then with the app.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export PIP_CONSTRAINT="$root/constraints.txt" PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH

"${PYTHON:-python3}" -m venv "$place/core"
"$place/core/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$place" "$root"
wheel=$(ls "$place"/bayesdiv-*.whl)
cd "$place"

"$place/core/bin/python" -m pip install --quiet "$wheel"
"$place/core/bin/python" - <<'CORE'
import importlib.util

import torch

import bayesdiv as bd

assert importlib.util.find_spec("pandas") is None, "the library alone must not bring pandas"
x = torch.randn(64, 3)
net = bd.bayesianize(torch.nn.Linear(3, 1), bd.FanIn())
objective = bd.Objective(bd.Gaussian(), bd.JSA(0.3), num_data=64)
optimizer = torch.optim.Adam([*net.parameters(), *objective.parameters()], lr=1e-2)
for epoch in bd.fit(net, objective, bd.Batches(x, x.sum(1), 16), optimizer, 3):
    pass
print(bd.__version__, bd.predict(net, objective.likelihood, x, 10).mean.shape)
CORE
said=$("$place/core/bin/bayesdiv" compare digits 2>&1 && exit 1 || true)
case $said in *"pip install 'bayesdiv[app]'"*) ;; *) echo "no sentence on the extra: $said"; exit 1 ;; esac

"$place/core/bin/bayesdiv" --version

"${PYTHON:-python3}" -m venv "$place/app"
"$place/app/bin/python" -m pip install --quiet "$wheel[app]"
"$place/app/bin/bayesdiv" --version
"$place/app/bin/bayesdiv" compare diabetes --divergences KL JSA:0.3 --seeds 1 --epochs 3
"$place/app/bin/bayesdiv" train diabetes --out run --epochs 2
"$place/app/bin/bayesdiv" report run --out run.html
"$place/app/bin/bayesdiv" explore --out explore.html
"$place/app/bin/python" -c "from bayesdiv.app.data.loading import datasets; assert 'yacht' in datasets()"
echo "the wheel works"
