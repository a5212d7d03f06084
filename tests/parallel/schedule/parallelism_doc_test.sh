#!/usr/bin/env bash
# parallelism_doc_test.sh DOC PRINT_SCHEDULES   the generated parts of docs/parallelism.md are true
# PART is what stands between the lines "<!-- PART: generated -->" and "<!-- end of PART -->".
passed=0 failed=0
for part in pictures table; do
  if diff <(sed -n "/^<!-- $part: generated -->\$/,/^<!-- end of $part -->\$/p" "$1" | sed '1d;$d') \
          <("$2" "$part"); then
    passed=$((passed + 1))
  else
    echo "docs/parallelism.md: the $part (<) are not what print_schedules writes (>); put that there"
    failed=$((failed + 1))
  fi
done
echo "$passed passed, $failed failed"
exit "$((failed > 0))"
