#!/usr/bin/env bash
# Runs image_pillow_test.py with the environment's Python.
set -euo pipefail
python=${EQUIPOISE_PYTHON:?is not set: run scripts/setup}
exec "$python" -W ignore tests/data/image_pillow_test.py tests/data/image_tool
