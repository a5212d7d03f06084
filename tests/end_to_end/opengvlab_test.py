"""Training from a folder in OpenGVLab's own form: it gives the weights that the same folder in
Transformers' form gives, and export writes the form back that it came in."""
import json
import os
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForImageTextToText

import tiny_case

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models"))
import opengvlab  # pylint: disable=wrong-import-position

CODE = "modeling_internvl_chat.py"
TOKENIZER = ("vocab.json", "merges.txt", "tokenizer_config.json", "added_tokens.json")


def write_tokenizer(native, theirs):
    """The files that a tokenizer in Python writes, as in published folders, of a tokenizer.json."""
    tokenizer = Tokenizer.from_file(f"{native}/tokenizer.json")
    tokenizer.model.save(theirs)
    tokens = tokenizer.get_added_tokens_decoder().items()
    with open(f"{theirs}/tokenizer_config.json", "w", encoding="utf8") as file:
        json.dump({"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|im_end|>",
                   "added_tokens_decoder": {str(id): {"content": token.content, "special": True}
                                            for id, token in tokens}}, file)
    with open(f"{theirs}/added_tokens.json", "w", encoding="utf8") as file:
        json.dump({token.content: id for id, token in tokens}, file)


def write_folders(folder):
    """The case's model with random weights, and again in OpenGVLab's form with a code file."""
    native, theirs = f"{folder}/model", f"{folder}/opengvlab"
    torch.manual_seed(5)
    with open(f"{native}/config.json", encoding="utf8") as file:
        config = json.load(file)
    model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(native))
    model.save_pretrained(f"{folder}/saved")
    shutil.copy(f"{folder}/saved/model.safetensors", native)
    os.makedirs(theirs)
    write_tokenizer(native, theirs)
    weights = load_file(f"{native}/model.safetensors")
    save_file(opengvlab.rename(weights), f"{theirs}/model.safetensors")
    config = opengvlab.config(config)
    del config["image_token_id"]  # as published: the tokenizer tells
    with open(f"{theirs}/config.json", "w", encoding="utf8") as file:
        json.dump(config, file)
    with open(f"{theirs}/{CODE}", "w", encoding="utf8") as file:
        file.write("# code of the folder\n")
    return config


def train_and_export(results, folder, config, name, run, **settings):
    """The weights after four steps."""
    where = f"{folder}/run_{run}"
    done = tiny_case.run(config, 1, model__hf=f"{folder}/{name}", model__init="pretrained",
                         train__steps=4, run__dir=where, **settings)
    results.check(f"{run}: trains", done.returncode == 0, done.stderr[-400:])
    done = tiny_case.program("export", where, "--out", f"{folder}/exported_{run}")
    results.check(f"{run}: is exported", done.returncode == 0, done.stderr[-400:])
    return load_file(f"{folder}/exported_{run}/model.safetensors")


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="opengvlab")
    config = tiny_case.write_case(folder)
    written = write_folders(folder)
    native = train_and_export(results, folder, config, "model", "model")
    # The folder's own drop_path_rate is 0.1, the other form has none.
    theirs = train_and_export(results, folder, config, "opengvlab", "opengvlab", model__drop_path=0)
    deep = train_and_export(results, folder, config, "opengvlab", "deep", model__drop_path=0.5)
    results.check("stochastic depth changes what is learnt",
                  any(not deep[key].equal(theirs[key]) for key in theirs))
    exported = f"{folder}/exported_opengvlab"
    want = opengvlab.rename(native)
    results.check("export has the keys of the folder it came from",
                  set(theirs) == set(load_file(f"{folder}/opengvlab/model.safetensors")))
    results.check("the same weights after training",
                  set(theirs) == set(want) and all(theirs[k].equal(want[k]) for k in want))
    with open(f"{exported}/config.json", encoding="utf8") as file:
        again = json.load(file)
    written.update(torch_dtype="float32", dtype="float32")
    results.check("config.json as it came", again == written, str(again))
    results.check("the folder's code comes along", os.path.exists(f"{exported}/{CODE}"))
    results.check("and its tokenizer's files", all(
        os.path.exists(f"{exported}/{name}") for name in TOKENIZER)
        and not os.path.exists(f"{exported}/tokenizer.json"))

    picture = f"{folder}/plain.png"
    tiny_case.draw(picture, "red", "disc", (56, 56), 3)
    answers = [tiny_case.program("generate", f"{folder}/{name}", "--prompt", "<image>\nWhat is it?",
                       "--image", picture, "--max-new-tokens", "12", "--temperature", "2",
                       "--set", "train.precision=fp32",
                       "--set", "data.template=chatml", "--set", "data.tiles.max=2")
               for name in ("run_model", "run_opengvlab", "exported_model", "exported_opengvlab")]
    results.check("generate gives one answer from both forms",
                  all(a.returncode == 0 and a.stdout == answers[0].stdout != "\n" for a in answers),
                  str([(a.stdout, a.stderr[-200:]) for a in answers]))
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
