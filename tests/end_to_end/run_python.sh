#!/bin/sh
# Runs a test program with the environment's Python, against the binary of this build.
: "${EQUIPOISE_PYTHON:?run scripts/setup first}"
export EQUIPOISE_BINARY="$PWD/trainer/equipoise" EQUIPOISE_LAUNCH="$PWD/scripts/launch"
export EQUIPOISE_PROGRAM="$PWD/trainer/equipoise"
export PYTHONDONTWRITEBYTECODE=1
exec "$EQUIPOISE_PYTHON" "$@"
