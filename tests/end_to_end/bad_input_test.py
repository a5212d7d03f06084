"""Everything a user can get wrong ends soon, with the exit code of design 7 and one line that says
where, what is wrong and what to do: on rank 0 alone, without a stack."""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import tiny_case
from refusals import Cases


def write(path, text):
    with open(path, "w") as out:
        out.write(text)
    return path


def on_ranks(*lines):
    """One mpirun with a command line for each rank."""
    command = [tiny_case.MPIRUN]
    for i, line in enumerate(lines):
        command += ([":"] if i else []) + ["-n", "1", *line]
    return command


def usage(cases, config):
    program = tiny_case.EQUIPOISE
    cases.refused("no subcommand", [program], 2, "--help")
    cases.refused("unknown subcommand", [program, "fly", config], 2, "--help")
    cases.refused("a slip in a subcommand", [program, "tran", config], 2, "did you mean 'train'")
    cases.refused("unknown option", [program, "train", config, "--fast"], 2, "--fast")
    cases.refused("a setting as an option", [program, "train", config, "--steps", "3"], 2,
                  "not expected: --steps 3", "--set train.steps=3")
    cases.refused("two values of an option that takes one", [
        program, "generate", "x", "--prompt", "Q", "--image", "a.png", "b.png"], 2,
        "not expected: b.png")
    shown = tiny_case.execute([program, "generate", "--help"]).stdout
    cases.results.check("and the help shows one", "--image TEXT  " in shown and
                        "--set TEXT  " in shown and "..." not in shown.split("Examples")[0], shown)
    cases.refused("a subcommand with a slip", [program, "trian", config], 2, "trian",
                  "did you mean 'train'?")
    cases.refused("unknown option on 2 ranks",
                  [tiny_case.MPIRUN, "-n", "2", program, "train", config, "--fast"], 2, "--fast")
    for strangers in ({"PMI_SIZE": "4", "PMI_RANK": "0"},
                      {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}):
        cases.refused(f"ranks of another launcher, {[*strangers][0]}", [
            "env", *(f"{name}={value}" for name, value in strangers.items()), program, "train",
            config], 2, "4 processes were started, but not by Open MPI's mpirun", "--mpi=pmix")
    done = tiny_case.execute(["env", "PMI_SIZE=4", "PMI_RANK=1", program, "train", config])
    cases.results.check("and one of them says so", (done.returncode, done.stderr) == (2, ""),
                        done.stderr)
    done = tiny_case.execute(["env", "SLURM_STEP_NUM_TASKS=4", "SLURM_PTY_PORT=1", program,
                              "--version"])
    cases.results.check("a shell of srun is no launcher", done.returncode == 0, done.stderr)
    cases.refused("train without CONFIG", [program, "train"], 2, "CONFIG")
    cases.refused("missing configuration", [program, "train", config + ".nowhere"], 2,
                  "config.yaml.nowhere")
    cases.refused("a folder as configuration", [program, "train", os.path.dirname(config)], 2)
    cases.refused("--set without a value", [program, "train", config, "--set", "train.lr"], 2,
                  "train.lr")
    cases.refused("--set of an unknown key",
                  tiny_case.command(config, 1, train__step=3), 2, "train.step", "'train.steps'")
    cases.refused("--resume of nothing",
                  tiny_case.command(config, 1, "train", "--resume", "/nowhere/at/all"), 4,
                  "/nowhere/at/all")


def yaml_faults(cases, folder, config):
    with open(config) as file:
        good = file.read()
    for name, old, new, words in (
            ("unknown key", "warmup:", "warmupp:", ["train.warmupp", "'train.warmup'"]),
            ("unknown section", "checkpoint:", "checkpoints:", ["checkpoints", "'checkpoint'"]),
            ("duplicate key", "train: {", "train: {seed: 3, ", ["seed", "twice"]),
            ("leading zero", "global_batch: 8", "global_batch: 010", ["train.global_batch", "010"]),
            ("wrong type", "steps: 20", "steps: many", ["train.steps", "many"]),
            ("out of range", "warmup: 2", "warmup: -2", ["train.warmup", "-2"]),
            ("a list for a map", "checkpoint: {every: 5, keep: 3}", "checkpoint: [5, 3]",
             ["checkpoint"]),
            ("unknown name", "precision: fp32", "precision: fp31", ["train.precision", "fp32"]),
            ("broken YAML", "checkpoint: {", "checkpoint: {{", [])):
        assert good.count(old) == 1, old
        bad = write(f"{folder}/bad.yaml", good.replace(old, new))
        cases.refused(f"YAML: {name}", tiny_case.command(bad), 2, f"{bad}:", *words)
    bad = write(f"{folder}/bad.yaml", "learning_rate: 1\npacking: true\n" + good)
    cases.refused("YAML: keys of another trainer", tiny_case.command(bad), 2,
                  f"{bad}:1:1: learning_rate: unknown key; the key here is train.lr; also unknown: "
                  "'packing' (line 2: leave it out)")
    # Checks behind the reading of the file know its lines too.
    bad = write(f"{folder}/bad.yaml", good.replace("init: random", "init: random, freeze: [vit]"))
    cases.refused("YAML: unknown module", tiny_case.command(bad), 2, f"{bad}:2:", "model.freeze",
                  "vit")


def settings(cases, config):
    cases.refused("model.freeze typo", tiny_case.command(config, 1, model__freeze="[vison]"), 2,
                  "model.freeze", "vison", "vision")
    cases.refused("balance.recompute_modules typo",
                  tiny_case.command(config, 1, balance__recompute_modules="[lm]"), 2,
                  "balance.recompute_modules", "lm", "llm")
    cases.refused("balance.recompute_layers of another model",
                  tiny_case.command(config, 1, balance__recompute_layers="[full, none]"), 2,
                  "balance.recompute_layers", "2 words")
    for ranks in (1, 2):
        cases.refused(f"data for less than a step, {ranks} ranks",
                      tiny_case.command(config, ranks, train__global_batch=100000), 4,
                      "train.global_batch 100000", "packs")
        cases.refused(f"no sample within the limits, {ranks} ranks",
                      tiny_case.command(config, ranks, balance__tokens=2), 4, "raise")
    cases.refused("a pack is never so full", tiny_case.command(config, 1, balance__min_tokens=9999),
                  2, "balance.min_tokens", "9999 is more than the")
    cases.refused("padding of full packs", tiny_case.command(config, 1, balance__pad="true"), 2,
                  "balance.pad", "isf+", "random")
    cases.refused("everything frozen",
                  tiny_case.command(config, 1, model__freeze="[vision, projector, llm]"), 2,
                  "model.freeze")
    folder = os.path.dirname(config)
    with open(f"{folder}/train.jsonl") as file, open(f"{folder}/texts.jsonl", "w") as texts:
        texts.writelines(line for line in file if "image" not in json.loads(line))
    for ranks in (1, 2):
        cases.refused(f"an encoder to train on texts, {ranks} ranks",
                      tiny_case.command(config, ranks, model__freeze="[llm]",
                                        data__train=f"[{{annotations: {folder}/texts.jsonl}}]"), 2,
                      "model.freeze: trains the encoder and the projector alone", "--set model")
    cases.refused("no annotations",
                  tiny_case.command(config, 1, data__train=f"[{{images: {folder}}}]"), 2,
                  "data.train.0.annotations: is missing; give a file of records")
    cases.refused("max_tokens below all records",
                  tiny_case.command(config, 1, data__max_tokens=16), 4,
                  "data.max_tokens is 16, and", "tokens; see all with")
    with open(f"{folder}/bad.jsonl", "w") as file:
        file.write('{"id": 1}\n')
    for key, flag in (("data__eval", "--eval"), ("eval__answers", "--answers")):
        cases.refused(f"bad records in {key}",
                      tiny_case.command(config, 1, **{
                          key: f"[{{annotations: {folder}/bad.jsonl}}]"}), 4,
                      "bad.jsonl:1 (", f"see all with `equipoise data CONFIG check {flag}`")
    with open(f"{folder}/images/adapter_config.json", "w") as file:
        file.write("{}")
    cases.refused("adapters as the model",
                  tiny_case.command(config, 1, model__hf=f"{folder}/images"), 4,
                  "images: adapters of PEFT, not a model", "model.adapter.init")
    os.remove(f"{folder}/images/adapter_config.json")
    cases.refused("model.hf without config.json",
                  tiny_case.command(config, 1, model__hf=f"{folder}/images"), 4,
                  "images: has no config.json; give a folder of Hugging Face's form")
    cases.refused("tiles.min > tiles.max", tiny_case.command(config, 1, data__tiles__min=3), 2,
                  "--set data.tiles.min=3: data.tiles.min")
    cases.refused("limits on pixels of tiles", tiny_case.command(config, 1, data__pixels__max=5000),
                  2, "--set data.pixels.max=5000: data.pixels: 0 to 5000: ", "data.tiles.max")
    cases.refused("modules to quantise in no form",
                  tiny_case.command(config, 1, model__base_modules="[vision]"), 2,
                  "--set model.base_modules", "model.base: nf4")
    cases.refused("a global batch beyond all data",
                  tiny_case.command(config, 1, train__global_batch=10**18), 2,
                  "train.global_batch", "is too large")
    cases.refused("more tokens than a pack can count",
                  tiny_case.command(config, 1, data__max_tokens=1 << 24), 2, "data.max_tokens",
                  "the most is 16777215")
    cases.refused("eval.every without data.eval", tiny_case.command(config, 1, eval__every=4), 2,
                  "eval.every", "data.eval")
    if not os.path.exists("/dev/nvidiactl"):
        for ranks in (1, 2):
            cases.refused(f"GPUs that are not there, {ranks} ranks",
                          tiny_case.command(config, ranks, train__device="cuda"), 2,
                          "train.device", "no usable GPU")
        cases.refused("communication between GPUs without GPUs",
                      tiny_case.command(config, 1, parallel__nccl="libnccl.so.2"), 2,
                      "parallel.nccl", "CPUs")
    else:
        print("skipped: bad_input_test, GPUs that are not there: this machine has one")
    cases.refused("products in fp8 on a CPU",
                  tiny_case.command(config, 1, train__fp8="true", train__precision="bf16"), 2,
                  "train.fp8", "fp8 units")
    for ranks in (1, 2):
        cases.refused(f"products in fp8 on CPUs, planned for GPUs, {ranks} ranks",
                      tiny_case.command(config, ranks, train__fp8="true", train__precision="bf16",
                                        cluster__preset="h200", train__device="cpu"), 2,
                      "train.fp8", "compute capability 9.0", "rank 0 computes on")
    cases.refused("parameters that are to be offloaded without their gradients",
                  tiny_case.command(config, 2, train__offload="[optimizer, parameters]"), 2,
                  "train.offload", "parameters", "add gradients")
    cases.refused("global batch that does not divide",
                  tiny_case.command(config, 2, train__global_batch=7), 2, "train.global_batch", "7")
    cases.refused("more data ranks than processes",
                  tiny_case.command(config, 1, parallel__data=2), 2, "parallel.data")
    cases.refused("unknown preset",
                  tiny_case.command(config, 1, model__hf='""', model__preset="internvl9-1b"), 2,
                  "internvl9-1b")


def missing_files(cases, folder, config):
    case = tiny_case.command
    cases.refused("missing annotations",
                  case(config, 1, data__train="[{annotations: /nowhere.jsonl, images: /tmp}]"), 4,
                  "/nowhere.jsonl")
    cases.refused("missing annotations on 2 ranks",
                  case(config, 2, data__train="[{annotations: /nowhere.jsonl, images: /tmp}]"), 4,
                  "/nowhere.jsonl")
    cases.refused("missing folder of images", case(
        config, 1, data__train=f"[{{annotations: {folder}/train.jsonl, images: /nowhere}}]"), 4,
        "/nowhere")
    empty = write(f"{folder}/empty.jsonl", "")
    cases.refused("no records", case(
        config, 1, data__train=f"[{{annotations: {empty}, images: {folder}/images}}]"), 4, empty)
    cases.refused("no sources", case(config, 1, data__train="[]"), 2, "data.train")
    cases.refused("missing model folder", case(config, 1, model__hf="/nowhere"), 4, "/nowhere")
    model = shutil.copytree(f"{folder}/model", f"{folder}/other")
    os.rename(f"{model}/tokenizer.json", f"{folder}/tokenizer.json")
    cases.refused("missing tokenizer", case(config, 1, model__hf=model), 4, "tokenizer.json")
    write(f"{model}/tokenizer.json", '{"model": {"type": "BPE", ')
    cases.refused("broken tokenizer", case(config, 1, model__hf=model), 4, "tokenizer.json")
    shutil.copy(f"{folder}/tokenizer.json", model)
    with open(f"{model}/config.json") as file:
        description = json.load(file)
    for name, change, code, words in (
            ("no field", lambda c: c["text_config"].pop("hidden_size"), 4, ["hidden_size"]),
            ("wrong type", lambda c: c["text_config"].update(hidden_size="wide"), 4,
             ["hidden_size"]),
            ("heads do not divide", lambda c: c["text_config"].update(num_attention_heads=5), 4,
             ["heads"]),
            ("unknown family", lambda c: c.update(model_type="flamingo"), 4, ["flamingo"]),
            ("a smaller vocabulary", lambda c: c["text_config"].update(vocab_size=300), 2,
             ["tokenizer", "300"]),
            ("another image token", lambda c: c.update(image_token_id=7), 2,
             ["<IMG_CONTEXT>", "7"])):
        changed = json.loads(json.dumps(description))
        change(changed)
        write(f"{model}/config.json", json.dumps(changed))
        cases.refused(f"config.json: {name}", case(config, 1, model__hf=model), code, *words)
    write(f"{model}/config.json", '{"model_type": ')
    cases.refused("config.json: broken", case(config, 1, model__hf=model), 4, "config.json")
    os.remove(f"{model}/config.json")
    cases.refused("missing config.json", case(config, 1, model__hf=model), 4, "config.json")


def weights(cases, folder, config, exported):
    case = tiny_case.command
    cases.refused("pretrained without weights", case(
        config, 1, model__init="pretrained", run__dir=f"{folder}/fresh"), 4, f"{folder}/model")
    path = f"{exported}/model.safetensors"
    with open(path, "rb") as file:
        good = file.read()
    for name, data in (("cut in the data", good[:-100]), ("cut in the header", good[:100]),
                       ("a header of 2^60 bytes", b"\0" * 7 + b"\x10" + good[8:]),
                       ("no JSON", good[:8] + b"x" * len(good[8:])), ("empty", b""),
                       ("a tensor under another name",
                        good.replace(b"norm.weight", b"nrom.weight", 1))):
        with open(path, "wb") as file:
            file.write(data)
        cases.refused(f"weights: {name}",
                      case(config, 1, model__hf=exported, model__init="pretrained",
                           run__dir=f"{folder}/fresh"), 4, exported)
    with open(path, "wb") as file:
        file.write(good)


def checkpoints(cases, folder, config):
    case = tiny_case.command
    run_dir = f"{folder}/run"
    steps = sorted(glob.glob(f"{run_dir}/checkpoints/step-*"))
    cases.refused("--resume none with checkpoints",
                  case(config, 1, "train", "--resume", "none"), 2, "--resume none", "step-0000")
    cases.refused("--resume none with checkpoints, 2 ranks",
                  case(config, 2, "train", "--resume", "none"), 2, "--resume none", "step-0000")
    more = dict(train__steps=30)
    cases.refused("another model on resume", case(config, 1, model__freeze="[vision]", **more), 2,
                  "model.freeze")
    cases.refused("other data on resume",
                  case(config, 2, data__max_tokens=96, data__tiles__max=1, **more), 2,
                  "data.max_tokens", "128", "96", "data.tiles.max")
    keep = shutil.copytree(run_dir, f"{folder}/keep", symlinks=True)
    damaged = steps[-1]
    weights_file = sorted(glob.glob(f"{damaged}/*.safetensors"))[0]
    with open(weights_file, "r+b") as file:
        file.seek(-50, os.SEEK_END)
        byte = file.read(1)
        file.seek(-50, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
    cases.refused("a flipped bit in a named checkpoint",
                  case(config, 1, "train", "--resume", damaged, **more), 4, damaged)
    cases.refused("the same on 2 ranks",
                  case(config, 2, "train", "--resume", damaged, **more), 4, damaged)
    cases.refused("export of a damaged checkpoint",
                  [tiny_case.EQUIPOISE, "export", damaged, "--out", f"{folder}/no"], 4, damaged)
    os.remove(weights_file)
    cases.refused("half a checkpoint", case(config, 1, "train", "--resume", damaged, **more), 4,
                  damaged)
    write(f"{damaged}/index.json", '{"format": "equipoise-checkpoint", ')
    cases.refused("a torn index.json", case(config, 1, "train", "--resume", damaged, **more), 4,
                  "index.json")
    done = tiny_case.run(config, 2, train__steps=22)
    cases.results.check("auto passes over a damaged checkpoint and says so", done.returncode == 0
                        and os.path.basename(damaged) in done.stderr, done.stderr[-300:])
    for step in glob.glob(f"{run_dir}/checkpoints/step-*"):
        write(f"{step}/index.json", "{")
    cases.refused("all checkpoints damaged", case(config, 2, **more), 4, run_dir)
    shutil.rmtree(run_dir)
    os.rename(keep, run_dir)


def ranks(cases, folder, config):
    def line(**more):
        return tiny_case.command(config, 1, run__dir=f"{folder}/mixed", **more)
    cases.refused("ranks with different settings", on_ranks(line(), line(train__lr=0.5)), 2,
                  "rank 1", "rank 0", "train.lr 0.002 -> 0.5")
    with open(f"{folder}/train.jsonl") as file:
        records = file.readlines()
    os.makedirs(f"{folder}/a")
    os.makedirs(f"{folder}/b")
    write(f"{folder}/a/train.jsonl", "".join(records))
    write(f"{folder}/b/train.jsonl", "".join(records[:-1]))
    source = f"[{{annotations: train.jsonl, images: {folder}/images}}]"
    lines = [["sh", "-c", f"cd {folder}/{name} && exec \"$@\"", "sh", *line(data__train=source)]
             for name in "ab"]
    cases.refused("ranks that see different records", on_ranks(*lines), 2, "rank 1", "rank 0")
    # Only one rank sees the fault; the other must not wait for it.
    cases.refused("one rank alone has a bad command line",
                  on_ranks(line(), line() + ["--fast"]), 2, "--fast", "rank 1")


def busy_folder(cases, folder, config):
    run_dir = f"{folder}/busy"
    with open(f"{folder}/busy.log", "w") as log:
        first = subprocess.Popen(
            tiny_case.command(config, 1, run__dir=run_dir, train__steps=100000), stdout=log,
            stderr=log, env=tiny_case.environment())
    while first.poll() is None and not os.path.exists(f"{run_dir}/metrics.jsonl"):
        time.sleep(0.05)
    for count in (1, 2):
        cases.refused(f"two jobs in one run folder, {count} ranks",
                      tiny_case.command(config, count, run__dir=run_dir), 5, run_dir,
                      f"process {first.pid}")
    first.send_signal(signal.SIGKILL)
    first.wait()


def folders(cases, folder, config):
    blocked = write(f"{folder}/file", "")
    for count in (1, 2):
        cases.refused(f"a run folder that cannot be made, {count} ranks",
                      tiny_case.command(config, count, run__dir=f"{blocked}/run"), 5, blocked,
                      "run.dir")
    cases.refused("a run folder in /proc", tiny_case.command(config, 1, run__dir="/proc/run"), 5,
                  "/proc/run")
    # A full disk: the file limit lets logs and metrics through and stops the tensors of a save.
    run_dir = f"{folder}/full"
    done = tiny_case.run(config, 1, run__dir=run_dir, train__steps=5)
    before = sorted(os.listdir(f"{run_dir}/checkpoints"))
    limited = ["sh", "-c", "ulimit -f 512 && exec \"$@\"", "sh"]
    line = tiny_case.command(config, 1, run__dir=run_dir, train__steps=10)
    cases.refused("a disk that fills up during a save", limited + line, 5, "step-00000010")
    cases.results.check("the older checkpoint is still there, and nothing half",
                        done.returncode == 0
                        and before == sorted(os.listdir(f"{run_dir}/checkpoints")), str(before))
    done = tiny_case.run(config, 1, run__dir=run_dir, train__steps=10)
    steps = [row["step"] for row in tiny_case.metrics(run_dir)]
    cases.results.check("with space again the run goes on", done.returncode == 0
                        and steps == list(range(1, 11)), done.stderr[-300:])


def other_commands(cases, folder, exported):
    program = tiny_case.EQUIPOISE
    generate = [program, "generate", f"{folder}/run", "--prompt"]
    picture = f"{folder}/images/0000_0.png"
    broken = write(f"{folder}/broken.png", "no picture")
    cases.refused("generate: no picture for <image>", generate + ["<image>\nWhat?"], 2, "<image>")
    cases.refused("generate: more <image> than pictures",
                  generate + ["<image> <image>", "--image", picture], 2, "<image>")
    cases.refused("generate: fewer <image> than pictures",
                  generate + ["<image> a", "--image", picture, "--image", picture], 2, "<image>")
    cases.refused("generate: missing picture",
                  generate + ["What?", "--image", "/nowhere.png"], 4, "/nowhere.png")
    cases.refused("generate: broken picture", generate + ["What?", "--image", broken], 4, broken)
    empty = f"{folder}/no_frames"
    os.makedirs(empty)
    for what, video, code, word in (
            ("a video's file", write(f"{folder}/clip.mp4", "no video"), 4,
             "is a file, and this program is built without"),
            ("a video's empty folder", empty, 4, "the folder holds no pictures"),
            ("a video's missing folder", "/nowhere", 4, "/nowhere: no such folder"),
            ("a missing frame", f"{picture},/nowhere.png", 4, "/nowhere.png"),
            ("a broken frame", f"{picture},{broken}", 4, broken),
            ("a frame without a name", f"{picture},", 2, "--video")):
        cases.refused(f"generate: {what}", generate + ["What?", "--video", video], code, word)
    for what, options, word in (
            ("more <video> than videos", ["<video><video>", "--video", empty], "2 <video>"),
            ("frames a second without a video", ["What?", "--fps", "2"], "--fps"),
            ("no frames a second", ["What?", "--video", empty, "--fps=-1"], "--fps")):
        cases.refused(f"generate: {what}", generate + options, 2, word)
    cases.refused("generate: a video beside a file of questions",
                  generate[:-1] + ["--jsonl", broken, "--out", f"{folder}/answers", "--video",
                                   empty], 2, "--video")
    cases.refused("generate: no model", [program, "generate", "/nowhere", "--prompt", "a"], 4,
                  "/nowhere")
    cases.refused("generate: an empty folder",
                  [program, "generate", f"{folder}/images", "--prompt", "a"], 4, "images")
    cases.refused("generate: no prompt", generate[:-1], 2, "--prompt")
    for temperature in ("nan", "inf", "-1"):
        cases.refused(f"generate: a temperature of {temperature}",
                      generate + ["What?", f"--temperature={temperature}"], 2, "--temperature")
    out = ["--out", f"{folder}/out.safetensors"]
    cases.refused("export to an existing model",
                  [program, "export", f"{folder}/run", "--out", exported], 2, exported)
    cases.refused("export into a file",
                  [program, "export", f"{folder}/run", "--out", f"{broken}/x"], 5, broken)
    cases.refused("export of nothing", [program, "export", "/nowhere", *out], 4, "/nowhere")
    import numpy
    from safetensors.numpy import save_file
    ids = numpy.array([[5, 6, 7]])
    for name, tensors, words in (
            ("unknown tensor", {"input_ids": ids, "token_types": ids}, ["token_types"]),
            ("no input_ids", {"labels": ids}, ["input_ids"]),
            ("ids beyond the vocabulary", {"input_ids": ids + 100000}, ["input_ids"]),
            ("labels of another shape", {"input_ids": ids, "labels": ids[:, :2].copy()},
             ["labels"])):
        path = f"{folder}/inputs.safetensors"
        save_file(tensors, path)
        for count in (1, 2):
            line = [program, "check", exported, path, *out]
            line = [tiny_case.MPIRUN, "-n", "2", *line] if count > 1 else line
            if count == 1 or name == "unknown tensor":
                cases.refused(f"check: {name}, {count} ranks", line, 4, path, *words)
    save_file({"input_ids": ids + 20}, path)
    cases.refused("check: results that cannot be written, 2 ranks",
                  [tiny_case.MPIRUN, "-n", "2", program, "check", exported, path, "--out",
                   f"{broken}/x"], 5, f"{broken}/x")
    config = f"{folder}/config.yaml"
    cases.refused("data: unknown action", [program, "data", config, "dance"], 2, "dance", "--help")
    full = ["sh", "-c", "exec \"$@\" >/dev/full", "sh"]
    cases.refused("results that do not fit on the disk",
                  full + [program, "data", config, "stats"], 5, "standard output")
    cases.refused("data: show beyond the end", [program, "data", config, "show", "1000"], 2,
                  "1000")
    cases.refused("data: under mpirun",
                  [tiny_case.MPIRUN, "-n", "2", program, "data", config, "stats"], 2, "mpirun")


def before_a_run(cases, folder):
    config = tiny_case.write_case(folder)
    usage(cases, config)
    yaml_faults(cases, folder, config)
    settings(cases, config)
    missing_files(cases, folder, config)
    ranks(cases, folder, config)


def after_a_run(cases, folder):
    config, results = tiny_case.write_case(folder), cases.results
    done = tiny_case.run(config, 2, train__steps=20)
    results.check("a run to spoil", done.returncode == 0, done.stderr[-300:])
    exported = f"{folder}/exported"
    done = subprocess.run([tiny_case.EQUIPOISE, "export", f"{folder}/run", "--out", exported],
                          capture_output=True, text=True, env=tiny_case.environment())
    results.check("its export", done.returncode == 0, done.stderr[-300:])
    weights(cases, folder, config, exported)
    other_commands(cases, folder, exported)
    checkpoints(cases, folder, config)
    busy_folder(cases, folder, config)
    folders(cases, folder, config)


def main():
    results = tiny_case.Results()
    cases = Cases(results)
    folders_of_halves = [tempfile.mkdtemp(prefix="bad_input") for _ in range(2)]
    tiny_case.side_by_side(lambda: before_a_run(cases, folders_of_halves[0]),
                           lambda: after_a_run(cases, folders_of_halves[1]))
    for folder in folders_of_halves:
        shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
