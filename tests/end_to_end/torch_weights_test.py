"""Weights in PyTorch's own files, pytorch_model.bin and its shards: the losses and the answers of
the same weights in safetensors, on one rank and several; what is damaged is refused in one line."""
import json
import os
import shutil
import sys
import tempfile
import zipfile

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForImageTextToText

import tiny_case
from refusals import Cases

SETTINGS = {"model__init": "pretrained", "train__steps": 3}


def write_weights(folder):
    """The case's model with random weights; the same in one file, in shards, and in bf16."""
    torch.manual_seed(5)
    config = AutoConfig.from_pretrained(f"{folder}/model")
    model = AutoModelForImageTextToText.from_config(config)
    model.save_pretrained(f"{folder}/saved")
    weights = load_file(f"{folder}/saved/model.safetensors")
    shutil.copy(f"{folder}/saved/model.safetensors", f"{folder}/model")
    for name in ("whole", "shards", "half"):
        shutil.copytree(f"{folder}/model", f"{folder}/{name}",
                        ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save(model.state_dict(), f"{folder}/state_dict.bin")  # with its _metadata
    whole = torch.load(f"{folder}/state_dict.bin")
    for name in list(whole):  # a module's names -> the folder's
        whole.pop(name)
    whole.update(weights)
    torch.save(whole, f"{folder}/whole/pytorch_model.bin")
    torch.save({k: v.bfloat16() for k, v in weights.items()}, f"{folder}/half/pytorch_model.bin")
    names, weight_map = sorted(weights), {}
    for i in range(3):
        part = {name: weights[name] for name in names[i::3]}
        # Views of one storage, as tied and split weights are.
        flat = torch.cat([tensor.flatten() for tensor in part.values()])
        begin = 0
        for name, tensor in part.items():
            part[name] = flat[begin:begin + tensor.numel()].view(tensor.shape)
            begin += tensor.numel()
        file = f"pytorch_model-{i + 1:05d}-of-00003.bin"
        torch.save(part, f"{folder}/shards/{file}")
        weight_map.update({name: file for name in part})
    with open(f"{folder}/shards/pytorch_model.bin.index.json", "w", encoding="utf8") as out:
        json.dump({"metadata": {}, "weight_map": weight_map}, out)
    return weights


def check_runs(results, folder, config):
    losses, answers = {}, {}
    picture = f"{folder}/plain.png"
    tiny_case.draw(picture, "red", "disc", (56, 56), 3)
    for name, ranks in (("model", 1), ("whole", 1), ("shards", 1), ("shards", 2), ("half", 1)):
        run = f"{folder}/run_{name}_{ranks}"
        done = tiny_case.run(config, ranks, model__hf=f"{folder}/{name}", run__dir=run,
                             parallel__zero=3 if ranks > 1 else 1, **SETTINGS)
        results.check(f"{name} on {ranks}: trains", done.returncode == 0, done.stderr[-400:])
        losses[name, ranks] = tiny_case.losses(run) if done.returncode == 0 else []
    want = losses["model", 1]
    for name in ("whole", "shards"):
        results.check(f"{name}: the losses of safetensors", losses[name, 1] == want != [])
    results.check("two ranks, ZeRO 3: the same but for rounding",
                  all(abs(a - b) < 1e-5 for a, b in zip(losses["shards", 2], want)))
    results.check("bf16: near", all(abs(a - b) < 0.05 for a, b in zip(losses["half", 1], want)))
    for name in ("model", "whole"):
        done = tiny_case.program("generate", f"{folder}/{name}", "--prompt", "<image>\nWhat is it?",
                                 "--image", picture, "--max-new-tokens", "12", "--set",
                                 "train.precision=fp32", "--set", "data.tiles.max=2")
        answers[name] = (done.returncode, done.stdout)
    results.check("the answer of safetensors",
                  answers["whole"] == answers["model"] and answers["model"][0] == 0, str(answers))
    done = tiny_case.program("export", f"{folder}/run_whole_1", "--out", f"{folder}/exported")
    files = [file for file in os.listdir(f"{folder}/exported") if "model" in file]
    results.check("export writes safetensors alone",
                  done.returncode == 0 and files == ["model.safetensors"], str(files))


def check_refusals(results, folder, config, weights):
    cases = Cases(results)
    path = f"{folder}/whole/pytorch_model.bin"
    with open(path, "rb") as file:
        whole = file.read()
    name = sorted(weights)[0]

    def refused(case, write, *words):
        write()
        line = tiny_case.command(config, 1, model__hf=f"{folder}/whole",
                                 run__dir=f"{folder}/refused", **SETTINGS)
        cases.refused(case, line, 4, *words)

    def put(content):
        def write():
            with open(path, "wb") as file:
                file.write(content)
        return write

    def compressed():
        put(whole)()
        with zipfile.ZipFile(path) as archive:
            records = {record: archive.read(record) for record in archive.namelist()}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for record, content in records.items():
                archive.writestr(record, b"\0" * len(content) if "/data/" in record else content)

    refused("cut in half", put(whole[:len(whole) // 2]), "pytorch_model.bin: is a damaged archive")
    refused("empty", put(b""), "pytorch_model.bin: too short")
    refused("a pointer of Git LFS", put(b"version https://git-lfs.github.com/spec/v1\n"),
            "git lfs pull")
    refused("PyTorch's form before 1.6",
            lambda: torch.save(weights, path, _use_new_zipfile_serialization=False),
            "no archive of torch.save")
    refused("another archive", lambda: zipfile.ZipFile(path, "w").writestr("a/b", "c"),
            "pytorch_model.bin: is")
    refused("compressed", compressed, "compressed")
    refused("columns before rows",
            lambda: torch.save({**weights, name: torch.empty(2, 3).t()}, path), name,
            "contiguous()")
    refused("no dictionary", lambda: torch.save([1, 2], path), "no dictionary of tensors")
    refused("no tensors", lambda: torch.save({"state_dict": weights}, path),
            "holds no tensors by their names")
    refused("one missing",
            lambda: torch.save({k: v for k, v in weights.items() if k != name}, path),
            "1 of", "weights are missing")


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="torch_weights")
    config = tiny_case.write_case(folder)
    weights = write_weights(folder)
    check_runs(results, folder, config)
    check_refusals(results, folder, config, weights)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
