#!/usr/bin/env bash
# Runs command_data_test.py with the environment's Python.
set -euo pipefail
python=${EQUIPOISE_PYTHON:?is not set: run scripts/setup}
exec "$python" -W ignore tests/trainer/command_data_test.py trainer/equipoise
