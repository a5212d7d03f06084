"""Every published row is read and priced; scripts/bench/published prints the tables."""

import json
import subprocess
import sys

BENCH, ROWS = sys.argv[1:3]


def main():
    done = subprocess.run([BENCH, ROWS], stdout=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0, done.returncode
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    with open(ROWS) as file:
        rows = json.load(file)["rows"]
    passed = failed = 0

    def check(what, good):
        nonlocal passed, failed
        passed += good
        failed += not good
        if not good:
            print(f"FAILED: {what}")

    check("a line a row", [line["id"] for line in lines] == [row["id"] for row in rows])
    for line in lines:
        check(f"{line['id']}: times", 0 < line["p10_s"] < line["predicted_s"] < line["p90_s"])
        check(f"{line['id']}: MFU", 0 < line["mfu"] < 1 and 0 < line["measured_mfu"] < 1)
    print(f"{passed} passed, {failed} failed")
    sys.exit(int(failed > 0))


main()
