"""A step of nothing but pictures that fail when decoded has no target: all ranks skip it alike, it
changes no weight, and its samples are counted."""
import glob
import json
import os
import shutil
import sys
import tempfile

from safetensors.numpy import load_file

import tiny_case
from refusals import Cases

GOOD, BAD = 2, 4  # steps until the pictures are spoilt, and until they are whole again


def write_pictures_alone(folder):
    """A case without text samples; in `spoilt` the same pictures, cut short after their heads,
    which the index reads."""
    config = tiny_case.write_case(folder)
    with open(f"{folder}/train.jsonl") as file:
        records = [json.loads(line) for line in file]
    with open(f"{folder}/train.jsonl", "w") as file:
        file.writelines(json.dumps(r) + "\n" for r in records if "image" in r)
    shutil.copytree(f"{folder}/images", f"{folder}/spoilt")
    for name in os.listdir(f"{folder}/spoilt"):
        path = f"{folder}/spoilt/{name}"
        os.truncate(path, os.path.getsize(path) * 6 // 10)
    return config


def swap(folder):
    """Puts the spoilt pictures in the place of the whole ones, or back."""
    for old, new in (("images", "other"), ("spoilt", "images"), ("other", "spoilt")):
        os.rename(f"{folder}/{old}", f"{folder}/{new}")


def state_and_tensors(run_dir, step):
    folder = f"{run_dir}/checkpoints/step-{step:08d}"
    with open(f"{folder}/index.json") as file:
        state = json.load(file)["state"]
    tensors = {}
    for path in glob.glob(f"{folder}/*.safetensors"):
        tensors.update(load_file(path))
    return state, tensors


def skips(results, folder, config, ranks):
    check = results.check
    run_dir, name = f"{folder}/run{ranks}", f"{ranks} ranks"
    settings = dict(run__dir=run_dir, train__global_batch=2, train__schedule="constant",
                    checkpoint__every=1000, data__max_bad_share=1)
    for last, images in ((GOOD, "whole"), (BAD, "spoilt"), (BAD + 1, "whole")):
        if last > GOOD:
            swap(folder)
        done = tiny_case.run(config, ranks, train__steps=last, **settings)
        check(f"{name}: {images} pictures, to step {last}", done.returncode == 0,
              done.stderr[-500:])
        if images == "spoilt":
            check(f"{name}: each skipped step is told", done.stderr.count("; skipped") ==
                  BAD - GOOD, done.stderr[-500:])
    rows = tiny_case.metrics(run_dir)
    check(f"{name}: the skipped steps alone have no loss and no norm",
          [("loss" in row, "grad_norm" in row) for row in rows] ==
          [(GOOD >= step or step > BAD,) * 2 for step in range(1, BAD + 2)], str(rows))
    check(f"{name}: their samples are counted", [row["skipped_samples"] for row in rows] == [
        sum(row["samples"] for row in rows[GOOD:min(step, BAD)]) for step in range(1, BAD + 2)])
    check(f"{name}: their learning rate is told", rows[GOOD]["lr"] > 0, str(rows[GOOD]))
    before, tensors_before = state_and_tensors(run_dir, GOOD)
    after, tensors_after = state_and_tensors(run_dir, BAD)
    check(f"{name}: weights and moments keep every bit",
          tensors_before.keys() == tensors_after.keys() and
          all((tensors_after[n] == t).all() for n, t in tensors_before.items()))
    check(f"{name}: the optimizer counts its own steps", [
        (before["step"], before["optimizer_step"]), (after["step"], after["optimizer_step"]),
        state_and_tensors(run_dir, BAD + 1)[0]["optimizer_step"]] ==
        [(GOOD, GOOD), (BAD, GOOD), GOOD + 1])
    return rows


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="skipped")
    config = write_pictures_alone(folder)
    one, two = (skips(results, folder, config, ranks) for ranks in (1, 2))
    results.check("the step after them is the same on 1 and 2 ranks",
                  abs(one[-1]["loss"] - two[-1]["loss"]) <= 1e-5 * one[-1]["loss"])
    source = f"[{{annotations: {folder}/train.jsonl, images: {folder}/spoilt}}]"
    Cases(results).refused("more than data.max_bad_share", tiny_case.command(
        config, 2, run__dir=f"{folder}/share", data__train=source), 4, "data.max_bad_share",
        "quarantine.jsonl")
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
