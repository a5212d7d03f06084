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


def samples(config):
    shown = [subprocess.run([tiny_case.EQUIPOISE, "data", config, "show", str(record), "--json"],
                            capture_output=True, text=True, timeout=120)
             for record in range(RECORDS)]
    return [json.loads(each.stdout) for each in shown]


def read_model(folder):
    with open(f"{folder}/model/config.json") as file:
        return json.load(file)


# Seconds of a forward, of a tile or a token.
PER_TILE = {"patch_embedding": 1e-3, "vision_block": 4e-3, "projector": 2e-3}
PER_TOKEN = {"token_embedding": 1e-5, "decoder_block": 1e-4, "head": 5e-5}


def write_profile(measured, path, factor=1.0):
    """The rows of a profile with times that are given, not measured: of a device that computes
    `factor` times as fast as PER_TILE and PER_TOKEN say."""
    with open(measured) as file:
        content = json.load(file)
    for row in content["layers"]:
        kind = row["layer_kind"]
        # Pairs are patches squared for each tile.
        tiles = row["patches"] ** 2 / row["patch_pairs"] if row["patches"] else 0
        seconds = (PER_TILE[kind] * tiles if kind in PER_TILE else
                   PER_TOKEN[kind] * row["tokens"]) / factor
        row.update(forward_s=seconds, backward_s=2 * seconds, input_gradient_s=seconds,
                   weight_gradient_s=seconds)
    content["optimizer_s_per_parameter"] = 0
    with open(path, "w") as file:
        json.dump(content, file)
    return path


def profiled_seconds(model, sample):
    """Of forward and backward of one sample, by such a profile."""
    vision, text = (model[part]["num_hidden_layers"] for part in ("vision_config", "text_config"))
    tile = PER_TILE["patch_embedding"] + vision * PER_TILE["vision_block"] + PER_TILE["projector"]
    token = PER_TOKEN["token_embedding"] + text * PER_TOKEN["decoder_block"] + PER_TOKEN["head"]
    return 3 * (tile * sample["tiles"] + token * sample["tokens"])


def check_metrics(results, folder, config, profile):
    settings = dict(STEP, train__steps=4, cluster__profile=profile,
                    cluster__peak_tflops=PEAK_TFLOPS)
    model = read_model(folder)
    # Forward, and twice as much for both gradients.
    flops = sum(3 * forward_flops(model, sample) for sample in samples(config))
    whole = sum(profiled_seconds(model, sample) for sample in samples(config))
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
        predicted = {row["predicted_step_s"] for row in rows}
        # Two ranks have half of it each at best, and what they exchange at worst beside the whole.
        low, high = (0.99, 1.01) if ranks == 1 else (0.49, 1.2)
        results.check(f"{name}: predicted_step_s follows from the profile's times", all(
            low * whole < seconds < high * whole for seconds in predicted), f"{predicted} {whole}")
    done = tiny_case.run(config, 1, run__dir=f"{folder}/plain", **dict(STEP, train__steps=1))
    row = tiny_case.metrics(f"{folder}/plain")[0]
    results.check("neither where the speed is not known", done.returncode == 0 and
                  not {"mfu", "predicted_step_s"} & set(row), str(sorted(row)))


def drifts(done):
    return [line for line in done.stderr.splitlines() if "drift: " in line]


def check_drift(results, folder, config, measured):
    """Profiles that are wrong by a factor that no machine makes up for."""
    settings = dict(STEP, train__steps=40)
    for name, factor, words in (
            ("fast", 1e5, ("more than the predicted", "times as long as predicted")),
            ("slow", 1e-4, ("less than the predicted", "ranks compute 0"))):
        profile = write_profile(measured, f"{folder}/{name}.json", factor)
        for ranks in (1, 2):
            done = tiny_case.run(config, ranks, run__dir=f"{folder}/{name}{ranks}",
                                 cluster__profile=profile, **settings)
            told = drifts(done)
            # Of two ranks the machine may make one wait for the other, which is a cause as well.
            named = [line for line in told if all(word in line for word in words)]
            results.check(f"a profile that is too {name}, {ranks} ranks: " +
                          ("computing is named, once" if ranks == 1 else "a drift is told"),
                          done.returncode == 0 and (len(named) == 1 if ranks == 1 else
                                                    any(words[0] in line for line in told)),
                          f"{told} {done.stderr[-300:]}")
    done = tiny_case.run(config, 2, run__dir=f"{folder}/unknown", **settings)
    results.check("nothing is told without a prediction",
                  done.returncode == 0 and not drifts(done), str(drifts(done)))


def main():
    results = tiny_case.Results()
    folder = os.path.realpath(tempfile.mkdtemp(prefix="drift"))
    config = tiny_case.write_case(folder, count=RECORDS)
    measured = f"{folder}/measured.json"
    done = tiny_case.run(config, 2, "profile", "--out", measured, "--sweeps", "1")
    results.check("profile", done.returncode == 0, done.stderr[-400:])
    check_metrics(results, folder, config, write_profile(measured, f"{folder}/given.json"))
    check_drift(results, folder, config, measured)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
