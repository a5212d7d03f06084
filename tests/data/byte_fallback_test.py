"""BPE with byte fallback (LLaMA's, Mistral's tokenizer.json) against Hugging Face's `tokenizers`:
ids and texts, on small vocabularies trained here and on the fixtures.

python byte_fallback_test.py TOKENIZE_PROGRAM
"""

import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It isn't what they'll say: is it?",
    "def main(args):  return [x ** 2 for x in range(10)]",
    "größer, älter, höher; 日本語のテキスト и мягких булок 1234567890",
]
SPACE = "\u2581"
HARD = [
    "", " ", "  ", "   x", " hello", "hello ", "hello  world", "a" + SPACE + "b", SPACE,
    SPACE + " a",
    "é e\u0301 😀 日本 \x00\x7f", "\t a\tb", "<s>", "<s> hello</s>", "x<s>y </s> z", " <s>", "<s><s>a",
    "<unk>", "<0x41>", "</s", "<image>\tWhat?", "USER: <image> hi ASSISTANT:", "[[strip]]  x",
    "x  [[strip]]", "[[norm]] x[[norm]]", "a[[norm]]", "QQ", "aQ日QbQ",
]
ALPHABET = ["a", "the", " ", "  ", SPACE, "é", "\u0301", "日", "😀", "1", "<s>", "</s>", "<image>",
            "Q", "[[strip]]", "[[norm]]", ".", "\t", "\u00a0", "<0x0A>"]


def replace_decoder(strip=1):
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", strip, 0)] if strip else []))


def legacy_normalizer():
    return normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])


def kinds():
    """Name -> normalizer, pre-tokenizer, decoder; as published ones have them, and variants."""
    def metaspace(scheme, split):
        return pre_tokenizers.Metaspace(SPACE, scheme, split)

    result = {
        "llama": (legacy_normalizer(), None, replace_decoder()),
        "nfkc": (normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" ", SPACE)]), None,
                 replace_decoder(0)),
        "two-spaces": (legacy_normalizer(), None, replace_decoder(2)),
    }
    for scheme in ("always", "first", "never"):
        for split in (False, True):
            decoder = decoders.Metaspace(SPACE, scheme) if split else replace_decoder()
            result[f"{scheme}-{split}"] = (None, metaspace(scheme, split), decoder)
    return result


def train(normalizer, pre_tokenizer, decoder, lacking=(), fuse=True, unknown="<unk>"):
    """With all bytes of fallback but `lacking`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always", True)
    tokenizer.train_from_iterator(CORPUS * 3, trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False))
    trained = json.loads(tokenizer.to_str())["model"]
    vocabulary = trained["vocab"]
    for byte in range(256):
        if byte not in lacking:
            vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in trained["merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=fuse,
                                     byte_fallback=True))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.add_special_tokens([AddedToken("<image>", normalized=False)])
    tokenizer.add_tokens([AddedToken("[[strip]]", lstrip=True, rstrip=True, normalized=False),
                          AddedToken("[[norm]]", normalized=True)])
    return tokenizer


def program(*arguments, lines):
    text = "".join(line + "\n" for line in lines).encode()
    run = subprocess.run(arguments, input=text, capture_output=True, timeout=600, check=False)
    if run.returncode:
        raise RuntimeError(run.stderr.decode())
    return [json.loads(line) for line in run.stdout.decode().split("\n")[:-1]]


class Report:
    def __init__(self):
        self.passed = self.failed = 0

    def compare(self, name, inputs, got, expected):
        wrong = [row for row in zip(inputs, got, expected) if row[1] != row[2]]
        ok = not wrong and len(got) == len(expected) > 0
        self.passed, self.failed = self.passed + ok, self.failed + (not ok)
        if not ok:
            print(f"FAILED: {name}: {len(wrong)} of {len(expected)} differ, {len(got)} lines")
            for text, ours, right in wrong[:3]:
                print(f"  {text!r}\n    ours {ours!r}\n    HF   {right!r}")


def random_ids(tokenizer, count, seed):
    pick = random.Random(seed)
    size = tokenizer.get_vocab_size()
    return [[pick.randrange(size) for _ in range(pick.randint(0, 12))] for _ in range(count)]


def check(tokenize, name, path, texts, report):
    """Ids of texts, and texts of these ids and of others."""
    hf = Tokenizer.from_file(path)
    ids = [hf.encode(text, add_special_tokens=False).ids for text in texts]
    report.compare(name, texts, program(tokenize, path, lines=texts), ids)
    ids += random_ids(hf, 300, seed=3)
    for skip in (False, True):
        lines = [json.dumps({"ids": row, "skip": skip}) for row in ids]
        report.compare(f"{name}: decoded, skip {skip}", ids,
                       program(tokenize, path, "--decode", lines=lines),
                       [hf.decode(row, skip_special_tokens=skip) for row in ids])


def check_trained(tokenize, folder, report):
    pick = random.Random(1)
    texts = HARD + CORPUS + ["".join(pick.choice(ALPHABET) for _ in range(pick.randint(1, 20)))
                             for _ in range(400)]
    cases = {name: train(*kind) for name, kind in kinds().items()}
    lacking = {0x51, *"é".encode(), *"日".encode()}
    for fuse in (False, True):
        cases[f"unknown-{fuse}"] = train(*kinds()["llama"], lacking=lacking, fuse=fuse)
    cases["dropped"] = train(*kinds()["llama"], lacking=lacking, unknown=None)
    for name, tokenizer in cases.items():
        path = os.path.join(folder, name + ".json")
        tokenizer.save(path)
        check(tokenize, name, path, texts, report)


def adversarial(count, seed):
    """Lines of runs of spaces, of U+2581, of characters in bytes, and of code."""
    pick = random.Random(seed)
    pieces = ALPHABET + [SPACE * 3, " " * 17, "\t\t", "\u00a0" * 5, "\U00012345", "the ", "();",
                         "==", "return", "0x41", "aaaa", "日本語" * 9, "-" * 70, "\x7f", "é" * 40]
    return ["".join(pick.choice(pieces) * pick.choice([1, 1, 1, 2, 30])
                    for _ in range(pick.randint(1, 40))) for _ in range(count)]


def check_fixtures(tokenize, root, report):
    for name in ("llama2", "mistral-v3"):
        folder = os.path.join(root, "tokenizers", name)
        with open(os.path.join(folder, "cases.json"), encoding="utf8") as file:
            texts = [case["text"] for case in json.load(file)["cases"] if "\n" not in case["text"]]
        texts += adversarial(500, seed=5)
        check(tokenize, "fixtures/" + name, os.path.join(folder, "tokenizer.json"), texts, report)


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        check_trained(sys.argv[1], folder, report)
    if os.environ.get("EQUIPOISE_FIXTURES"):
        check_fixtures(sys.argv[1], os.environ["EQUIPOISE_FIXTURES"], report)
    else:
        print("skipped: tokenizer fixtures: no fixtures")
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
