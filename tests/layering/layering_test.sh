#!/usr/bin/env bash
# layering_test.sh PURE_DEPS STAGE_DEPS   lists of targets, one a line
passed=0 failed=0

check() {
  if "${@:2}"; then
    passed=$((passed + 1))
  else
    echo "$1"
    failed=$((failed + 1))
  fi
}

# Bazel's own tools do not count.
lacks_external() { ! grep '^@' "$1" | grep -v '^@bazel_tools//'; }

check "not for the pure targets of tests/layering/BUILD.bazel" lacks_external "$1"
check "the list of pure dependencies is empty" grep -q '^//configs/base:error$' "$1"
check "//models/stages:stage should link LibTorch, or this test sees nothing" \
  grep -q '^@torch//:' "$2"
echo "$passed passed, $failed failed"
exit "$((failed > 0))"
