"""configs/quickstart.yaml on stamps made here: two ranks train the model of prepare-stamps for a
few steps, go on from a checkpoint, and quickstart-summary reads what they leave."""

import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

from PIL import Image

import prepared_set

sys.path.insert(0, "tests/end_to_end")
import tiny_case  # noqa: E402  pylint: disable=wrong-import-position

CONFIG = "configs/quickstart.yaml"
STAMPS = 760


def make_stamps(folder):
    """As many words as fill the vocabulary."""
    letters = random.Random(0)
    for i in range(STAMPS):
        picture = Image.new("RGB", (40 + i % 7, 30), (i % 251, i % 13, 7))
        picture.putpixel((3, 4), (255 - i % 256, i // 256, 200))
        name = " ".join("".join(letters.choices("abcdefghijklmnoprstuvw", k=6)) for _ in range(2))
        prepared_set.save_stamp(folder, f"kind{i % 3}/stamp{i:03}", picture, f"A {name}.\n")


def settings(folder):
    """The files are here, a few steps and answers are enough; all else is the configuration's."""
    sources = [f"{{annotations: {folder}/{name}.jsonl, images: {folder}/stamps}}"
               for name in ("train", "permuted", "heldout")]
    return {"run__dir": f"{folder}/run", "model__hf": f"{folder}/model",
            "data__train": f"[{sources[0]}]", "data__eval": f"[{sources[2]}]",
            "eval__answers": f"[{', '.join(sources)}]", "eval__answer_samples": 5,
            "eval__samples": 8}


def main():
    results = tiny_case.Results()
    with tempfile.TemporaryDirectory(prefix="quickstart") as folder:
        make_stamps(f"{folder}/stamps")
        done = prepared_set.run("scripts/prepare-stamps", folder, "--stamps", f"{folder}/stamps")
        results.check("prepare-stamps", done.returncode == 0, done.stderr)
        for steps, first in ((2, "training: steps 1 to 2"), (3, "going on from")):
            done = tiny_case.run(CONFIG, 2, train__steps=steps, timeout=600, **settings(folder))
            results.check(f"{steps} steps", done.returncode == 0 and first in done.stderr,
                          done.stderr[-1500:])
        size = re.search(r"([0-9.]+) M parameters on cpu.* data 2 x pipeline 1", done.stderr)
        results.check("the model's size, and two data ranks",
                      size is not None and abs(float(size[1]) - 10.8) < 0.05, done.stderr[:600])
        rows = tiny_case.metrics(f"{folder}/run")
        results.check("a loss for each step", [row["step"] for row in rows] == [1, 2, 3] and
                      all(math.isfinite(row["loss"]) and row["loss"] > 0 for row in rows), rows)
        results.check("about 32 pictures a step", all(20 <= row["images"] <= 44 for row in rows),
                      [row["images"] for row in rows])
        with open(f"{folder}/run/config.yaml", encoding="utf8") as file:
            text = file.read()
        results.check("the shipped settings", all(word in text for word in (
            "schedule: cosine", "global_batch: 2", "max_tokens: 640", "every: 100")))
        with open(f"{folder}/run/answers.jsonl", encoding="utf8") as file:
            answers = [json.loads(line) for line in file]
        results.check("answers of each source", len(answers) == 15, len(answers))
        done = subprocess.run(
            [sys.executable, "scripts/quickstart-summary", f"{folder}/run", "60"],
            capture_output=True, text=True, check=False)
        results.check("a summary, and that the goal is missed", done.returncode == 1 and
                      "exact match, training pictures: " in done.stdout and
                      "3 steps, 60 s" in done.stdout and
                      os.path.join(f"{folder}/run", "report.html") in done.stdout,
                      done.stdout + done.stderr)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
