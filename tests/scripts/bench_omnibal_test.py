"""configs/bench_omnibal.yaml on records made here: prepare-mixed makes its data, and two ranks
train a step of the baseline and of the balanced system that scripts/bench/omnibal compares."""

import json
import math
import sys
import tempfile
from importlib import machinery, util

import prepared_set

sys.path[:0] = ["tests/end_to_end", "scripts/bench"]
import tiny_case  # noqa: E402  pylint: disable=wrong-import-position

CONFIG = "configs/bench_omnibal.yaml"


def load_bench():
    loader = machinery.SourceFileLoader("omnibal", "scripts/bench/omnibal")
    module = util.module_from_spec(util.spec_from_loader("omnibal", loader))
    loader.exec_module(module)
    return module


def write_mixed(folder):
    """Pictures of one or two, and long texts between short ones."""
    records = tiny_case.write_records(folder, 120, seed=3)
    for i, record in enumerate(records):
        if "image" not in record:
            words = " ".join(str(number * 7919 % 1000) for number in range(5 + i))
            record["conversations"][1]["value"] = words
    with open(f"{folder}/mixed.jsonl", "w", encoding="utf8") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)


def train(folder, run_dir, settings):
    """One step of two micro-batches in place of eight; all else is the configuration's."""
    sources = [f"{{annotations: {folder}/set/{name}.jsonl, images: {folder}/set/images}}"
               for name in ("pictures", "text")]
    given = {key: value for key, value in settings.items() if value is not None}
    given |= {"run.dir": run_dir, "model.hf": f"{folder}/set/model", "train.steps": 1,
              "train.global_batch": 2, "data.train": f"[{', '.join(sources)}]"}
    return tiny_case.run(CONFIG, 2, timeout=600, **given)


def check_step(results, name, done, run_dir):
    results.check(f"{name}: trained", done.returncode == 0, done.stderr[-1500:])
    if done.returncode:
        return {"pad_ratio": math.nan}
    row, = tiny_case.metrics(run_dir)
    results.check(f"{name}: what the bench reads is there", math.isfinite(row["loss"]) and
                  row["mfu"] > 0 and row["step_s"] > 0 and row["samples"] > 0, str(row))
    return row


def main():
    results = tiny_case.Results()
    bench = load_bench()
    with tempfile.TemporaryDirectory(prefix="omnibal") as folder:
        write_mixed(folder)
        made = prepared_set.run("scripts/prepare-mixed", f"{folder}/set", "--records",
                                f"{folder}/mixed.jsonl", "--images", f"{folder}/images")
        results.check("prepare-mixed", made.returncode == 0, made.stderr)
        for mode, mesh in bench.MODES.items():
            baseline = bench.BASELINE | mesh | {"train.micro_batch": 2} | bench.STRONGEST
            balanced = dict(baseline)
            for _, change in bench.ADDED:
                balanced |= change
            run_dir = f"{folder}/{mode}"
            padded = check_step(results, f"{mode}, baseline",
                                train(folder, f"{run_dir}-baseline", baseline),
                                f"{run_dir}-baseline")
            packed = check_step(results, f"{mode}, balanced", train(folder, run_dir, balanced),
                                run_dir)
            results.check(f"{mode}: the baseline alone pads",
                          padded["pad_ratio"] > 0 == packed["pad_ratio"], f"{padded} {packed}")
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
