"""`equipoise doctor` on real runs of two ranks, each with a fault: it names the right one first."""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

from PIL import Image

import tiny_case

STEPS = 4


def doctor(*arguments):
    return tiny_case.execute([tiny_case.EQUIPOISE, "doctor", *arguments])


def named_first(done):
    found = re.search(r"^first    (.*?), ", done.stdout, re.MULTILINE)
    return found.group(1) if found else done.stdout + done.stderr


def wide_model(folder):
    """A model whose passes take longer than what happens around them."""
    with open(f"{folder}/model/config.json") as file:
        config = json.load(file)
    config["text_config"].update(hidden_size=256, intermediate_size=1024, num_hidden_layers=6)
    config["vision_config"].update(num_hidden_layers=2)
    with open(f"{folder}/model/config.json", "w") as file:
        json.dump(config, file)


def check_slow_loader(results, folder, config):
    """Pictures of many pixels, which one loader thread decodes."""
    noise = Image.frombytes("RGB", (400, 400), random.Random(0).randbytes(3 * 400 * 400))
    large = f"{folder}/large"
    os.makedirs(large, exist_ok=True)
    noise.resize((3000, 3000)).save(f"{large}/noise.png", compress_level=1)
    with open(f"{folder}/train.jsonl") as file:
        records = [json.loads(line) for line in file]
    with open(f"{folder}/large.jsonl", "w") as out:
        for record in records:
            if isinstance(record.get("image"), str):
                record.update(image="noise.png", width=3000, height=3000)
                out.write(json.dumps(record) + "\n")
    run_dir = f"{folder}/slow_loader"
    done = tiny_case.run(config, 2, run__dir=run_dir, train__steps=STEPS, parallel__pipeline=2,
                         data__train=f"[{{annotations: {folder}/large.jsonl, images: {large}}}]",
                         train__global_batch=4, run__probe="false")
    results.check("slow loader: trains", done.returncode == 0, done.stderr[-500:])
    page, data = f"{folder}/doctor.html", f"{folder}/doctor.json"
    done = doctor(run_dir, "--html", page, "--json", data)
    results.check("slow loader: waiting for data is named first", done.returncode == 0 and
                  named_first(done) == "data wait", done.stdout + done.stderr)
    results.check("slow loader: with more loader threads to paste",
                  "data: {threads: 4, prefetch: 16}" in done.stdout, done.stdout)
    with open(page) as file:
        text = file.read()
    results.check("the page has a bar for each rank, causes and remedies",
                  text.count("idle</text>") == 2 and "data wait" in text and "Remedies" in text)
    check_json(results, data)


def check_json(results, path):
    with open(path) as file:
        found = json.load(file)
    seconds = [cause["seconds"] for cause in found["causes"]]
    results.check("JSON: causes from the longest on, the first with its remedy",
                  found["causes"][0]["cause"] == "data wait" and
                  seconds == sorted(seconds, reverse=True) and
                  any(remedy["setting"].startswith("data: {threads") and
                      0 < remedy["predicted_gain_s"] <= seconds[0]
                      for remedy in found["causes"][0]["remedies"]), str(found["causes"]))
    for rank in found["ranks"]:
        total = rank["compute_s"] + rank["update_s"] + sum(rank["idle_s"].values())
        results.check("JSON: a rank's seconds add up to the step",
                      abs(total - found["step_s"]) < 1e-6 * found["step_s"], str(rank))


def check_uneven_cut(results, folder, config):
    """The last rank has all layers but the first."""
    run_dir = f"{folder}/uneven_cut"
    done = tiny_case.run(config, 2, run__dir=run_dir, train__steps=STEPS, parallel__pipeline=2,
                         parallel__schedule="1f1b", parallel__stage_layers="[1,11]",
                         run__probe="false")
    results.check("uneven cut: trains", done.returncode == 0, done.stderr[-500:])
    done = doctor(run_dir)
    results.check("uneven cut: the stages are named first", done.returncode == 0 and
                  named_first(done) == "imbalance: stages", done.stdout + done.stderr)
    cut = re.search(r"stages cut by time +([\d.]+) % +parallel: \{(.*)stage_layers: \[(.*)\]\}",
                    done.stdout)
    results.check("uneven cut: another is simulated, and there to paste", cut is not None and
                  float(cut.group(1)) > 10, done.stdout)
    trace = json.load(open(f"{run_dir}/trace.json"))
    alone = f"{folder}/trace.json"
    with open(alone, "w") as file:
        json.dump(trace, file)
    done = doctor(alone)
    results.check("uneven cut: so it is from the trace alone", done.returncode == 0 and
                  named_first(done) == "imbalance: stages", done.stdout + done.stderr)


def check_slow_rank(results, folder, config):
    """One of two data ranks gives way to a busy process on its core, the other does not."""
    run_dir = f"{folder}/slow_rank"
    settings = [f"--set={key}" for key in (
        f"run.dir={run_dir}", f"train.steps={STEPS}", "parallel.data=2", "run.probe=false")]
    rank = [tiny_case.EQUIPOISE, "train", config, *settings]
    core = str(min(os.sched_getaffinity(0)))
    hog = subprocess.Popen(["taskset", "-c", core, sys.executable, "-c", "while True: pass"])
    try:
        done = tiny_case.execute([tiny_case.MPIRUN, "--bind-to", "none", "-n", "1", *rank, ":",
                                  "-n", "1", "taskset", "-c", core, "nice", "-n", "12", *rank])
    finally:
        hog.kill()
        hog.wait()
    results.check("slow rank: trains", done.returncode == 0, done.stderr[-500:])
    done = doctor(run_dir)
    results.check("slow rank: it is named first, by its number", done.returncode == 0 and
                  named_first(done) == "imbalance: slow rank" and
                  "rank 1 takes " in done.stdout, done.stdout + done.stderr)


def check_plan(results, folder, config):
    plan = f"{folder}/plan.json"
    done = tiny_case.run(config, 1, "plan", "--json", plan, "--ranks", "2", parallel__pipeline=2,
                         parallel__schedule="1f1b", parallel__stage_layers="[1,11]")
    results.check("a plan is written", done.returncode == 0, done.stderr[-400:])
    done = doctor(plan)
    results.check("a plan's cut is named first", done.returncode == 0 and
                  named_first(done) == "imbalance: stages", done.stdout + done.stderr)


def check_refusals(results, folder):
    for name, path, words in (("a folder that is no run", folder, "has no config.yaml"),
                              ("a file that is not there", f"{folder}/absent", "absent"),
                              ("another file", f"{folder}/config.yaml",
                               "config.yaml: is a configuration")):
        done = doctor(path)
        results.check(f"{name} is refused in one line", done.returncode == 4 and
                      words in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr)


def main():
    results = tiny_case.Results()
    folder = os.path.realpath(tempfile.mkdtemp(prefix="doctor"))
    config = tiny_case.write_case(folder)
    wide_model(folder)
    check_uneven_cut(results, folder, config)
    check_slow_loader(results, folder, config)
    check_slow_rank(results, folder, config)
    check_plan(results, folder, config)
    check_refusals(results, folder)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
