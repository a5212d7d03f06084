#!/usr/bin/env bash
exec "$EQUIPOISE_PYTHON" tests/data/tokenizer_hf_test.py tests/data/tokenize_main
