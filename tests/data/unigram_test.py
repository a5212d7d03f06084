"""Unigram tokenizers (tokenizer.json of T5 and XLM-RoBERTa) against Hugging Face's `tokenizers`:
ids and texts, on small vocabularies trained here.

python unigram_test.py TOKENIZE_PROGRAM
"""

import base64
import json
import os
import struct
import subprocess
import sys
import tempfile

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizer_hf_test import CORPUS, HARD, POINTS, Report, encode, ours, random_texts

SPACE = "\u2581"


def charsmap(pairs):
    """SentencePiece's compiled map of texts to texts: a double array (darts-clone's), naively."""
    replacements, values = b"", {}
    for text, becomes in pairs.items():
        values[text.encode()] = len(replacements)
        replacements += becomes.encode() + b"\0"
    units, used = {0: 0}, {0}

    def place(prefix, at):
        """Gives the node `at`, whose path is `prefix`, its children."""
        labels = sorted({key[len(prefix)] for key in values
                         if len(key) > len(prefix) and key.startswith(prefix)})
        ends = prefix in values
        offset = 1
        while any((at ^ offset ^ label) in used for label in labels + ([0] if ends else [])) or (
                (at ^ offset) in used):
            offset += 1
        assert offset < 1 << 21
        units[at] |= offset << 10 | (0x100 if ends else 0)
        base = at ^ offset
        if ends:
            units[base] = values[prefix] | 1 << 31
            used.add(base)
        for label in labels:
            units[base ^ label] = label
            used.add(base ^ label)
        for label in labels:
            place(prefix + bytes([label]), base ^ label)

    place(b"", 0)
    trie = b"".join(struct.pack("<I", units.get(i, 0)) for i in range((max(units) | 255) + 257))
    return struct.pack("<I", len(trie)) + trie + replacements


# Characters, sequences with marks, a line end of two, one that is removed, and prefixes.
PAIRS = {"\ufb01": "fi", "\u2460": "1", "e\u0301": "é", "a\u0308": "ä", "\u3000": " ", "\t": " ",
         "\r": " ", "\n": " ", "\u00ad": "", "\u212b": "Å", "\u00a0": " ", "ㄱ": "ᄀ", "x": "x",
         "か\u3099": "が", "\u0600": "", "\u00a9": "(c)", "\u1100": "k"}


def fixture_charsmap():
    """nmt_nfkc's of the fixture's tokenizer.model: field 2 of its field 3. None: no fixtures."""
    path = os.path.join(os.environ.get("EQUIPOISE_FIXTURES", ""),
                        "tokenizers/spm-unigram/tokenizer.model")
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        data = file.read()

    def fields(data):
        at = 0
        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(data):
            tag = varint()
            if tag & 7 == 2:
                size = varint()
                yield tag >> 3, data[at:at + size]
                at += size
            elif tag & 7 == 0:
                varint()
            else:
                at += {5: 4, 1: 8}[tag & 7]

    spec = next(value for number, value in fields(data) if number == 3)
    return next(value for number, value in fields(spec) if number == 2)


def precompiled(data):
    return normalizers.Precompiled(base64.b64decode(base64.b64encode(data)))


def kinds():
    """Name -> normalizer, pre-tokenizer; as T5's, XLM-RoBERTa's and others' files have them."""
    metaspace = lambda scheme="always", split=True: pre_tokenizers.Metaspace(SPACE, scheme, split)
    words = lambda last: pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), last])
    small = precompiled(charsmap(PAIRS))
    spaces = normalizers.Replace(Regex(" {2,}"), SPACE)
    result = {
        "none": (None, metaspace()),
        "words": (None, words(metaspace())),
        "words-first": (None, words(metaspace("first"))),
        "whole": (normalizers.NFKC(), metaspace("first", False)),
        "charsmap": (small, words(metaspace())),
        "t5": (normalizers.Sequence([small, normalizers.Strip(left=False, right=True), spaces]),
               metaspace()),
        "strip": (normalizers.Sequence([normalizers.Strip(), normalizers.Replace("``", '"')]),
                  pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                           metaspace("never")])),
    }
    nfkc = fixture_charsmap()
    if nfkc is not None:
        result["nmt-nfkc"] = (precompiled(nfkc), words(metaspace()))
    return result


def train(normalizer, pre_tokenizer):
    tokenizer = Tokenizer(models.Unigram())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Metaspace(SPACE, "always")
    tokenizer.train_from_iterator(CORPUS * 3, trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<pad>", "</s>", "<unk>", "<extra_id_0>"],
        unk_token="<unk>", show_progress=False))
    return tokenizer


def decoded(program, path, rows):
    asked = "".join(json.dumps({"ids": ids, "skip": False}) + "\n" for ids in rows)
    done = subprocess.run([program, path, "--decode"], input=asked.encode(), capture_output=True,
                          check=True)
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


def with_byte_fallback(path, folder):
    with open(path, encoding="utf8") as file:
        spec = json.load(file)
    spec["model"]["byte_fallback"] = True
    spec["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    spec["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"}]}
    out = os.path.join(folder, "bytes.json")
    with open(out, "w", encoding="utf8") as file:
        json.dump(spec, file)
    return out


def main():
    program, report = sys.argv[1], Report()
    texts = [t for t in HARD + CORPUS + random_texts(400, seed=2) if "\n" not in t]
    texts += ["``x''", "e\u0301\u0301 a\u0308 \r\r \u00ad x\u00adx",
              "か\u3099か \u0600a \u00a9\ufe0f",
              "a\u0301\u0308 \u1100\u1161\u11a8\u0301 🇩🇪🇫 👩\u200d🚀 न\u094dन", "<extra_id_0> x </s>"]
    lines = [POINTS[at:at + 64] for at in range(0, len(POINTS), 64)]
    every = ["".join("a{0} {0}e\u0301{0}\u0308".format(c) for c in line) for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name, (normalizer, pre_tokenizer) in kinds().items():
            paths[name] = os.path.join(folder, name + ".json")
            train(normalizer, pre_tokenizer).save(paths[name])
        paths["byte-fallback"] = with_byte_fallback(paths["words"], folder)
        for name, path in paths.items():
            hf = Tokenizer.from_file(path)
            expected = encode(hf, texts)
            report.compare(name, texts, ours(program, path, texts), expected)
            report.compare(name + ": text", texts, decoded(program, path, expected),
                           [hf.decode(ids, skip_special_tokens=False) for ids in expected])
            if name in ("charsmap", "nmt-nfkc", "words"):
                report.compare("all/" + name, every, ours(program, path, every), encode(hf, every))
    if "nmt-nfkc" not in paths:
        print("skipped: nmt_nfkc: no fixtures")
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
