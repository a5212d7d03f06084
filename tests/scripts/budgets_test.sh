#!/usr/bin/env bash
exec /usr/bin/python3 tests/scripts/budgets_test.py
