"""`plan --trial K` runs the best plans for some real steps, names the one measured fastest, and
leaves no run folder; its plan can be pasted into the configuration."""
import glob
import json
import os
import shutil
import sys
import tempfile

import tiny_case
from refusals import Cases

KEYS = ("mesh", "schedule", "chunks", "zero")


def same_plan(one, other):
    return all(one[key] == other[key] for key in KEYS)


def check_trial(results, folder, config):
    files = [f"{folder}/plan.json", f"{folder}/plan.html"]
    before = set(glob.glob(f"{folder}/*"))
    done = tiny_case.run(config, 2, "plan", "--trial", "3", "--json", files[0], "--html", files[1])
    results.check("three plans tried on two ranks", done.returncode == 0, done.stderr[-500:])
    left = {path for path in set(glob.glob(f"{folder}/*")) - before - set(files)
            if not path.endswith(".index") and "cache" not in path}
    results.check("no run folder is left", not left, str(left))
    with open(files[0]) as file:
        plan = json.load(file)
    trials = plan["trials"]
    medians = [trial["step_s"]["p50"] for trial in trials]
    results.check("the fastest first", len(trials) == 3 and medians == sorted(medians),
                  str(medians))
    results.check("p10 to p90", all(0 < t["step_s"]["p10"] <= t["step_s"]["p50"] <=
                                    t["step_s"]["p90"] for t in trials))
    results.check("beside what was predicted", all(
        abs(t["step_s"]["p50"] / t["predicted_step_s"] - 1 - t["difference"]) < 1e-9
        for t in trials))
    results.check("several meshes, though this is one machine",
                  len({str(trial["mesh"]) for trial in trials}) > 1, str(trials))
    results.check("the plan is the fastest one", same_plan(plan, trials[0]) and
                  same_plan(plan["plans"][0], trials[0]) and
                  len(plan["stages"]) == trials[0]["mesh"]["pipeline"] * trials[0]["chunks"])
    table = done.stdout.split("\ntried ")[1]
    results.check("a table", done.stdout.count("\nplan ") == 1 and table.count(" % ") >= 3, table)
    with open(files[1]) as file:
        results.check("the page", "\ntried " in file.read())
    check_pasted(results, folder, config, trials[0],
                 done.stdout.split("to train with it:\n")[1].split("\n\n")[0])


def check_pasted(results, folder, config, best, section):
    """The printed sections, put behind a configuration that has none of them."""
    with open(config) as file, open(f"{folder}/pasted.yaml", "w") as out:
        out.write(file.read() + section + "\n")
    done = tiny_case.run(f"{folder}/pasted.yaml", 2, run__dir=f"{folder}/pasted", train__steps=1)
    results.check("what is printed trains", done.returncode == 0, section + done.stderr[-300:])
    with open(f"{folder}/pasted/plan.yaml") as file:
        results.check("with that plan", file.read().startswith(
            f"parallel:\n  data: {best['mesh']['data']}\n  pipeline: {best['mesh']['pipeline']}\n"))


def check_alone(results, config):
    done = tiny_case.run(config, 1, "plan", "--trial", "2")
    results.check("one rank, without mpirun", done.returncode == 0 and
                  "to train with it:\nparallel:\n  data: 1\n" in done.stdout, done.stderr[-300:])


LIMITED = ["bash", "-c", 'ulimit -v 20000000; exec "$@"', "bash"]  # 20 GB of addresses


def check_memory(results, folder, config):
    """A model that the forecast lets through (memory_gb) and the system does not."""
    started = tiny_case.execute([*LIMITED, tiny_case.EQUIPOISE, "--help"])
    if "Sanitizer" in started.stderr:
        print("skipped: plan_trial_test, memory: the address sanitizer itself needs more addresses")
        return
    shutil.copytree(f"{folder}/model", f"{folder}/large")
    with open(f"{folder}/large/config.json") as file:
        model = json.load(file)
    model["text_config"]["vocab_size"] = 60_000_000
    with open(f"{folder}/large/config.json", "w") as file:
        json.dump(model, file)
    for ranks in (1, 2):
        line = tiny_case.command(config, ranks, "plan", "--trial", "1",
                                 model__hf=f"{folder}/large", cluster__memory_gb=10000)
        done = tiny_case.execute([*LIMITED, *line])
        lines = [x for x in done.stderr.splitlines() if "equipoise: " in x]
        results.check(f"{ranks} ranks: a plan that cannot have its memory", done.returncode == 5 and
                      len(lines) == 1 and "out of memory: rank 0 cannot get" in lines[0],
                      f"exit {done.returncode} {lines} {done.stderr[-300:]}")


def check_refusals(results, config):
    cases = Cases(results)
    for name, ranks, arguments, settings, words in (
            ("more ranks than were started", 2, ["--trial", "2", "--ranks", "4"], {},
             ["4 ranks", "2 were started", "mpirun -n 4"]),
            ("a cluster's devices", 2, ["--trial", "2"], {"cluster__preset": "a100-80g"},
             ["8 ranks", "--ranks 2"]),
            ("none to be tried", 1, ["--trial", "0"], {}, ["--trial"]),
            ("no trial under mpirun", 2, [], {}, ["without --trial"])):
        cases.refused(name, tiny_case.command(config, ranks, "plan", *arguments, **settings), 2,
                      *words)


def main():
    results = tiny_case.Results()
    folder = os.path.realpath(tempfile.mkdtemp(prefix="plan_trial"))
    config = tiny_case.write_case(folder)
    check_trial(results, folder, config)
    check_alone(results, config)
    check_memory(results, folder, config)
    check_refusals(results, config)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
