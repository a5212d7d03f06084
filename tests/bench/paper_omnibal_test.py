"""The rows of OmniBal's tables: fitted ones are met, predictions within a tenth or explained, our
plan ahead; docs/cost_model.md shows these figures."""

import json
import subprocess
import sys

BENCH, HISTOGRAM, PAGE = sys.argv[1:4]
LARGEST_ERROR = 0.10
# More than a tenth off, and why is said below the page's table.
EXPLAINED = {("6+20B", "Megatron, data + model + memory"): 0.19, ("6+34B", "Megatron"): 0.22,
             ("6+34B", "Megatron, data + model + memory"): 0.23}


def rows_of_page():
    """{(model, row): simulated GPU days} of the page's table."""
    with open(PAGE) as page:
        table = page.read().split("| model | row | published |")[1].split("\n\n")[0]
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    return {(model, row): float(simulated) for model, row, _, simulated, _ in cells}


def main():
    done = subprocess.run([BENCH, HISTOGRAM, "10"], stdout=subprocess.PIPE, text=True, timeout=800)
    assert done.returncode == 0, done.returncode
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    passed = failed = 0

    def check(what, good):
        nonlocal passed, failed
        passed += good
        failed += not good
        if not good:
            print(f"FAILED: {what}")

    rows = {(line["model"], line["row"]): line["simulated"] / line["paper"] - 1
            for line in lines if line.get("paper")}
    check("ten published rows", len(rows) == 10)
    for row in [("6+20B", "ZeRO-3"), ("6+20B", "Megatron")]:
        check(f"{row} is fitted: {rows[row]:+.1%}", abs(rows[row]) < 0.01)
    for row, error in rows.items():
        check(f"{row}: {error:+.1%}", abs(error) < EXPLAINED.get(row, LARGEST_ERROR))
    shown = rows_of_page()
    simulated = {(line["model"], line["row"]): line["simulated"] for line in lines
                 if line.get("paper")}
    check("the page's rows", set(shown) == set(simulated))
    for row, days in simulated.items():
        check(f"the page has {shown.get(row)} for {row}, not {days:.2f}",
              abs(shown.get(row, 0) - days) < 0.06)
    ours = [line for line in lines if "ours" in line]
    check("three sets of constants and the larger model", len(ours) == 4)
    for line in ours:
        check(f"ours at {line['constants']}", line["ours"] <= 0.9 * line["omnibal"])
    print(f"{passed} passed, {failed} failed")
    sys.exit(int(failed > 0))


main()
