#!/usr/bin/env bash
exec "$EQUIPOISE_PYTHON" tests/scripts/prepare_stamps_test.py
