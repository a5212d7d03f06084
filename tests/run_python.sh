#!/bin/sh
# usage: run_python.sh TEST.py [ARGUMENT]...   runs a test with the environment's Python
# The models are tiny: more threads only wait for each other.
export OMP_NUM_THREADS=1
exec "${EQUIPOISE_PYTHON:?run scripts/setup}" -B -W ignore "$@"
