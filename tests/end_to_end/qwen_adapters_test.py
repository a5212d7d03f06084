"""Adapters of Qwen2-VL, Qwen2.5-VL and Qwen3-VL in folders of PEFT: names of Transformers' modules,
which mean the layers that they mean to PEFT, and one adapter for the q, k and v that it has as one
layer; runs that were begun when names meant other layers."""
import json
import os
import shutil
import sys
import tempfile

import torch
import yaml
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import qwen2_vl_test as qwen
import tiny_case



def parts(*names, blocks=(0, 1, 2)):
    """Our whole names of parts of the encoder's qkv."""
    return [f"visual.blocks.{block}.attn.{name}" for block in blocks for name in names]


CASES = {  # kind of model, settings
    "all": ("qwen2_vl", {"targets": "[all-linear]"}),
    "q and v": ("qwen2_5_vl", {"targets": json.dumps(
        parts("q_proj", "v_proj") + ["mlp.0", "language_model.*q_proj"])}),
    "v, and k of one block": ("qwen2_5_vl", {"targets": json.dumps(
        parts("v_proj") + parts("k_proj", blocks=[1]))}),
    "rslora": ("qwen3_vl", {"targets": "[all-linear]", "rslora": "true"}),
    "dora": ("qwen2_5_vl", {"targets": "[all-linear]", "dora": "true"}),
    "encoder in full": ("qwen2_5_vl", {"targets": "[o_proj]", "train": "[visual]"}),
    "qkv in full": ("qwen3_vl", {"targets": "[o_proj]", "train": '["blocks.0.attn.qkv"]'}),
    "frozen encoder": ("qwen2_5_vl", {"targets": "[all-linear]", "freeze": "[vision]"}),
}

# Names that are given to PEFT as well.
TARGETS = {
    "qwen2_vl": ["all-linear"],
    "qwen2_5_vl": [["q_proj", "k_proj", "v_proj", "o_proj"], ["qkv"], ["attn.proj", "mlp.0"],
                   ["q_proj", "visual.blocks.1.attn.qkv"]],
    "qwen3_vl": [["q_proj", "k_proj", "v_proj", "o_proj"], ["attn.qkv", "linear_fc1"]],
}


def inputs_of(kind, config):
    generator = torch.Generator().manual_seed(7)
    patches = torch.randn(64, 3 * 2 * qwen.PATCH[kind] ** 2, generator=generator)
    ids = torch.randint(3, 250, (1, 40), generator=generator)
    ids[:, 4:20] = config.image_token_id  # 8 by 8 patches
    return {"input_ids": ids, "pixel_values": patches, "image_grid_thw": torch.tensor([[1, 8, 8]]),
            "mm_token_type_ids": (ids == config.image_token_id).int()}


def logits(model):
    inputs = inputs_of(model.config.model_type, model.config)
    with torch.no_grad():
        return model.eval()(**inputs).logits


def load(kind, folder):
    return qwen.KINDS[kind][0].from_pretrained(folder, dtype=torch.float32)


def export(results, what, *arguments):
    done = tiny_case.program("export", *arguments)
    results.check(what, done.returncode == 0, done.stderr[-300:])


def run_case(results, folder, name):
    kind, settings = CASES[name]
    base, run = f"{folder}/{kind}/model", f"{folder}/{name}"
    settings = {f"model__{key}" if key == "freeze" else f"model__adapter__{key}": value
                for key, value in settings.items()}
    done = tiny_case.run(f"{folder}/{kind}/config.yaml", 1, run__dir=run, train__steps=4,
                         train__lr=0.02, model__init="pretrained", model__adapter__rank=4,
                         **settings)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: exit {done.returncode}: {done.stderr[-2000:]}")
    adapter, again = f"{run}/adapter", f"{run}/again"
    export(results, f"{name}: export", run, "--out", adapter)
    export(results, f"{name}: merge", run, "--merge", "--out", f"{run}/merged")
    plain, merged = logits(load(kind, base)), logits(load(kind, f"{run}/merged"))
    theirs = logits(PeftModel.from_pretrained(load(kind, base), adapter))
    size = plain.abs().max().item()
    change, error = ((x - merged).abs().max().item() / size for x in (plain, theirs))
    results.check(f"{name}: training has changed the logits", change > 1e-3, f"{change:.1e}")
    results.check(f"{name}: PEFT's logits are the merged folder's", error < 1e-5, f"{error:.1e}")
    export(results, f"{name}: read back", base, "--adapter", adapter, "--out", again)
    was, now = (load_file(f"{where}/adapter_model.safetensors") for where in (adapter, again))
    results.check(f"{name}: the same tensors",
                  set(was) == set(now) and all(now[key].equal(was[key]) for key in was),
                  str(set(was) ^ set(now))[:200])


def modules_of(adapter):
    """Names of the layers with adapters in a folder of PEFT."""
    return {key.removeprefix("base_model.model.").rsplit(".lora_", 1)[0]
            for key in load_file(f"{adapter}/adapter_model.safetensors") if ".lora_A" in key}


def matched(results, folder, kind, targets):
    """The layers that PEFT adapts by the same names."""
    base, run = f"{folder}/{kind}/model", f"{folder}/{kind}/matched"
    model = get_peft_model(load(kind, base), LoraConfig(target_modules=targets))
    theirs = set(model.targeted_module_names)
    given = [targets] if isinstance(targets, str) else targets
    done = tiny_case.run(f"{folder}/{kind}/config.yaml", 1, run__dir=run, train__steps=1,
                         model__init="pretrained", model__adapter__targets=json.dumps(given))
    what = f"{kind} {targets}"
    visual = sum("visual.blocks" in name for name in theirs)
    text = sum("language_model" in name for name in theirs)
    counts = [f"{count} {words}" for count, words in (
        (visual, "linear layers of vision"), (len(theirs) - visual - text, "of the projector"),
        (text, "linear layers of" if text == len(theirs) else "of the language model")) if count]
    results.check(f"{what}: trains, and logs how many layers", done.returncode == 0 and
                  "LoRA rank 8 on " + ", ".join(counts) in done.stderr, done.stderr[-2000:])
    export(results, f"{what}: export", run, "--out", f"{run}/adapter")
    ours = modules_of(f"{run}/adapter")
    results.check(f"{what}: PEFT's layers", ours == theirs, str(sorted(ours ^ theirs))[:300])
    shutil.rmtree(run)


def names(results, folder):
    for kind, lists in TARGETS.items():
        for targets in lists:
            matched(results, folder, kind, targets)
    config = f"{folder}/qwen2_5_vl/config.yaml"
    for key, given in (("targets", {"targets": '["visual.*q_proj"]'}),
                       ("train", {"targets": "[o_proj]", "train": '["blocks.*k_proj"]'})):
        done = tiny_case.run(config, 1, run__dir=f"{folder}/part", model__init="pretrained",
                             **{f"model__adapter__{name}": value for name, value in given.items()})
        results.check(f"{key}: a part of qkv is refused by the name of the whole",
                      done.returncode == 2 and f"model.adapter.{key}: " in done.stderr and
                      "write attn.qkv, which" in done.stderr, done.stderr[-300:])


def begun_otherwise(run, **adapter):
    """A run's folder as a program left it to which its adapter section meant other layers."""
    path = os.path.realpath(f"{run}/checkpoints/latest") + "/index.json"
    with open(path, encoding="utf8") as file:
        index = json.load(file)
    for key in ("settings", "xxh3_64"):  # version 2 has no checksum
        index.pop(key)
    index["version"] = 2
    index["sections"]["model"]["adapter"].update(adapter)
    with open(path, "w", encoding="utf8") as file:
        json.dump(index, file)
    with open(f"{run}/config.yaml", encoding="utf8") as file:
        config = yaml.safe_load(file)
    config["model"]["adapter"].update(adapter)
    with open(f"{run}/config.yaml", "w", encoding="utf8") as file:
        yaml.safe_dump(config, file)


def older_runs(results, folder):
    """Names of parts matched q, k and v of the encoder; a rank without targets trained all."""
    config, run = f"{folder}/qwen2_5_vl/config.yaml", f"{folder}/older"
    settings = {"run__dir": run, "model__init": "pretrained", "checkpoint__every": 2}
    done = tiny_case.run(config, 1, **settings, train__steps=2,
                         model__adapter__targets=json.dumps(["q_proj"] + parts("q_proj")))
    results.check("parts by their whole names", done.returncode == 0, done.stderr[-300:])
    begun_otherwise(run, targets=["q_proj"])
    for steps in (2, 4, 6):
        if steps > 2:
            done = tiny_case.run(config, 1, **settings, train__steps=steps,
                                 model__adapter__targets="[q_proj]")
            results.check(f"goes on to step {steps} with the layers it began with",
                          done.returncode == 0 and "it goes on with its own" in done.stderr and
                          len(tiny_case.losses(run)) == steps, done.stderr[-500:])
        export(results, f"older run at step {steps}: export", run, "--out", f"{run}/{steps}")
        modules = modules_of(f"{run}/{steps}")
        results.check(f"older run at step {steps}: its layers",
                      sum("visual" in name for name in modules) == 3 and len(modules) == 5,
                      str(sorted(modules)))
    whole = f"{folder}/whole"
    settings["run__dir"] = whole
    done = tiny_case.run(config, 1, **settings, train__steps=2)
    results.check("the whole model", done.returncode == 0, done.stderr[-300:])
    begun_otherwise(whole, rank=16)
    done = tiny_case.run(config, 1, **settings, train__steps=4, model__adapter__rank=16)
    results.check("goes on with the whole model", done.returncode == 0 and
                  "it goes on with its own" in done.stderr, done.stderr[-500:])
    export(results, "the whole model: export", whole, "--out", f"{whole}/out")


def refused(results, base, folder, what, words, metadata=True, change=None):
    """A folder whose fused adapter is not as it was exported."""
    bad = f"{folder}/bad"
    shutil.copytree(f"{folder}/adapter", bad)
    path = f"{bad}/adapter_model.safetensors"
    with safe_open(path, "pt") as file:
        kept = file.metadata() if metadata else {"format": "pt"}
    tensors = load_file(path)
    for tensor in tensors.values():
        if change:
            change(tensor)
    save_file(tensors, path, kept)
    done = tiny_case.program("export", base, "--adapter", bad, "--out", f"{folder}/no")
    results.check(what, done.returncode == 4 and words in done.stderr and bad in done.stderr and
                  len(done.stderr.strip().splitlines()) == 1, done.stderr[-300:])
    shutil.rmtree(bad)


def fused(results, folder):
    base, run = f"{folder}/qwen2_5_vl/model", f"{folder}/q and v"
    with open(f"{run}/adapter/adapter_config.json", encoding="utf8") as file:
        config = json.load(file)
    name = "model.visual.blocks.0.attn.qkv"
    results.check("two adapters have twice the ranks and alpha",
                  (config["rank_pattern"][name], config["alpha_pattern"][name]) ==
                  (2 * config["r"], 2 * config["lora_alpha"]), str(config)[:300])
    refused(results, base, run, "ranks of a file that does not say whose they are", "_pattern",
            metadata=False)
    refused(results, base, run, "outputs that use another's ranks", "merge_and_unload",
            change=lambda tensor: tensor.fill_(1))


def trained_by_peft(results, folder):
    """PEFT's own adapter of the whole qkv: each of ours begins with its A."""
    kind = "qwen2_5_vl"
    base, adapter = f"{folder}/{kind}/model", f"{folder}/theirs"
    settings = LoraConfig(r=4, lora_alpha=8, target_modules=["qkv", "o_proj"], use_dora=True)
    model = get_peft_model(load(kind, base), settings)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if "lora_B" in name:
                weight.normal_(0, 0.2, generator=generator)
    model.save_pretrained(adapter)
    theirs = logits(model)
    for name, options in (("merged", ["--merge"]), ("exported", [])):
        export(results, f"PEFT's qkv: {name}", base, "--adapter", adapter, *options, "--out",
               f"{adapter}_{name}")
    ours = (load(kind, f"{adapter}_merged"),
            PeftModel.from_pretrained(load(kind, base), f"{adapter}_exported"))
    for name, each in zip(("merged", "exported"), ours):
        error = ((logits(each) - theirs).abs().max() / theirs.abs().max()).item()
        results.check(f"PEFT's qkv: {name}: its logits", error < 1e-5, f"{error:.1e}")


def main():
    results = tiny_case.Results()
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        for kind in qwen.KINDS:
            os.makedirs(f"{folder}/{kind}")
            records = tiny_case.write_records(f"{folder}/{kind}", 24, seed=2)
            texts = [turn["value"] for record in records for turn in record["conversations"]]
            qwen.write_folder(f"{folder}/{kind}/model", kind,
                              texts + [qwen.SYSTEM, "user assistant\n"])
            qwen.write_config(f"{folder}/{kind}", kind)
        for name in CASES:
            run_case(results, folder, name)
        fused(results, folder)
        trained_by_peft(results, folder)
        names(results, folder)
        older_runs(results, folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
