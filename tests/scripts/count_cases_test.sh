#!/usr/bin/env bash
exec /usr/bin/python3 tests/scripts/count_cases_test.py
