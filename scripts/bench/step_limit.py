#!/usr/bin/env python3
"""Seconds that the matrix products and attention of one training step take alone, in one thread.

    .venv/bin/python scripts/bench/step_limit.py MODEL/config.json --images 16 --tokens 640 \\
        --samples 16 --targets 60 --precision fp32

A lower bound of a step on this machine: each product of a small InternVL (scripts/small_model.py),
forward and both of backward, by the fastest of PyTorch's ways (MKL, oneDNN), attention by the
fastest of its kernel and of products; nothing between them, no optimizer, no loading. Each is timed
--repeat times, and its median counts as often as the model has it. Prints a JSON object.
"""

import argparse
import json
import statistics
import time

import torch

PATCH = 14


def seconds(run, repeat):
    run()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def fastest(runs, repeat):
    return min(seconds(run, repeat) for run in runs)


def onednn(weight):
    """x @ weight.T by oneDNN, for fp32 (bf16 products are oneDNN's anyway)."""
    if weight.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return None
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


def product(rows, n, k, args, of_input=True):
    """[rows, k] by [k, n]: forward, and the gradients of weight and input."""
    x, weight = (torch.randn(shape, dtype=args.dtype) for shape in [(rows, k), (n, k)])
    g = torch.randn(rows, n, dtype=args.dtype)
    ways = [[lambda: x @ weight.T], [lambda: g @ weight], [lambda: g.T @ x]]
    for number, (left, right) in enumerate([(x, weight), (g, weight.T.contiguous())]):
        other = onednn(right)
        if other is not None:
            ways[number].append(lambda other=other, left=left: other(left))
    if not of_input:
        del ways[1]
    return sum(fastest(way, args.repeat) for way in ways)


def by_kernel(q, k, v, causal):
    torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).backward(q)


def by_products(q, k, v, causal):
    scores = q @ k.transpose(-1, -2)
    if causal:
        scores = scores + torch.full(scores.shape[-2:], -1e9, dtype=q.dtype).triu(1)
    (torch.softmax(scores, -1) @ v).backward(q)


def attention(batch, heads, rows, head_dim, causal, args):
    """Forward and backward; all heads have keys of their own."""
    q, k, v = (
        torch.randn(batch, heads, rows, head_dim, dtype=args.dtype, requires_grad=True)
        for _ in range(3)
    )
    return fastest([lambda w=way: w(q, k, v, causal) for way in (by_kernel, by_products)],
                   args.repeat)


def limit(config, args):
    vision, text = config["vision_config"], config["text_config"]
    sides = vision["image_size"][0] // PATCH
    patches = args.images * sides * sides
    tokens_of_images = int(patches * config["downsample_ratio"] ** 2)
    hidden, inner = vision["hidden_size"], vision["intermediate_size"]
    rows = patches + args.images  # with the class token
    heads = vision["num_attention_heads"]
    # The pixels have no gradient.
    encoder = product(patches, hidden, 3 * PATCH * PATCH, args, of_input=False)
    layers = vision["num_hidden_layers"]
    encoder += layers * (
        product(rows, 3 * hidden, hidden, args) + product(rows, hidden, hidden, args)
        + product(rows, inner, hidden, args) + product(rows, hidden, inner, args)
    )
    attention_s = layers * attention(args.images, heads, sides * sides + 1, hidden // heads, False,
                                     args)
    width = text["hidden_size"]
    joined = int(hidden / config["downsample_ratio"] ** 2)
    connector = product(tokens_of_images, width, joined, args)
    connector += product(tokens_of_images, width, width, args)
    head_dim = width // text["num_attention_heads"]
    keys = text["num_key_value_heads"] * head_dim
    inner, layers = text["intermediate_size"], text["num_hidden_layers"]
    decoder = layers * (
        product(args.tokens, width + 2 * keys, width, args)
        + product(args.tokens, width, width, args)
        + product(args.tokens, 2 * inner, width, args)
        + product(args.tokens, width, inner, args)
    )
    attention_s += layers * attention(args.samples, text["num_attention_heads"],
                                      max(1, args.tokens // args.samples), head_dim, True, args)
    head = product(args.targets, text["vocab_size"], width, args)
    return {
        "encoder": encoder,
        "connector": connector,
        "decoder": decoder,
        "head": head,
        "attention": attention_s,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config")
    for name in ["images", "tokens", "samples", "targets"]:
        parser.add_argument(f"--{name}", type=int, required=True, help="of a rank's step")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[args.precision]
    with open(args.config, encoding="utf8") as file:
        parts = limit(json.load(file), args)
    print(json.dumps(parts | {"seconds": sum(parts.values())}))


if __name__ == "__main__":
    main()
