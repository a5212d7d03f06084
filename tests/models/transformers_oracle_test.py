"""Tiny random models of Transformers, run by it and by `equipoise check`: the same numbers.

Bounds are those of docs/design.md, section 5. Noise floors are measured here: the errors of
Transformers' own fp32 and bf16 runs against its run in double precision ("own" in the table).
"""
import copy
import json
import os
import sys
import tempfile

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from transformers import (InternVLConfig, InternVLForConditionalGeneration, LlamaConfig,
                          LlamaForCausalLM, LlavaConfig, LlavaForConditionalGeneration,
                          MistralConfig, MistralForCausalLM, Phi3Config, Phi3ForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

import any_resolution
import internlm2
import opengvlab
import parity
import qwen_vl
import reference
from any_resolution import llava_next, llava_onevision

VOCABULARY, PAD, IMAGE, VIDEO = 200, 0, 199, 198
TOKENS_PER_TILE = 4
RECIPE = {"optimizer": "AdamW", "lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.05,
          "weight_decay_on": "parameters with two or more dimensions", "clip": 1.0,
          "lrs": [2e-3 * scale for scale in (0.25, 0.5, 1, 1, 0.9, 0.8, 0.6, 0.4, 0.2, 0.1)]}


def text_sizes(**more):
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 48, "intermediate_size": 80,
             "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
             "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2,
             "pad_token_id": PAD, "tie_word_embeddings": False}
    sizes.update(more)
    return sizes


def vision_sizes(**more):
    sizes = {"hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 3,
             "num_attention_heads": 4, "image_size": [56, 56], "patch_size": [14, 14]}
    sizes.update(more)
    return sizes


def internvl(vision, text, tied=False):
    return InternVLForConditionalGeneration(InternVLConfig(
        vision_config=vision, text_config=text.to_dict(), image_token_id=IMAGE,
        image_seq_length=TOKENS_PER_TILE, downsample_ratio=0.5, tie_word_embeddings=tied))


def llava(tower, text, layer, **more):
    """LLaVA with an encoder of that kind, whose output after layer `layer` it takes."""
    vision = vision_sizes(image_size=56, patch_size=28, model_type=tower, **more)
    strategy = "default" if tower == "clip_vision_model" else "full"
    return LlavaForConditionalGeneration(LlavaConfig(
        vision_config=vision, text_config=text.to_dict(), image_token_index=IMAGE,
        image_seq_length=TOKENS_PER_TILE, vision_feature_layer=layer,
        vision_feature_select_strategy=strategy, tie_word_embeddings=text.tie_word_embeddings))


LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
# The first sample is longer than max_position_embeddings.
DYNAMIC_ROPE = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
YARN_ROPE = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0,
             "original_max_position_embeddings": 32}


def phi3_longrope(pairs, **more):
    """The first sample is longer than the original positions, the others are not; an answer that
    scripts/parity-models generates begins within them and ends beyond them."""
    rope = {"rope_type": "longrope", "rope_theta": 1e4,
            "short_factor": [1 + 0.1 * pair for pair in range(pairs)],
            "long_factor": [1 + 2.5 * pair for pair in range(pairs)]}
    return Phi3ForCausalLM(Phi3Config(**text_sizes(
        rope_parameters=rope, original_max_position_embeddings=40, **more)))


SMALL_VIT = vision_sizes(norm_type="layer_norm", attention_bias=True)
LARGE_VIT = vision_sizes(norm_type="rms_norm", use_qk_norm=True, attention_bias=False)

MODELS = {
    "qwen2 tied": lambda: Qwen2ForCausalLM(Qwen2Config(**text_sizes(tie_word_embeddings=True))),
    "qwen2 untied": lambda: Qwen2ForCausalLM(Qwen2Config(**text_sizes(
        num_key_value_heads=1, rope_parameters={"rope_type": "default", "rope_theta": 1e6}))),
    "llama mha": lambda: LlamaForCausalLM(LlamaConfig(**text_sizes(num_key_value_heads=6))),
    "llama gqa llama3-rope": lambda: LlamaForCausalLM(LlamaConfig(**text_sizes(
        rope_parameters=LLAMA3_ROPE, tie_word_embeddings=True))),
    "llama biases": lambda: LlamaForCausalLM(LlamaConfig(**text_sizes(
        attention_bias=True, mlp_bias=True, head_dim=16))),
    "internvl 300m qwen2": lambda: internvl(SMALL_VIT, Qwen2Config(**text_sizes())),
    "internvl 6b llama": lambda: internvl(LARGE_VIT, LlamaConfig(**text_sizes())),
    "internvl tied": lambda: internvl(SMALL_VIT, Qwen2Config(**text_sizes()), tied=True),
    "llama dynamic-rope": lambda: LlamaForCausalLM(LlamaConfig(**text_sizes(
        max_position_embeddings=32, rope_parameters=DYNAMIC_ROPE))),
    "qwen3 tied": lambda: Qwen3ForCausalLM(Qwen3Config(**text_sizes(
        head_dim=16, tie_word_embeddings=True))),
    "qwen3 biases": lambda: Qwen3ForCausalLM(Qwen3Config(**text_sizes(
        head_dim=8, attention_bias=True))),
    "internvl 300m qwen3": lambda: internvl(SMALL_VIT, Qwen3Config(**text_sizes(head_dim=16))),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**text_sizes(
        head_dim=16, sliding_window=None))),
    "llava clip mistral": lambda: llava("clip_vision_model", MistralConfig(**text_sizes(
        sliding_window=256)), -2),
    "qwen2_vl tied": lambda: qwen_vl.qwen2_vl(text_sizes(tie_word_embeddings=True), IMAGE),
    "qwen2_5_vl": lambda: qwen_vl.qwen2_5_vl(text_sizes(), IMAGE),
    "qwen3_vl tied": lambda: qwen_vl.qwen3_vl(text_sizes(tie_word_embeddings=True), IMAGE, [0, 1]),
    "qwen3_vl": lambda: qwen_vl.qwen3_vl(text_sizes(), IMAGE, [0, 1, 2]),
    "llava clip llama": lambda: llava("clip_vision_model", LlamaConfig(**text_sizes()), -2),
    "llava siglip qwen2": lambda: llava("siglip_vision_model", Qwen2Config(**text_sizes(
        tie_word_embeddings=True)), -1, vision_use_head=False),
    "llava_next llama": lambda: llava_next(LlamaConfig(**text_sizes())),
    "llava_next mistral": lambda: llava_next(MistralConfig(**text_sizes(sliding_window=None))),
    "phi3 wide heads": lambda: Phi3ForCausalLM(Phi3Config(**text_sizes(
        num_key_value_heads=3, head_dim=16, tie_word_embeddings=True))),
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**text_sizes(sliding_window=256))),
    "llava_onevision qwen2": lambda: llava_onevision(Qwen2Config(**text_sizes())),
    "llava_onevision tied": lambda: llava_onevision(Qwen2Config(**text_sizes(
        tie_word_embeddings=True))),
    "llava_onevision videos": lambda: llava_onevision(Qwen2Config(**text_sizes()), side=3),
    "llama linear-rope": lambda: LlamaForCausalLM(LlamaConfig(**text_sizes(
        rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}))),
    "llama yarn-rope": lambda: LlamaForCausalLM(LlamaConfig(**text_sizes(
        rope_parameters=YARN_ROPE, head_dim=16))),
    "qwen2 yarn-rope": lambda: Qwen2ForCausalLM(Qwen2Config(**text_sizes(
        rope_parameters=YARN_ROPE | {"attention_factor": 0.9}))),
    "phi3 longrope": lambda: phi3_longrope(4),
    "phi3 longrope, part of a head": lambda: phi3_longrope(
        6, num_attention_heads=3, num_key_value_heads=1, partial_rotary_factor=0.75,
        tie_word_embeddings=True),
    # No sample is longer than the window.
    "mistral window": lambda: MistralForCausalLM(MistralConfig(**text_sizes(
        head_dim=16, sliding_window=64))),
    "internvl 300m phi3": lambda: internvl(SMALL_VIT, Phi3Config(**text_sizes(sliding_window=256))),
    "llava clip phi3": lambda: llava("clip_vision_model", Phi3Config(**text_sizes()), -2),
}
# Times, rows and columns of each sample's patches: a picture, a video of three times and a picture
# in the first; a picture in the second.
GRIDS = ([(1, 4, 6), (3, 4, 2), (1, 8, 2)], [(1, 6, 8)], [])
SECONDS = 1.3  # from one time of a video to the next
SEVERAL_RANKS = {"llava_next llama": 2, "llava_onevision qwen2": 2, "llava_onevision videos": 2,
                 "qwen3_vl": 3, "qwen3_vl tied": 2,
                 "qwen2_vl tied": 2, "qwen2_5_vl": 3, "qwen2 tied": 2,
                 "internvl 6b llama": 5, "qwen3 tied": 2, "llava clip llama": 2, "mistral": 2,
                 "phi3": 4, "phi3 longrope": 2, "llava clip phi3": 2}
# On as many ranks that share out the rows of a sequence.
CONTEXT_RANKS = {"phi3 longrope": 2, "llama dynamic-rope": 3}
INTERNLM2 = ("llama dynamic-rope", "llama linear-rope", "internvl 6b llama")


def build(name, seed, eps=None):
    """The model with random weights. `eps`: layer_norm_eps of the encoder."""
    model = MODELS[name]()
    if eps is not None:
        config = model.config.to_dict()
        config["vision_config"]["layer_norm_eps"] = eps
        model = InternVLForConditionalGeneration(InternVLConfig(**config))
    return filled(model, seed)


def filled(model, seed):
    """The model with every weight random and different from the others, norms and biases too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if key.endswith("bias"):
                weight.copy_(0.05 * noise)
            elif weight.ndim == 1:
                weight.copy_((0.5 if "lambda" in key else 1.0) + 0.1 * noise)
            elif "embed" in key or "lm_head" in key or "cls_token" in key:
                weight.copy_(0.1 * noise)
            else:
                weight.copy_(noise / weight[0].numel() ** 0.5)
    return model.eval()


def add_grids(model, sample, grids, generator):
    """Pictures and videos with text between them, between the times of Qwen3-VL's videos too, their
    sizes, and the positions that the model gives them."""
    ids, at = sample["input_ids"], 2
    apart = model.config.model_type == "qwen3_vl"
    for times, rows, columns in grids:
        runs = times if apart else 1
        for _ in range(runs):
            tokens = times // runs * rows * columns // 4
            ids[0, at:at + tokens] = IMAGE if times == 1 else VIDEO
            at += tokens + 1
    kinds = (ids == IMAGE).int() + 2 * (ids == VIDEO).int()
    sample["labels"][kinds > 0] = -100
    for one, pixels, sizes in ((True, "pixel_values", "image_grid_thw"),
                               (False, "pixel_values_videos", "video_grid_thw")):
        inside = [grid for grid in grids if (grid[0] == 1) == one]
        if inside:
            sample[pixels] = torch.randn(sum(t * r * c for t, r, c in inside), 3 * 2 * 14 * 14,
                                         generator=generator)
            sample[sizes] = torch.tensor(inside)
    if "video_grid_thw" in sample and hasattr(model.config.vision_config, "tokens_per_second"):
        sample["second_per_grid_ts"] = torch.tensor([SECONDS])
    sample["position_ids"] = qwen_vl.with_published_positions(model).model.get_rope_index(
        ids, kinds, **{key: sample[key] for key in sample if key.endswith(("_thw", "_ts"))})[0]


def make_samples(has_vision, seed, model=None, all_sizes=None):
    """Samples [1, T] of different lengths: with three tiles, with one, without. For a model that
    takes grids of patches: with two pictures and a video, with a picture, without; or those of
    `all_sizes`, pictures and videos."""
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for (length, tiles), grids, sizes in zip(((41, 3), (17, 1), (30, 0)), GRIDS,
                                              all_sizes or any_resolution.SIZES):
        words = IMAGE if model is None else IMAGE - 3  # behind them stand marks of pictures
        ids = torch.randint(3, words, (1, length), generator=generator)
        ids[0, -5] = PAD  # as text: its row of the embedding has no gradient in Transformers
        labels = torch.where(torch.rand(1, length, generator=generator) < 0.4, ids, -100)
        sample = {"input_ids": ids, "labels": labels}
        if model is not None:
            add_grids(model, sample, grids, generator)
        elif all_sizes and sizes:
            any_resolution.add(sample, all_sizes, sizes, generator)
        elif has_vision and tiles:
            ids[0, 2:2 + tiles * TOKENS_PER_TILE] = IMAGE
            labels[ids == IMAGE] = -100
            sample["pixel_values"] = torch.randn(tiles, 3, 56, 56, generator=generator)
        samples.append(sample)
    return samples


def pictures(samples):
    """The pictures of all samples. Positions of packed rows are left to the program."""
    return {key: torch.cat([s[key] for s in samples if key in s])
            for key in ("pixel_values", "image_grid_thw", "image_sizes", "batch_num_images",
                        "pixel_values_videos", "video_grid_thw", "second_per_grid_ts")
            if any(key in s for s in samples)}


def padded(samples):
    width = max(s["input_ids"].shape[1] for s in samples)

    def pad(tensor, value):
        return F.pad(tensor, (0, width - tensor.shape[1]), value=value)
    batch = {
        "input_ids": torch.cat([pad(s["input_ids"], PAD) for s in samples]),
        "labels": torch.cat([pad(s["labels"], -100) for s in samples]),
        "attention_mask": torch.cat([pad(torch.ones_like(s["input_ids"]), 0) for s in samples]),
    }
    if "position_ids" in samples[0]:
        batch["position_ids"] = torch.cat([pad(s["position_ids"].flatten(0, 1), 0)[:, None]
                                           for s in samples], 1)
    return {**batch, **pictures(samples)}


def packed(samples):
    lengths = [s["input_ids"].shape[1] for s in samples]
    row = {key: torch.cat([s[key] for s in samples], 1) for key in ("input_ids", "labels")}
    row["cu_seqlens"] = torch.tensor([0] + lengths).cumsum(0).to(torch.int32)
    return {**row, **pictures(samples)}


def join(logits, samples, width):
    """[B, T, V] with zeros at padding, from one [1, T, V] each."""
    return torch.cat([F.pad(x, (0, 0, 0, width - x.shape[1])) for x in logits])


class Case:
    """A model in a folder, samples, and what Transformers makes of them."""

    def __init__(self, name, seed, folder):
        self.name, self.folder = name, folder
        self.model = build(name, seed)
        self.model.save_pretrained(folder)
        takes_grids = hasattr(self.model.model, "get_rope_index")
        self.samples = make_samples(hasattr(self.model.config, "vision_config"), seed,
                                    self.model if takes_grids else None,
                                    any_resolution.sizes_of(self.model.config))
        self.batch = padded(self.samples)
        self.key_of = reference.key_map(self.model, folder)
        self.fp32, self.exact = (self.run(dtype) for dtype in (torch.float32, torch.float64))
        # Two draws of the noise of bf16: each of Transformers' kinds of attention rounds elsewhere.
        self.bf16 = [self.run(torch.bfloat16, attention) for attention in ("sdpa", "eager")]

    def run(self, dtype, attention="sdpa"):
        """(loss, logits [B, T, V] with zeros at padding, gradients)"""
        model = copy.deepcopy(self.model).to(dtype)
        model.set_attn_implementation(attention)
        loss, logits, grads = reference.gradients(model, self.samples, self.key_of)
        width = self.batch["input_ids"].shape[1]
        return loss, torch.cat([F.pad(x, (0, 0, 0, width - x.shape[1])) for x in logits]), grads

    def packed_logits(self, logits):
        lengths = [s["input_ids"].shape[1] for s in self.samples]
        return torch.cat([row[:n] for row, n in zip(logits, lengths)])[None]


def check_fp32(report, case):
    def compare(what, ours, logits):
        report.add(what, "logits", parity.logit_error(ours["logits"], logits),
                   parity.FP32["logits"])
        parity.compare_loss(report, what, ours["loss"].item(), case.fp32[0])
        parity.compare_tensors(report, what, "gradients", parity.strip(ours, "grad."),
                               case.exact[2], parity.noise_floors(case.fp32[2], case.exact[2]),
                               parity.FP32["gradient"])

    def own_steps(dtype, attention="sdpa"):
        model = copy.deepcopy(case.model).to(dtype)
        model.set_attn_implementation(attention)
        return reference.adamw_steps(model, case.samples, RECIPE, case.key_of)

    losses, norms, weights = own_steps(torch.float32)
    exact = own_steps(torch.float64)[2]
    # AdamW enlarges noise: two draws of it, as of bf16. Which is larger is the processor's affair.
    floors = parity.worst_floors([weights, own_steps(torch.float32, "eager")[2]], exact)
    recipes = os.path.join(case.folder, "steps.json")
    with open(recipes, "w", encoding="utf8") as file:
        json.dump({"note": "two of them", "a": {"optimizer": "AdamW", "lrs": [1]}, "b": RECIPE},
                  file)
    ours = parity.run_check(case.folder, case.batch, gradients=True, recipe=recipes + ":b")
    compare(case.name, ours, case.fp32[1])
    parity.compare_steps(report, case.name, ours, losses, norms)
    parity.compare_tensors(report, case.name, "weights after", parity.strip(ours, "after."), exact,
                           floors, parity.FP32["after"])

    row = parity.run_check(case.folder, packed(case.samples), gradients=True)
    compare(case.name + " packed", row, case.packed_logits(case.fp32[1]))
    ranks, sharing = SEVERAL_RANKS.get(case.name, 1), CONTEXT_RANKS.get(case.name, 1)
    if max(ranks, sharing) > 1 and not os.environ.get("EQUIPOISE_MPIRUN"):
        print(f"skipped: {case.name} on several ranks: no mpirun")
        return
    if ranks > 1:
        several = parity.run_check(case.folder, case.batch, gradients=True, ranks=ranks)
        compare(f"{case.name} {ranks} ranks", several, case.fp32[1])
    if sharing > 1:
        shared = parity.run_check(case.folder, packed(case.samples), gradients=True, ranks=sharing,
                                  settings=[f"parallel.context={sharing}"])
        compare(f"{case.name} {sharing} context ranks", shared, case.packed_logits(case.fp32[1]))


def write_opengvlab(native, folder):
    """A folder that Transformers saved, in OpenGVLab's form."""
    with open(os.path.join(native, "config.json"), encoding="utf8") as file:
        config = opengvlab.config(json.load(file))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf8") as file:
        json.dump(config, file)
    weights = load_file(os.path.join(native, "model.safetensors"))
    save_file(opengvlab.rename(weights), os.path.join(folder, "model.safetensors"))


def check_opengvlab(report, case):
    """The same model in OpenGVLab's form: the same bits under its keys, fused ones too."""
    native = parity.run_check(case.folder, case.batch, gradients=True, recipe=RECIPE)
    with tempfile.TemporaryDirectory() as folder:
        write_opengvlab(case.folder, folder)
        theirs = parity.run_check(folder, case.batch, gradients=True, recipe=RECIPE)
    for prefix in ("grad.", "after."):
        want = opengvlab.rename(parity.strip(native, prefix))
        got = parity.strip(theirs, prefix)
        same = set(got) == set(want) and all(got[key].equal(want[key]) for key in want)
        report.check(case.name + " opengvlab", prefix + " same bits", same)
    report.check(case.name + " opengvlab", "logits same bits",
                 theirs["logits"].equal(native["logits"]))


def check_internlm2(report, case):
    """LLaMA in InternLM2's form, alone or behind an encoder: the same bits under its keys."""
    text = getattr(case.model.config, "text_config", case.model.config)
    with tempfile.TemporaryDirectory() as folder:
        write_internlm2(case.folder, folder, text.num_key_value_heads)
        theirs = parity.run_check(folder, case.batch, gradients=True, recipe=RECIPE)
    native = parity.run_check(case.folder, case.batch, gradients=True, recipe=RECIPE)
    for prefix in ("grad.", "after."):
        want = in_internlm2(parity.strip(native, prefix), text.num_key_value_heads)
        got = parity.strip(theirs, prefix)
        same = set(got) == set(want) and all(got[key].equal(want[key]) for key in want)
        report.check(case.name + " internlm2", prefix + " same bits", same)
    report.check(case.name + " internlm2", "logits same bits",
                 theirs["logits"].equal(native["logits"]))


def in_internlm2(weights, kv_heads):
    return internlm2.rename(opengvlab.rename(weights), kv_heads)


def write_internlm2(native, folder, kv_heads):
    """A folder that Transformers saved, in the form of InternLM2's or OpenGVLab's code."""
    with open(os.path.join(native, "config.json"), encoding="utf8") as file:
        config = json.load(file)
    if "vision_config" in config:
        llama = config["text_config"]
        config = opengvlab.config(config)
        config["llm_config"] = internlm2.config(llama)
    else:
        config = internlm2.config(config)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf8") as file:
        json.dump(config, file)
    weights = load_file(os.path.join(native, "model.safetensors"))
    save_file(in_internlm2(weights, kv_heads), os.path.join(folder, "model.safetensors"))


def check_eps(report):
    """Norms of queries and keys: Transformers keeps 1e-6, OpenGVLab takes layer_norm_eps."""
    model = build("internvl 6b llama", seed=1, eps=0.01)
    samples = make_samples(True, seed=1)
    with tempfile.TemporaryDirectory() as native, tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(native)
        write_opengvlab(native, folder)
        for where, what in ((native, "eps 0.01"), (folder, "eps 0.01 opengvlab")):
            if where == folder:
                for name, module in model.named_modules():
                    if name.endswith(("q_norm", "k_norm")):
                        module.variance_epsilon = 0.01
            _, logits, grads = reference.gradients(copy.deepcopy(model).double(), samples,
                                                   reference.key_map(model, native))
            ours = parity.run_check(where, packed(samples), gradients=True)
            report.add(what, "logits", parity.logit_error(ours["logits"], torch.cat(logits, 1)),
                       parity.FP32["logits"])
            if where == folder:
                grads = opengvlab.rename(grads)
            floors = {parity.kind(name): 0.0 for name in grads}
            parity.compare_tensors(report, what, "gradients", parity.strip(ours, "grad."), grads,
                                   floors, parity.FP32["gradient"])


def check_text_alone(report):
    """Steps without pictures: what has no gradient takes its step all the same, with zeros."""
    name = "internvl 300m qwen2"
    with tempfile.TemporaryDirectory() as folder:
        model = build(name, seed=2)
        model.save_pretrained(folder)
        samples = make_samples(False, seed=2)
        key_of = reference.key_map(model, folder)
        ours = parity.run_check(folder, packed(samples), recipe=RECIPE)
        runs = [reference.adamw_steps(copy.deepcopy(model).to(dtype), samples, RECIPE, key_of,
                                      absent_is_zero=True)
                for dtype in (torch.float32, torch.float64)]
    parity.compare_steps(report, "text alone", ours, *runs[0][:2])
    exact = runs[1][2]
    parity.compare_tensors(report, "text alone", "weights after", parity.strip(ours, "after."),
                           exact, parity.noise_floors(runs[0][2], exact), parity.FP32["after"])
    decayed = [key for key, weight in exact.items() if "vision_tower" in key and weight.ndim > 1]
    before = {key_of[key]: weight for key, weight in model.named_parameters()}
    report.check("text alone", "the encoder decays", decayed and all(
        ours["after." + key].norm() < before[key].norm() for key in decayed))


def check_choice(report, case):
    """Several recipes and no choice, or one that is not there: one line with the names, exit 2."""
    recipes = os.path.join(case.folder, "steps.json")
    for choice in (recipes, recipes + ":c"):
        done = parity.start_check(case.folder, "absent.safetensors", "--out", "out.safetensors",
                                  "--steps", choice)
        lines = done.stderr.strip().splitlines()
        report.check("--steps " + os.path.basename(choice), "refused",
                     done.returncode == 2 and len(lines) == 1 and "a, b" in lines[0],
                     f"{done.returncode} {done.stderr}")


def check_window(report, case):
    """A sequence that is longer than the model's window: named, exit 4 (data)."""
    path = os.path.join(case.folder, "longer.safetensors")
    save_file({"input_ids": torch.full((1, 65), 5)}, path)
    done = parity.start_check(case.folder, path, "--out", "out.safetensors")
    report.check("a sequence beyond the window", "refused", done.returncode == 4 and
                 "65 tokens are more than the model's sliding_window of 64" in done.stderr,
                 f"{done.returncode} {done.stderr}")


def main():
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    report = parity.Report()
    for seed, name in enumerate(MODELS):
        with tempfile.TemporaryDirectory() as folder:
            case = Case(name, seed, folder)
            check_fp32(report, case)
            parity.check_bf16(report, case)
            if name.startswith("internvl") and "tied" not in name:
                check_opengvlab(report, case)
            if name in INTERNLM2:
                check_internlm2(report, case)
            if seed == 0:
                check_choice(report, case)
            if name == "mistral window":
                check_window(report, case)
    check_eps(report)
    check_text_alone(report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
