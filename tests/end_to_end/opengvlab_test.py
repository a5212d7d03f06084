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
                         train__steps=4, run__dir=where, data__template="chatml", **settings)
    results.check(f"{run}: trains", done.returncode == 0, done.stderr[-400:])
    done = tiny_case.program("export", where, "--out", f"{folder}/exported_{run}")
    results.check(f"{run}: is exported", done.returncode == 0, done.stderr[-400:])
    return load_file(f"{folder}/exported_{run}/model.safetensors")


def adapters(results, folder, config, name, targets, train):
    """The tensors of the adapter, which is merged into the base as the run's own is."""
    run, base = f"{folder}/run_{name}", f"{folder}/opengvlab"
    done = tiny_case.run(config, 1, model__hf=base, model__init="pretrained", train__steps=4,
                         run__dir=run, model__drop_path=0, train__lr=0.01,
                         data__template="chatml",
                         model__adapter__targets=targets, model__adapter__train=train)
    results.check(f"{name}: trains", done.returncode == 0, done.stderr[-400:])
    for out, arguments in ((f"{run}/adapter", [run]), (f"{run}/merged", [run, "--merge"]),
                           (f"{run}/again", [base, "--adapter", f"{run}/adapter", "--merge"])):
        done = tiny_case.program("export", *arguments, "--out", out)
        results.check(f"{name}: {os.path.basename(out)} is exported", done.returncode == 0,
                      done.stderr[-400:])
    was, now = (load_file(f"{run}/{out}/model.safetensors") for out in ("merged", "again"))
    results.check(f"{name}: the folder of PEFT holds all that was trained",
                  all(torch.allclose(was[key], now[key], atol=1e-6) for key in was))
    kept = {key.removeprefix("base_model.model."): tensor for key, tensor in
            load_file(f"{run}/adapter/adapter_model.safetensors").items()}
    full = {key: tensor for key, tensor in kept.items() if ".lora_" not in key}
    start = load_file(f"{base}/model.safetensors")
    results.check(f"{name}: modules trained in full are the merged folder's", all(
        tensor.equal(was[key]) and not tensor.equal(start[key]) for key, tensor in full.items()),
        str(sorted(full)))
    with open(f"{run}/adapter/adapter_config.json", encoding="utf8") as file:
        return set(kept), json.load(file)


def adapter_names(results, folder, config):
    """Names of OpenGVLab's own modules, whose q, k and v are one."""
    tensors, described = adapters(results, folder, config, "qkv", "[q_proj,v_proj]",
                                  '["layers.0.attn.qkv",mlp1]')
    results.check("q_proj is the language model's",
                  not any("vision_model" in key and ".lora_" in key for key in tensors) and
                  described["target_modules"] == ["q_proj", "v_proj"], str(sorted(tensors)))
    modules = ["mlp1.0", "mlp1.1", "mlp1.3", "vision_model.encoder.layers.0.attn.qkv"]
    results.check("qkv in full is one module", described["modules_to_save"] == modules,
                  str(described["modules_to_save"]))
    tensors, described = adapters(results, folder, config, "encoder", "[attn.qkv,o_proj]",
                                  '["vision_model.embeddings","layers.0"]')
    visual = [name for name in described["modules_to_save"] if name.startswith("vision")]
    results.check("modules in modules are named once",
                  visual == ["vision_model.embeddings", "vision_model.encoder.layers.0"] and
                  "vision_model.encoder.layers.1.attn.qkv.lora_A.weight" in tensors,
                  str(described["modules_to_save"]))


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
    written.update(torch_dtype="float32", dtype="float32", dynamic_image_size=True,
                   min_dynamic_patch=1, max_dynamic_patch=2, use_thumbnail=True)
    results.check("config.json as it came, but for the tiles of the run", again == written,
                  str(again))
    with open(f"{exported}/chat_template.jinja", encoding="utf8") as file:
        results.check("a template that their code does not know",
                      "data.template chatml" in file.readline())
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
    adapter_names(results, folder, config)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
