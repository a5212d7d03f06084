"""Folders in GPTQ's form: what `equipoise` computes over them is what it computes over a plain
folder of their weights, unpacked here by the published formula, on every mesh; folders that it
writes from them; and bad input."""
import json
import os
import shutil
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

import tiny_case

STEPS = 3
LORA = {"model__adapter__targets": '["language_model.*(q|v|down)_proj",linear_1]',
        "model__adapter__rank": 4, "model__init": "pretrained", "train__steps": STEPS,
        "checkpoint__every": STEPS}
MESHES = {"tensor 2": {"parallel__tensor": 2},
          "pipeline 2": {"parallel__pipeline": 2, "parallel__schedule": "zb_h1"},
          "ZeRO 3": {"parallel__data": 2, "parallel__zero": 3}}
# Group size, act-order, version of the format.
FORMS = {"act_order": (32, True, "gptq"), "in_order": (32, False, "gptq"),
         "version_2": (16, True, "gptq_v2"), "one_group": (-1, False, "gptq"),
         "ragged": (48, False, "gptq")}  # the last group has 16 inputs of 64, 32 of 128


def packed(numbers):
    """Eight rows of numbers of 4 bits in one of int32, the first in the lowest bits."""
    words = np.zeros((numbers.shape[0] // 8, numbers.shape[1]), np.uint32)
    for i in range(8):
        words |= numbers[i::8].astype(np.uint32) << np.uint32(4 * i)
    return words.view(np.int32)


def random_layer(out, inputs, form, random):
    """The tensors of a linear layer, as AutoGPTQ stores them."""
    group_size, act_order, _ = form
    size = inputs if group_size < 0 else group_size
    groups = -(-inputs // size)
    group_of = (np.arange(inputs) // size).astype(np.int32)
    return {"qweight": packed(random.integers(0, 16, (inputs, out))),
            "qzeros": np.ascontiguousarray(packed(random.integers(0, 16, (out, groups))).T),
            "scales": random.uniform(0.004, 0.012, (groups, out)).astype(np.float16),
            "g_idx": random.permutation(group_of) if act_order else group_of}


def dequantised(layer, form):
    """The published formula: scales[g] * (codes - (zeros[g] + 1)), without the 1 in version 2."""
    shifts = np.arange(0, 32, 4)
    codes = (layer["qweight"][:, None, :] >> shifts[None, :, None]) & 15
    codes = codes.reshape(-1, codes.shape[2])  # [in, out]
    zeros = (layer["qzeros"][:, :, None] >> shifts) & 15
    zeros = zeros.reshape(zeros.shape[0], -1) + (1 if form[2] == "gptq" else 0)  # [groups, out]
    groups = layer["g_idx"]
    scales = layer["scales"].astype(np.float32)
    return np.ascontiguousarray((scales[groups] * (codes - zeros[groups]).astype(np.float32)).T)


def is_packed(name):
    return "language_model" in name and name.endswith("_proj.weight")


def write_config(folder, form, **changes):
    group_size, act_order, version = form
    with open(f"{folder}/config.json", encoding="utf8") as file:
        config = json.load(file)
    config["quantization_config"] = {
        "quant_method": "gptq", "bits": 4, "group_size": group_size, "desc_act": act_order,
        "sym": False, "damp_percent": 0.01, "true_sequential": True, "checkpoint_format": version,
        **changes}
    with open(f"{folder}/config.json", "w", encoding="utf8") as file:
        json.dump(config, file)


def write_folders(folder, name, weights, form):
    """FOLDER/NAME in GPTQ's form, and FOLDER/NAME_plain with the same weights unpacked."""
    random = np.random.default_rng(7)
    ours, plain = {}, {}
    for key, weight in weights.items():
        if not is_packed(key):
            ours[key] = plain[key] = weight
            continue
        layer = random_layer(*weight.shape, form, random)
        module = key[:-len(".weight")]
        ours.update({f"{module}.{part}": torch.from_numpy(each) for part, each in layer.items()})
        plain[key] = torch.from_numpy(dequantised(layer, form))
        if f"{module}.bias" not in weights:  # as AutoGPTQ writes it for some models
            ours[f"{module}.bias"] = torch.zeros(weight.shape[0])
    for kind, tensors in (("", ours), ("_plain", plain)):
        shutil.copytree(f"{folder}/model", f"{folder}/{name}{kind}")
        save_file(tensors, f"{folder}/{name}{kind}/model.safetensors", {"format": "pt"})
    write_config(f"{folder}/{name}", form)


def random_weights(folder):
    model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(f"{folder}/model"))
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(1 if weight.ndim == 1 and not name.endswith("bias") else 0, 0.05)
    model.save_pretrained(f"{folder}/weights")
    return load_file(f"{folder}/weights/model.safetensors")


class Case:
    def __init__(self, folder):
        self.folder = folder
        self.config = tiny_case.write_case(folder)
        self.results = tiny_case.Results()
        weights = random_weights(folder)
        for name, form in FORMS.items():
            write_folders(folder, name, weights, form)

    def run(self, model, name, ranks=1, **settings):
        return tiny_case.run(self.config, ranks, run__dir=f"{self.folder}/{name}", **{
            **LORA, "model__hf": f"{self.folder}/{model}", **settings})

    def train(self, model, name, ranks=1, **settings):
        done = self.run(model, name, ranks, **settings)
        if done.returncode != 0:
            raise RuntimeError(f"{name}: exit {done.returncode}: {done.stderr[-2000:]}")
        return tiny_case.losses(f"{self.folder}/{name}")


def close(ours, theirs, bound=1e-5):
    return len(ours) == len(theirs) and all(abs(a - b) <= bound * abs(b)
                                            for a, b in zip(ours, theirs))


def largest_error(ours, theirs):
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30)).item()


def losses(case):
    results = case.results
    for name in FORMS:
        expected = case.train(f"{name}_plain", f"run_{name}_plain")
        one = case.train(name, f"run_{name}")
        results.check(f"{name}: the losses of unpacked weights", close(one, expected),
                      f"{one} {expected}")
        for mesh, settings in MESHES.items():
            if name != "act_order" and "tensor" not in mesh:
                continue
            two = case.train(name, f"run_{name}_{mesh.replace(' ', '_')}", ranks=2, **settings)
            results.check(f"{name}, {mesh}: the losses of unpacked weights", close(two, expected),
                          f"{two} {expected}")
    results.check("losses depend on the weights",
                  tiny_case.losses(f"{case.folder}/run_act_order") !=
                  tiny_case.losses(f"{case.folder}/run_in_order"))
    dora = {"model__adapter__dora": "true"}
    expected = case.train("act_order_plain", "dora_plain", **dora)
    two = case.train("act_order", "dora", ranks=2, parallel__tensor=2, **dora)
    results.check("DoRA on tensor ranks: the losses of unpacked weights", close(two, expected),
                  f"{two} {expected}")
    drawn = case.train("act_order", "drawn", model__init="random")
    two = case.train("act_order", "drawn_2", ranks=2, model__init="random", parallel__tensor=2)
    results.check("random weights, rounded, are the same on every mesh", close(two, drawn),
                  f"{two} {drawn}")


def checked(case, model, *more):
    out = f"{case.folder}/out_{model}.safetensors"  # load_file maps it
    done = tiny_case.program("check", f"{case.folder}/{model}", f"{case.folder}/inputs.safetensors",
                             "--out", out, *more)
    if done.returncode != 0:
        raise RuntimeError(f"check {model}: exit {done.returncode}: {done.stderr[-2000:]}")
    return load_file(out)


def logits_and_gradients(case):
    ids = torch.arange(10, 50)[None]
    save_file({"input_ids": ids, "labels": ids.clone()}, f"{case.folder}/inputs.safetensors")
    for name in ("act_order", "version_2", "one_group"):
        ours, theirs = checked(case, name), checked(case, f"{name}_plain")
        error = largest_error(ours["logits"], theirs["logits"])
        case.results.check(f"{name}: the logits of unpacked weights, without adapters",
                           error < 1e-5, f"{error:.1e}")
    done = tiny_case.program("export", f"{case.folder}/run_act_order", "--out",
                             f"{case.folder}/adapter")
    case.results.check("export to a folder of PEFT", done.returncode == 0, done.stderr[-200:])
    more = ("--gradients", "--set", f"model.adapter.init={case.folder}/adapter")
    ours, theirs = checked(case, "act_order", *more), checked(case, "act_order_plain", *more)
    errors = {key: largest_error(ours[key], theirs[key]) for key in theirs if key in ours}
    case.results.check("gradients of adapters over unpacked weights",
                       set(errors) == set(theirs) and len(errors) > 2 and
                       all(error < 1e-5 for error in errors.values()),
                       f"{max(errors.values()):.1e}")
    unused = {key: ours[key].abs().max().item() for key in set(ours) - set(theirs)}
    case.results.check("of tensors in GPTQ's form no gradients, of unused biases zeros",
                       unused and all(key.endswith(".bias") and not value
                                      for key, value in unused.items()), str(unused)[:300])


def merged(case):
    folder, results = case.folder, case.results
    run, out = f"{folder}/run_act_order", f"{folder}/merged"
    done = tiny_case.program("export", run, "--merge", "--out", out)
    results.check("merge", done.returncode == 0, done.stderr[-200:])
    with open(f"{out}/config.json", encoding="utf8") as file:
        results.check("merged weights are plain by config.json",
                      "quantization_config" not in json.load(file))
    weights = load_file(f"{out}/model.safetensors")
    plain = load_file(f"{folder}/act_order_plain/model.safetensors")
    adapter = load_file(f"{folder}/adapter/adapter_model.safetensors")
    key = next(name for name in adapter if "layers.1.self_attn.q_proj.lora_A" in name)
    change = adapter[key.replace("lora_A", "lora_B")] @ adapter[key] * 4  # alpha / rank
    name = next(n for n in plain if n.endswith("layers.1.self_attn.q_proj.weight"))
    ours = next(w for n, w in weights.items() if n.endswith("layers.1.self_attn.q_proj.weight"))
    results.check("a merged weight is the unpacked one and its adapter",
                  change.abs().max() > 0 and (ours - plain[name] - change).abs().max() < 1e-6,
                  f"{(ours - plain[name] - change).abs().max():.1e}")
    up = [next(w for n, w in each.items() if n.endswith("layers.0.mlp.up_proj.weight"))
          for each in (weights, plain)]
    results.check("a weight without adapter is the unpacked one", torch.equal(*up))
    model = AutoModelForImageTextToText.from_pretrained(out, dtype=torch.float32)
    results.check("Transformers loads the merged folder", model is not None)
    answers = [tiny_case.program("generate", *arguments, "--prompt", "What is 3 plus 2?",
                                 "--max-new-tokens", "8", "--set", "train.precision=fp32")
               for arguments in ((run,), (out,),
                                 (f"{folder}/act_order", "--adapter", f"{folder}/adapter"))]
    results.check("run, merged folder and base with adapter answer alike",
                  all(a.returncode == 0 for a in answers) and
                  len({a.stdout for a in answers}) == 1,
                  str([(a.returncode, a.stdout, a.stderr[-100:]) for a in answers]))


def resumed(case):
    whole = {"train__steps": 2 * STEPS, "train__schedule": "constant"}
    expected = case.train("act_order_plain", "constant", **whole)
    case.train("act_order", "resumed", **{**whole, "train__steps": STEPS})
    shutil.copytree(f"{case.folder}/act_order", f"{case.folder}/moved")
    going_on = case.train("moved", "resumed", ranks=2, parallel__tensor=2, **whole)
    case.results.check("resumed on another mesh, the folder moved", close(going_on, expected),
                       f"{going_on} {expected}")
    tensors = load_file(f"{case.folder}/moved/model.safetensors")
    key = next(name for name in tensors if name.endswith("q_proj.qweight"))
    save_file({**tensors, key: tensors[key] + 1}, f"{case.folder}/moved/model.safetensors")
    done = case.run("moved", "resumed", **{**whole, "train__steps": 3 * STEPS})
    case.results.check("another base is refused", done.returncode == 2 and "base" in done.stderr,
                       done.stderr[-200:])


def plans(case):
    """The planner counts a packed weight's codes, scales, zeros and groups."""
    counted = {}
    for model in ("act_order", "act_order_plain"):
        out = f"{case.folder}/{model}.json"
        done = tiny_case.run(case.config, 1, "plan", "--json", out, "--ranks", "1", **{
            **LORA, "model__hf": f"{case.folder}/{model}"})
        if done.returncode != 0:
            raise RuntimeError(f"plan {model}: exit {done.returncode}: {done.stderr[-2000:]}")
        with open(out, encoding="utf8") as file:
            counted[model] = sum(s["memory"]["parameters"] for s in json.load(file)["stages"])
    saved = 0
    for name, weight in load_file(f"{case.folder}/act_order_plain/model.safetensors").items():
        if not is_packed(name):
            continue
        out, inputs = weight.shape
        groups = inputs // FORMS["act_order"][0]
        saved += 4 * out * inputs - (out * inputs // 2 + 3 * out * groups + 4 * inputs)
    ours = counted["act_order_plain"] - counted["act_order"]
    case.results.check("the plan counts the bytes of packed weights",
                       saved > 0 and abs(ours - saved) <= 0.001 * saved, f"{ours} {saved}")


def bad_folder(case, name, change):
    """A copy of the folder with other tensors; `change` maps a dict of them to another."""
    folder = f"{case.folder}/bad_{name}"
    shutil.copytree(f"{case.folder}/act_order", folder)
    tensors = load_file(f"{folder}/model.safetensors")
    save_file(change(tensors), f"{folder}/model.safetensors")
    return f"bad_{name}"


def bad_weights(case):
    def changed(part, function):
        def change(tensors):
            key = next(name for name in tensors if name.endswith(f"q_proj.{part}"))
            return {**tensors, key: function(tensors[key])}
        return change

    def without(part):
        return lambda tensors: {name: each for name, each in tensors.items()
                                if not name.endswith(f"layers.1.mlp.up_proj.{part}")}

    def plain(tensors):
        key = next(name for name in tensors if name.endswith("layers.1.mlp.up_proj.qweight"))
        rest = without("qweight")(tensors)
        return {**rest, key.replace("qweight", "weight"): torch.zeros(128, 64)}

    def biased(tensors):
        key = next(name for name in tensors if name.endswith("o_proj.bias"))
        return {**tensors, key: tensors[key] + 1}

    def out_of_range(groups):
        groups = groups.clone()
        groups[3] = 2
        return groups

    def negative(groups):
        return groups - 1

    cases = (
        ("shape", changed("qweight", lambda each: each[:-1].contiguous()), "[7, 64]"),
        ("scales_shape", changed("scales", lambda each: each[:1].contiguous()), "[1, 64]"),
        ("dtype", changed("qzeros", lambda each: each.to(torch.int64)), "I64"),
        ("groups", changed("g_idx", out_of_range), "the group 2 of 2"),
        ("negative", changed("g_idx", negative), "the group -1 of 2"),
        ("no_scales", without("scales"), "up_proj.scales: missing"),
        ("no_groups", without("g_idx"), "up_proj.g_idx: missing"),
        ("nan", changed("scales", lambda each: each * float("nan")), "no numbers"),
        ("plain", plain, "is not in GPTQ's form"),
        ("bias", biased, "o_proj.bias: is not 0"),
    )
    for name, change, words in cases:
        refused(case, name, case.run(bad_folder(case, name, change), "bad"), 4, words)


def refused(case, name, done, code, words):
    lines = [line for line in done.stderr.splitlines() if "equipoise:" in line]
    case.results.check(f"refused: {name}",
                       done.returncode == code and words in done.stderr and len(lines) == 1,
                       f"{done.returncode} {done.stderr[-300:]}")


def bad_settings(case):
    for name, changes, words in (
            ("8 bits", {"bits": 8}, "bits: 8: GPTQ folders of 4 bits alone are read"),
            ("AWQ", {"quant_method": "awq"}, "'awq': GPTQ folders of 4 bits alone are read"),
            ("marlin", {"checkpoint_format": "marlin"}, "checkpoint_format: 'marlin'"),
            ("group size", {"group_size": 0}, "group_size"),
            ("head", {"lm_head": True}, "lm_head")):
        folder = "config_" + name.replace(" ", "_")
        shutil.copytree(f"{case.folder}/act_order", f"{case.folder}/{folder}")
        write_config(f"{case.folder}/{folder}", FORMS["act_order"], **changes)
        refused(case, name, case.run(folder, "bad"), 4, words)
    refused(case, "no adapters", case.run("act_order", "bad", model__adapter__targets="[]"), 2,
            "adapters over them alone are trained")
    refused(case, "quantised twice", case.run("act_order", "bad", model__base="nf4"), 2,
            "model.base")
    refused(case, "a packed layer trained in full",
            case.run("act_order", "bad", model__adapter__train="[down_proj]"), 4,
            "a frozen base alone")


def main():
    with tempfile.TemporaryDirectory() as folder:
        case = Case(folder)
        losses(case)
        logits_and_gradients(case)
        merged(case)
        resumed(case)
        plans(case)
        bad_weights(case)
        bad_settings(case)
        case.results.finish()


if __name__ == "__main__":
    sys.exit(main())
