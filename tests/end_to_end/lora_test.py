"""Runs with adapters: the same losses on every mesh, checkpoints of adapters alone that go on after
a SIGKILL and on another mesh, quantised bases, folders for peft, answers, and bad input."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

import tiny_case

STEPS = 8
LORA = {"model__adapter__targets": '["language_model.*(q|v|down)_proj",linear_1]',
        "model__adapter__rank": 4, "model__init": "pretrained", "train__steps": STEPS,
        "checkpoint__every": 4}
MESHES = {"data": 2, "tensor": 2, "pipeline": 2}


def write_weights(folder):
    """Random weights for the case's model, whose config.json is in FOLDER/model."""
    model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(f"{folder}/model"))
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.05)
    model.save_pretrained(f"{folder}/weights")
    for name in os.listdir(f"{folder}/weights"):
        if name.endswith(".safetensors"):
            shutil.copy(f"{folder}/weights/{name}", f"{folder}/model/{name}")


def train(folder, config, name, ranks=1, **settings):
    done = tiny_case.run(config, ranks, run__dir=f"{folder}/{name}", **{**LORA, **settings})
    if done.returncode != 0:
        raise RuntimeError(f"{name}: exit {done.returncode}: {done.stderr[-2000:]}")
    return tiny_case.losses(f"{folder}/{name}")


def close(ours, theirs, bound=1e-5):
    return len(ours) == len(theirs) and all(abs(a - b) <= bound * abs(b)
                                            for a, b in zip(ours, theirs))


def tensors_of(run):
    with open(f"{run}/checkpoints/latest/index.json", encoding="utf8") as file:
        return json.load(file)["tensors"]


def meshes(results, folder, config):
    one = train(folder, config, "one")
    results.check("the loss falls", one[-1] < one[0], str(one))
    names = set(tensors_of(f"{folder}/one"))
    weights = {name for name in names if not name.startswith("exp_avg")}
    results.check("checkpoints hold adapters and their moments alone",
                  weights and all(".lora_" in name for name in weights) and
                  len(names) == 3 * len(weights), str(sorted(names))[:200])
    for axis, size in MESHES.items():
        more = {"parallel__schedule": "zb_h1"} if axis == "pipeline" else {}
        losses = train(folder, config, axis, ranks=2, **{f"parallel__{axis}": size}, **more)
        results.check(f"{axis} {size}: the losses of one rank", close(losses, one), str(losses))
    again = {"model__adapter__dropout": 0.2}
    dropped = train(folder, config, "dropped", **again)
    results.check("dropout changes the losses", not close(dropped, one))
    for name, settings in (("recomputed", {"balance__recompute": "full"}),
                           ("tensor", {"parallel__tensor": 2})):
        ranks = 2 if name == "tensor" else 1
        losses = train(folder, config, f"dropped_{name}", ranks=ranks, **again, **settings)
        results.check(f"dropout: {name} draws the same masks", close(losses, dropped), str(losses))
    return one


def resumed(results, folder, config, one):
    """Half of the steps, killed, then the rest on another mesh."""
    line = tiny_case.command(config, run__dir=f"{folder}/killed", **LORA)
    for _ in range(5):  # on a busy machine it may end before the signal is there
        shutil.rmtree(f"{folder}/killed", ignore_errors=True)
        process = subprocess.Popen(line, env=tiny_case.environment(), stderr=subprocess.DEVNULL)
        while not os.path.exists(f"{folder}/killed/checkpoints/latest") and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:
            break
    results.check("killed before its end", process.wait() == -signal.SIGKILL)
    losses = train(folder, config, "killed", ranks=2, parallel__tensor=2)
    results.check("killed and resumed on another mesh", close(losses, one), str(losses))
    moved = f"{folder}/moved"
    shutil.copytree(f"{folder}/model", moved)
    done = tiny_case.run(config, run__dir=f"{folder}/killed", **{**LORA, "model__hf": moved})
    results.check("the base may have moved", done.returncode == 0, done.stderr[-200:])
    weights = load_file(f"{moved}/model.safetensors")
    key = next(name for name in weights if "q_proj.weight" in name)
    save_file({**weights, key: weights[key] + 1}, f"{moved}/model.safetensors")
    done = tiny_case.run(config, run__dir=f"{folder}/killed", **{**LORA, "model__hf": moved})
    results.check("another base is refused", done.returncode == 2 and "base" in done.stderr,
                  done.stderr[-200:])
    for command in (("export", "--merge", "--out", f"{folder}/wrong"),
                    ("generate", "--prompt", "What is 3 plus 2?")):
        done = tiny_case.program(command[0], f"{folder}/killed", *command[1:], "--set",
                                 f"model.hf={moved}")
        results.check(f"and by {command[0]}", done.returncode == 2 and
                      "over another base" in done.stderr, done.stderr[-200:])


def fewer_layers(results, folder, config):
    """The weights of a layer that config.json does not have are named once, those in use never."""
    smaller = f"{folder}/smaller"
    shutil.copytree(f"{folder}/model", smaller)
    with open(f"{smaller}/config.json", encoding="utf8") as file:
        description = json.load(file)
    description["text_config"]["num_hidden_layers"] -= 1
    with open(f"{smaller}/config.json", "w", encoding="utf8") as file:
        json.dump(description, file)
    for model, lines in ((smaller, 1), (f"{folder}/model", 0)):
        done = tiny_case.run(config, ranks=2, run__dir=f"{model}_run", **{
            **LORA, "model__hf": model, "train__steps": 1})
        results.check(f"{os.path.basename(model)}: {lines} lines of unused weights",
                      done.returncode == 0 and done.stderr.count("weights are not used") == lines,
                      done.stderr[-400:])


def folders(results, folder, config):
    run = f"{folder}/one"
    done = tiny_case.program("export", run, "--out", f"{folder}/adapter")
    results.check("export to a folder of PEFT", done.returncode == 0, done.stderr[-200:])
    base = AutoModelForImageTextToText.from_pretrained(f"{folder}/model", dtype=torch.float32)
    peft = PeftModel.from_pretrained(base, f"{folder}/adapter").eval()
    ids = torch.arange(5, 45)
    ids = ids[ids != base.config.image_token_id][None]  # text alone
    with torch.no_grad():
        theirs = peft(input_ids=ids).logits
    inputs, out = f"{folder}/inputs.safetensors", f"{folder}/out.safetensors"
    save_file({"input_ids": ids}, inputs)
    done = tiny_case.program("check", f"{folder}/model", inputs, "--out", out, "--set",
                             f"model.adapter.init={folder}/adapter")
    ours = load_file(out)["logits"] if done.returncode == 0 else torch.zeros_like(theirs)
    error = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    results.check("peft's logits", error < 1e-4, f"{error:.1e} {done.stderr[-200:]}")
    done = tiny_case.program("export", run, "--merge", "--out", f"{folder}/merged")
    results.check("merge prints differences", done.returncode == 0 and
                  "differ from the adapter's by" in done.stderr, done.stderr[-200:])
    answers = [tiny_case.program("generate", *arguments, "--prompt", "What is 3 plus 2?",
                                 "--max-new-tokens", "8", "--set", "train.precision=fp32")
               for arguments in ((run,), (f"{folder}/merged",),
                                 (f"{folder}/model", "--adapter", f"{folder}/adapter"))]
    results.check("run, merged folder and base with adapter answer alike",
                  all(a.returncode == 0 for a in answers) and
                  len({a.stdout for a in answers}) == 1,
                  str([(a.returncode, a.stdout, a.stderr[-100:]) for a in answers]))


def quantised(results, folder, config):
    for form in ("nf4", "int8"):
        one = train(folder, config, form, model__base=form)
        results.check(f"{form}: the loss falls", one[-1] < one[0], str(one))
        two = train(folder, config, f"{form}_tensor", ranks=2, model__base=form,
                    parallel__tensor=2)
        results.check(f"{form}: tensor ranks have the losses of one", close(two, one), str(two))


def frozen(results, folder, config):
    """all-linear beside a frozen encoder, which then has no adapters in the run's checkpoints."""
    run = f"{folder}/frozen"
    train(folder, config, "frozen", model__adapter__targets="[all-linear]",
          model__freeze="[vision]")
    names = {name for name in tensors_of(run) if ".lora_" in name}
    results.check("a frozen component has no adapters",
                  names and not any("vision" in name for name in names), str(sorted(names))[:200])
    done = tiny_case.program("export", run, "--merge", "--out", f"{folder}/frozen_merged")
    results.check("frozen: merged", done.returncode == 0, done.stderr[-200:])
    answers = [tiny_case.program("generate", where, "--prompt", "What is 3 plus 2?",
                                 "--max-new-tokens", "8", "--set", "train.precision=fp32")
               for where in (run, f"{folder}/frozen_merged")]
    results.check("frozen: run and merged folder answer alike",
                  all(a.returncode == 0 for a in answers) and
                  len({a.stdout for a in answers}) == 1,
                  str([(a.returncode, a.stdout, a.stderr[-100:]) for a in answers]))


def trained_in_full(results, folder, config):
    """Modules that are trained in full are so in a frozen component too, which has no adapters."""
    full = {"model__adapter__train": '["multi_modal_projector"]'}
    free = train(folder, config, "full_free",
                 model__adapter__targets='["language_model.*_proj"]', **full)
    kept = train(folder, config, "full_frozen", model__adapter__targets="[all-linear]",
                 model__freeze='[vision, projector]', **full)
    results.check("trained in full, frozen or not: the same losses", free == kept and
                  kept[-1] < kept[0], f"{kept} {free}")
    one, other = (tensors_of(f"{folder}/{name}") for name in ("full_free", "full_frozen"))
    projector = [name for name in one if "multi_modal_projector" in name]
    results.check("and the same tensors in the checkpoint", projector and
                  one.keys() == other.keys(), str(sorted(other))[:300])
    two = train(folder, config, "full_zero", ranks=2, model__adapter__targets="[all-linear]",
                model__freeze='[vision, projector]', parallel__zero=3, **full)
    results.check("and over ZeRO 3", close(two, kept), f"{two} {kept}")
    done = tiny_case.run(config, 1, "train", "--dry-run", run__dir=f"{folder}/full_refused",
                         model__freeze="[llm]",
                         model__adapter__targets='["language_model.*_proj"]')
    results.check("targets of a frozen component alone are refused for that",
                  done.returncode == 2 and "matches layers of llm alone" in done.stderr,
                  done.stderr[-300:])


def bad_input(results, folder, config):
    nan = f"{folder}/nan"
    shutil.copytree(f"{folder}/adapter", nan)
    weights = load_file(f"{nan}/adapter_model.safetensors")
    key = sorted(weights)[0]
    save_file({**weights, key: weights[key] * float("nan")}, f"{nan}/adapter_model.safetensors")
    other = f"{folder}/other"
    shutil.copytree(f"{folder}/adapter", other)
    save_file({name.replace("layers.1", "layers.9"): w for name, w in weights.items()},
              f"{other}/adapter_model.safetensors")
    shape = f"{folder}/shape"
    shutil.copytree(f"{folder}/adapter", shape)
    save_file({name: w[:, :-1].contiguous() if "lora_A" in name else w
               for name, w in weights.items()}, f"{shape}/adapter_model.safetensors")
    lora = {key: value for key, value in LORA.items() if "adapter" not in key}
    cases = (
        ("a name that matches nothing", {"model__adapter__targets": "[nothing]"}, 2,
         "such as model.vision_tower.encoder.layer.0.attention.q_proj, "
         "model.multi_modal_projector.linear_1 and model.language_model.layers.0.self_attn.q_proj"),
        ("no linear layer", {"model__adapter__targets": "[embed_tokens]"}, 2, "no linear layer"),
        ("rank 0", {"model__adapter__targets": "q_proj", "model__adapter__rank": 0}, 2,
         "adapter.rank"),
        ("another kind of adapter", {"model__adapter__targets": "q_proj",
                                     "model__adapter__type": "ia3"}, 2, "adapter.type"),
        ("all frozen", {"model__adapter__targets": "[all-linear]",
                        "model__freeze": "[vision,projector,llm]"}, 2, "model.adapter.targets"),
        *((f"{key} without targets", {f"model__adapter__{key}": value}, 2,
           f"model.adapter.{key}: no layer gets an adapter; set model.adapter.targets, such as "
           "[all-linear]")
          for key, value in (("rank", 16), ("alpha", 32), ("dropout", 0.1), ("rslora", "true"),
                             ("dora", "true"), ("train", "[linear_1]"))),
        ("quantised weights are not trained", {"model__base": "nf4"}, 2, "model.base"),
        ("targets beside an adapter", {"model__adapter__targets": "[q_proj]",
                                       "model__adapter__init": f"{folder}/adapter"}, 2,
         "model.adapter.targets"),
        ("another rank than the adapter's", {"model__adapter__targets": "[]",
                                             "model__adapter__rank": 5,
                                             "model__adapter__init": f"{folder}/adapter"}, 2,
         "model.adapter.rank: 5 beside model.adapter.init"),
        ("no such folder", {"model__adapter__init": f"{folder}/none"}, 4, "adapter_config.json"),
        ("NaN in an adapter", {"model__adapter__init": nan}, 4, "no numbers"),
        ("adapter of another base", {"model__adapter__init": other}, (2, 4), "layer"),
        ("adapter of another shape", {"model__adapter__init": shape}, 4, "shape"),
    )
    for name, settings, code, words in cases:
        done = tiny_case.run(config, run__dir=f"{folder}/bad", **{**lora, **settings})
        codes = code if isinstance(code, tuple) else (code,)
        lines = [line for line in done.stderr.splitlines() if "equipoise:" in line]
        results.check(name, done.returncode in codes and words in done.stderr and len(lines) <= 1,
                      f"{done.returncode} {done.stderr[-200:]}")


def main():
    results = tiny_case.Results()
    with tempfile.TemporaryDirectory() as folder:
        config = tiny_case.write_case(folder)
        write_weights(folder)
        one = meshes(results, folder, config)
        resumed(results, folder, config, one)
        fewer_layers(results, folder, config)
        folders(results, folder, config)
        quantised(results, folder, config)
        frozen(results, folder, config)
        trained_in_full(results, folder, config)
        bad_input(results, folder, config)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
