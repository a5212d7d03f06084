"""Tiny models with peft's adapters, by peft and by `equipoise`: kinds of adapters that the fixtures
lack, folders from here to peft and back, and merged weights."""
import copy
import os
import subprocess
import tempfile

import torch
import torch.nn.functional as F
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import (AutoModelForCausalLM, InternVLConfig, InternVLForConditionalGeneration,
                          LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM)

import parity

VOCABULARY, IMAGE, TOKENS_PER_TILE = 200, 199, 4
TEXT = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
        "tie_word_embeddings": False}
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 4, "image_size": [56, 56], "patch_size": [14, 14],
          "norm_type": "layer_norm", "attention_bias": True}

MODELS = {
    "llama biases": lambda: LlamaForCausalLM(LlamaConfig(**TEXT, attention_bias=True,
                                                         mlp_bias=True)),
    "llama tied": lambda: LlamaForCausalLM(LlamaConfig(**{**TEXT, "tie_word_embeddings": True})),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**{**TEXT, "num_key_value_heads": 1})),
    "internvl": lambda: InternVLForConditionalGeneration(InternVLConfig(
        vision_config=VISION, text_config=Qwen2Config(**TEXT).to_dict(), image_token_id=IMAGE,
        image_seq_length=TOKENS_PER_TILE, downsample_ratio=0.5, tie_word_embeddings=False)),
}
CASES = {  # model, peft's settings, meshes
    "llama biases dora": ("llama biases", {"target_modules": ["q_proj", "v_proj", "down_proj"],
                                           "use_dora": True}),
    "llama tied": ("llama tied", {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"],
                                  "ensure_weight_tying": True}),
    "qwen2 all dora": ("qwen2", {"target_modules": "all-linear", "use_dora": True}),
    "internvl all-linear": ("internvl", {"target_modules": "all-linear", "use_rslora": True}),
    "internvl v": ("internvl", {"target_modules": ["v_proj"],
                                "modules_to_save": ["multi_modal_projector.linear_1"]}),
    "internvl all but some": ("internvl", {
        "target_modules": "all-linear",
        "modules_to_save": ["multi_modal_projector.linear_1", "projection_layer"]}),
}
MESHES = {"": (1, []), "tensor 2": (2, ["parallel.tensor=2"]),
          "pipeline 2": (2, ["parallel.pipeline=2", "parallel.schedule=zb_h1"])}


def build(name):
    generator = torch.Generator().manual_seed(3)
    model = MODELS[name]().float().eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim == 1:
                weight.copy_((0.0 if key.endswith("bias") else 1.0) + 0.1 * noise)
            else:
                weight.copy_(noise * (0.1 if "embed" in key or "lm_head" in key or "cls" in key
                                      else weight[0].numel() ** -0.5))
    return model


def batch_of(has_vision):
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(3, IMAGE, (2, 24), generator=generator)
    labels = torch.where(torch.rand(ids.shape, generator=generator) < 0.5, ids, -100)
    batch = {"input_ids": ids, "labels": labels}
    if has_vision:
        ids[:, 2:2 + TOKENS_PER_TILE] = IMAGE
        labels[ids == IMAGE] = -100
        batch["pixel_values"] = torch.randn(2, 3, 56, 56, generator=generator)
    return batch


def randomise(model):
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for key, weight in sorted(model.named_parameters()):
            if "lora_B" in key:
                weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
            elif "lora_magnitude" in key:
                weight.mul_(1 + 0.1 * torch.randn(weight.shape, generator=generator))
            elif "modules_to_save" in key:
                weight.mul_(1 + 0.1 * torch.randn(weight.shape, generator=generator))


def losses(model, batch):
    arguments = {k: v for k, v in batch.items() if k != "labels"}
    logits = model(**arguments, use_cache=False).logits
    targets = batch["labels"][:, 1:].flatten()
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), targets, reduction="sum")
    return logits, loss / (targets != -100).sum()


def gradients(model):
    """Gradients under the keys of adapter_model.safetensors."""
    twin = copy.deepcopy(model)
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    with torch.no_grad():
        for name, weight in twin.named_parameters():
            if name in found:
                weight.copy_(found[name])
    tensors = get_peft_model_state_dict(twin)
    if twin.config.tie_word_embeddings:
        del tensors["base_model.model.lm_head.weight"]  # the embedding's
    return tensors


def renamed(ours):
    """Modules that are trained in full have the model's own names."""
    return {(name if name.startswith("base_model") else
             "base_model.model.model." + name.removeprefix("model.")): tensor
            for name, tensor in ours.items()}


def run(*arguments):
    return subprocess.run([parity.program(), *arguments], capture_output=True, text=True,
                          timeout=300, check=False)


def case(report, name, folder):
    kind, settings = CASES[name]
    model = build(kind)
    base, adapter = os.path.join(folder, "base"), os.path.join(folder, "adapter")
    model.save_pretrained(base)
    batch = batch_of(kind == "internvl")
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, bias="none",
                                             task_type="CAUSAL_LM", **settings)).eval()
    randomise(model)
    model.save_pretrained(adapter)
    logits, loss = losses(model, batch)
    loss.backward()
    expected = gradients(model)
    for mesh, (ranks, parallel) in MESHES.items():
        what = f"{name} {mesh}".strip()
        ours = parity.run_check(base, batch, gradients=True, ranks=ranks,
                                settings=[f"model.adapter.init={adapter}", *parallel])
        report.add(what, "logits", parity.logit_error(ours["logits"], logits),
                   parity.FP32["logits"])
        parity.compare_loss(report, what, ours["loss"].item(), loss.item())
        parity.compare_tensors(report, what, "gradients", renamed(parity.strip(ours, "grad.")),
                               expected, {parity.kind(key): 0.0 for key in expected},
                               parity.FP32["gradient"])
    round_trip(report, name, folder, kind, model)
    merged(report, name, folder, model, batch)


def round_trip(report, name, folder, kind, model):
    """From peft to here and back: the same bits, and peft loads them."""
    again = os.path.join(folder, "again")
    done = run("export", os.path.join(folder, "base"), "--adapter",
               os.path.join(folder, "adapter"), "--out", again)
    report.check(name, "export", done.returncode == 0, done.stderr.strip()[-120:])
    if done.returncode != 0:
        return
    was, now = (load_file(os.path.join(folder, part, "adapter_model.safetensors"))
                for part in ("adapter", "again"))
    report.check(name, "names", set(was) == set(now), str(set(was) ^ set(now))[:160])
    report.check(name, "bits", all(torch.equal(now.get(key, torch.zeros(0)), tensor)
                                   for key, tensor in was.items()))
    loaded = PeftModel.from_pretrained(build(kind), again)
    ours, theirs = get_peft_model_state_dict(loaded), get_peft_model_state_dict(model)
    report.check(name, "peft loads it", set(ours) == set(theirs) and
                 all(torch.equal(ours[key], tensor) for key, tensor in theirs.items()))


def merged(report, name, folder, model, batch):
    out = os.path.join(folder, "merged")
    done = run("export", os.path.join(folder, "base"), "--adapter",
               os.path.join(folder, "adapter"), "--merge", "--out", out)
    report.check(name, "merge", done.returncode == 0 and "differ from the adapter's by" in
                 done.stderr, done.stderr.strip()[-120:])
    if done.returncode != 0:
        return
    theirs = copy.deepcopy(model).merge_and_unload().state_dict()
    auto = InternVLForConditionalGeneration if "pixel_values" in batch else AutoModelForCausalLM
    plain = auto.from_pretrained(out, dtype=torch.float32).eval()
    mine = plain.state_dict()
    errors = [((mine[key] - weight).norm() / weight.norm().clamp(min=1e-6)).item()
              for key, weight in theirs.items()]
    error = torch.tensor(errors).max().item()  # Python's max() loses NaN
    report.add(name, "merged weights", error, 1e-6)
    with torch.no_grad():
        report.add(name, "merged logits", parity.logit_error(losses(plain, batch)[0],
                                                             losses(model, batch)[0]), 1e-4)


def main():
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    report = parity.Report()
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            case(report, name, folder)
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
