"""`plan` prints and writes the balanced plan without a GPU, mpirun or data; `train --dry-run` shows
that of as many ranks; a run stores its plan, which pins it; mistakes are one line."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import save_file

import tiny_case

CONFIG = "configs/internvl2_26b_sft.yaml"
KEYS = ("mesh", "encoder", "schedule", "stages", "step_s", "bubble_share", "tokens_per_s", "mfu",
        "gpu_days", "cost", "balance", "rejected")


def plan(*arguments):
    return subprocess.run([tiny_case.EQUIPOISE, "plan", *arguments], capture_output=True,
                          text=True, timeout=300)


def check_shipped(results, folder):
    files = [f"{folder}/plan.json", f"{folder}/trace.json"]
    done = plan(CONFIG, "--json", files[0], "--trace", files[1], "--explain")
    results.check("the shipped plan", done.returncode == 0, done.stderr[-300:])
    results.check("a table of ranks", "recomputed layers" in done.stdout and
                  "histogram internvl12m" in done.stdout)
    with open("README.md") as readme:
        shown = readme.read().split(f"$ equipoise plan {CONFIG}\n")[1].split("```")[0].splitlines()
    missing = [x for x in shown if x not in done.stdout.splitlines() and not x.startswith("  ..")]
    results.check("the README's lines", len(shown) > 10 and not missing, missing)
    results.check("reasons", "not taken" in done.stdout and "a step or more" in done.stdout)
    with open(files[0]) as file:
        first = json.load(file)
    results.check("the contract's keys", all(key in first for key in KEYS),
                  [key for key in KEYS if key not in first])
    mesh = first["mesh"]
    results.check("64 ranks", mesh["data"] * mesh["pipeline"] * mesh["tensor"] == 64, mesh)
    results.check("traffic", first["traffic"]["between_nodes_bytes"] > 0 and
                  first["traffic"]["within_node_bytes"] > 0 and "each rank sends" in done.stdout)
    results.check("each rank fits", all(stage["memory_bytes"] <= 79.1 * 2**30
                                        for stage in first["stages"]))
    with open(files[1]) as file:
        results.check("a trace", len(json.load(file)["traceEvents"]) > 100)
    again = plan(CONFIG, "--json", files[0])
    with open(files[0]) as file:
        results.check("the same plan again", again.returncode == 0 and json.load(file) == first)
    more = plan(CONFIG, "--ranks", "128", "--json", files[0])
    with open(files[0]) as file:
        mesh = json.load(file)["mesh"]
    results.check("128 ranks", more.returncode == 0 and
                  mesh["data"] * mesh["pipeline"] * mesh["tensor"] == 128, mesh)


def check_many_ranks(results, folder):
    """A cluster of 3,072 devices: a plan that fits, in bounded memory."""
    path = f"{folder}/many.json"
    command = [tiny_case.EQUIPOISE, "plan", CONFIG, "--ranks", "3072", "--json", path, "--set",
               "train.global_batch=24576"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    results.check("3,072 ranks", child.returncode == 0, child.returncode)
    results.check("in less than 1 GiB", usage.ru_maxrss < 1 << 20, f"{usage.ru_maxrss} KiB")
    with open(path) as file:
        found = json.load(file)
    mesh, stages = found["mesh"], found["stages"]
    results.check("all of them are used",
                  mesh["data"] * mesh["pipeline"] * mesh["tensor"] == found["ranks"] == 3072, mesh)
    results.check("each of them fits", {stage["rank"] for stage in stages} ==
                  set(range(mesh["pipeline"])) and
                  all(stage["memory_bytes"] <= 79.1 * 2**30 for stage in stages))


def check_compare(results, folder):
    other = f"{folder}/other.yaml"
    with open(CONFIG) as source, open(other, "w") as out:
        out.write(source.read().replace("a100-80g, nodes: 8", "h100-80g, nodes: 4"))
    # Fewer packs than the histogram's, so that the table is there soon.
    fast = ("--set", "train.global_batch=64", "--set", "parallel.schedule=1f1b")
    path = f"{folder}/compared.json"
    done = plan(CONFIG, "--compare", other, "--compare", CONFIG, "--json", path, *fast)
    lines = done.stdout.splitlines()
    results.check("a row each", done.returncode == 0 and
                  [line.split()[0] for line in lines[1:4]] == [CONFIG, other, CONFIG] and
                  "price/M samples" in lines[0], done.stdout + done.stderr[-300:])
    results.check("what differs is named", f"{other} differs from {CONFIG} in cluster.nodes, "
                  "cluster.preset" in lines and f"{CONFIG} is as {CONFIG}" in lines, lines[4:])
    with open(path) as file:
        table = json.load(file)
    rows = table["configurations"]
    results.check("all of them as JSON", [row["ranks"] for row in rows] == [64, 32, 64] and
                  rows[0]["step_s"] == rows[2]["step_s"], [row["ranks"] for row in rows])
    quickest = min(rows, key=lambda row: row["step_s"]["p50"])["config"]
    results.check("the best is marked", quickest in table["best"]["step_s"], table["best"])
    for name, arguments, code, said in (
            ("a file that is not there", [CONFIG, "--compare", "nowhere.yaml"], 2, "nowhere.yaml"),
            ("a plan that does not fit", [CONFIG, "--compare", other, "--set",
                                          "cluster.memory_gb=1"], 3, CONFIG),
            ("too few samples", [CONFIG, "--compare", other, "--set",
                                 "train.global_batch=500000"], 4, CONFIG),
            ("a page of several", [CONFIG, "--compare", other, "--html", "x.html"], 2, "--html"),
    ):
        done = plan(*arguments)
        lines = done.stderr.strip().splitlines()
        results.check(f"compare: {name}", done.returncode == code and len(lines) == 1 and
                      said in lines[0], f"exit {done.returncode} {lines}")


def check_goal(results, folder):
    fast = ("--set", "train.global_batch=64", "--set", "parallel.schedule=1f1b", "--set",
            "goal.max_gpus=32")
    path = f"{folder}/goal.json"

    def planned(*settings):
        sets = [part for text in settings for part in ("--set", text)]
        done = plan(CONFIG, *fast, "--json", path, *sets)
        if done.returncode != 0:
            return done, None
        with open(path) as file:
            return done, json.load(file)

    done, free = planned()
    sizes = free["goal"]["sizes"]
    left_out = [each["gpus"] for each in free["goal"]["left_out"]]
    results.check("every size is searched or left out", sorted(
        [each["gpus"] for each in sizes] + left_out) == [1, 2, 4, 8, 16, 24, 32] and
        len(sizes) >= 3, free["goal"])
    results.check("the front is printed", all(
        any(line.split()[:1] == [str(each["gpus"])] or line.split()[:2] == ["*", str(each["gpus"])]
            for line in done.stdout.splitlines()) for each in sizes if each["pareto"]), done.stdout)
    results.check("without limits the shortest", free["ranks"] == min(
        sizes, key=lambda each: each["hours"])["gpus"], free["ranks"])

    hours = sorted(each["hours"] for each in sizes)
    limit = (hours[0] + hours[1]) / 2 + (hours[1] - hours[0])
    in_time = [each for each in sizes if each["hours"] <= limit]
    done, late = planned(f"goal.deadline={limit}")
    results.check("a deadline: the cheapest in time", late is not None and late["ranks"] == min(
        in_time, key=lambda each: each["cost"])["gpus"], done.stderr[-300:])
    budget = sorted(each["cost"] for each in sizes)[1] * 1.0001
    affordable = [each for each in sizes if each["cost"] <= budget]
    done, cheap = planned(f"goal.budget={budget}")
    results.check("a budget: the shortest within it", cheap is not None and cheap["ranks"] == min(
        affordable, key=lambda each: each["hours"])["gpus"], done.stderr[-300:])

    done, _ = planned(f"goal.deadline={hours[0] / 3}")
    lines = done.stderr.strip().splitlines()
    results.check("too early: exit 3, one line", done.returncode == 3 and len(lines) == 1 and
                  "goal.deadline of" in lines[0] and "; allow " in lines[0], lines)
    told = lines[0].split("; allow ")[1].split(" h")[0]
    done, found = planned(f"goal.deadline={told}")
    results.check("what it says is enough", done.returncode == 0, done.stderr[-300:])
    for name, setting, code, said in (
            ("a budget for nothing", "goal.budget=0.5", 3, "goal.budget of 0.5"),
            ("no hours", "goal.deadline=soon", 2, "goal.deadline"),
            ("no objective", "goal.objective=fast", 2, "goal.objective"),
            ("no budget", "goal.budget=-1", 2, "goal.budget"),
    ):
        done, _ = planned(setting)
        lines = done.stderr.strip().splitlines()
        results.check(f"goal: {name}", done.returncode == code and len(lines) == 1 and
                      said in lines[0], f"exit {done.returncode} {lines}")


def check_mistakes(results):
    for name, arguments, code, said in (
            ("no file", ["nowhere.yaml"], 2, "nowhere.yaml"),
            ("unknown option", [CONFIG, "--rank", "4"], 2, "--rank"),
            ("no ranks", [CONFIG, "--ranks", "0"], 2, "--ranks"),
            ("costs that are not there", [CONFIG, "--set", "data.costs=x"], 2, "data.costs"),
            ("a cluster that is too small",
             [CONFIG, "--set", "cluster.memory_gb=1"], 3, "what would make it fit"),
            ("nothing to choose", [CONFIG, "--set", "parallel.data=3"], 2, "data 3"),
            ("fewer samples than a step",
             [CONFIG, "--set", "train.global_batch=500000"], 4, "train.global_batch"),
    ):
        done = plan(*arguments)
        lines = done.stderr.strip().splitlines()
        results.check(name, done.returncode == code and len(lines) == 1 and said in lines[0],
                      f"exit {done.returncode} {lines}")


def check_training(results, folder):
    config = tiny_case.write_case(folder)
    done = tiny_case.run(config, 2, "train", "--dry-run")
    results.check("dry run", done.returncode == 0 and "data 2 x pipeline 1" in done.stdout and
                  done.stdout.count("\nplan ") == 1 and not os.path.exists(f"{folder}/run"),
                  done.stdout[-300:] + done.stderr[-300:])
    done = tiny_case.run(config, 2, "train", "--dry-run", goal__deadline=1e-9)
    results.check("ranks that are there are told what they miss", done.returncode == 0 and
                  "goal.deadline of 1e-09 h" in done.stderr and "missed: " in done.stdout,
                  done.stdout[:600] + done.stderr[-300:])
    done = tiny_case.run(config, 2, "train", "--dry-run", goal__deadline="2020-01-01")
    results.check("a run may go on behind its deadline", done.returncode == 0 and
                  done.stderr.count("goal.deadline: 2020-01-01 is over") == 1, done.stderr[-400:])
    settings = dict(train__steps=2, train__global_batch=2, parallel__pipeline=2)
    done = tiny_case.run(config, 2, run__dir=f"{folder}/free", **settings)
    results.check("trained", done.returncode == 0, done.stderr[-300:])
    stored = f"{folder}/free/plan.yaml"
    with open(stored) as file:
        text = file.read()
    results.check("plan.yaml", "pipeline: 2" in text and "stage_layers: [" in text and
                  "step_s:" in text, text)
    def stored_value(key):
        return text.split(f"{key}: ")[1].splitlines()[0]

    done = tiny_case.run(config, 2, run__dir=f"{folder}/pinned",
                         parallel__stage_layers=stored_value("stage_layers"),
                         parallel__schedule=stored_value("schedule"),
                         parallel__chunks=stored_value("chunks"),
                         balance__recompute_layers=stored_value("recompute_layers"), **settings)
    results.check("pinned", done.returncode == 0, done.stderr[-300:])
    with open(f"{folder}/pinned/plan.yaml") as file:
        results.check("the same plan", file.read() == text)
    results.check("the same losses",
                  tiny_case.losses(f"{folder}/pinned") == tiny_case.losses(f"{folder}/free"))
    done = tiny_case.run(config, 1, run__dir=f"{folder}/small", cluster__memory_gb=0.001,
                         train__steps=1)
    lines = [x for x in done.stderr.splitlines() if "equipoise: " in x]
    results.check("a model that does not fit: exit 3", done.returncode == 3 and len(lines) == 1 and
                  "what would make it fit" in lines[0], f"exit {done.returncode} {lines}")


def check_template(results, folder):
    """A plan says by which template conversations become tokens, and where it is not the folder's
    own."""
    config = tiny_case.write_case(folder)
    says = "conversations become tokens by data.template: "
    done = tiny_case.run(config, 1, "plan")
    results.check("the common template", f"{says}chatml\n" in done.stdout, done.stdout[:300])
    with open(f"{folder}/model/chat_template.jinja", "w") as file:
        file.write("<|im_start|> </think>")
    done = tiny_case.run(config, 1, "plan")
    results.check("the folder's", f"{says}qwen3\n" in done.stdout, done.stdout[:300])
    for subcommand in (["plan"], ["train", "--dry-run"]):
        done = tiny_case.run(config, 1, *subcommand, data__template="chatml")
        results.check(f"{subcommand[0]}: another", f"{says}chatml\n" in done.stdout and
                      done.stderr.count("has another of its own") == 1 and
                      "set data.template: qwen3" in done.stderr, done.stdout[:300] + done.stderr)
    done = tiny_case.run(config, 1, "plan", data__costs="internvl12m")
    results.check("no conversations are read", done.returncode == 0 and says not in done.stdout,
                  done.stdout[:300] + done.stderr)


def check_limits(results, folder):
    """Limits that do not fit are lowered, by `plan` and by runs; a run that goes on keeps them."""
    config = tiny_case.write_case(folder)
    fixed = ("--ranks", "1", "--set", "balance.recompute=none")

    def planned(*settings):
        done = plan(config, *fixed, "--json", f"{folder}/plan.json", *settings)
        results.check("planned", done.returncode == 0, done.stderr[-300:])
        with open(f"{folder}/plan.json") as file:
            return json.load(file), done.stdout

    stats = subprocess.run([tiny_case.EQUIPOISE, "data", config, "stats", "--json"],
                           capture_output=True, text=True, timeout=300)
    longest = json.loads(stats.stdout)["tokens"]["max"]
    all_, text = planned()
    limits = all_["limits"]
    results.check("limits of the data", limits["tokens"] == 128 > longest + 16 and
                  "lowered" not in text, f"{limits}, longest {longest}")
    least, _ = planned("--set", f"balance.tokens={longest}")
    memory = (all_["plans"][0]["peak_bytes"] + least["plans"][0]["peak_bytes"]) / 2**31
    lower, text = planned("--set", f"cluster.memory_gb={memory}")
    tokens, tiles = lower["limits"]["tokens"], lower["limits"]["tiles"]
    results.check("lowered", longest <= tokens < 128 and "lowered from" in text and
                  lower["limits"]["lowered_from"] == limits, f"{lower['limits']} {text[:300]}")
    results.check("to what fits", lower["plans"][0]["peak_bytes"] <= memory * 2**30)
    pinned = plan(config, *fixed, "--set", f"cluster.memory_gb={memory}", "--set",
                  "balance.tokens=128", "--set", f"balance.tiles={limits['tiles']}")
    results.check("given limits stay", pinned.returncode == 3, pinned.stderr[-300:])

    run = dict(balance__recompute="none", run__dir=f"{folder}/lowered", checkpoint__every=2)
    shown = f"at most {tiles} tiles (chosen) and {tokens} tokens (chosen)"
    done = tiny_case.run(config, 1, train__steps=2, cluster__memory_gb=memory, **run)
    results.check("trained with lowered limits", done.returncode == 0 and
                  "lowered from" in done.stderr and
                  shown in done.stderr, done.stderr[-900:])
    with open(f"{folder}/lowered/plan.yaml") as file:
        results.check("stored", f"tokens: {tokens}" in file.read())
    done = tiny_case.run(config, 1, train__steps=3, balance__tokens=128, **run)
    results.check("other limits are refused", done.returncode == 2 and
                  f"balance.tokens was {tokens} and is 128" in done.stderr, done.stderr[-300:])
    done = tiny_case.run(config, 1, train__steps=3, **run)
    results.check("with more memory the same packs go on", done.returncode == 0 and
                  shown in done.stderr and
                  len(tiny_case.losses(f"{folder}/lowered")) == 3, done.stderr[-300:])
    done = tiny_case.run(config, 1, train__steps=4, balance__tokens=tokens, balance__tiles=tiles,
                         **run)
    results.check("as do the same, given", done.returncode == 0 and
                  len(tiny_case.losses(f"{folder}/lowered")) == 4, done.stderr[-300:])


def check_weights(results, folder):
    """A folder's weights, by their headers; one without any is planned by its config.json."""
    os.makedirs(f"{folder}/weights")
    path = tiny_case.write_case(f"{folder}/weights")
    config = f"{folder}/weights/pretrained.yaml"
    with open(path) as file, open(config, "w") as out:
        out.write(file.read().replace("init: random", "init: pretrained"))
    model = f"{folder}/weights/model"
    bare = plan(config, "--ranks", "1")
    results.check("a folder without weights is planned, with a warning", bare.returncode == 0 and
                  bare.stderr.count("holds no weights, which `train` will read") == 1,
                  bare.stderr[-300:])
    with open(f"{model}/model.safetensors", "w") as file:
        file.write("version https://git-lfs.github.com/spec/v1\n")
    pointer = plan(config, "--ranks", "1")
    results.check("nor are git's pointers weights", pointer.returncode == 0 and
                  "holds no weights" in pointer.stderr, pointer.stderr[-300:])
    save_file({"model.norm.weight": torch.ones(4)}, f"{model}/model.safetensors")
    for more in ((), ("--compare", config)):
        other = plan(config, "--ranks", "1", *more)
        results.check(f"weights of another model are refused {more}", other.returncode == 4 and
                      "weights are missing" in other.stderr and not other.stdout,
                      other.stderr[-300:])
    random = plan(config, "--ranks", "1", "--set", "model.init=random")
    results.check("those of random weights are not looked at", random.returncode == 0,
                  random.stderr[-300:])


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="plan")
    check_shipped(results, folder)
    check_many_ranks(results, folder)
    check_compare(results, folder)
    check_goal(results, folder)
    check_mistakes(results)
    check_training(results, folder)
    check_template(results, f"{folder}/template")
    check_limits(results, folder)
    check_weights(results, folder)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
