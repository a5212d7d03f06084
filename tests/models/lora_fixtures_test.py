"""Every adapter of the fixtures' parity folder (peft's LoRA, rsLoRA and QLoRA), by `equipoise
check`: logits, loss, gradients and ten steps."""
import json
import os
import tempfile

from safetensors.torch import load_file, save_file

import parity

MESHES = {"": (1, []), "tensor 2": (2, ["parallel.tensor=2"]),
          "zb_h1 2": (2, ["parallel.pipeline=2", "parallel.schedule=zb_h1"]),
          "zero 2": (2, ["parallel.data=2", "parallel.zero=1"])}


def strict(reference):
    return {parity.kind(name): 0.0 for name in reference}


def compare(report, what, ours, folder, steps):
    expected = load_file(os.path.join(folder, "expected.safetensors"))
    report.add(what, "logits", parity.logit_error(ours["logits"], expected["logits"]),
               parity.FP32["logits"])
    parity.compare_loss(report, what, ours["loss"].item(), expected["loss"].item())
    grads = load_file(os.path.join(folder, "grads.safetensors"))
    parity.compare_tensors(report, what, "gradients", parity.strip(ours, "grad."), grads,
                           strict(grads), parity.FP32["gradient"])
    norms = steps.get("grad_norms") or steps["grad_norms_before_clip"]
    parity.compare_steps(report, what, ours, steps["losses"], norms)


def case(report, folder, name, base):
    inputs = os.path.join(base, "inputs.safetensors")
    recipes = os.path.join(folder, "steps.json")
    with open(recipes, encoding="utf8") as file:
        steps = json.load(file)
    adapter = f"model.adapter.init={folder}"
    for mesh, (ranks, settings) in MESHES.items():
        recipe = "a" if mesh else "b"
        ours = parity.run_check(base, inputs, gradients=True, recipe=f"{recipes}:{recipe}",
                                settings=[adapter, *settings], ranks=ranks)
        what = f"{name} {mesh}".strip()
        compare(report, what, ours, folder, steps[recipe])
        if recipe == "b":
            after = load_file(os.path.join(folder, "after_recipe_b.safetensors"))
            parity.compare_tensors(report, what, "weights after", parity.strip(ours, "after."),
                                   after, strict(after), parity.FP32["after"])


def quantised(report, folder, name, base):
    """Weights quantised here are bitsandbytes': logits and steps of the folder, on every mesh."""
    inputs = os.path.join(base, "inputs.safetensors")
    recipes = os.path.join(folder, "steps.json")
    with open(recipes, encoding="utf8") as file:
        steps = json.load(file)
    for mesh, (ranks, settings) in MESHES.items():
        ours = parity.run_check(
            base, inputs, gradients=True, recipe=f"{recipes}:a", ranks=ranks,
            settings=[f"model.adapter.init={folder}", "model.base=nf4", *settings])
        compare(report, f"{name} nf4 {mesh}".strip(), ours, folder, steps["a"])


def main():
    root = os.environ.get("EQUIPOISE_FIXTURES")
    if not root:
        print("skipped: lora_fixtures_test: no fixtures")
        return 0
    root = os.path.join(root, "parity")
    report = parity.Report()
    for name in sorted(os.listdir(root)):
        if not name.startswith("lora-"):
            continue
        folder = os.path.join(root, name)
        with open(os.path.join(folder, "meta.json"), encoding="utf8") as file:
            base = os.path.join(root, json.load(file)["base"])
        changed = os.path.join(folder, "base_nf4.safetensors")
        if not os.path.exists(changed):
            case(report, folder, name, base)
            continue
        quantised(report, folder, name, base)
        with tempfile.TemporaryDirectory() as given:  # the base as bitsandbytes gives it back
            for file in os.listdir(base):
                if file != "model.safetensors":
                    os.symlink(os.path.join(base, file), os.path.join(given, file))
            weights = load_file(os.path.join(base, "model.safetensors"))
            save_file({**weights, **load_file(changed)}, os.path.join(given, "model.safetensors"))
            case(report, folder, name, given)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
