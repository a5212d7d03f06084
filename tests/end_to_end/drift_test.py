"""What a run says of its own speed: predicted_step_s and mfu in the metrics, and one line with the
likely cause where steps drift from the prediction."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import tiny_case

RECORDS = 8
PEAK_TFLOPS = 0.05


# Each step takes all records, a micro-batch each, so that its FLOPs are known.
STEP = dict(train__global_batch=RECORDS, train__micro_batch=1, balance__group="random",
            checkpoint__every=1000)


def forward_flops(config, sample):
    """Of one sample, from the shapes of its matrix products: 2 FLOPs a multiplication."""
    vision, text = config["vision_config"], config["text_config"]
    tiles, tokens, targets = sample["tiles"], sample["tokens"], sample["trained"]
    width, inner = vision["hidden_size"], vision["intermediate_size"]
    side, patch = vision["image_size"][0], vision["patch_size"][0]
    patches = (side // patch) ** 2
    rows = patches + 1  # and the class token
    encoder = 2 * patches * 3 * patch * patch * width
    encoder += vision["num_hidden_layers"] * (
        2 * rows * (4 * width * width + 2 * width * inner) + 2 * 2 * rows * rows * width)
    hidden, wide = text["hidden_size"], text["intermediate_size"]
    merged = width * round(1 / config["downsample_ratio"]) ** 2
    projector = 2 * config["image_seq_length"] * (merged * hidden + hidden * hidden)
    key = hidden // text["num_attention_heads"] * text["num_key_value_heads"]
    block = 2 * tokens * (hidden * (2 * hidden + 2 * key) + 3 * hidden * wide)
    block += 2 * 2 * hidden * tokens * (tokens + 1) / 2  # causal: each token sees those before it
    head = 2 * targets * hidden * text["vocab_size"]
    return tiles * (encoder + projector) + text["num_hidden_layers"] * block + head


def model_flops(folder, config):
    """Of a step of all records: forward, and twice as much for both gradients."""
    with open(f"{folder}/model/config.json") as file:
        model = json.load(file)
    total = 0
    for record in range(RECORDS):
        shown = subprocess.run([tiny_case.EQUIPOISE, "data", config, "show", str(record), "--json"],
                               capture_output=True, text=True, timeout=120)
        total += 3 * forward_flops(model, json.loads(shown.stdout))
    return total


def check_metrics(results, folder, config, profile):
    settings = dict(STEP, train__steps=4, cluster__profile=profile,
                    cluster__peak_tflops=PEAK_TFLOPS)
    flops = model_flops(folder, config)
    for name, ranks, more in (("one rank", 1, {}), ("data 2", 2, {}),
                              ("pipeline 2", 2, {"parallel__pipeline": 2})):
        run_dir = f"{folder}/{name.replace(' ', '')}"
        done = tiny_case.run(config, ranks, run__dir=run_dir, **settings, **more)
        results.check(f"{name}: trains", done.returncode == 0, done.stderr[-400:])
        rows = tiny_case.metrics(run_dir)
        worst = max(abs(row["mfu"] / (flops / (row["step_s"] * ranks * PEAK_TFLOPS * 1e12)) - 1)
                    for row in rows)
        results.check(f"{name}: mfu is FLOPs over time, ranks and peak", worst < 1e-6,
                      f"{worst:.1e} {rows[-1]['mfu']:.3f}")
        ratios = [row["step_s"] / row["predicted_step_s"] for row in rows[1:]]
        results.check(f"{name}: predicted_step_s is of the measured size", all(
            0.05 < ratio < 100 for ratio in ratios), str([round(r, 2) for r in ratios]))
    done = tiny_case.run(config, 1, run__dir=f"{folder}/plain", **dict(STEP, train__steps=1))
    row = tiny_case.metrics(f"{folder}/plain")[0]
    results.check("neither where the speed is not known", done.returncode == 0 and
                  not {"mfu", "predicted_step_s"} & set(row), str(sorted(row)))


def scaled(profile, folder, factor):
    """The profile of a device that computes `factor` times as fast."""
    with open(profile) as file:
        content = json.load(file)
    for layer in content["layers"]:
        for key in layer:
            if key.endswith("_s"):
                layer[key] /= factor
    path = f"{folder}/scaled{factor}.json"
    with open(path, "w") as file:
        json.dump(content, file)
    return path


def drifts(done):
    return [line for line in done.stderr.splitlines() if "drift: " in line]


def check_drift(results, folder, config, profile):
    settings = dict(STEP, train__steps=40)
    for factor, words in ((20, ("more than the predicted", "times as long as predicted")),
                          (1 / 50, ("less than the predicted", "ranks compute 0."))):
        done = tiny_case.run(config, 2, run__dir=f"{folder}/drift{factor}",
                             cluster__profile=scaled(profile, folder, factor), **settings)
        # On a busy machine a window may have another cause, which is told too.
        computing = [line for line in drifts(done) if all(word in line for word in words)]
        results.check(f"a profile {factor} times too fast: computing is named, once",
                      done.returncode == 0 and len(computing) == 1,
                      f"{drifts(done)} {done.stderr[-300:]}")
    done = tiny_case.run(config, 2, run__dir=f"{folder}/unknown", **settings)
    results.check("nothing is told without a prediction",
                  done.returncode == 0 and not drifts(done), str(drifts(done)))


def main():
    results = tiny_case.Results()
    folder = os.path.realpath(tempfile.mkdtemp(prefix="drift"))
    config = tiny_case.write_case(folder, count=RECORDS)
    profile = f"{folder}/profile.json"
    done = tiny_case.run(config, 2, "profile", "--out", profile, "--sweeps", "2")
    results.check("profile", done.returncode == 0, done.stderr[-400:])
    check_metrics(results, folder, config, profile)
    check_drift(results, folder, config, profile)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
