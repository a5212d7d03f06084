"""model.unfreeze beside Transformers, where the same parameters have requires_grad: gradients, ten
AdamW steps, and the bits of what is frozen."""
import copy
import json
import re
import sys
import tempfile

import torch
import transformers

import parity
import reference
import transformers_oracle_test as oracle

# What model.unfreeze trains, in the words of Transformers; LAST: the number of the last block.
UNFROZEN = {
    "a block of the encoder": ("vision", ["vision[-1:]"], r"vision_tower.*layer\.LAST\."),
    "a block of the language model, the head": (
        "vision,llm", ["llm[-1:]", "lm_head"], r"language_model.layers\.LAST\.|lm_head"),
    "parts of blocks": ("vision,projector,llm", ["language_model.*mlp", "vision_tower.*attention"],
                        r"language_model.*mlp|vision_tower.*attention"),
}


def check_unfrozen(report):
    """Parts of frozen modules, where the same parameters have requires_grad."""
    for name, tied in (("internvl 300m qwen2", False), ("internvl tied", True)):
        for what, (frozen, unfreeze, pattern) in UNFROZEN.items():
            compare_unfrozen(report, name, f"{name}, {what}", (frozen, unfreeze, pattern), tied)


def compare_unfrozen(report, name, what, parts, tied):
    frozen, unfreeze, pattern = parts
    if tied:  # Transformers lists the one weight as the embedding's
        pattern = pattern.replace("lm_head", "embed_tokens")

    def is_trained(weight):
        module = ("projector" if "projector" in weight else
                  "vision" if "vision_tower" in weight else "llm")
        return module not in frozen.split(",") or re.search(pattern, weight) is not None

    with tempfile.TemporaryDirectory() as folder:
        model = oracle.build(name, seed=5)
        part = model.config.text_config if "language_model" in pattern else (
            model.config.vision_config)
        pattern = pattern.replace("LAST", str(part.num_hidden_layers - 1))
        model.save_pretrained(folder)
        samples = oracle.make_samples(True, seed=5)
        key_of = reference.key_map(model, folder)
        for weight, tensor in model.named_parameters():
            tensor.requires_grad_(is_trained(weight))
        settings = [f"model.freeze=[{frozen}]", "model.unfreeze=" + json.dumps(unfreeze)]
        ours = parity.run_check(folder, oracle.padded(samples), gradients=True,
                                recipe=oracle.RECIPE, settings=settings)
        models = [copy.deepcopy(model).to(dtype) for dtype in (torch.float32, torch.float64)]
        grads = [reference.gradients(each, samples, key_of)[2] for each in models]
        steps = [reference.adamw_steps(each, samples, oracle.RECIPE, key_of) for each in models]
    parity.compare_tensors(report, what, "gradients", parity.strip(ours, "grad."), grads[1],
                           parity.noise_floors(*grads), parity.FP32["gradient"])
    parity.compare_steps(report, what, ours, *steps[0][:2])
    after = parity.strip(ours, "after.")
    exact = steps[1][2]
    parity.compare_tensors(report, what, "weights after", after, exact,
                           parity.noise_floors(steps[0][2], exact), parity.FP32["after"])
    moved = {weight: not after[key_of[weight]].equal(tensor.detach())
             for weight, tensor in model.named_parameters()}
    wrong = [weight for weight, has in moved.items() if has != is_trained(weight)]
    report.check(what, "what is frozen keeps its bits, and nothing else", not wrong and
                 len(set(moved.values())) == 2, str(wrong[:4]))


def main():
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    report = parity.Report()
    check_unfrozen(report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
