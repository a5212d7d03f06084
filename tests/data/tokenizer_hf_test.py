"""Ids of our tokenizer against Hugging Face's `tokenizers`.

On small vocabularies trained here, and on the fixtures.

python tokenizer_hf_test.py TOKENIZE_PROGRAM
"""

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>"]
CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's what they'll say, isn't it? I'd've known!",
    "def main(args):\n    return [x ** 2 for x in range(10)]\n\n\tprint('done')",
    "Die Straße führt über die Brücke; größer, älter, höher.",
    "日本語のテキストと漢字。中文也在这里。",
    "Съешь же ещё этих мягких французских булок",
    "नमस्ते दुनिया",
    "مرحبا بالعالم",
    "안녕하세요 세계",
    "1234567890 3.14159 2026-01-01 £100 50%",
    "😀😃👩‍🚀👨‍👩‍👧‍👦🇩🇪❤️",
    "a  b   c    d\t\te\r\nf\n\n\ng",
]
# All that may stand in a line of text.
POINTS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and c != 0x0A]
HARD = [
    "",
    " ",
    "  ",
    "\t",
    "\r",
    "\r\r",
    " \r x",
    "a\rb",
    "hello",
    " hello",
    "hello ",
    "  hello  world  ",
    "I'M YOU'LL it'S we'RE 'sx 'Tx 'ſ 'ſt x'Ve'D",
    "don't can't won’t",
    "'",
    "''s",
    "s's's",
    "é e\u0301 \u0301e e\u0327\u0301 e\u0301\u0327 ẛ̣ \u1e9b\u0323 Å \u212b \u2126 \ufb01",
    "\uac00 \u1100\u1161 \u1100\u1161\u11a8 \uac01",
    "\u0344\u0958\u2adc",
    "\U0001d15e \U0001d160",
    "a\u00a0b\u2003c\u3000d\u180ee\u200bf\ufeffg\u2028h\u2029i\u0085j\u1680k\u202fl\u205fm",
    "\x00\x01\x1c\x1d\x1e\x1f\x7f\x80",
    "a\x0bb\x0cc  \x0b  d",
    "１２３ ⅷ ² ½ ٣٤ ৪ 𝟙𝟚 ①",
    "x²y³ 10⁶ H₂O",
    "👩‍🚀👨‍👩‍👧‍👦 🇩🇪🇫🇷 ❤️ ✊🏽 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "𠀀𪚥 龥龦 一丁 ぁゟ゠ヿㄱ",
    "ไทยภาษา ລາວ မြန်မာ ខ្មែរ",
    "नि क्षत्रिय த்",
    "<|im_start|>user\tHi<|im_end|>",
    "<|im_end|",
    "<<|im_end|>>",
    "<|im_end|><|im_end|>",
    " <|endoftext|> ",
    "x<img><IMG_CONTEXT><IMG_CONTEXT></img>y",
    "<IMG_CONTEXT",
    "</img></img",
    "<im<img>g>",
    "<|endoftext|>e\u0301<|endoftext|>",
    "[[word]]",
    "a[[word]]b",
    "[[lone]] x[[lone]]x [[lone]]",
    " \t [[left]] \u3000[[left]]",
    "[[right]] \t x [[right]]  [[right]]",
    "[[both]]  [[left]]  [[right]]  [[both]]",
    "É[[norm]]e\u0301 [[n\u00e9]] [[ne\u0301]]",
    "[[wordier]] [[word]]ier",
    "ab[[lone]]",
    "!!!???...,,,;;;",
    "a_b__c___d",
    "http://example.com/a?b=c&d=e#f",
    "C:\\dir\\file.txt",
    "$x^{2}+\\frac{1}{2}$",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ababababababababababab",
    "the" * 50,
    "=" * 100,
    "\u0301" * 20,
    " " * 100,
    " " * 99 + "x",
    "\t" * 7 + "x",
    "日" * 100,
    "😀" * 30,
    "ﷺ ﬁ ǅ ß ẞ İ ı ſ K Å",
]


def added_tokens():
    """Tokens with every flag."""
    return [
        AddedToken("[[word]]", special=False, normalized=True),
        AddedToken("[[wordier]]", special=False, normalized=False),
        AddedToken("[[lone]]", single_word=True, special=False, normalized=False),
        AddedToken("[[left]]", lstrip=True, special=False, normalized=False),
        AddedToken("[[right]]", rstrip=True, special=True, normalized=False),
        AddedToken("[[both]]", lstrip=True, rstrip=True, special=False, normalized=True),
        AddedToken("[[norm]]", special=False, normalized=True),
        AddedToken("[[n\u00e9]]", special=False, normalized=True),
    ]


def split(*patterns):
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(
        steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def behaviour(name, invert=False):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[aeiou ]"), name, invert),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def kinds():
    """Name -> (normalizer, pre-tokenizer)."""
    byte_level = pre_tokenizers.ByteLevel
    result = {
        "gpt2": (None, byte_level(add_prefix_space=False, use_regex=True)),
        "gpt2-prefix": (None, byte_level(add_prefix_space=True, use_regex=True)),
        "no-regex": (normalizers.NFD(), byte_level(add_prefix_space=True, use_regex=False)),
        "qwen2": (normalizers.NFC(), split(QWEN2)),
        "llama3": (None, split(LLAMA3)),
        "deepseek": (normalizers.Sequence([]), split(*DEEPSEEK)),
        "digits": (
            normalizers.NFKC(),
            pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(individual_digits=True), byte_level(add_prefix_space=False)]
            ),
        ),
        "digit-runs": (
            normalizers.NFKD(),
            pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(individual_digits=False), byte_level(add_prefix_space=True)]
            ),
        ),
        "text-pattern": (
            normalizers.Sequence([normalizers.NFD(), normalizers.NFC()]),
            pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split("'", "removed"),
                    pre_tokenizers.Split(".?", "isolated"),
                    byte_level(),
                ]
            ),
        ),
    }
    names = ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]
    for name, invert in itertools.product(names, [False, True]):
        result[f"{name}-{invert}"] = (None, behaviour(name, invert))
    return result


def train(normalizer, pre_tokenizer):
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        CORPUS * 3,
        trainers.BpeTrainer(
            vocab_size=700,
            special_tokens=SPECIAL,
            show_progress=False,
            min_frequency=2,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    tokenizer.add_tokens(added_tokens())
    return tokenizer


def random_texts(count, seed):
    """Texts that mix what is hard at the boundaries of words."""
    rng = random.Random(seed)
    alphabet = [
        "a",
        "B",
        "é",
        "e\u0301",
        "\u0327",
        "1",
        "٣",
        "²",
        " ",
        "  ",
        "\t",
        "\r",
        "\u00a0",
        "\u3000",
        "'",
        "'s",
        "'LL",
        "!",
        "日",
        "ひ",
        "😀",
        "\u200d",
        "ſ",
        "the",
        " the",
        "<|im_end|>",
        "<img>",
        "[[lone]]",
        "[[left]]",
        "[[right]]",
        "[[both]]",
        "_",
        "\u180e",
        "\u0e01",
        "\u0e31",
        "\U0001f1e9",
    ]
    return ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 30))) for _ in range(count)]


def ours(program, path, texts):
    text = "".join(line + "\n" for line in texts).encode()
    run = subprocess.run([program, path], input=text, capture_output=True, timeout=600)
    if run.returncode:
        raise RuntimeError(run.stderr.decode())
    return [json.loads(line) for line in run.stdout.decode().splitlines()]


class Report:
    def __init__(self):
        self.passed = self.failed = 0

    def compare(self, name, texts, got, expected):
        wrong = [(t, g, e) for t, g, e in zip(texts, got, expected) if g != e]
        if len(got) != len(expected) or wrong:
            self.failed += 1
            print(f"FAILED: {name}: {len(wrong)} of {len(expected)} texts differ, {len(got)} lines")
            for text, ids, right in wrong[:3]:
                print(f"  {text!r}\n    ours {ids}\n    HF   {right}")
        else:
            self.passed += 1


def encode(tokenizer, texts):
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def check_trained(program, folder, report):
    texts = HARD + CORPUS + random_texts(400, seed=1)
    texts = [text for text in texts if "\n" not in text]
    for name, (normalizer, pre_tokenizer) in kinds().items():
        tokenizer = train(normalizer, pre_tokenizer)
        path = os.path.join(folder, name + ".json")
        tokenizer.save(path)
        expected = encode(tokenizer, texts)
        report.compare(name, texts, ours(program, path, texts), expected)
        if name == "qwen2":
            check_variants(program, folder, path, texts, report)


def check_variants(program, folder, path, texts, report):
    """The same vocabulary written in other ways."""
    with open(path, encoding="utf8") as file:
        base = json.load(file)
    merges = base["model"]["merges"]
    ignoring = json.loads(json.dumps(base))
    # Longer words are in the vocabulary, but no merge yields them.
    ignoring["model"].update(ignore_merges=True, merges=[m for m in merges if len("".join(m)) < 5])
    other_form = json.loads(json.dumps(base))
    other_form["model"]["merges"] = [
        m.split(" ") if isinstance(m, str) else " ".join(m) for m in merges
    ]
    lacking = json.loads(json.dumps(base))
    lacking["model"]["vocab"]["<unk>"] = lacking["model"]["vocab"].pop("Q")
    fused = json.loads(json.dumps(lacking))
    fused["model"].update(unk_token="<unk>", fuse_unk=True)
    unfused = json.loads(json.dumps(lacking))
    unfused["model"].update(unk_token="<unk>", fuse_unk=False)
    texts = texts + ["QQQ", "aQQbQ", "Q"]
    for name, value in {
        "ignore-merges": ignoring,
        "merges-in-the-other-form": other_form,
        "dropped": lacking,
        "fused-unknown": fused,
        "unknown": unfused,
    }.items():
        file = os.path.join(folder, name + ".json")
        with open(file, "w", encoding="utf8") as out:
            json.dump(value, out, ensure_ascii=False)
        report.compare(
            name, texts, ours(program, file, texts), encode(Tokenizer.from_file(file), texts)
        )


def check_all_code_points(program, folder, report):
    """What a letter, a digit or a mark is, and in which order marks stand."""
    lines = [POINTS[at : at + 64] for at in range(0, len(POINTS), 64)]
    texts = ["".join("a{0} {0}1\u0323{0}".format(c) for c in line) for line in lines]
    for name in ["gpt2", "qwen2", "llama3", "deepseek", "digits", "no-regex"]:
        path = os.path.join(folder, name + ".json")
        hf = Tokenizer.from_file(path)
        report.compare("all/" + name, texts, ours(program, path, texts), encode(hf, texts))
    # Assigned ones: `single_word` is slow in the other library.
    words = [c for c in POINTS if unicodedata.category(c) not in ("Cn", "Co")][::3]
    lone = ["".join("[[lone]]" + c for c in words[at : at + 64]) for at in range(0, len(words), 64)]
    path = os.path.join(folder, "gpt2.json")
    expected = encode(Tokenizer.from_file(path), lone)
    report.compare("all/single-word", lone, ours(program, path, lone), expected)


def check_fixtures(program, root, report):
    for name in ["gpt2", "qwen2", "llama3", "deepseek", "llama2", "mistral-v3"]:
        folder = os.path.join(root, "tokenizers", name)
        with open(os.path.join(folder, "cases.json"), encoding="utf8") as file:
            cases = [case for case in json.load(file)["cases"] if "\n" not in case["text"]]
        texts = [case["text"] for case in cases]
        report.compare(
            "fixtures/" + name,
            texts,
            ours(program, folder, texts),
            [case.get("ids_hf", case["ids"]) for case in cases],
        )


def main():
    program = sys.argv[1]
    report = Report()
    fixtures = os.environ.get("EQUIPOISE_FIXTURES")
    with tempfile.TemporaryDirectory() as folder:
        check_trained(program, folder, report)
        check_all_code_points(program, folder, report)
    if fixtures:
        check_fixtures(program, fixtures, report)
    else:
        print("skipped: tokenizer fixtures: no fixtures")
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
