"""The rows of Optimus' tables: the fitted cell is met, Megatron-LM's others are predicted, ours is
never behind; docs/optimus.md shows these figures."""

import json
import subprocess
import sys

BENCH, PAGE = sys.argv[1:3]
# Shares of a published cell; why ours are so far ahead is said below the page's table.
LARGEST_ERROR = {"megatron": 0.04, "balanced": 0.23, "optimus": 0.15}


def cells_of_page():
    """{(GPUs, system): simulated seconds} of the page's first table."""
    with open(PAGE) as page:
        table = page.read().split("| GPUs | system |")[1].split("\n\n")[0]
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    return {(row[0], row[1]): float(row[3]) for row in cells}


def main():
    done = subprocess.run([BENCH], stdout=subprocess.PIPE, text=True, timeout=500)
    assert done.returncode == 0, done.returncode
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    passed = failed = 0

    def check(what, good):
        nonlocal passed, failed
        passed += good
        failed += not good
        if not good:
            print(f"FAILED: {what}")

    jobs = [line for line in lines if "job" in line]
    strong = [job for job in jobs if "optimus" in job["published"]]
    check("three scales, four of weak scaling, three with two encoders",
          (len(strong), len(jobs)) == (3, 10))
    fitted = strong[0]["megatron"]["step_s"] / strong[0]["published"]["megatron"] - 1
    check(f"the fitted cell: {fitted:+.2%}", abs(fitted) < 0.002)
    shown = cells_of_page()
    for job in strong:
        for name, key, system in (("Megatron-LM", "megatron", "megatron"),
                                  ("balanced", "balanced", "balanced"),
                                  ("Optimus", "optimus", "fine")):
            step = job[system]["step_s"]
            error = step / job["published"][key] - 1
            check(f"{job['job']}, {name}: {error:+.1%}", abs(error) < LARGEST_ERROR[key])
            on_page = shown.get((f"{job['gpus']:,}", name), 0)
            check(f"the page has {on_page} for {job['job']}, {name}, not {step:.2f}",
                  abs(on_page - step) < 0.006)
    for job in jobs:
        steps = [job[system]["step_s"] for system in ("three_phase", "coarse", "fine")]
        check(f"{job['job']}: {steps} do not rise", steps == sorted(steps, reverse=True))
        check(f"{job['job']}: dep is no longer than three_phase",
              job["dep"]["step_s"] <= steps[0])
        check(f"{job['job']}: no shorter than its work", steps[-1] >= job["work_s"])
        check(f"{job['job']}: ahead of a balanced chain", steps[-1] <= job["balanced"]["step_s"])
    plans = [line for line in lines if "planned" in line]
    check("three planned jobs", len(plans) == 3)
    for line in plans:
        optimus, joint = line["optimus"], line["joint"]
        check(f"{line['planned']}: all fit: {line}",
              all(0 < line[name]["gib"] <= 80 for name in ("balanced", "optimus", "joint")))
        check(f"{line['planned']}: the joint plan is 5 % below Optimus'",
              0 < joint["step_s"] <= 0.95 * optimus["step_s"])
        check(f"{line['planned']}: no longer than the balanced one",
              joint["step_s"] <= line["balanced"]["step_s"] * (1 + 1e-9))
        words = f"| {line['gpus']:,} | joint | {joint['mesh']} | {joint['step_s']:.2f} |"
        with open(PAGE) as page:
            check(f"the page has {words}", words in page.read())
    print(f"{passed} passed, {failed} failed")
    sys.exit(int(failed > 0))


main()
