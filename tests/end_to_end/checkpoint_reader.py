"""Reads a checkpoint as docs/checkpoint_format.md describes it, with nothing of the program's."""
import json

import numpy
import safetensors.torch


def load_file(path):
    """Tensors by name, in fp32: frozen weights may be bf16, which numpy lacks."""
    return {name: t.float().numpy() for name, t in safetensors.torch.load_file(path).items()}


def place(whole, piece, values):
    """Puts a piece's values into the whole tensor; returns how many elements that were."""
    target = numpy.arange(whole.size).reshape(whole.shape)
    if "dim" in piece:
        index = [slice(None)] * whole.ndim
        index[piece["dim"]] = slice(piece["begin"], piece["end"])
        target = target[tuple(index)]
    target = target.reshape(-1)
    if "runs" in piece:
        target = numpy.concatenate([target[first:last] for first, last in piece["runs"]])
    else:
        assert "dim" not in piece or values.shape[piece["dim"]] == piece["end"] - piece["begin"]
    assert target.size == values.size, (target.size, values.size)
    whole.reshape(-1)[target] = values.reshape(-1)
    return target.size


def read(folder):
    """All tensors by name, whole; fails unless every element of each is there once."""
    with open(f"{folder}/index.json") as text:
        index = json.load(text)
    files = {name: load_file(f"{folder}/{name}") for name in index["files"]}
    tensors = {}
    for name, where in index["tensors"].items():
        if isinstance(where, str):
            tensors[name] = files[where][name]
            continue
        whole = numpy.full(where["shape"], numpy.nan, numpy.float32)
        placed = sum(place(whole, p, files[p["file"]][name]) for p in where["pieces"])
        assert placed == whole.size and not numpy.isnan(whole).any(), name
        tensors[name] = whole
    return tensors


def differing(folder, expected):
    """The tensors that have other bits, or are in one of two checkpoints alone."""
    got, wanted = read(folder), read(expected)
    both = got.keys() & wanted.keys()
    return sorted(got.keys() ^ wanted.keys()) + [
        name for name in both if got[name].tobytes() != wanted[name].tobytes()]


def has_moments(folder):
    with open(f"{folder}/index.json") as text:
        names = json.load(text)["tensors"].keys()
    return all(f"{moment}.{n}" in names for moment in ("exp_avg", "exp_avg_sq")
               for n in names if not n.startswith("exp_avg"))


def num_pieces(folder):
    with open(f"{folder}/index.json") as text:
        tensors = json.load(text)["tensors"]
    return sum(len(w["pieces"]) for w in tensors.values() if not isinstance(w, str))
