"""Ids of folders with vocab.json and merges.txt alone, as InternVL's own trainer writes them,

against Transformers' tokenizers of these folders, and what is refused.

python vocabulary_files_test.py TOKENIZE_PROGRAM
"""

import json
import os
import subprocess
import sys
import tempfile

from transformers import AutoTokenizer

import tokenizer_hf_test as hf

def write(path, value):
    with open(path, "w", encoding="utf8") as file:
        json.dump(value, file)


def write_folder(folder, kind, name, listed):
    """Files of a trained tokenizer, its added tokens `listed` in one of those that have them."""
    os.makedirs(folder)
    tokenizer = hf.train(*hf.kinds()[kind])
    tokenizer.model.save(folder)
    decoder = tokenizer.get_added_tokens_decoder()
    settings = {"tokenizer_class": name, "add_prefix_space": False, "eos_token": "<|im_end|>",
                "pad_token": "<|endoftext|>"}
    if listed == "tokenizer_config.json":
        settings["added_tokens_decoder"] = {
            str(id): {"content": token.content, "lstrip": token.lstrip, "rstrip": token.rstrip,
                      "single_word": token.single_word, "special": token.special,
                      "normalized": False}
            for id, token in decoder.items()}
    elif listed == "added_tokens.json":
        write(f"{folder}/added_tokens.json",
              {token.content: id for id, token in decoder.items() if token.content in hf.SPECIAL})
    write(f"{folder}/tokenizer_config.json", settings)
    write(f"{folder}/config.json", {"model_type": kind})  # AutoTokenizer asks for it


def check_ids(program, folder, report):
    texts = hf.HARD + hf.CORPUS + hf.random_texts(400, seed=2)
    texts = [text for text in texts if "\n" not in text]
    for kind, name, listed in (
            ("qwen2", "Qwen2Tokenizer", "tokenizer_config.json"),
            ("qwen2", "Qwen2TokenizerFast", "added_tokens.json"),
            ("gpt2", "GPT2Tokenizer", "tokenizer_config.json"),
            ("gpt2", "GPT2TokenizerFast", "neither")):
        where = f"{folder}/{kind}-{name}-{listed}"
        write_folder(where, kind, name, listed)
        theirs = AutoTokenizer.from_pretrained(where)
        lines = texts
        if listed != "tokenizer_config.json":  # flags are in that file alone
            lines = [text for text in texts if "[[" not in text]
        if listed == "neither":  # those that the settings do not name are text
            named = {"<|endoftext|>", "<|im_end|>"}
            lines = [t for t in lines if not any(s in t for s in set(hf.SPECIAL) - named)]
        expected = [theirs.encode(text, add_special_tokens=False) for text in lines]
        report.compare(where, lines, hf.ours(program, where, lines), expected)
        report.compare(f"{where}: vocab.json itself", lines[:50],
                       hf.ours(program, f"{where}/vocab.json", lines[:50]), expected[:50])


def refuses(program, folder, report, name, change, message):
    where = f"{folder}/{name}"
    write_folder(where, "qwen2", "Qwen2Tokenizer", "tokenizer_config.json")
    change(where)
    run = subprocess.run([program, where], input="a\n", capture_output=True, text=True, timeout=60)
    found = run.returncode == 4 and run.stderr.count("\n") == 1 and message in run.stderr
    report.compare(name, [run.stderr], [found], [True])


def append(name, text):
    def change(where):
        with open(f"{where}/{name}", "a", encoding="utf8") as file:
            file.write(text)
    return change


def replace(name, value):
    return lambda where: write(f"{where}/{name}", value)


def check_refusals(program, folder, report):
    for name, change, message in (
            ("a merge of three", append("merges.txt", "a b c\n"),
             'is no merge of two tokens, "a b"'),
            ("a merge of unknown tokens", append("merges.txt", "a \u4e00\n"),
             "is not in model.vocab"),
            ("a list as vocabulary", replace("vocab.json", ["a"]), "vocab.json: not an object"),
            ("an id that is no number", replace("vocab.json", {"a": "b"}), "no whole number"),
            ("another class",
             replace("tokenizer_config.json", {"tokenizer_class": "CLIPTokenizer"}),
             "tokenizer_class 'CLIPTokenizer' is read from a tokenizer.json, which is not there"),
            ("no class", lambda where: os.remove(f"{where}/tokenizer_config.json"),
             "tokenizer_class ''"),
            ("no merges", lambda where: os.remove(f"{where}/merges.txt"),
             "has no tokenizer.json, tokenizer.model or vocab.json with merges.txt")):
        refuses(program, folder, report, name, change, message)


def main():
    report = hf.Report()
    with tempfile.TemporaryDirectory() as folder:
        check_ids(sys.argv[1], folder, report)
        check_refusals(sys.argv[1], folder, report)
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed or not report.passed else 0


if __name__ == "__main__":
    sys.exit(main())
