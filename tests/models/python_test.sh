#!/usr/bin/env bash
# usage: python_test.sh TEST.py [ARGUMENT]...   runs a test with the environment's Python
exec "${EQUIPOISE_PYTHON:?run scripts/setup}" -B "$@"
