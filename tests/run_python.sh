#!/bin/sh
# usage: run_python.sh TEST.py [ARGUMENT]...   runs a test with the environment's Python
# The models are tiny: more threads only wait for each other.
export OMP_NUM_THREADS=1
# The trainer starts itself again to set these (run_test and stop_test see to it); here that is half
# of what most of its runs take.
export GOMP_SPINCOUNT=0 ONEDNN_PRIMITIVE_CACHE_CAPACITY=128
# Removed by Bazel however the test ends. mpirun names its folder by its process id, which is the
# same in every sandbox.
export TMPDIR="${TEST_TMPDIR:-/tmp}"
# Under the address sanitizer: whole stacks, so that what Open MPI keeps is known by its name. They
# take ten times as long, so tests that start no MPI go without.
export ASAN_OPTIONS="${ASAN_OPTIONS:-fast_unwind_on_malloc=0}"
exec "${EQUIPOISE_PYTHON:?run scripts/setup}" -B -W ignore "$@"
