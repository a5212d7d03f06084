"""WordPiece tokenizers (tokenizer.json of BERT) and the normalizers that came with them against
Hugging Face's `tokenizers`: ids and texts, on small vocabularies trained here.

python word_piece_test.py TOKENIZE_PROGRAM
"""

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import (AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        trainers)
from tokenizer_hf_test import CORPUS, HARD, POINTS, Report, encode, ours, random_texts
from unigram_test import PAIRS, SPACE, charsmap, decoded, precompiled

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BERT = [
    "ΑΣ ΑΣ. ΣΑΣ σς İI ıi ǅǆ ẞß ŉ ﬀ Å\u0327é\u0301",
    "中文abc漢字 ひらがな\uf900\U0002f800\U00020000x\U0002b740\U0002b920\U0002b81f",
    "a\ufffdb\u00adc\u200bd\u0000e\ue000f\u2028g\x0bh\x85i\u00a0j\u3000k",
    "[CLS] x [SEP][MASK]", "[cls]", "x[MASK]y [UNK]", "don't can't it's we've they're I'm, do not!",
    "`x` $5 ^_^ a+b=c <d> |e| ~ §1 ¿que? « » „ “x” ‘y’ … – — ‿ ⸘ 、。", "naïve café Ångström ﷺ",
    "x" * 99, "x" * 100, "x" * 101, "é" * 100 + " ok", "e\u0301" * 50 + "x", "日" * 101,
    "##x ## # the##s ##", "un##able", "\u0301", "\u0301\u0301x", "_under_score_", "１２３ Ⅷ ②",
    "[[n\u00e9]] [[NORM]] [[norm]] [[Norm]]", "a do not b ' c n't . ? 's and !",
]


def bert(**options):
    return normalizers.BertNormalizer(**options)


def all_bert():
    """BertNormalizer in all its forms, by name."""
    flags = itertools.product((False, True), (False, True), (None, False, True), (False, True))
    return {f"bert-{clean:d}{spaced:d}{'n' if strip is None else int(strip)}{lower:d}":
            bert(clean_text=clean, handle_chinese_chars=spaced, strip_accents=strip,
                 lowercase=lower)
            for clean, spaced, strip, lower in flags}


def kinds():
    """Name -> normalizer, pre-tokenizer, changes of the model."""
    words, punctuation = pre_tokenizers.WhitespaceSplit(), pre_tokenizers.BertPreTokenizer()
    sequence = pre_tokenizers.Sequence
    result = {name: (step, punctuation, {}) for name, step in all_bert().items()}
    lower = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(),
                                  normalizers.StripAccents()])
    result.update({
        "none": (None, None, {}),
        "words": (None, words, {}),
        "lower": (lower, words, {}),
        "digits": (bert(), sequence([punctuation, pre_tokenizers.Digits(True)]), {}),
        "split": (normalizers.Sequence([normalizers.NFKC(), bert()]),
                  sequence([words, pre_tokenizers.Split("e", "isolated"), punctuation]), {}),
        "short-words": (bert(), punctuation, {"max_input_chars_per_word": 5}),
        "no-words": (bert(), punctuation, {"max_input_chars_per_word": 0}),
        "all-words": (None, None, {"max_input_chars_per_word": 10**15}),
        "no-prefix": (bert(), punctuation, {"continuing_subword_prefix": ""}),
        "other-prefix": (bert(), punctuation, {"continuing_subword_prefix": "~~"}),
        "other-unknown": (bert(), punctuation, {"unk_token": "the"}),
    })
    return result


def added_tokens():
    return [
        AddedToken("[[lone]]", single_word=True, normalized=False),
        AddedToken("[[left]]", lstrip=True, normalized=False),
        AddedToken("[[Right]]", rstrip=True, normalized=False),
        AddedToken("[[Norm]]", normalized=True),
        AddedToken("[[n\u00e9]]", normalized=True),
        AddedToken("a do not b ' c n't . ? 's and !", normalized=False),
    ]


def train(normalizer, pre_tokenizer):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece()
    with open(__file__, encoding="utf8") as file:
        text = CORPUS * 3 + file.read().splitlines()
    tokenizer.train_from_iterator(text, trainers.WordPieceTrainer(
        vocab_size=900, special_tokens=SPECIAL, show_progress=False))
    tokenizer.add_tokens(added_tokens())
    return tokenizer


def save(spec, folder, name):
    path = os.path.join(folder, name + ".json")
    with open(path, "w", encoding="utf8") as file:
        json.dump(spec, file)
    return path


def write_kinds(folder):
    """The file of each kind, and of variants of one of them."""
    paths, specs = {}, {}
    for name, (normalizer, pre_tokenizer, changes) in kinds().items():
        spec = json.loads(train(normalizer, pre_tokenizer).to_str())
        if pre_tokenizer is None:
            spec["pre_tokenizer"] = None
        spec["model"].update(changes)
        specs[name] = spec
        paths[name] = save(spec, folder, name)
    base = specs["bert-11n1"]
    untyped = json.loads(json.dumps(base))
    del untyped["model"]["type"]
    paths["untyped"] = save(untyped, folder, "untyped")
    for prefix, cleanup in (("##", False), ("", True), ("t", True)):
        spec = base | {"decoder": {"type": "WordPiece", "prefix": prefix, "cleanup": cleanup}}
        name = f"decoder-{prefix}-{cleanup}"
        paths[name] = save(spec, folder, name)
    return paths


def check_kinds(program, folder, report):
    texts = [t for t in HARD + CORPUS + BERT + random_texts(300, seed=3) if "\n" not in t]
    rng = random.Random(4)
    for name, path in write_kinds(folder).items():
        hf = Tokenizer.from_file(path)
        expected = encode(hf, texts)
        report.compare(name, texts, ours(program, path, texts), expected)
        rows = expected + [[rng.randrange(hf.get_vocab_size()) for _ in range(rng.randrange(9))]
                           for _ in range(300)]
        report.compare(name + ": text", rows, decoded(program, path, rows),
                       [hf.decode(ids, skip_special_tokens=False) for ids in rows])
    known = sum(id != 1 for ids in encode(Tokenizer.from_file(path), texts) for id in ids)
    if known < 2000:  # else the vocabulary would show nothing
        report.failed += 1
        print(f"FAILED: only {known} tokens are known")


def every_text():
    """All code points, at the beginning and the end of a word, between marks and before them."""
    lines = [POINTS[at:at + 64] for at in range(0, len(POINTS), 64)]
    return ["".join("a{0} {0}e\u0301{0}\u0308".format(c) for c in line) for line in lines]


def check_normalizers(program, folder, report):
    """What a normalizer makes of every code point: ids of bytes are its text."""
    alphabet = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    every = every_text()
    forms = all_bert()
    for name, step in {
        "lowercase": normalizers.Lowercase(),
        "strip-accents": normalizers.StripAccents(),
        "nfkd": normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(),
                                      normalizers.Lowercase()]),
        **{name: forms[name] for name in ("bert-1000", "bert-0100", "bert-0010", "bert-11n1")},
    }.items():
        tokenizer = Tokenizer(models.BPE(alphabet, []))
        tokenizer.normalizer = step
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(False, use_regex=False)
        path = save(json.loads(tokenizer.to_str()), folder, "bytes-" + name)
        report.compare("all/" + name, every, ours(program, path, every), encode(tokenizer, every))


def check_pre_tokenizer(program, folder, report):
    """Whether a code point is cut out, is a word, or joins others: aXa is 2, 3 or 1 tokens then."""
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##a": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    path = save(json.loads(tokenizer.to_str()), folder, "pre-tokenizer")
    every = ["".join(f"a{c}a " for c in POINTS[at:at + 64]) for at in range(0, len(POINTS), 64)]
    report.compare("all/words", every, ours(program, path, every), encode(tokenizer, every))


def check_albert(program, folder, report):
    """ALBERT's normalizer before a unigram model."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
        normalizers.StripAccents(), normalizers.Lowercase(), precompiled(charsmap(PAIRS))])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(SPACE, "always")])
    tokenizer.decoder = decoders.Metaspace(SPACE, "always")
    tokenizer.train_from_iterator(CORPUS * 3, trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<pad>", "<unk>", "[CLS]", "[SEP]"], unk_token="<unk>",
        show_progress=False))
    path = save(json.loads(tokenizer.to_str()), folder, "albert")
    texts = [t for t in HARD + CORPUS + BERT + random_texts(300, seed=5) if "\n" not in t]
    texts += ["``x''", "It''s ``É`` ''"]
    expected = encode(tokenizer, texts)
    report.compare("albert", texts, ours(program, path, texts), expected)
    report.compare("albert: text", texts, decoded(program, path, expected),
                   [tokenizer.decode(ids, skip_special_tokens=False) for ids in expected])


def check_hostile(program, folder, report):
    """Words without end cost no more than their length, whatever is known of them."""
    size = 300_000
    texts = ["a" * size, "a" * size + "b", ("a" * 100 + " ") * 3000, "." * size, "中" * size,
             "\u0301" * size]
    for most in (100, 10**15):
        vocabulary = {"[UNK]": 0, "a": 1, "##a": 2, "##aaaa": 3, ".": 4, "中": 5}
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]",
                                               max_input_chars_per_word=most))
        tokenizer.normalizer = bert()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        path = save(json.loads(tokenizer.to_str()), folder, f"hostile-{most}")
        got = ours(program, path, texts)
        long = [0] if most == 100 else [1] + [3] * ((size - 1) // 4) + [2] * ((size - 1) % 4)
        expected = [long, [0], ([1] + [3] * 24 + [2] * 3) * 3000, [4] * size, [5] * size, []]
        report.compare(f"hostile-{most}", [text[:9] for text in texts], got, expected)
        short = [text[:90] for text in texts]  # the other library takes quadratic time
        report.compare(f"short-{most}", short, ours(program, path, short), encode(tokenizer, short))


def main():
    program, report = sys.argv[1], Report()
    with tempfile.TemporaryDirectory() as folder:
        check_kinds(program, folder, report)
        check_normalizers(program, folder, report)
        check_pre_tokenizer(program, folder, report)
        check_albert(program, folder, report)
        check_hostile(program, folder, report)
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
