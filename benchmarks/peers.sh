#!/usr/bin/env bash
# Times other libraries' divergences (benchmarks/peers.py), training steps (benchmarks/step.py) and
# predictions (benchmarks/predict.py) in an environment of their own, .peers/.
#
# Their pins contradict each other and ours, so torch comes first at one fixed version, each peer
# follows without its dependencies, and of those only what its import needs is added by hand.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.peers
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"

install() {
  "$venv/bin/python" -m pip install -qq --disable-pip-version-check "$@"
}

# peer MODULE REQUIREMENT [DEPENDENCY...]: one line and no more if it cannot be had or imported.
peer() {
  local module=$1 requirement=$2 log
  shift 2
  if ! log=$(install --no-deps "$requirement" 2>&1); then
    echo "skipped $requirement: not installed ($(tail -n 1 <<<"$log"))"
    return
  fi
  if [ $# -gt 0 ] && ! log=$(install "$@" 2>&1); then
    echo "skipped $requirement: a dependency not installed ($(tail -n 1 <<<"$log"))"
    return
  fi
  if ! log=$("$venv/bin/python" -W ignore -c "import $module" 2>&1); then
    echo "skipped $requirement: not importable ($(tail -n 1 <<<"$log"))"
  fi
}

install torch==2.13.0
# UQpy's own pin: its sampled divergences raise under numpy 2.4.
install numpy==1.26.4

# UQpy reads its version through pkg_resources, which setuptools no longer carries from 81 on.
peer UQpy.scientific_machine_learning UQpy==4.2.1 \
  numpy==1.26.4 beartype==0.18.5 matplotlib scikit-learn scipy 'setuptools<81' torchinfo==1.8.0
peer torchbnn torchbnn==1.2
peer bayesian_torch.layers bayesian-torch==0.5.0
peer blitz.modules blitz-bayesian-pytorch==0.2.8
# Its dependencies ask for some torch: naming ours keeps pip from taking another.
peer posteriors posteriors==0.1.3 \
  torch==2.13.0 numpy==1.26.4 optree==0.20.0 tensordict==0.15.3 torchopt==0.7.3

"$venv/bin/python" -W ignore benchmarks/peers.py
echo
"$venv/bin/python" -W ignore benchmarks/step.py --peers
echo
"$venv/bin/python" -W ignore benchmarks/step.py --peers --network conv
echo
"$venv/bin/python" -W ignore benchmarks/predict.py --peers
