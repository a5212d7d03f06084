"""Every published row is read and priced, as well as docs/cost_model.md says, and none is refused
for memory that it had; scripts/bench/published prints the tables."""

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
        check(f"{line['id']}: memory", line["peak_gib"] <= line["memory_gib"])
    errors = {line["id"]: line["predicted_s"] / line["measured_s"] - 1 for line in lines}
    flash = [errors[line["id"]] for line in lines if line["attention"] in ("flash", "flash3")]
    for name, some in [("all", list(errors.values())), ("flash attention", flash)]:
        bias, size = sum(some) / len(some), sum(map(abs, some)) / len(some)
        check(f"{name}: bias {bias:+.1%}", abs(bias) <= 0.02)
        check(f"{name}: mean error {size:.1%}", size <= 0.05)
    within = sum(line["p10_s"] <= line["measured_s"] <= line["p90_s"] for line in lines)
    check(f"{within} within p10 to p90", 0.75 <= within / len(lines) <= 0.9)
    print(f"{passed} passed, {failed} failed")
    sys.exit(int(failed > 0))


main()
