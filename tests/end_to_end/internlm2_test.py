"""InternVL2 over InternLM2 as it is published: fused names, a tokenizer.model, no tokenizer.json.

Training from it gives the weights that the same model gives as LLaMA in Transformers' form; export
writes it back in the form that it came in; both answer alike."""
import json
import os
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

import sentencepiece_file
import tiny_case

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models"))
import internlm2  # pylint: disable=wrong-import-position
import opengvlab  # pylint: disable=wrong-import-position

KV_HEADS = 2
SPECIAL = ["<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>"]
TOKENIZER = ("tokenizer.model", "tokenizer_config.json")
# The template's own system text is Chinese: bytes to this tokenizer, longer than a row.
# The folder's own drop_path_rate is 0.1, the other form has none.
SETTINGS = {"data__template": "internlm2-chat", "data__system": "a", "train__steps": 4,
            "model__init": "pretrained", "model__drop_path": 0}


def write_folders(folder):
    """The case's model as LLaMA in Transformers' form, and as InternLM2 in its own."""
    native, theirs = f"{folder}/model", f"{folder}/internlm2"
    with open(f"{folder}/train.jsonl", encoding="utf8") as file:
        texts = [turn["value"] for line in file for turn in json.loads(line)["conversations"]]
    os.remove(f"{native}/tokenizer.json")
    ids = sentencepiece_file.write(native, texts + ["system", "user", "assistant"], SPECIAL)
    with open(f"{native}/config.json", encoding="utf8") as file:
        config = json.load(file)
    config["image_token_id"] = ids["<IMG_CONTEXT>"]
    config["text_config"].update(model_type="llama", attention_bias=False, mlp_bias=False,
                                 bos_token_id=1, eos_token_id=ids["<|im_end|>"], pad_token_id=2)
    with open(f"{native}/config.json", "w", encoding="utf8") as file:
        json.dump(config, file)
    torch.manual_seed(7)
    model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(native))
    model.save_pretrained(f"{folder}/saved")
    shutil.copy(f"{folder}/saved/model.safetensors", native)
    os.makedirs(theirs)
    for name in TOKENIZER:
        shutil.copy(f"{native}/{name}", theirs)
    with open(f"{theirs}/added_tokens.json", "w", encoding="utf8") as file:
        json.dump(ids, file)
    weights = load_file(f"{native}/model.safetensors")
    save_file(rename(weights), f"{theirs}/model.safetensors")
    published = opengvlab.config(config)
    published["llm_config"] = internlm2.config(config["text_config"])
    published["template"] = "internlm2-chat"
    del published["image_token_id"]
    with open(f"{theirs}/config.json", "w", encoding="utf8") as file:
        json.dump(published, file)
    return published


def rename(weights):
    return internlm2.rename(opengvlab.rename(weights), KV_HEADS)


def train_and_export(results, folder, config, name, ranks=1, **settings):
    run = f"{folder}/run_{name}_{ranks}"
    done = tiny_case.run(config, ranks, model__hf=f"{folder}/{name}", run__dir=run,
                         **SETTINGS, **settings)
    results.check(f"{name} on {ranks}: trains", done.returncode == 0, done.stderr[-400:])
    done = tiny_case.program("export", run, "--out", f"{folder}/exported_{name}_{ranks}")
    results.check(f"{name} on {ranks}: is exported", done.returncode == 0, done.stderr[-400:])
    return load_file(f"{folder}/exported_{name}_{ranks}/model.safetensors")


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="internlm2")
    config = tiny_case.write_case(folder)
    published = write_folders(folder)
    native = train_and_export(results, folder, config, "model")
    theirs = train_and_export(results, folder, config, "internlm2")
    want = rename(native)
    results.check("the same weights after training, under the names it came with",
                  set(theirs) == set(want) and all(theirs[k].equal(want[k]) for k in want))
    several = train_and_export(results, folder, config, "internlm2", ranks=2, parallel__tensor=2,
                               parallel__data=1, parallel__pipeline=1)
    results.check("two tensor ranks: the same but for rounding", all(
        torch.allclose(several[k], want[k], rtol=1e-3, atol=1e-5) for k in want))

    exported = f"{folder}/exported_internlm2_1"
    with open(f"{exported}/config.json", encoding="utf8") as file:
        again = json.load(file)
    published.update(torch_dtype="float32", dtype="float32", dynamic_image_size=True,
                     min_dynamic_patch=1, max_dynamic_patch=2, use_thumbnail=True,
                     system_message="a")
    results.check("config.json as it came, but for tiles and system text", again == published,
                  str(again))
    results.check("the tokenizer comes along", all(
        os.path.exists(f"{exported}/{name}") for name in (*TOKENIZER, "added_tokens.json")))

    picture = f"{folder}/plain.png"
    tiny_case.draw(picture, "red", "disc", (56, 56), 3)
    answers = [tiny_case.program("generate", f"{folder}/{name}", "--prompt", "<image>\nWhat is it?",
                       "--image", picture, "--max-new-tokens", "12", "--temperature", "2",
                       "--set", "train.precision=fp32", "--set", "data.tiles.max=2",
                       "--set", "data.system=a", *more)
               for name, more in (("exported_model_1", ("--set", "data.template=internlm2-chat")),
                                  ("exported_internlm2_1", ()))]
    results.check("generate gives one answer from both forms, with the folder's template",
                  all(a.returncode == 0 and a.stdout == answers[0].stdout != "\n" for a in answers),
                  str([(a.stdout, a.stderr[-200:]) for a in answers]))
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
