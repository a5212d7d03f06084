"""`train --dry-run` refuses what `train` refuses before its first step, in the same words; where it
prints a plan, it leaves nothing behind, and training takes that plan."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import tiny_case
from refusals import our_lines


def write(path, text):
    with open(path, "w") as out:
        out.write(text)
    return path


def both(results, name, code, *words, config, ranks=1, more=(), drawn=False, **settings):
    """The same command with and without --dry-run: one line each, and the same; `drawn`: a part of
    the schedule is shown below it."""
    lines = []
    for flags in (("--dry-run",), ()):
        where = {} if flags else {"run__dir": os.path.dirname(config) + "/refused"}
        done = tiny_case.execute(tiny_case.command(config, ranks, "train", *flags, *more,
                                                   **{**where, **settings}), 300,
                                 stdin=subprocess.DEVNULL)
        ours = our_lines(done.stderr)
        good = done.returncode == code and len(ours) >= 1 and (drawn or len(ours) == 1) and all(
            w in ours[0] for w in words)
        results.check(f"{name}: {' '.join(flags) or 'train'}", good and not done.stdout,
                      f"exit {done.returncode} {ours} {done.stdout[:100]}")
        lines.append(ours)
    results.check(f"{name}: the same line", lines[0] == lines[1])


def weights(results, folder, config):
    """A model's folder whose weights are absent, of another model, or damaged."""
    done = tiny_case.run(config, 1, run__dir=f"{folder}/first", train__steps=1)
    exported = f"{folder}/exported"
    export = subprocess.run([tiny_case.EQUIPOISE, "export", f"{folder}/first", "--out", exported],
                            capture_output=True, text=True, timeout=300)
    results.check("a model to begin with", done.returncode == export.returncode == 0,
                  done.stderr[-300:] + export.stderr[-300:])
    start = dict(config=config, model__init="pretrained", run__dir=f"{folder}/other")
    both(results, "no weights", 4, f"{folder}/model", "model.safetensors", **start)
    both(results, "a preset has no weights", 2, "model.init", "random", model__hf='""',
         model__preset="quickstart", data__tokenizer=f"{folder}/preset_tokenizer.json", **start)
    path = f"{exported}/model.safetensors"
    with open(path, "rb") as file:
        good = file.read()
    for name, data in (("cut", good[:-100]), ("no header", good[:100]), ("empty", b""),
                       ("a tensor of another name",
                        good.replace(b"norm.weight", b"nrom.weight", 1))):
        with open(path, "wb") as file:
            file.write(data)
        both(results, f"weights: {name}", 4, exported, model__hf=exported, **start)
    with open(path, "wb") as file:
        file.write(good)
    with open(f"{exported}/config.json") as file:
        text = file.read()
    wider = text.replace('"intermediate_size": 128', '"intermediate_size": 192')
    assert wider != text
    write(f"{exported}/config.json", wider)
    both(results, "weights of another shape", 4, "has the shape", "the model needs",
         model__hf=exported, **start)


def preset_tokenizer(folder):
    """The tokenizer, with the picture token where the preset `quickstart` has it."""
    with open(f"{folder}/model/tokenizer.json") as file:
        tokenizer = json.load(file)
    for token in tokenizer["added_tokens"]:
        if token["content"] == "<IMG_CONTEXT>":
            token["id"] = 2047
    tokenizer["model"]["vocab"].pop("<IMG_CONTEXT>", None)
    write(f"{folder}/preset_tokenizer.json", json.dumps(tokenizer))


SCHEDULE = """micro_batches 4
stage 0 rank 0 next 1
stage 1 rank 1
rank 0: 0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3
rank 1: 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3
"""


def schedule_files(results, folder, config):
    """What training does with a schedule from a file, dry runs do, and so does `plan`."""
    path = write(f"{folder}/schedule.txt", SCHEDULE)
    settings = dict(train__global_batch=4, parallel__pipeline=2, parallel__schedule=path)
    for name, (old, new, said) in {
            "an op is missing": (" 0B2", "", "0B2 is missing"),
            "a deadlock": ("1F0 1B0", "1B0 1F0", "deadlocks"),
            "an unknown op": ("0F2", "0Q2", ":4:21:"),
            "other micro-batches": ("batches 4", "batches 5", "5 micro-batches")}.items():
        write(path, SCHEDULE.replace(old, new))
        both(results, f"a schedule's file: {name}", 2, path, said, config=config, ranks=2,
             drawn="missing" in name, **settings)
    both(results, "no schedule's file", 2, "neither a schedule nor a file", config=config, ranks=2,
         **{**settings, "parallel__schedule": folder})
    both(results, "too few ranks for the schedule's stages", 2, "parallel.data", config=config,
         **settings)
    write(path, SCHEDULE)
    wanted = f"plan     data 1 x pipeline 2 x tensor 1, {path}"
    for name, done in (
            ("dry run", tiny_case.run(config, 2, "train", "--dry-run", **settings)),
            ("plan", tiny_case.run(config, 1, "plan", "--ranks", "2", **settings)),
            ("plan that need not fit",
             tiny_case.run(config, 1, "plan", "--ranks", "2", cluster__memory_gb=0.01,
                           **settings))):
        results.check(f"a right schedule's file: {name}", done.returncode == 0 and
                      wanted in done.stdout, done.stdout[:400] + done.stderr[-300:])
    done = tiny_case.run(config, 2, run__dir=f"{folder}/scheduled", train__steps=1, **settings)
    results.check("and it is trained with", done.returncode == 0, done.stderr[-300:])


def odd_settings(results, config):
    """One line says once what is hardly meant, in a run, a dry run and a plan."""
    settings = dict(train__lr="1e-5", train__min_lr="1e-6", train__steps=1)
    for name, done in (("a run", tiny_case.run(config, 2, **settings)),
                       ("a dry run", tiny_case.run(config, 2, "train", "--dry-run", **settings)),
                       ("a plan", tiny_case.run(config, 1, "plan", "--ranks", "2", **settings))):
        results.check(f"{name} warns of a rate that is a share", done.returncode == 0 and
                      done.stderr.count("train.min_lr: 1e-06 is a share of train.lr") == 1,
                      done.stderr[-500:])


def main():
    results = tiny_case.Results()
    folder = os.path.realpath(tempfile.mkdtemp(prefix="dry_run"))
    config = tiny_case.write_case(folder)
    preset_tokenizer(folder)
    a_file = write(f"{folder}/file", "")
    source = f"{{annotations: {folder}/train.jsonl, images: {folder}/images}}"
    for name, code, words, settings in (
            ("a module of no model", 2, ["model.freeze", "vit"], {"model__freeze": "[vit]"}),
            ("all frozen", 2, ["model.freeze", "nothing is left"],
             {"model__freeze": "[vision, projector, llm]"}),
            ("fewest tiles above most", 2, ["data.tiles.min"], {"data__tiles__min": 3}),
            ("the run folder is a file", 5, [a_file, "run.dir"], {"run__dir": a_file}),
            ("the run folder is in a file", 5, [a_file, "run.dir"], {"run__dir": f"{a_file}/run"}),
            ("the run folder cannot be made", 5, ["/proc/run"], {"run__dir": "/proc/run"}),
            ("no annotations", 4, ["/nowhere.jsonl"],
             {"data__train": "[{annotations: /nowhere.jsonl, images: /tmp}]"}),
            ("no held-out annotations", 4, ["/nowhere.jsonl"],
             {"data__eval": "[{annotations: /nowhere.jsonl, images: /tmp}]"}),
            ("no questions", 4, ["/nowhere.jsonl"],
             {"eval__answers": f"[{source}, {{annotations: /nowhere.jsonl, images: /tmp}}]"}),
            ("the best by the choice of options that no question lists", 2,
             ["checkpoint.best", "train/choice is never measured"],
             {"eval__answers": f"[{source}]", "eval__answer_every": 1,
              "checkpoint__best": "train/choice"}),
            ("no pictures", 4, ["/nowhere"],
             {"data__train": f"[{{annotations: {folder}/train.jsonl, images: /nowhere}}]"}),
            ("too few samples", 4, ["train.global_batch 100000"],
             {"train__global_batch": 100000}),
            ("no such model", 4, ["/nowhere"], {"model__hf": "/nowhere"}),
            ("no checkpoint to go on from", 4, ["/nowhere"],
             {"more": ("--resume", "/nowhere")})):
        both(results, name, code, *words, config=config, **settings)
    both(results, "2 ranks, too many for the mesh", 2, "parallel.data", config=config, ranks=2,
         parallel__data=3)
    both(results, "2 ranks, no annotations", 4, "/nowhere.jsonl", config=config, ranks=2,
         data__train="[{annotations: /nowhere.jsonl, images: /tmp}]")
    results.check("dry runs leave nothing behind", not os.path.exists(f"{folder}/run"))
    weights(results, folder, config)
    schedule_files(results, folder, config)
    both(results, "other data than the checkpoint's", 2, "data.max_tokens", config=config,
         run__dir=f"{folder}/first", data__max_tokens=96)
    both(results, "a checkpoint that would be lost", 2, "--resume none", config=config,
         run__dir=f"{folder}/first", more=("--resume", "none"))

    done = tiny_case.run(config, 2, "train", "--dry-run")
    results.check("a plan", done.returncode == 0 and done.stdout.count("\nplan ") == 1 and
                  not os.path.exists(f"{folder}/run"), done.stdout[-300:] + done.stderr[-300:])
    mesh = done.stdout.split("\nplan ")[1].splitlines()[0].strip().split(",")[0]
    done = tiny_case.run(config, 2, train__steps=1)
    results.check("and the plan that is trained with", done.returncode == 0 and
                  mesh in done.stderr, f"{mesh}: {done.stderr[-500:]}")
    odd_settings(results, config)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
