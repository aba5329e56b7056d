#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: verify, time, profile and train, in calls of at most ten minutes (see gpu.py).
# usage: benchmarks/gpu.sh [smoke] [bench] [conformance] [profile] [train] [--out FOLDER] [--seconds 570] [--dry]
# Needs a python3 (or $PYTHON) with torch (CUDA), numpy, safetensors, pytest, hypothesis and, to resume a training, msgspec;
# nothing is installed. The compiled extension is not needed.
exec "${PYTHON:-python3}" "$(dirname "$0")/gpu.py" "$@"
