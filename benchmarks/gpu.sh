#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, in one call: verify, time, and with what is left of the time train (see gpu.py).
# usage: benchmarks/gpu.sh FOLDER [SECONDS]     (570 seconds unless given; the same call with the same FOLDER goes on)
# Needs a python3 (or $PYTHON) with torch (CUDA), triton, numpy, safetensors, pytest, hypothesis; nothing is installed.
exec "${PYTHON:-python3}" "$(dirname "$0")/gpu.py" "$@"
