"""A tiny multimodal case made on the spot: pictures, records, tokenizer, model, configuration.

Every end-to-end test trains on it. Pictures are real files in JPEG and PNG; the words of the
answers name their colour and shape, so a model can learn them.
"""

import json
import os
import random
import subprocess
import threading
from concurrent import futures

from PIL import Image, ImageDraw
from safetensors import safe_open
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

EQUIPOISE = os.path.abspath(os.environ.get("EQUIPOISE_BINARY", "trainer/equipoise"))
MPIRUN = os.environ.get("EQUIPOISE_MPIRUN", "mpirun")
COLOURS = {
    "red": (220, 30, 30),
    "green": (30, 180, 60),
    "blue": (40, 60, 220),
    "yellow": (230, 220, 40),
}
SHAPES = ("disc", "square", "bar", "frame")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>"]


def draw(path, colour, shape, size, seed):
    picture = Image.new("RGB", size, (seed * 7 % 60, seed * 13 % 60, seed * 29 % 60))
    pen = ImageDraw.Draw(picture)
    w, h = size
    box = (w // 5, h // 5, w * 4 // 5, h * 4 // 5)
    if shape == "disc":
        pen.ellipse(box, fill=COLOURS[colour])
    elif shape == "square":
        pen.rectangle(box, fill=COLOURS[colour])
    elif shape == "bar":
        pen.rectangle((w // 8, h * 2 // 5, w * 7 // 8, h * 3 // 5), fill=COLOURS[colour])
    else:
        pen.rectangle(box, outline=COLOURS[colour], width=max(2, w // 12))
    picture.save(path, **({"quality": 92} if path.endswith(".jpg") else {}))


def write_records(folder, count, seed):
    """Mixed records: one picture, two pictures, text only."""
    random_ = random.Random(seed)
    os.makedirs(f"{folder}/images", exist_ok=True)
    records = []
    for i in range(count):
        names, sizes, answers = [], [], []
        for k in range((1, 1, 1, 2, 0)[i % 5]):
            colour, shape = random_.choice(list(COLOURS)), random_.choice(SHAPES)
            size = random_.choice([(56, 56), (64, 48), (100, 40), (30, 90)])
            names.append(f"{i:04d}_{k}.{'jpg' if i % 2 else 'png'}")
            sizes.append(size)
            answers.append(f"a {colour} {shape}")
            draw(f"{folder}/images/{names[-1]}", colour, shape, size, i)
        if names:
            question = "<image>\n" * len(names) + "What is it?"
        else:
            answers = [str(i % 7 + 2)]
            question = f"What is {i % 7} plus 2?"
        record = {"id": f"r{i}", "conversations": [{"from": "human", "value": question},
                                                   {"from": "gpt", "value": " and ".join(answers)}]}
        if names:
            record["image"] = names[0] if len(names) == 1 else names
            record["width"] = sizes[0][0] if len(names) == 1 else [s[0] for s in sizes]
            record["height"] = sizes[0][1] if len(names) == 1 else [s[1] for s in sizes]
        records.append(record)
    with open(f"{folder}/train.jsonl", "w") as out:
        out.writelines(json.dumps(r) + "\n" for r in records)
    return records


def write_tokenizer(folder, records):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [t["value"] for r in records for t in r["conversations"]] + ["system user assistant\n"]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=360, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(f"{folder}/tokenizer.json")
    return tokenizer


def write_model(folder, records, layers=2, tied=False):
    """config.json of a tiny InternVL + Qwen2, and its tokenizer; no weights."""
    os.makedirs(folder, exist_ok=True)
    tokenizer = write_tokenizer(folder, records)
    config = {
        "architectures": ["InternVLForConditionalGeneration"],
        "model_type": "internvl",
        "downsample_ratio": 0.5,
        "image_seq_length": 4,
        "dtype": "float32",
        "image_token_id": tokenizer.token_to_id("<IMG_CONTEXT>"),
        "projector_hidden_act": "gelu",
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
        "tie_word_embeddings": tied,
        "text_config": {
            "model_type": "qwen2",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 384,
            "rms_norm_eps": 1e-6,
            "max_position_embeddings": 512,
            "hidden_act": "silu",
            "initializer_range": 0.05,
            "rope_theta": 10000.0,
            "tie_word_embeddings": tied,
            "use_sliding_window": False,
            "bos_token_id": None,
            "eos_token_id": tokenizer.token_to_id("<|im_end|>"),
            "pad_token_id": tokenizer.token_to_id("<|endoftext|>"),
        },
        "vision_config": {
            "model_type": "internvl_vision",
            "hidden_size": 48,
            "intermediate_size": 96,
            "num_hidden_layers": layers,
            "num_attention_heads": 3,
            "image_size": [56, 56],
            "patch_size": [14, 14],
            "num_channels": 3,
            "norm_type": "layer_norm",
            "attention_bias": True,
            "use_qk_norm": False,
            "layer_norm_eps": 1e-6,
            "hidden_act": "gelu",
            "initializer_range": 0.05,
            "layer_scale_init_value": 0.1,
            "use_mask_token": False,
            "use_absolute_position_embeddings": True,
            "use_mean_pooling": True,
        },
    }
    with open(f"{folder}/config.json", "w") as out:
        json.dump(config, out, indent=1)


def write_case(folder, count=60, seed=0):
    """Writes everything under `folder`; returns the path of its configuration."""
    records = write_records(folder, count, seed)
    write_model(f"{folder}/model", records)
    with open(f"{folder}/config.yaml", "w") as out:
        out.write(f"""run: {{dir: {folder}/run}}
model: {{hf: {folder}/model, init: random}}
data:
  train: [{{annotations: {folder}/train.jsonl, images: {folder}/images}}]
  max_tokens: 128
  tiles: {{min: 1, max: 2, thumbnail: true}}
train: {{steps: 20, seed: 1, precision: fp32, global_batch: 8, lr: 2.0e-3,
  warmup: 2, clip: 1.0, threads: 1}}
checkpoint: {{every: 5, keep: 3}}
""")
    return f"{folder}/config.yaml"


def command(config, ranks=1, subcommand="train", *more, **settings):
    """The command line of a run; settings are given with __ for the dots."""
    line = [MPIRUN, "-n", str(ranks)] if ranks > 1 else []
    line += [EQUIPOISE, subcommand, config, *more]
    for key, value in settings.items():
        line += ["--set", f"{key.replace('__', '.')}={value}"]
    return line


def run(config, ranks=1, subcommand="train", *more, timeout=300, **settings):
    return execute(command(config, ranks, subcommand, *more, **settings), timeout)


def execute(line, timeout=300, **options):
    for _ in range(3):
        done = subprocess.run(line, capture_output=True, text=True, timeout=timeout,
                              env=environment(), **options)
        # mpirun itself, before it has started any rank: seen where several start at once.
        if "listener thread failed to start" not in done.stderr:
            break
    return done


def program(*arguments):
    """A subcommand of the program, without mpirun."""
    return execute([EQUIPOISE, *arguments])


def side_by_side(*calls):
    """Runs functions, two at a time in this order; raises what the first of them raises."""
    with futures.ThreadPoolExecutor(max_workers=2) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result()


def environment():
    env = dict(os.environ)
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1",
               EQUIPOISE_PROGRAM=EQUIPOISE)
    env.setdefault("HOME", "/tmp")
    return env


def metrics(run_dir):
    with open(f"{run_dir}/metrics.jsonl") as lines:
        return [json.loads(line) for line in lines]


def losses(run_dir):
    return [row["loss"] for row in metrics(run_dir)]


def weight_names(folder):
    with safe_open(f"{folder}/model.safetensors", "pt") as file:
        return set(file.keys())


def check_names(results, folder, model, tower):
    """An export has the names with which Transformers saves the model that it has read from there;
    those of the encoder begin with `tower`, as in published folders: what Transformers saves of a
    model that it has made itself has none of version 4's modules."""
    model.save_pretrained(f"{folder}_saved")
    ours, theirs = weight_names(folder), weight_names(f"{folder}_saved")
    results.check("the names with which Transformers saves it", ours == theirs, str(ours ^ theirs))
    other = [name for name in ours if "vision" in name and not name.startswith(tower)]
    results.check("the encoder's names of published folders", not other, str(other[:3]))


class Results:
    """Counts cases; ends the program with the project's last line."""

    def __init__(self):
        self.passed, self.failed = 0, 0
        self.lock = threading.Lock()

    def check(self, name, ok, detail=""):
        with self.lock:
            self.passed, self.failed = self.passed + bool(ok), self.failed + (not ok)
            print(f"{'ok  ' if ok else 'FAIL'} {name} {detail}", flush=True)

    def finish(self):
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        raise SystemExit(1 if self.failed or not self.passed else 0)
