"""`equipoise check` under mpirun and any plan gives what one process gives: logits, loss, every
gradient by its key, and the weights after three optimizer steps."""
import json
import os
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import InternVLConfig, InternVLForConditionalGeneration, Qwen2Config

import tiny_case

TOKENS_PER_TILE, IMAGE, VOCABULARY = 4, 199, 200
PLANS = [  # ranks, settings of `parallel`
    (2, {"pipeline": 2, "schedule": "naive"}),
    (2, {"pipeline": 2, "schedule": "gpipe"}),
    (2, {"pipeline": 2, "schedule": "1f1b"}),
    (2, {"pipeline": 2, "schedule": "zb_h1"}),
    (2, {"pipeline": 2, "schedule": "interleaved", "chunks": 2}),
    (2, {"pipeline": 2, "schedule": "zb_v"}),
    (2, {"data": 2, "zero": 1}),
    (3, {"data": 3, "zero": 2}),
    (2, {"data": 2, "zero": 3}),
    (3, {"pipeline": 3, "stage_layers": "[2, 5, 1]"}),
    (3, {"pipeline": 3, "encoder": "disaggregated", "schedule": "interleaved"}),
    (4, {"encoder": "disaggregated", "zero": 1}),
    (2, {"pipeline": 2, "encoder": "optimus"}),
    (4, {"pipeline": 4, "encoder": "dep", "encoder_ranks": 2, "schedule": "zb_h1"}),
    (8, {"data": 2, "pipeline": 2, "tensor": 2, "encoder": "three_phase", "zero": 1}),
    (4, {"tensor": 4, "encoder": "three_phase", "encoder_tensor": 2}),
    (8, {"data": 2, "pipeline": 2, "tensor": 2, "encoder": "optimus", "encoder_tensor": 1,
         "schedule": "zb_v"}),
    (4, {"data": 2, "pipeline": 2, "zero": 1}),
    (2, {"tensor": 2}),
    (3, {"tensor": 3, "zero": 0}),
    (4, {"pipeline": 2, "tensor": 2, "sequence": "true", "schedule": "zb_h1"}),
    (2, {"context": 2}),
    (4, {"context": 2, "tensor": 2, "sequence": "true", "zero": 3}),
    (6, {"data": 2, "context": 3, "zero": 3}),
    (4, {"pipeline": 2, "context": 2, "stage_layers": "[6, 2]", "schedule": "zb_h1"}),
    (4, {"pipeline": 2, "tensor": 2, "schedule": "interleaved", "chunks": 2}),
    (8, {"data": 2, "pipeline": 4, "schedule": "gpipe", "zero": 3}),
    (8, {"data": 2, "pipeline": 2, "tensor": 2}),
]


def write_model(folder, tied):
    torch.manual_seed(3)
    vision = {"hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2,
              "num_attention_heads": 4, "image_size": [56, 56], "patch_size": [14, 14],
              "norm_type": "layer_norm", "attention_bias": True}
    text = Qwen2Config(vocab_size=VOCABULARY, hidden_size=48, intermediate_size=80,
                       num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
                       max_position_embeddings=256, pad_token_id=0, tie_word_embeddings=tied)
    model = InternVLForConditionalGeneration(InternVLConfig(
        vision_config=vision, text_config=text.to_dict(), image_token_id=IMAGE,
        image_seq_length=TOKENS_PER_TILE, downsample_ratio=0.5, tie_word_embeddings=tied))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn(weight.shape))
    model.save_pretrained(folder)


def write_inputs(path):
    """Three rows: two tiles, none, one."""
    torch.manual_seed(4)
    tiles = [2, 0, 1]
    rows = torch.randint(1, 190, (3, 24))
    for row, count in enumerate(tiles):
        rows[row, 2:2 + count * TOKENS_PER_TILE] = IMAGE
    labels = rows.clone()
    labels[rows == IMAGE] = -100
    labels[:, 0] = -100
    save_file({"input_ids": rows, "labels": labels, "pixel_values": torch.randn(3, 3, 56, 56),
               "images_per_sample": torch.tensor(tiles)}, path)


def check(folder, ranks, settings):
    out = f"{tempfile.mkdtemp(dir=folder)}/out.safetensors"
    line = [tiny_case.MPIRUN, "-n", str(ranks)] if ranks > 1 else []
    line += [tiny_case.EQUIPOISE, "check", f"{folder}/model", f"{folder}/inputs.safetensors",
             "--out", out, "--gradients", "--steps", f"{folder}/steps.json"]
    for key, value in settings.items():
        line += ["--set", f"parallel.{key}={value}"]
    done = tiny_case.execute(line)
    return done, load_file(out) if done.returncode == 0 else {}


def worst(got, expected):
    """Over gradients and results; of the weights after AdamW's steps, those whose gradient is zero
    in exact arithmetic (the ViT's key biases) are its rounding blown up, and left out."""
    norm = sum(t.double().square().sum() for k, t in expected.items() if k.startswith("grad."))
    floor = 1e-6 * float(norm.sqrt())
    errors = [((got[key].double() - tensor.double()).norm() /
               max(float(tensor.double().norm()), floor)).item()
              for key, tensor in expected.items()
              if not (key.startswith("after.vision_tower") and key.endswith("k_proj.bias"))]
    return torch.tensor(errors, dtype=torch.double).max().item()  # Python's max() loses NaN


def in_hub_cache(results, folder):
    """A model by its name in the Hub, of which gradients are asked."""
    shutil.copytree(f"{folder}/model", f"{folder}/hub/models--ours--tiny/snapshots/a")
    os.environ["HF_HUB_CACHE"] = f"{folder}/hub"
    done = tiny_case.program("check", "ours/tiny", f"{folder}/inputs.safetensors", "--out",
                             f"{folder}/of_hub.safetensors", "--gradients")
    del os.environ["HF_HUB_CACHE"]
    results.check("gradients of a model in the Hub's cache", done.returncode == 0 and any(
        key.startswith("grad.") for key in load_file(f"{folder}/of_hub.safetensors")),
        done.stderr[-300:])


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="parallel_check")
    write_inputs(f"{folder}/inputs.safetensors")
    with open(f"{folder}/steps.json", "w") as out:
        json.dump({"optimizer": "AdamW", "lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8,
                   "weight_decay": 0.05, "weight_decay_on": "all", "clip": 1.0,
                   "schedule": "constant", "steps": 3}, out)
    for tied in (False, True):
        write_model(f"{folder}/model", tied)
        done, expected = check(folder, 1, {})
        results.check(f"one process, tied {tied}", done.returncode == 0, done.stderr[-300:])

        def compare(ranks, settings):
            done, got = check(folder, ranks, settings)
            name = f"mpirun -n {ranks} {settings} tied {tied}"
            same = done.returncode == 0 and set(got) == set(expected)
            results.check(f"{name}: the same tensors", same, done.stderr[-300:])
            if same:
                error = worst(got, expected)
                results.check(f"{name}: equal", error <= 2e-5, f"worst relative {error:.1e}")
        tiny_case.side_by_side(*(lambda plan=plan: compare(*plan) for plan in
                                 (PLANS[2:5] + PLANS[6:7] if tied else PLANS)))
        shutil.rmtree(f"{folder}/model")

    write_model(f"{folder}/model", False)
    in_hub_cache(results, folder)
    done, _ = check(folder, 2, {"timeout_s": 77, "bucket_bytes": 4096})
    results.check("set up as --set says", done.returncode == 0 and
                  "2 ranks on cpu, fp32" in done.stderr and
                  ", 77 s for a wait at most" in done.stderr, done.stderr[-400:])
    for ranks, settings, said in [
            (2, {"pipeline": 3}, "needs 3 ranks, and 2 were started"),
            (2, {"pipeline": 2, "stage_layers": "[3, 9]"}, "12 layers in all, the model has 8"),
            (2, {"pipeline": 2, "schedule": "1f1p"}, "1f1b"),
            (2, {"pipeline": 2, "chunks": 5, "schedule": "interleaved"}, "10 stages for 8 layers"),
            (2, {"pipeline": 1, "encoder": "disaggregated"}, "set parallel.pipeline to 2 or more"),
    ]:
        done, _ = check(folder, ranks, settings)
        lines = [x for x in done.stderr.splitlines() if "equipoise: " in x]
        results.check(f"refused: {settings}", done.returncode == 2 and len(lines) == 1 and
                      said in lines[0], f"exit {done.returncode} {lines}")
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
