#!/usr/bin/env python3
"""Times a Transformers loop that trains a model folder on packed rows, as a careful user's would.

    python3 transformers_loop.py MODEL RECORDS --images DIR [--device cuda] [--tokens 8192]
        [--tiles 4] [--rows 8] [--steps 6] [--warmup 2] [--precision bf16] [--out FILE]

Samples fill rows of --tokens tokens; each row is a micro-batch without padding, in which every
sample sees itself alone (varlen flash attention on a GPU), --rows of them a step. bf16 parameters
with fused AdamW in bf16, or fp32 ones under autocast. Everything is loaded and cut into tiles
before the first step, so that no loader is timed. Each picture is --tiles tiles. Prints one JSON
object: tokens/s of the steps behind --warmup, peak memory, losses.
"""
import argparse
import json
import math
import os
import sys
import time

import torch
import torch.nn.functional as F

ATEN = torch.ops.aten
SEGMENTS = {}  # of the row that is being computed: what attention asks


class FlashOfSegments(torch.autograd.Function):
    """LibTorch's flash attention, causal within segments: q [tokens, heads, n]; fewer key heads."""

    @staticmethod
    def forward(ctx, q, k, v, ends, longest, scale):
        out, sums, seed, unused, _ = ATEN._flash_attention_forward(
            q, k, v, ends, ends, longest, longest, 0.0, True, False, scale=scale)
        ctx.save_for_backward(q, k, v, out, sums, seed, unused, ends)
        ctx.longest, ctx.scale = longest, scale
        return out

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, out, sums, seed, unused, ends = ctx.saved_tensors
        gradients = ATEN._flash_attention_backward(
            gradient.contiguous(), q, k, v, out, sums, ends, ends, ctx.longest, ctx.longest, 0.0,
            True, seed, unused, scale=ctx.scale)
        return (*gradients, None, None, None)


def attention_of_segments(_module, query, key, value, _mask, scaling=None, **_):
    """query [1, heads, tokens, n], as Transformers calls it; causal within each segment."""
    if query.device.type == "cuda":
        # Rotary leaves fp32 under autocast.
        q, k, v = (t[0].transpose(0, 1).to(torch.bfloat16) for t in (query, key, value))
        out = FlashOfSegments.apply(q, k, v, SEGMENTS["ends"], SEGMENTS["longest"], scaling)
        return out.unsqueeze(0), None
    bounds = SEGMENTS["bounds"]
    parts = [F.scaled_dot_product_attention(
        *(t[:, :, begin:end] for t in (query, key, value)), scale=scaling, is_causal=True,
        enable_gqa=query.shape[1] != key.shape[1]) for begin, end in zip(bounds, bounds[1:])]
    return torch.cat(parts, 2).transpose(1, 2), None


def pixels_of(path, tiles, size):
    """A picture as the most even grid of `tiles` tiles, normalised as ImageNet's."""
    import numpy
    from PIL import Image
    rows = max(n for n in range(1, math.isqrt(tiles) + 1) if tiles % n == 0)
    columns = tiles // rows
    with Image.open(path) as picture:
        picture = picture.convert("RGB").resize((size * columns, size * rows),
                                                Image.Resampling.BICUBIC)
        whole = torch.from_numpy(numpy.array(picture)).float().div_(255)
    whole = (whole - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    whole = whole.view(rows, size, columns, size, 3).permute(0, 2, 4, 1, 3)
    return whole.reshape(tiles, 3, size, size)


def sample_of(record, tokenizer, args, image_text):
    """Ids, and labels of what the model says."""
    ids, labels = [], []
    for turn in record["conversations"]:
        says = turn["from"] == "gpt"
        role = "assistant" if says else "user"
        text = turn["value"].replace("<image>", image_text)
        for piece, trained in ((f"<|im_start|>{role}\n", False), (text + "<|im_end|>", says),
                               ("\n", False)):
            some = tokenizer.encode(piece, add_special_tokens=False).ids
            ids += some
            labels += some if trained else [-100] * len(some)
    return ids[:args.tokens], labels[:args.tokens]


def rows_of(args, config):
    """Packed rows as the model's inputs, with the bounds of their segments."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
    size = config.vision_config.image_size[0]
    patch = config.vision_config.patch_size[0]
    per_tile = int((size // patch) ** 2 * config.downsample_ratio ** 2)
    context = tokenizer.id_to_token(config.image_token_id)
    image_text = "<img>" + context * (per_tile * args.tiles) + "</img>"
    with open(args.records, encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    rows, row, pictures = [], None, {}
    wanted = min(args.rows * args.steps, args.distinct)
    for record in records * (1 + args.tokens * wanted // len(records)):
        ids, labels = sample_of(record, tokenizer, args, image_text)
        if row is None or len(row["ids"]) + len(ids) > args.tokens:
            row = {"ids": [], "labels": [], "positions": [], "bounds": [0], "pixels": []}
            rows.append(row)
            if len(rows) > wanted:
                break
        if record["image"] not in pictures:
            pictures[record["image"]] = pixels_of(os.path.join(args.images, record["image"]),
                                                  args.tiles, size)
        row["ids"] += ids
        row["labels"] += [-100] + labels[1:]  # no sample is asked for the next one's first token
        row["positions"] += range(len(ids))
        row["bounds"].append(len(row["ids"]))
        row["pixels"].append(pictures[record["image"]])
    return rows[:wanted]


def loss_of(model, row, args, dtype):
    bounds = row["bounds"]
    SEGMENTS.update(bounds=bounds, longest=max(e - b for b, e in zip(bounds, bounds[1:])),
                    ends=torch.tensor(bounds, dtype=torch.int32, device=args.device))

    def long(name):
        return torch.tensor([row[name]], device=args.device)
    pixels = torch.cat(row["pixels"])
    if args.device == "cuda":
        pixels = pixels.pin_memory().to("cuda", non_blocking=True)
    with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "autocast"):
        return model(input_ids=long("ids"), labels=long("labels"), position_ids=long("positions"),
                     pixel_values=pixels.to(dtype), use_cache=False).loss


def make_model(args, config):
    from transformers import AttentionInterface, AutoModelForImageTextToText
    from transformers.masking_utils import AttentionMaskInterface
    AttentionInterface.register("segments", attention_of_segments)
    AttentionMaskInterface.register("segments", lambda *_, **__: None)
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    with torch.device(args.device):
        torch.manual_seed(0)
        model = AutoModelForImageTextToText.from_config(
            config, dtype=dtype,
            attn_implementation={"text_config": "segments", "vision_config": "sdpa"})
    model.train()
    return model, dtype


def train(args):
    from transformers import AutoConfig
    config = AutoConfig.from_pretrained(args.model)
    model, dtype = make_model(args, config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.05, fused=True)
    rows = rows_of(args, config)
    losses, times = [], []
    for step in range(args.steps):
        begin = time.monotonic()
        total = 0.0
        for i in range(args.rows):
            loss = loss_of(model, rows[(step * args.rows + i) % len(rows)], args, dtype)
            (loss / args.rows).backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(total) / args.rows)  # waits for the device
        times.append(time.monotonic() - begin)
        print(f"step {step + 1}: loss {losses[-1]:.4f}, {times[-1]:.3f} s", flush=True)
    timed = [(step * args.rows + i) % len(rows) for step in range(args.warmup, args.steps)
             for i in range(args.rows)]
    seconds = sum(times[args.warmup:])
    result = {
        "tokens_per_s": sum(len(rows[i]["ids"]) for i in timed) / seconds,
        "samples_per_s": sum(len(rows[i]["bounds"]) - 1 for i in timed) / seconds,
        "step_s": seconds / (args.steps - args.warmup), "precision": args.precision,
        "parameters": sum(p.numel() for p in model.parameters()),
        "rows_a_step": args.rows, "losses": losses, "torch": torch.__version__}
    if args.device == "cuda":
        result["mem_peak_bytes"] = torch.cuda.max_memory_allocated()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("records")
    parser.add_argument("--images", default=".")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--tokens", type=int, default=8192, help="of a row")
    parser.add_argument("--tiles", type=int, default=4, help="of a picture")
    parser.add_argument("--rows", type=int, default=8, help="a step")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--distinct", type=int, default=24, help="rows that differ, at most")
    parser.add_argument("--precision", choices=("bf16", "autocast"), default="bf16")
    parser.add_argument("--out", help="file for the result")
    args = parser.parse_args()
    if not os.path.exists(os.path.join(args.model, "config.json")):
        print(f"transformers_loop.py: {args.model}: no config.json in it", file=sys.stderr)
        return 2
    if not 0 <= args.warmup < args.steps:
        print("transformers_loop.py: --warmup has to be below --steps", file=sys.stderr)
        return 2
    result = train(args)
    print(json.dumps(result))
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(result, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
