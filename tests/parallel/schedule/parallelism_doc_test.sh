#!/usr/bin/env bash
# parallelism_doc_test.sh DOC PRINT_SCHEDULES   the generated parts of docs/parallelism.md are true
# Such a part stands between the lines "<!-- NAME: generated -->" and "<!-- end of NAME -->".
passed=0 failed=0

written() { sed -n "/^<!-- $2: generated -->\$/,/^<!-- end of $2 -->\$/p" "$1" | sed '1d;$d'; }

for part in pictures table; do
  if diff <(written "$1" "$part") <("$2" "$part"); then
    passed=$((passed + 1))
  else
    echo "docs/parallelism.md: the $part (<) are not what print_schedules writes (>); copy them"
    failed=$((failed + 1))
  fi
done
echo "$passed passed, $failed failed"
exit "$((failed > 0))"
