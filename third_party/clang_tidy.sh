#!/usr/bin/env bash
# clang_tidy.sh STAMP CONFIG SOURCE FLAGS...   checks SOURCE; writes STAMP when there is no finding.
set -euo pipefail
stamp=$1 config=$2 source=$3
shift 3
checks=() noise='^[0-9]* warnings\? generated\|^Suppressed\|^Use -header-filter'
# A table of cases is one long function, and its speed does not matter.
[[ $source != tests/* ]] ||
  checks=(--checks=-readability-function-size,-performance-inefficient-vector-operation)
if ! found=$(
  clang-tidy-16 --quiet --config-file="$config" "${checks[@]}" "$source" -- "$@" 2>&1
); then
  printf '%s\n' "${found//"$PWD/"/}" | grep -v "$noise" >&2
  exit 1
fi
: > "$stamp"
