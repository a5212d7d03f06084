"""`equipoise data` on a folder of its own: usage command_data_test.py PROGRAM.

Ids come from Hugging Face's `tokenizers` on the same tokenizer.json.
"""

import json
import os
import pty
import re
import subprocess
import sys
import tempfile

import torch
from PIL import Image
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torchvision import transforms

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>"]
TOKENS_PER_TILE = 4


def byte_alphabet():
    """GPT-2's printable stand-ins for the 256 bytes."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in kept else next(others)) for b in range(256)]


def write_model(folder):
    os.makedirs(folder)
    letters = byte_alphabet()
    vocab = {letter: i for i, letter in enumerate(letters)}
    merges = []
    for pair in (("h", "e"), ("l", "l"), ("he", "ll"), ("\u0120", "a")):
        merges.append(" ".join(pair))
        vocab["".join(pair)] = len(vocab)
    added = [
        dict(
            id=len(vocab) + i,
            content=token,
            single_word=False,
            lstrip=False,
            rstrip=False,
            normalized=False,
            special=True,
        )
        for i, token in enumerate(SPECIAL)
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocab,
            "merges": merges,
        },
    }
    with open(f"{folder}/tokenizer.json", "w") as file:
        json.dump(tokenizer, file)
    text = dict(
        model_type="qwen2",
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=280,
        max_position_embeddings=512,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        hidden_act="silu",
        initializer_range=0.02,
    )
    vision = dict(
        model_type="internvl_vision",
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=[56, 56],
        patch_size=[14, 14],
        num_channels=3,
        norm_type="layer_norm",
        hidden_act="gelu",
        layer_norm_eps=1e-6,
        layer_scale_init_value=0.1,
        attention_bias=True,
        use_qk_norm=False,
        initializer_range=0.02,
    )
    config = dict(
        architectures=["InternVLForConditionalGeneration"],
        model_type="internvl",
        downsample_ratio=0.5,
        image_token_id=len(vocab) + SPECIAL.index("<IMG_CONTEXT>"),
        text_config=text,
        vision_config=vision,
        projector_hidden_act="gelu",
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )
    with open(f"{folder}/config.json", "w") as file:
        json.dump(config, file)


def record(name, question, answer, image=None):
    turns = [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
    return json.dumps({"id": name, **({"image": image} if image else {}), "conversations": turns})


class Folder:
    """Five good records and their configuration."""

    def __init__(self, program, folder):
        self.program, self.path = program, folder
        os.makedirs(f"{folder}/images")
        Image.new("RGB", (56, 56), (200, 10, 10)).save(f"{folder}/images/one.png")
        Image.effect_noise((112, 56), 50).convert("RGB").save(f"{folder}/images/two.jpg")
        write_model(f"{folder}/model")
        self.write([
            record("a", "hello a", "hell"),
            record("b", "<image>\nWhat?", "Red.", "one.png"),
            record("c", "<image> <image>", "Both", ["one.png", "two.jpg"]),
            record("d", "Look", "Noise", "two.jpg"),
            record("e", "x" * 50, "y" * 500),
        ])
        with open(f"{folder}/c.yaml", "w") as file:
            file.write(f"""run: {{dir: {folder}/run}}
model: {{hf: {folder}/model, init: random}}
data:
  train: [{{annotations: {folder}/train.jsonl, images: {folder}/images}}]
  max_tokens: 128
  tiles: {{min: 1, max: 4, thumbnail: true}}
  threads: 2
train: {{global_batch: 1}}
""")

    def write(self, lines):
        with open(f"{self.path}/train.jsonl", "w") as file:
            file.write("\n".join(lines) + "\n")

    def run(self, *arguments, code=0, text=None, config=None):
        done = subprocess.run(
            [self.program, "data", config or f"{self.path}/c.yaml", *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}: {done.stderr}"
        return done


def test_tokenize_equals_hugging_face(folder):
    oracle = Tokenizer.from_file(f"{folder.path}/model/tokenizer.json")
    lines = [
        "hello a hell",
        "",
        " a  b",
        "<|im_start|>user",
        "na\u00efve \u4f60\u597d \U0001f600",
        "tab\tand\rreturn",
    ]
    expected = [oracle.encode(line, add_special_tokens=False).ids for line in lines]
    for config in (f"{folder.path}/model", f"{folder.path}/model/tokenizer.json", None):
        done = subprocess.run(
            [folder.program, "data", config or f"{folder.path}/c.yaml", "tokenize"],
            input="\n".join(lines).encode() + b"\n",
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        got = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
        assert got == expected, (config, got)


def test_show_gives_what_the_model_sees(folder):
    oracle = Tokenizer.from_file(f"{folder.path}/model/tokenizer.json")
    shown = json.loads(folder.run("show", "2", "--json").stdout)
    picture = lambda tiles: "<img>" + "<IMG_CONTEXT>" * (TOKENS_PER_TILE * tiles) + "</img>"
    before = f"<|im_start|>user\n{picture(1)} {picture(3)}<|im_end|>\n<|im_start|>assistant\n"
    pieces = [(before, 0), ("Both<|im_end|>", 1), ("\n", 0)]
    ids, mask = [], []
    for text, learnt in pieces:
        part = oracle.encode(text, add_special_tokens=False).ids
        ids += part
        mask += [learnt] * len(part)
    assert shown["ids"] == ids, shown["ids"]
    assert shown["mask"] == mask, shown["mask"]
    assert [image["tiles"] for image in shown["images"]] == [1, 3], shown["images"]
    assert (shown["tokens"], shown["trained"], shown["truncated"]) == (
        len(ids),
        sum(mask),
        False,
    ), shown
    cut = json.loads(folder.run("--json", "show", "4").stdout)
    assert (cut["tokens"], cut["truncated"]) == (128, True) and cut["full_tokens"] > 500, cut
    text = folder.run("show", "2").stdout
    assert "two.jpg: 3 tiles, 12 tokens" in text and '[trained 5] "Both<|im_end|>"' in text, text
    assert "numbered 0 to 4" in folder.run("show", "5", code=2).stderr
    assert json.loads(folder.run("show", "c", "--json").stdout) == shown
    assert text.startswith(f'sample 2, {folder.path}/train.jsonl:3, id "c"\n'), text
    assert "no record has the id 'zz'" in folder.run("show", "zz", code=2).stderr
    folder.write([record("", "hello a", "hell")])
    text = folder.run("show", "0").stdout
    assert text.startswith(f"sample 0, {folder.path}/train.jsonl:1\n"), text


def in_terminal(command, **variables):
    """What the command writes to a terminal."""
    parent, child = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    with subprocess.Popen(command, stdout=child, stderr=subprocess.PIPE,
                          env=environment | variables) as process:
        os.close(child)
        written = b""
        while True:
            try:
                block = os.read(parent, 65536)
            except OSError:  # the other end is closed
                break
            if not block:
                break
            written += block
    os.close(parent)
    assert process.returncode == 0, written
    return written.decode().replace("\r\n", "\n")


def test_show_colours_and_draws_on_a_terminal(folder):
    command = [folder.program, "data", f"{folder.path}/c.yaml", "show", "2"]
    plain = folder.run("show", "2").stdout
    assert "\x1b" not in plain and "\u2580" not in plain, plain
    assert in_terminal(command, NO_COLOR="1") == plain
    shown = in_terminal(command)
    assert '\x1b[1;32m[trained 5] "Both<|im_end|>"' in shown, shown
    # Two pictures, of one tile and of two with a thumbnail: three rows of 8 lines.
    drawn = [line for line in shown.split("\n") if "\u2580" in line]
    assert len(drawn) == 24, len(drawn)
    assert sorted({line.count("\u2580") for line in drawn}) == [16, 32], drawn[0]


def test_show_writes_a_page(folder):
    path = f"{folder.path}/sample.html"
    folder.run("show", "2", "--html", path)
    with open(path) as file:
        page = file.read()
    assert page.count("<img alt=") == 4 and page.count("data:image/png;base64,") == 4, page[:500]
    trained = re.findall('<span class="trained" title="token [0-9]+, id [0-9]+, trained">(.*?)'
                         '</span>', page)
    assert "".join(trained) == "Both&lt;|im_end|&gt;", trained
    assert "&lt;IMG_CONTEXT&gt; &times; 12" in page, page[-2000:]
    assert "http" not in page  # nothing is fetched
    line = folder.run("show", "2", "--html", f"{folder.path}/none/x", code=5).stderr
    assert "cannot be written" in line, line


def test_show_draws_a_frame_as_one_tile(folder):
    clip = {"id": "v", "video": {"frames": ["two.jpg", "two.jpg"], "fps": 2}, "query": "What?",
            "response": "Noise"}
    with open(f"{folder.path}/clips.jsonl", "w") as file:
        file.write(json.dumps(clip) + "\n")
    path = f"{folder.path}/clip.html"
    folder.run("show", "v", "--html", path, "--set",
               f"data.train=[{{annotations: {folder.path}/clips.jsonl, "
               f"images: {folder.path}/images}}]")
    with open(path) as file:
        assert file.read().count("<img alt=") == 2  # no thumbnails of two tiles


def test_show_writes_what_the_model_sees(folder):
    path = f"{folder.path}/sample.safetensors"
    shown = json.loads(folder.run("show", "2", "--json", "--pixels", path).stdout)
    written = load_file(path)
    assert set(written) == {"pixel_values", "input_ids", "labels"}, set(written)
    assert written["input_ids"].tolist() == [shown["ids"]]
    labels = [i if learnt else -100 for i, learnt in zip(shown["ids"], shown["mask"])]
    assert written["labels"].tolist() == [labels], written["labels"]
    one, two = (Image.open(f"{folder.path}/images/{name}") for name in ("one.png", "two.jpg"))
    # Two tiles beside each other, and the whole.
    crops = [one, two.crop((0, 0, 56, 56)), two.crop((56, 0, 112, 56)), two.resize((56, 56))]
    transform = transforms.Compose([
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])
    expected = torch.stack([transform(crop) for crop in crops])
    assert written["pixel_values"].dtype == torch.float32
    assert written["pixel_values"].equal(expected), (written["pixel_values"] - expected).abs().max()
    folder.run("show", "0", "--pixels", path)
    assert set(load_file(path)) == {"input_ids", "labels"}
    line = folder.run("show", "0", "--pixels", f"{folder.path}/none/x", code=5).stderr
    assert line.count("\n") == 1 and "none/x: cannot write" in line, line
    with open(f"{folder.path}/images/one.png", "r+b") as file:
        file.seek(60)
        file.write(b"damage")
    line = folder.run("show", "1", "--pixels", path, code=4).stderr
    assert line.count("\n") == 1 and "train.jsonl:2: one.png: " in line, line


def test_index_is_built_once(folder):
    built = json.loads(folder.run("index", "--json").stdout)
    assert built["path"].startswith(f"{folder.path}/.equipoise/"), built
    assert (built["records"], built["usable"]) == (5, 5), built
    assert built["bytes"] == os.path.getsize(built["path"]) == 56 + 5 * 56, built
    before = os.stat(built["path"])
    statistics = json.loads(folder.run("stats", "--json").stdout)
    after = os.stat(built["path"])
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)
    assert statistics["index"] == built["path"], statistics
    assert statistics["tiles"]["sum"] == 0 + 1 + 4 + 3 + 0, statistics["tiles"]
    assert statistics["tokens"]["max"] == 128, statistics["tokens"]
    packing = statistics["packing"]
    expected = statistics["tokens"]["sum"] / 128 / packing["packs"]
    assert abs(packing["fill_share"] - expected) < 1e-9 and packing["fill_share"] <= 1, packing
    assert packing["pad_ratio"] == 0, packing
    text = folder.run("stats").stdout
    assert "usable 5" in text and ", 0.00 % of the computed tokens are padding" in text, text
    shares = []
    for pad in ("false", "true"):
        done = folder.run("stats", "--json", "--set", "balance.group=random", "--set",
                          f"balance.pad={pad}")
        shares.append(json.loads(done.stdout)["packing"]["pad_ratio"])
    assert shares[0] == 0 < shares[1] < 1, shares


def test_groups_are_written_and_measured(folder):
    costs, out = f"{folder.path}/costs.jsonl", f"{folder.path}/groups.jsonl"
    sizes = [(1 + i % 3, 300 + 7 * (i % 41)) for i in range(2000)] + [(10, 50), (1, 5000)]
    with open(costs, "w") as file:
        for tiles, tokens in sizes:
            file.write(f'{{"vit_num":{tiles},"token_num":{tokens}}}\n')
    settings = ["--set", "balance.tiles=9", "--set", "balance.tokens=4096", "--set",
                "parallel.data=4", "--set", "train.global_batch=8"]
    methods = ("random", "length_grouped", "packed", "knapsack", "isf", "isf+")
    for method, window in [*((method, 0) for method in methods), ("isf", 300), ("isf+", 300)]:
        done = folder.run("groups", "--costs", costs, "--out", out, *settings, "--set",
                          f"balance.group={method}", "--set", f"balance.window={window}")
        assert "2 of 2002 samples are beyond" in done.stderr, done.stderr
        before, after = done.stdout.splitlines()[-2:]
        assert before.startswith("before (random)") and after.startswith(f"after ({method})")
        with open(out) as file:
            groups = [json.loads(line) for line in file]
        assert sorted(s for g in groups for s in g["samples"]) == list(range(2000))
        assert (", packs " in done.stdout) == (method not in ("random", "length_grouped"))
        assert float(before.split()[3]) > 0.1 and float(after.split()[3]) == 0, done.stdout
        each = int(2000 / len(groups) + 0.5)  # random micro-batches of as many samples
        assert int(before.split()[2]) == -(-2000 // each), (before, len(groups))
        for i, group in enumerate(groups):
            assert list(group) == ["step", "data_rank", "micro_batch", "samples", "tiles", "tokens"]
            place = (group["step"], group["micro_batch"], group["data_rank"])
            assert place == (i // 8, i % 8 // 4, i % 4), (i, group)
            assert group["tiles"] == sum(sizes[s][0] for s in group["samples"])
            assert group["tokens"] == sum(sizes[s][1] for s in group["samples"])
            assert method in ("random", "length_grouped") or group["tokens"] <= 4096
    assert all(float(ratio) <= 0.02 for ratio in after.split()[3:7]), after
    files = sorted(os.listdir(folder.path))
    table = folder.run("groups", "--costs", costs, *settings, "--set", "balance.window=300").stdout
    assert table == done.stdout and sorted(os.listdir(folder.path)) == files, table
    folder.run("groups", "--out", out, "--set", "data.max_bad_share=1")  # of the records
    with open(out) as file:
        assert sorted(s for line in file for s in json.loads(line)["samples"]) == [0, 1, 2, 3, 4]
    for change, code, words in (
            (["balance.window=-1"], 2, "balance.window"),
            (["train.global_batch=9"], 2, "multiple"),
            (["train.global_batch=100000"], 4, "a step needs train.global_batch"),
            (["balance.tiles=1", "balance.tokens=10"], 4, "is beyond balance.tiles 1")):
        extra = [part for setting in change for part in ("--set", setting)]
        done = folder.run("groups", "--costs", costs, "--out", out, *settings, *extra, code=code)
        assert words in done.stderr.splitlines()[-1], done.stderr
        alone = folder.run("groups", "--costs", costs, *settings, *extra, code=code)
        assert words in alone.stderr.splitlines()[-1], alone.stderr


def test_check_finds_every_defect(folder):
    with open(f"{folder.path}/images/two.jpg", "rb") as file:
        picture = file.read()
    with open(f"{folder.path}/images/cut.jpg", "wb") as file:
        file.write(picture[: len(picture) // 2])
    with open(f"{folder.path}/secret.jpg", "wb") as file:
        file.write(picture)
    good = [record(f"g{i}", "<image>", "A", "one.png") for i in range(300)]
    bad = {
        3: (record("cut", "Q", "A", "cut.jpg"), "image_damaged"),
        4: (record("gone", "Q", "A", "gone.jpg"), "image_missing"),
        5: (record("out", "Q", "A", "../secret.jpg"), "image_outside"),
        6: ("{", "bad_json"),
        280: (record("type", "Q", "A", 5), "bad_field"),
        299: (record("more", "<image><image>", "A", "one.png"), "placeholders"),
    }
    for line, (text, _) in bad.items():
        good[line - 1] = text
    good[9] = record("long", "Q", "y" * 500)
    folder.write(good)
    done = folder.run("check", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(f["line"], f["defect"]) for f in found] == [
        (line, defect) for line, (_, defect) in bad.items()
    ], found
    assert [f["id"] for f in found][:3] == ["cut", "gone", "out"] and all(
        f["reason"] for f in found
    ), found
    assert "6 of 300 records cannot be used" in done.stderr, done.stderr
    full = json.loads(folder.run("show", "9", "--json").stdout)["full_tokens"]
    assert f"1 of 300 records are cut at data.max_tokens 128, the longest from {full}" in (
        done.stderr
    ), done.stderr
    text = folder.run("check", "--set", "data.max_bad_share=0.01", code=4).stdout
    assert "train.jsonl:4: image_missing: gone.jpg: " in text and "6 of 300 records" in text, text


def test_mistakes_are_one_line_and_exit_2_or_4(folder):
    for arguments, code, words in [
        (("bogus",), 2, ""),
        (("show",), 2, "N"),
        (("stats", "--wrong"), 2, "--wrong"),
        (("stats", "--set", "data.max_token=5"), 2, "max_tokens"),
        (("stats", "--set", "model.hf="), 2, "model.hf"),
        (
            ("stats", "--set", "data.train.0.annotations=/none.jsonl"),
            4,
            "/none.jsonl: cannot be opened",
        ),
        (("stats", "--eval"), 2, "data.eval"),
        (("stats", "--answers"), 2, "eval.answers"),
        (("stats", "--answers", "--eval"), 2, "--eval"),
    ]:
        done = folder.run(*arguments, code=code)
        assert done.stdout == "", (arguments, done.stdout)
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1 and words in lines[0], (arguments, done.stderr)
    folder.run("stats", code=2, config=f"{folder.path}/none.yaml")


def main():
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    failed = 0
    for name, test in tests.items():
        with tempfile.TemporaryDirectory() as path:
            try:
                test(Folder(os.path.abspath(sys.argv[1]), path))
            except AssertionError as error:
                failed += 1
                print(f"FAILED {name}: {error}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
