#!/usr/bin/env bash
# Speed, memory and exactness on one CUDA card, in under 8 minutes; tables at the end. Needs `pip install -e .` only.
# With --tiny the same on a CPU in under a minute, to know that it works.
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" benchmarks/gpu.py "$@"
