"""Writes a model's folder anew with its language model in GPTQ's form of 4 bits.

    .venv/bin/python scripts/bench/rounded_gptq.py FOLDER OUT [--group-size 128]

Weights are rounded to the nearest of 16 steps between the least and the largest of their group,
where GPTQ (Frantar et al. 2023) would choose them by calibration data: the form, its bytes and its
speed are GPTQ's, its quality is not.
"""

import argparse
import json
import os
import shutil

import numpy as np
import torch
from safetensors.torch import load_file, save_file

PER_WORD = 8  # numbers of 4 bits in an int32


def packed(numbers):
    """[rows, columns] numbers of 4 bits: eight rows in one of int32, the first in the low bits."""
    rows, columns = numbers.shape
    shifts = 4 * np.arange(PER_WORD, dtype=np.uint32)[None, :, None]
    words = numbers.astype(np.uint32).reshape(rows // PER_WORD, PER_WORD, columns) << shifts
    return np.bitwise_or.reduce(words, axis=1).view(np.int32)


def rounded(weight, group_size):
    """The tensors of a linear layer [out, in] as AutoGPTQ stores them, without act-order."""
    columns = weight.shape[1]
    group_of = (np.arange(columns) // group_size).astype(np.int32)
    starts = np.arange(0, columns, group_size)
    least = np.minimum(np.minimum.reduceat(weight, starts, axis=1), 0).T  # [groups, out]
    most = np.maximum(np.maximum.reduceat(weight, starts, axis=1), 0).T
    scales = np.maximum((most - least) / 15, 1e-8).astype(np.float16)
    zeros = np.clip(np.round(-least / scales.astype(np.float32)), 1, 16)
    codes = np.round(weight.T / scales.astype(np.float32)[group_of] + zeros[group_of])
    return {"qweight": packed(np.clip(codes, 0, 15)),
            "qzeros": np.ascontiguousarray(packed(np.ascontiguousarray(zeros.T) - 1).T),
            "scales": np.ascontiguousarray(scales), "g_idx": group_of}


def is_linear(name):
    return "language_model" in name and name.endswith("_proj.weight")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="with one model.safetensors")
    parser.add_argument("out")
    parser.add_argument("--group-size", type=int, default=128)
    args = parser.parse_args()
    shutil.copytree(args.folder, args.out, ignore=shutil.ignore_patterns("*.safetensors*"))
    tensors = {}
    for name, weight in load_file(os.path.join(args.folder, "model.safetensors")).items():
        if not is_linear(name):
            tensors[name] = weight
            continue
        parts = rounded(weight.float().numpy(), args.group_size)
        module = name[: -len(".weight")]
        tensors |= {f"{module}.{part}": torch.from_numpy(each) for part, each in parts.items()}
    save_file(tensors, os.path.join(args.out, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(args.out, "config.json"), encoding="utf8") as file:
        config = json.load(file)
    config["quantization_config"] = {
        "quant_method": "gptq", "bits": 4, "group_size": args.group_size, "desc_act": False,
        "sym": False, "checkpoint_format": "gptq"}
    with open(os.path.join(args.out, "config.json"), "w", encoding="utf8") as file:
        json.dump(config, file, indent=2)


if __name__ == "__main__":
    main()
