#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, in one call: verify, time, and with what is left of the time train.
# usage: benchmarks/gpu.sh FOLDER [SECONDS]     (570 seconds unless given; logs and JSON go to FOLDER)
# Needs a python3 (or $PYTHON) with torch (CUDA), triton, numpy, pytest, hypothesis; nothing is installed.
set -uo pipefail
OUT=$(mkdir -p "$1" && cd "$1" && pwd); SECONDS_LEFT=${2:-570}; START=$(date +%s)
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 CUBLAS_WORKSPACE_CONFIG=:4096:8
left() { echo $((SECONDS_LEFT - ($(date +%s) - START))); }

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee "$OUT/device.txt"
$PYTHON -c 'import torch, triton; print("torch", torch.__version__, "triton", triton.__version__)' | tee -a "$OUT/device.txt"
# What `orthornn doctor` says of the kernels, without the packages of the command line.
$PYTHON - <<'DOCTOR' 2>&1 | tee "$OUT/doctor.txt"
import torch
from orthornn.kernels import plan

device = torch.device("cuda")
for backend, reason in plan.available(device).items():
    print(f"{backend:<12}{reason or 'available'}")
for n, m in ((128, None), (170, None), (256, None), (360, None), (512, None), (256, 32), (512, 32), (1024, 32), (512, 128)):
    print(n, m, plan.describe(device, plan.Size(n, m, 128, 784)))
DOCTOR

# One small case first: where a backend does not even compile, this says so within seconds.
ORTHORNN_DEVICE=cuda timeout 90 $PYTHON -m pytest -q -p no:cacheprovider -x \
    tests/kernels/test_conformance.py -k 'same_bits' 2>&1 | tee "$OUT/smoke.txt" | tail -15

timeout $(( $(left) > 260 ? 240 : $(left) - 20 )) $PYTHON -m orthornn.bench.cuda --out "$OUT" --seconds 180 2>&1 | tee "$OUT/bench.txt"

# Compilation fills the time of the suite: eight processes share it.
LIMIT=$(( $(left) - 10 ))
if [ -n "${ORTHORNN_MNIST:-}" ] && [ "$LIMIT" -gt 180 ]; then LIMIT=180; fi
ORTHORNN_DEVICE=cuda timeout -s INT "$LIMIT" $PYTHON -m pytest -q -p no:cacheprovider -n 8 \
    tests/kernels/test_conformance.py > "$OUT/conformance.txt" 2>&1
tail -15 "$OUT/conformance.txt"

# Training, where there is a command for it, with MNIST's four files in $ORTHORNN_MNIST.
if [ "$(left)" -gt 60 ] && [ -n "${ORTHORNN_MNIST:-}" ] && $PYTHON -c 'import orthornn.papers' 2>/dev/null; then
    timeout $(( $(left) - 15 )) $PYTHON -m orthornn reproduce helfrich2018 --device cuda --out "$OUT/runs" 2>&1 | tail -40
fi
echo "seconds left: $(left)"
