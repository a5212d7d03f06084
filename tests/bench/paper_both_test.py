"""OmniBal and Optimus together on the shapes of OmniBal's paper: each helps, even packs most;
docs/optimus.md shows these figures."""

import json
import subprocess
import sys

BENCH, HISTOGRAM, PAGE = sys.argv[1:4]
MODELS = ("6+20B", "6+34B", "6+70B")
ROWS = ("neither", "OmniBal's packs", "OmniBal", "Optimus", "both", "OmniBal, isf+", "both, isf+")


def days_of_page():
    """{(model, balance): simulated GPU days} of the page's table."""
    with open(PAGE) as page:
        table = page.read().split("| model | balance | GPU days")[1].split("\n\n")[0]
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    return {(row[0], row[1]): float(row[2]) for row in cells}


def main():
    done = subprocess.run([BENCH, HISTOGRAM, "3"], stdout=subprocess.PIPE, text=True, timeout=850)
    assert done.returncode == 0, done.returncode
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    passed = failed = 0

    def check(what, good):
        nonlocal passed, failed
        passed += good
        failed += not good
        if not good:
            print(f"FAILED: {what}")

    days = {(line["model"], line["row"]): line["days"] for line in lines}
    check("seven rows of three models", set(days) == {(m, r) for m in MODELS for r in ROWS})
    shown = days_of_page()
    check("the page's rows", set(shown) == set(days))
    for key, value in days.items():
        check(f"the page has {shown.get(key)} for {key}, not {value:.2f}",
              abs(shown.get(key, 0) - value) < 0.06)
    for model in MODELS:
        rows = {row: days[(model, row)] for row in ROWS}
        check(f"{model}: OmniBal alone is ahead of Optimus alone: {rows}",
              rows["OmniBal"] < rows["Optimus"] < rows["neither"])
        check(f"{model}: both are ahead of either alone: {rows}",
              rows["both"] < min(rows["OmniBal"], rows["Optimus"]))
    for line in lines:
        check(f"{line['model']}, {line['row']}: fits 80 GB", line["gib"] <= 79.1)
    print(f"{passed} passed, {failed} failed")
    sys.exit(int(failed > 0))


main()
