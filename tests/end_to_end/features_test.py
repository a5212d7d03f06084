"""The settings of a run do what they say, on the real program: freezing, recompute, precision, loss
weights, learning rates, held-out loss, the guard against NaN, and the files of a run folder."""
import glob
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

from safetensors.numpy import load_file, save_file

import tiny_case
from refusals import Cases


def module_of(name):
    if "vision_tower" in name:
        return "vision"
    return "projector" if "multi_modal_projector" in name else "llm"


def weights(run_dir):
    tensors = {}
    for path in glob.glob(f"{run_dir}/checkpoints/latest/*.safetensors"):
        tensors.update(load_file(path))
    return tensors


class Bench:
    """Runs of one case that differ in a setting."""

    def __init__(self, results, folder, config):
        self.results, self.folder, self.config = results, folder, config
        self.numbers = itertools.count(1)

    def run(self, name, ranks=1, config=None, check=True, **settings):
        """Trains; returns the run folder and what the program printed."""
        run_dir = f"{self.folder}/run{next(self.numbers)}"
        settings = {"train__steps": 6, "checkpoint__every": 1000, **settings}
        done = tiny_case.run(config or self.config, ranks, run__dir=run_dir, **settings)
        if check:
            self.results.check(f"trains: {name}", done.returncode == 0, done.stderr[-500:]
                               if done.returncode else "")
        return run_dir, done


def freezing(bench, start):
    check = bench.results.check
    peak = {}
    for frozen in (["vision"], ["projector"], ["llm"], ["vision", "projector"], []):
        name = ", ".join(frozen) or "nothing"
        run_dir, _ = bench.run(f"{name} frozen", model__freeze=f"[{', '.join(frozen)}]")
        now = weights(run_dir)
        moved = {n for n, t in start.items() if "exp_avg" not in n and (t != now[n]).any()}
        masters = {n for n in start if "exp_avg" not in n}
        still = {n for n in masters if module_of(n) in frozen}
        check(f"{name} frozen: these weights keep every bit", not moved & still)
        check(f"{name} frozen: all others move", moved == masters - still,
              str(sorted(masters - still - moved)[:3]))
        check(f"{name} frozen: moments of the others alone are saved",
              {n for n in now if n.startswith("exp_avg.")} ==
              {"exp_avg." + n for n in masters - still})
        peak[name] = tiny_case.metrics(run_dir)[-1]["mem_peak_bytes"]
    check("a frozen prefix costs less memory than a frozen end",
          peak["vision, projector"] < peak["vision"] < peak["nothing"], str(peak))
    run_dir, _ = bench.run("lr_factor.vision = 0", train__lr_factor__vision=0)
    now = weights(run_dir)
    moved = {module_of(n) for n, t in start.items() if "exp_avg" not in n and (t != now[n]).any()}
    check("lr_factor.vision = 0: the encoder alone stays", moved == {"projector", "llm"},
          str(moved))


def same_numbers(bench, base):
    """Settings that may not change a bit, and their gain."""
    check = bench.results.check
    peak = {}
    for word, modules in (("attention", ""), ("mlp", ""), ("full", "vision"), ("full", "llm"),
                          ("full", "")):
        name = f"recompute {word} {modules}".strip()
        run_dir, _ = bench.run(name, balance__recompute=word,
                               balance__recompute_modules=f"[{modules}]")
        check(f"{name}: bit-equal losses", tiny_case.losses(run_dir) == base["loss"])
        peak[name] = tiny_case.metrics(run_dir)[-1]["mem_peak_bytes"]
    check("recompute saves memory: all saves more than halves, halves more than nothing",
          peak["recompute full"] < min(peak["recompute attention"], peak["recompute mlp"])
          and max(peak.values()) < base["row"]["mem_peak_bytes"],
          f"{peak} against {base['row']['mem_peak_bytes']}")
    run_dir, _ = bench.run("data.threads = 3", data__threads=3, data__prefetch=1)
    check("loader threads change no bit", tiny_case.losses(run_dir) == base["loss"])
    random = {"balance__group": "random", "train__micro_batch": 6, "run__probe": "true"}
    tight, tight_run = bench.run("random", **random)
    padded, padded_run = bench.run("random, padded", balance__pad="true", **random)
    worst = max(abs(a - b) / b for a, b in zip(tiny_case.losses(padded), tiny_case.losses(tight)))
    check("padding changes rounding at most", worst < 1e-5, f"{worst:.1e}")
    ratios = [[row["pad_ratio"] for row in tiny_case.metrics(run)] for run in (padded, tight)]
    check("pad_ratio is what is computed for padding", all(0 < ratio < 1 for ratio in ratios[0])
          and not any(ratios[1]) and "padded to the longest: " in padded_run.stderr
          and "(train.micro_batch) by random, not padded" in tight_run.stderr, str(ratios))
    # Of the probe: a step's own peak depends on what happens to be loaded ahead.
    bytes_padded, bytes_tight = (float(re.search(r"takes ([\d.]+) MiB", run.stderr)[1])
                                 for run in (padded_run, tight_run))
    probed = int(re.search(r"tiles and (\d+) tokens", padded_run.stderr)[1])
    check("the probe's micro-batch is that of most padded tokens", probed % 6 == 0, f"{probed}")
    check("and costs memory", bytes_padded > bytes_tight, f"{bytes_padded}, {bytes_tight} MiB")
    run_dir, _ = bench.run("a huge clip", train__clip=1e30)
    free, _ = bench.run("no clip", train__clip=0)
    check("clip 0 does not clip", tiny_case.losses(free) == tiny_case.losses(run_dir)
          and tiny_case.losses(free) != base["loss"])
    run_dir, done = bench.run("two compute threads", train__threads=2)
    worst = max(abs(a - b) / b for a, b in zip(tiny_case.losses(run_dir), base["loss"]))
    check("train.threads = 2 is taken and changes rounding at most",
          "2 threads a rank" in done.stderr and worst < 1e-4, f"{worst:.1e}")
    run_dir, done = bench.run("bf16", train__precision="bf16")
    worst = max(abs(a - b) / b for a, b in zip(tiny_case.losses(run_dir), base["loss"]))
    check("bf16 is taken, and its losses are near", "in bf16" in done.stderr and 0 < worst < 3e-2,
          f"{worst:.1e}")
    check("a checkpoint of it holds fp32 masters",
          {str(t.dtype) for t in weights(run_dir).values()} == {"float32"})
    run_dir, done = bench.run("auto precision", train__precision="auto", train__steps=1)
    check("auto prints its choice", "(auto)" in done.stderr and (
        "in bf16" in done.stderr or "in fp32" in done.stderr), done.stderr[:200])


def loss_weights(bench, base):
    for loss in ("sample", "square"):
        one, _ = bench.run(f"loss {loss}", train__loss=loss)
        two, _ = bench.run(f"loss {loss} on 2 ranks", 2, train__loss=loss)
        losses = tiny_case.losses(one)
        worst = max(abs(a - b) / b for a, b in zip(tiny_case.losses(two), losses))
        bench.results.check(f"loss {loss}: another number than token, the same on 2 ranks",
                            losses[0] != base["loss"][0] and worst < 1e-5, f"{worst:.1e}")


def models(bench, folder, records):
    check = bench.results.check
    with open(f"{folder}/train.jsonl") as lines:
        texts = [line for line in lines if "image" not in json.loads(line)]
    with open(f"{folder}/text.jsonl", "w") as out:
        out.writelines(texts)
    source = f"[{{annotations: {folder}/text.jsonl, images: {folder}/images}}]"
    small = {"data__max_tokens": 48, "train__global_batch": 2, "train__steps": 12}
    for ranks in (1, 2):
        run_dir, _ = bench.run(f"text alone, {ranks} ranks", ranks, data__train=source, **small)
        rows = tiny_case.metrics(run_dir)
        check("text alone: no picture, falling loss", rows[-1]["loss"] < rows[0]["loss"]
              and not any(row["images"] for row in rows))
    tiny_case.write_model(f"{folder}/tied", records, tied=True)
    one, _ = bench.run("tied embeddings", model__hf=f"{folder}/tied")
    two, _ = bench.run("tied embeddings, 2 ranks", 2, model__hf=f"{folder}/tied")
    worst = max(abs(a - b) / b for a, b in zip(tiny_case.losses(two), tiny_case.losses(one)))
    check("tied embeddings: one copy is saved, 2 ranks agree", worst < 1e-5
          and not any("lm_head" in name for name in weights(one)), f"{worst:.1e}")
    with open(f"{folder}/model/config.json") as file:
        text_config = json.load(file)["text_config"]
    for family in ("qwen2", "llama"):
        model = f"{folder}/{family}"
        os.makedirs(model)
        shutil.copy(f"{folder}/model/tokenizer.json", model)
        with open(f"{model}/config.json", "w") as out:
            json.dump({**text_config, "model_type": family}, out)
        run_dir, _ = bench.run(f"{family} alone", 2, data__train=source, model__hf=model,
                               **small)
        check(f"{family} alone: the loss falls",
              tiny_case.losses(run_dir)[-1] < tiny_case.losses(run_dir)[0])
        Cases(bench.results).refused(
            f"pictures for {family} alone", tiny_case.command(
                bench.config, 1, model__hf=model, run__dir=f"{folder}/pictures_{family}"), 4,
            "no_vision", "data.max_bad_share")


def schedules(bench):
    steps, warmup, top = 10, 4, 1e-3
    shares = {"cosine": lambda d: 0.5 * (1 + math.cos(math.pi * d)), "linear": lambda d: 1 - d,
              "constant": lambda d: 1.0}
    for (name, share), low in zip(shares.items(), (0.1, 0.0, 0.1)):
        run_dir, _ = bench.run(
            f"{name} to {low}", train__schedule=name, train__steps=steps, train__min_lr=low,
            train__warmup=0.4, train__lr=top)
        got = [row["lr"] for row in tiny_case.metrics(run_dir)]
        want = [top * s / warmup if s < warmup else
                top * (low + (1 - low) * share((s - warmup) / (steps - warmup)))
                for s in range(steps)]
        bench.results.check(f"{name} to {low}: lr of every step", len(got) == steps and all(
            math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12) for a, b in zip(got, want)), str(got))


def held_out(bench, folder):
    check = bench.results.check
    source = f"[{{annotations: {folder}/train.jsonl, images: {folder}/images, repeat: 1.0}}]"
    curves = {}
    for every, ranks, expected in ((4, 1, [4, 8, 10]), (4, 2, [4, 8, 10]), (0, 1, [10]),
                                   (5, 1, [5, 10])):
        run_dir, _ = bench.run(f"eval.every = {every}, {ranks} ranks", ranks, data__eval=source,
                               eval__every=every, train__steps=10, eval__samples=20)
        rows = {row["step"]: row["eval_loss"] for row in tiny_case.metrics(run_dir)
                if "eval_loss" in row}
        check(f"eval.every = {every}: measured then and once at the end", list(rows) == expected,
              str(rows))
        curves[every, ranks] = rows
    check("held-out loss: falls, and is the same on 2 ranks",
          curves[4, 1][10] < curves[4, 1][4] and all(
              math.isclose(a, b, rel_tol=1e-5)
              for a, b in zip(curves[4, 1].values(), curves[4, 2].values())), str(curves))


def non_finite(bench, folder):
    check = bench.results.check
    for ranks in (1, 2):
        Cases(bench.results).refused(
            f"a rate that destroys the model, {ranks} ranks", tiny_case.command(
                bench.config, ranks, run__dir=f"{folder}/huge{ranks}", train__lr=1e38,
                train__clip=0), 5, "5 in a row", "train.jsonl:", "train.lr")
    # Patch weights with which no picture's sum is finite spoil the steps that meet one alone.
    trained, _ = bench.run("a model to spoil", train__steps=10)
    exported = f"{folder}/exported"
    done = subprocess.run([tiny_case.EQUIPOISE, "export", trained, "--out", exported],
                          capture_output=True, text=True, env=tiny_case.environment())
    check("its export", done.returncode == 0, done.stderr)
    with open(f"{folder}/train.jsonl") as file:
        records = [json.loads(line) for line in file]
    text = [record for record in records if "image" not in record]
    text[7] = next(r for r in records if isinstance(r.get("image"), str) and
                   r["width"] == r["height"])
    with open(f"{folder}/rare.jsonl", "w") as out:
        out.writelines(json.dumps(record) + "\n" for record in text)
    tensors = load_file(f"{exported}/model.safetensors")
    for name in tensors:
        if "patch_embeddings" in name:
            tensors[name][:] = 1e38
    save_file(tensors, f"{exported}/model.safetensors", metadata={"format": "pt"})
    run_dir, done = bench.run(
        "one step in several is not finite", 2, model__hf=exported, model__init="pretrained",
        data__train=f"[{{annotations: {folder}/rare.jsonl, images: {folder}/images}}]",
        train__steps=12, train__global_batch=2, data__max_tokens=48)
    rows = tiny_case.metrics(run_dir)
    bad = [row["step"] for row in rows if row["loss"] is None]
    check("such steps are skipped with a warning that names the samples", 0 < len(bad) < 12
          and done.stderr.count("skipped, ") == len(bad) and "rare.jsonl:8" in done.stderr,
          f"{bad} {done.stderr[-300:]}")
    check("the others train on", all(math.isfinite(row["loss"]) for row in rows
                                     if row["step"] not in bad))


METRICS = {"step", "loss", "grad_norm", "lr", "tokens", "samples", "images", "step_s",
           "tokens_per_s", "mem_peak_bytes", "rss_peak_bytes", "data_wait_s", "skipped_samples"}


def of_a_range(bench, folder):
    """A fraction of a range is one of all its records, as of one file that has them."""
    with open(f"{folder}/train.jsonl") as file:
        lines = file.readlines()
    for part in range(3):
        with open(f"{folder}/part-{part}.jsonl", "w") as out:
            out.writelines(lines[20 * part:20 * (part + 1)])
    source = "[{{annotations: '{}', images: {}/images, repeat: 1.4}}]"
    run_dir, _ = bench.run("a fraction of a range of files", data__train=source.format(
        f"{folder}/part-{{0..2}}.jsonl", folder))
    one, _ = bench.run("the same of one file", data__train=source.format(
        f"{folder}/train.jsonl", folder))
    again, _ = bench.run("a range's config.yaml", config=f"{run_dir}/config.yaml")
    losses = [tiny_case.losses(run) for run in (run_dir, one, again)]
    bench.results.check("a range is repeated as one file, also by its run's config.yaml",
                        losses[0] == losses[1] == losses[2], str(losses))


def run_files(bench, base):
    check = bench.results.check
    missing = METRICS - set(base["row"])
    check("metrics.jsonl has the keys of the contract", not missing, str(missing))
    with open(f"{base['dir']}/metrics.jsonl") as lines:
        digits = max(len(n.strip("-0.").replace(".", "").split("e")[0]) for line in lines
                     for n in [line.split('"loss":')[1].split(",")[0].strip()])
    check("with 9 significant digits", digits <= 9, str(digits))
    again, _ = bench.run("its own config.yaml", config=f"{base['dir']}/config.yaml")
    check("config.yaml of a run gives the same run", tiny_case.losses(again) == base["loss"])
    with open(f"{again}/report.html") as file:
        report = file.read()
    check("report.html stands alone", "<svg" in report and "http://" not in
          report.replace("http://www.w3.org", "") and "https://" not in report)
    events = glob.glob(f"{base['dir']}/tensorboard/*tfevents*")
    check("an event file for TensorBoard", len(events) == 1 and event_steps(events[0]) == 6,
          str(events))


def event_steps(path):
    """Highest step of a TensorBoard file: records of length, checksum, Event, checksum."""
    with open(path, "rb") as file:
        data = file.read()
    at, highest = 0, 0
    while at < len(data):
        size = int.from_bytes(data[at:at + 8], "little")
        event = data[at + 12:at + 12 + size]
        at += 16 + size
        if event[9:10] == b"\x10":  # wall_time, then field 2 as varint
            highest = max(highest, event[10])
    assert at == len(data)
    return highest


def probe(bench):
    """The pass before the first step shows memory and changes nothing."""
    check = bench.results.check
    for ranks, settings in ((1, {}), (2, {"parallel__pipeline": 2}), (2, {"parallel__data": 2})):
        with_probe, done = bench.run(f"probe, {ranks} ranks {settings}", ranks, run__probe="true",
                                     **settings)
        lines = [x for x in done.stderr.splitlines() if "probe: " in x]
        check(f"{ranks} ranks {settings}: what is run is told before, measured and forecast after",
              len(lines) == 2 and re.search(r"micro-batch, \d tiles and \d+ tokens$", lines[0]) and
              re.search(r"\d+\.\d MiB on rank [01].* forecast \d+\.\d MiB", lines[1]), str(lines))
        without, done = bench.run(f"no probe, {ranks} ranks {settings}", ranks, run__probe="false",
                                  **settings)
        check(f"{ranks} ranks {settings}: run.probe false runs none", "probe: " not in done.stderr)
        check(f"{ranks} ranks {settings}: bit-equal losses with and without",
              tiny_case.losses(without) == tiny_case.losses(with_probe))
    _, done = bench.run("auto", cluster__memory_gb=1)
    left_out = re.search(r"probe: none, as .* to take ([\d.]+) MiB of 1024.0", done.stderr)
    check("run.probe auto: none where the forecast is far below the memory", left_out,
          done.stderr[-600:])
    enough = 1.9 * float(left_out[1]) / 1024 if left_out else 1
    _, done = bench.run("auto, tight", cluster__memory_gb=round(enough, 4))
    check("run.probe auto: one where it is near", "probe: running a step of" in done.stderr,
          done.stderr[-600:])


def probe_forecast(bench, folder):
    """What the probe measures is what the cost model counts; the model is wide enough for tensors
    to outweigh all else that is kept."""
    shutil.copytree(f"{folder}/model", f"{folder}/wide")
    with open(f"{folder}/wide/config.json") as file:
        model = json.load(file)
    model["text_config"].update(hidden_size=384, intermediate_size=1024, num_hidden_layers=4,
                                num_attention_heads=6, vocab_size=2048)
    model["vision_config"].update(hidden_size=192, intermediate_size=768, num_hidden_layers=4,
                                  image_size=[112, 112])
    model["image_seq_length"] = 16
    with open(f"{folder}/wide/config.json", "w") as out:
        json.dump(model, out)
    for precision, ranks, more in (
            ("fp32", 1, {}), ("fp32", 2, {"parallel__pipeline": 2}),
            ("fp32", 1, {"balance__recompute": "full"}), ("fp32", 1, {"model__freeze": "[llm]"}),
            ("bf16", 1, {}), ("bf16", 2, {"parallel__data": 2})):
        name = f"probe's forecast, {precision}, {ranks} ranks {more}"
        _, done = bench.run(name, ranks, train__steps=1, train__precision=precision,
                            run__probe="true", model__hf=f"{folder}/wide", data__max_tokens=400,
                            train__global_batch=2, **more)
        found = re.search(r"takes ([\d.]+) MiB .* forecast ([\d.]+) MiB", done.stderr)
        measured, forecast = map(float, found.groups()) if found else (1.0, 0.0)
        bench.results.check(f"{name}: within 5 %", abs(forecast / measured - 1) <= 0.05,
                            f"{forecast} MiB, measured {measured}")


def traces(bench):
    check = bench.results.check
    run_dir, _ = bench.run("many small buckets", 2, parallel__bucket_bytes=20000,
                           run__trace_steps=3)
    with open(f"{run_dir}/trace.json") as file:
        events = json.load(file)["traceEvents"]
    orders, early = [], []
    for rank in (0, 1):
        mine = sorted((e for e in events if e["ph"] == "X" and e["pid"] == 2 * rank),
                      key=lambda e: e["ts"])
        buckets = [e for e in mine if e["name"].startswith("reduce bucket")]
        last = [e for e in mine if e["name"] == "0B3"]  # the last of a rank's four micro-batches
        orders.append([e["name"] for e in buckets])
        per_step = len(buckets) // 3
        for step, backward in enumerate(last):
            end = backward["ts"] + backward["dur"]
            mine = buckets[step * per_step:(step + 1) * per_step]
            early.append(sum(backward["ts"] < b["ts"] < end for b in mine) / len(mine))
    each = [f"reduce bucket {i}" for i in range(len(orders[0]) // 3)]
    check("each rank starts its buckets in one order", orders[0] == orders[1] == each * 3
          and len(each) > 10, f"{len(each)} buckets, {orders[0][:3]}")
    check("most start before the last backward ends", len(early) == 6 and min(early) > 0.5,
          str(early))
    short, _ = bench.run("fewer steps than are traced", 1, train__steps=1, run__trace_steps=3)
    check("a run that ends early leaves its trace", os.path.exists(f"{short}/trace.json"))
    big, _ = bench.run("one bucket", 2, parallel__bucket_bytes=1 << 30)
    check("the size of buckets changes no bit", tiny_case.losses(big) == tiny_case.losses(run_dir))


def main():
    results = tiny_case.Results()
    folder = os.path.realpath(tempfile.mkdtemp(prefix="features"))
    config = tiny_case.write_case(folder)
    with open(f"{folder}/train.jsonl") as lines:
        records = [json.loads(line) for line in lines]
    bench = Bench(results, folder, config)
    still, _ = bench.run("lr 0", train__lr=0, train__steps=1)
    run_dir, _ = bench.run("as it stands")
    base = {"dir": run_dir, "loss": tiny_case.losses(run_dir),
            "row": tiny_case.metrics(run_dir)[-1]}
    tiny_case.side_by_side(
        lambda: freezing(bench, weights(still)), lambda: same_numbers(bench, base),
        lambda: loss_weights(bench, base), lambda: models(bench, folder, records),
        lambda: schedules(bench), lambda: held_out(bench, folder),
        lambda: non_finite(bench, folder), lambda: run_files(bench, base), lambda: probe(bench),
        lambda: of_a_range(bench, folder),
        lambda: probe_forecast(bench, folder),
        lambda: traces(bench))
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
