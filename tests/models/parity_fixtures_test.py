"""Every Qwen2, LLaMA, InternVL, LLaVA and Qwen-VL case of the fixtures' parity folder, by
`equipoise check`."""
import copy
import json
import os
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

import opengvlab as naming
import parity
import reference

FAMILIES = ("llama-", "llama3-", "qwen2-gqa", "internvl-", "llava-clip", "llava-siglip",
            "llava-next", "qwen2-vl", "qwen2_5-vl")
WITH_PICTURES = ("internvl-", "llava-", "qwen2-vl", "qwen2_5-vl")


def load(folder, name):
    return load_file(os.path.join(folder, name))


class Case:
    """A folder of the fixtures, and Transformers' run of it in double precision."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.inputs = os.path.join(folder, "inputs.safetensors")
        model = (AutoModelForImageTextToText if name.startswith(WITH_PICTURES)
                 else AutoModelForCausalLM).from_pretrained(folder, dtype=torch.float32)
        self.key_of = reference.key_map(model, folder)
        self.exact = model.double().eval()
        self.batch = load(folder, "inputs.safetensors")
        self.exact_gradients = reference.gradients(self.exact, [self.batch], self.key_of)[2]


def compare_gradients(report, what, case, ours, own):
    floors = parity.noise_floors(own, case.exact_gradients)
    parity.compare_tensors(report, what, "gradients", parity.strip(ours, "grad."),
                           case.exact_gradients, floors, parity.FP32["gradient"])


def recipe(report, case, ours, name, steps):
    """The ten steps of a recipe, and the weights after recipe b."""
    what = f"{case.name} recipe {name}"
    norms = steps.get("grad_norms") or steps["grad_norms_before_clip"]
    parity.compare_steps(report, what, ours, steps["losses"], norms)
    if name == "b":
        exact, here = (reference.adamw_steps(model, [case.batch], steps, case.key_of)[2]
                       for model in (case.exact, copy.deepcopy(case.exact).float()))
        # AdamW makes steps of lr of a gradient that is rounding alone: two runs of Transformers in
        # single precision, on the fixtures' machine and here, are two samples of how far.
        floors = parity.worst_floors([load(case.folder, "after_recipe_b.safetensors"), here], exact)
        parity.compare_tensors(
            report,
            what,
            "weights after",
            parity.strip(ours, "after."),
            exact,
            floors,
            parity.FP32["after"],
        )


def plain(report, case):
    """Logits, loss, gradients and recipe a; recipe b with the configuration of Transformers 4."""
    expected = load(case.folder, "expected.safetensors")
    recipes = os.path.join(case.folder, "steps.json")
    with open(recipes, encoding="utf8") as file:
        steps = json.load(file)
    ours = parity.run_check(case.folder, case.inputs, gradients=True, recipe=recipes + ":a")
    report.add(case.name, "logits", parity.logit_error(ours["logits"], expected["logits"]),
               parity.FP32["logits"])
    parity.compare_loss(report, case.name, ours["loss"].item(), expected["loss"].item())
    compare_gradients(report, case.name, case, ours, load(case.folder, "grads.safetensors"))
    padding = case.batch["attention_mask"] == 0
    report.check(case.name, "padding is 0", bool((ours["logits"][padding] == 0).all()))
    recipe(report, case, ours, "a", steps["a"])

    with tempfile.TemporaryDirectory() as old:
        shutil.copy(os.path.join(case.folder, "config_v4.json"), os.path.join(old, "config.json"))
        shutil.copy(os.path.join(case.folder, "model.safetensors"), old)
        again = parity.run_check(old, case.inputs, recipe=recipes + ":b")
    report.check(case.name, "config_v4: same bits", bool((again["logits"] == ours["logits"]).all()))
    recipe(report, case, again, "b", steps["b"])


def opengvlab(report, case):
    """The same model under OpenGVLab's names, whose config.json does not name the picture token."""
    if not os.path.exists(os.path.join(case.folder, "opengvlab_config.json")):
        return
    what = case.name + " opengvlab"
    weights = load(case.folder, "opengvlab_model.safetensors")
    renamed = naming.rename(load(case.folder, "model.safetensors"))
    report.check(what, "names and bits",
                 set(renamed) == set(weights) and
                 all(bool((weights[key] == renamed[key]).all()) for key in weights))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("config.json", "model.safetensors"):
            shutil.copy(os.path.join(case.folder, "opengvlab_" + name), os.path.join(folder, name))
        ours = parity.run_check(folder, case.inputs, gradients=True)
    expected = load(case.folder, "expected.safetensors")
    report.add(what, "logits", parity.logit_error(ours["logits"], expected["logits"]),
               parity.FP32["logits"])
    parity.compare_loss(report, what, ours["loss"].item(), expected["loss"].item())
    exact = naming.rename(case.exact_gradients)
    floors = parity.noise_floors(load(case.folder, "opengvlab_grads.safetensors"), exact)
    parity.compare_tensors(report, what, "gradients", parity.strip(ours, "grad."), exact, floors,
                           parity.FP32["gradient"])


def packed(report, case):
    inputs = os.path.join(case.folder, "packed_inputs.safetensors")
    expected = load(case.folder, "packed_expected.safetensors")
    for weighting in ("token", "sample", "square"):
        what = f"{case.name} packed {weighting}"
        grads = os.path.join(case.folder, f"packed_grads_{weighting}.safetensors")
        ours = parity.run_check(case.folder, inputs, gradients=os.path.exists(grads),
                                settings=[f"train.loss={weighting}"])
        report.add(what, "logits", parity.logit_error(ours["logits"][0], expected["logits"]),
                   parity.FP32["logits"])
        parity.compare_loss(report, what, ours["loss"].item(), expected[f"loss_{weighting}"].item())
        if weighting == "token":
            compare_gradients(report, what, case, ours, load_file(grads))
        elif os.path.exists(grads):
            # No run in double precision: the floor is that of the plain batch.
            floors = parity.noise_floors(load(case.folder, "grads.safetensors"),
                                         case.exact_gradients)
            parity.compare_tensors(report, what, "gradients", parity.strip(ours, "grad."),
                                   load_file(grads), floors, parity.FP32["gradient"])


def main():
    root = os.environ.get("EQUIPOISE_FIXTURES")
    if not root:
        print("skipped: parity_fixtures_test: no fixtures")
        return 0
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    root = os.path.join(root, "parity")
    report = parity.Report()
    for name in sorted(os.listdir(root)):
        if name.startswith(FAMILIES):
            case = Case(name, os.path.join(root, name))
            plain(report, case)
            if os.path.exists(os.path.join(case.folder, "packed_inputs.safetensors")):
                packed(report, case)
            opengvlab(report, case)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
