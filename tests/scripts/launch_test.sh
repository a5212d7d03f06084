#!/usr/bin/env bash
exec /usr/bin/python3 tests/scripts/launch_test.py
