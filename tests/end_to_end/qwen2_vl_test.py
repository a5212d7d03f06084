"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL from folders in Hugging Face's form: pictures at their own
size and videos, positions of their times, rows and columns. Samples are those of Transformers; a
folder is trained, planned, checked, exported in the names that it came with, and answers as
Transformers does."""
import json
import os
import shutil
import sys
import tempfile

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

import qwen_videos
import tiny_case

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
           "<|image_pad|>", "<|video_pad|>", "<|object_ref_start|>", "<|object_ref_end|>",
           "<|box_start|>", "<|box_end|>"]
SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
# With the texts that tell the template; Qwen3-VL's has no system text.
TURNS = "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
JINJA = ("{% for m in messages %}{% if loop.first and m['role'] != 'system' %}<|im_start|>system\n"
         "You are a helpful assistant.<|im_end|>\n{% endif %}" + TURNS)
JINJA_3 = "{% for m in messages %}" + TURNS
KINDS = {"qwen2_vl": (Qwen2VLForConditionalGeneration, Qwen2VLConfig,
                      {"depth": 2, "embed_dim": 32, "mlp_ratio": 2, "hidden_size": 48}),
         "qwen2_5_vl": (Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLConfig,
                        {"depth": 3, "hidden_size": 32, "intermediate_size": 48,
                         "out_hidden_size": 48, "window_size": 56, "fullatt_block_indexes": [1]}),
         "qwen3_vl": (Qwen3VLForConditionalGeneration, Qwen3VLConfig,
                      {"depth": 3, "hidden_size": 32, "intermediate_size": 48,
                       "out_hidden_size": 48, "num_position_embeddings": 16,
                       "deepstack_visual_indexes": [0, 1]})}
PATCH = {"qwen2_vl": 14, "qwen2_5_vl": 14, "qwen3_vl": 16}


def system_of(kind):
    return "" if kind == "qwen3_vl" else SYSTEM


def write_tokenizer(folder, kind, texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=360, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIAL])
    tokenizer.save(f"{folder}/tokenizer.json")
    with open(f"{folder}/tokenizer_config.json", "w", encoding="utf8") as file:
        json.dump({"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>",
                   "chat_template": JINJA_3 if kind == "qwen3_vl" else JINJA}, file)
    return tokenizer


def write_folder(folder, kind, texts):
    os.makedirs(folder)
    tokenizer = write_tokenizer(folder, kind, texts)
    model, config, vision = KINDS[kind]
    tied = kind == "qwen2_vl"
    text = {"vocab_size": 384, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 512,
            "bos_token_id": None, "eos_token_id": tokenizer.token_to_id("<|im_end|>"),
            "pad_token_id": None, "initializer_range": 0.05, "rms_norm_eps": 1e-6,
            "tie_word_embeddings": tied,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6,
                                "mrope_section": [2, 3, 3]}}
    if kind == "qwen3_vl":
        text["head_dim"] = 16
        text["rope_parameters"] |= {"mrope_section": [4, 2, 2], "mrope_interleaved": True}
    ids = {f"{name}_token_id": tokenizer.token_to_id(f"<|{token}|>")
           for name, token in (("image", "image_pad"), ("video", "video_pad"),
                               ("vision_start", "vision_start"), ("vision_end", "vision_end"))}
    torch.manual_seed(11)
    made = model(config(text_config=text, tie_word_embeddings=tied, **ids, vision_config={
        "num_heads": 2, "patch_size": PATCH[kind], "initializer_range": 0.05, **vision}))
    made.save_pretrained(folder)
    token = (2 * PATCH[kind]) ** 2  # pixels
    Qwen2VLImageProcessorPil(size={"shortest_edge": token * 3, "longest_edge": token * 6},
                             patch_size=PATCH[kind],
                             image_mean=[0.4, 0.5, 0.6]).save_pretrained(folder)
    qwen_videos.write_settings(folder, kind, PATCH[kind], mean=[0.4, 0.5, 0.6])
    return tokenizer


def rendered(kind, conversations, tokens, prompt=False):
    """The template's text of a record whose pictures have so many tokens."""
    text, tokens = system_of(kind), list(tokens)
    for turn in conversations:
        said = turn["value"]
        while "<image>" in said and turn["from"] == "human":
            said = said.replace("<image>", "<|vision_start|>" + "<|image_pad|>" * tokens.pop(0) +
                                "<|vision_end|>", 1)
        role = "user" if turn["from"] == "human" else "assistant"
        text += f"<|im_start|>{role}\n{said}<|im_end|>\n"
    return text + ("<|im_start|>assistant\n" if prompt else "")


def processed(processor, paths):
    if not paths:
        return {}, []
    made = processor([Image.open(path).convert("RGB") for path in paths], return_tensors="pt")
    return dict(made), [int(grid.prod()) // 4 for grid in made["image_grid_thw"]]


def check_samples(results, folder, kind, config, records, tokenizer):
    """`data show --pixels` of records with one, two and no pictures."""
    processor = Qwen2VLImageProcessorPil.from_pretrained(f"{folder}/model")
    for index in (0, 1, 3, 4, 7):
        record, out = records[index], f"{folder}/sample{index}.safetensors"
        done = tiny_case.run(config, 1, "data", "show", str(index), "--pixels", out)
        results.check(f"record {index}: is shown", done.returncode == 0, done.stderr[-300:])
        ours = load_file(out)
        names = record.get("image", [])
        names = [names] if isinstance(names, str) else names
        made, tokens = processed(processor, [f"{folder}/images/{name}" for name in names])
        ids = tokenizer.encode(rendered(kind, record["conversations"], tokens)).ids
        results.check(f"record {index}: ids of Transformers' text",
                      ours["input_ids"].flatten().tolist() == ids)
        trained = ours["labels"].flatten()
        trained = trained[trained >= 0].tolist()
        results.check(f"record {index}: the answer and <|im_end|> are trained",
                      tokenizer.decode(trained, skip_special_tokens=False) ==
                      record["conversations"][-1]["value"] + "<|im_end|>", str(trained))
        if names:
            results.check(f"record {index}: grids of its image processor",
                          ours["image_grid_thw"].equal(made["image_grid_thw"]),
                          str(ours["image_grid_thw"]))
            error = (ours["pixel_values"] - made["pixel_values"]).abs().max().item()
            results.check(f"record {index}: pixels of its image processor", error <= 1e-6, error)
    larger = Qwen2VLImageProcessorPil(size={"shortest_edge": 8000, "longest_edge": 20000},
                                      patch_size=PATCH[kind])
    _, rows, columns = processed(larger, [f"{folder}/images/{records[0]['image']}"])[0][
        "image_grid_thw"][0].tolist()
    done = tiny_case.run(config, 1, "data", "show", "0", data__pixels__min=8000,
                         data__pixels__max=20000)
    results.check("data.pixels counts in place of the folder's",
                  done.returncode == 0 and f"{rows} x {columns} patches" in done.stdout
                  and rows * columns >= 8000 // PATCH[kind] ** 2, done.stdout)
    done = tiny_case.run(config, 1, "data", "show", "0", data__pixels__max=500)
    results.check("too few pixels are refused in one line",
                  done.returncode == 2 and "data.pixels: 0 to 500: " in done.stderr
                  and len(done.stderr.strip().splitlines()) == 1, done.stderr[-300:])


def check_objects(results, folder, kind, config, tokenizer):
    """ms-swift's grounding: `data show --pixels` has the ids of the text that its template of this
    model writes, with coordinates of the picture as it was resized, or in thousandths."""
    size, boxes = (90, 60), [[60.5, 45, 10, 3.25], [33, 44]]
    tiny_case.draw(f"{folder}/images/box.png", "red", "square", size, 5)
    record = {"messages": [
        {"role": "user", "content": "<image>Find <ref-object> and <bbox>"},
        {"role": "assistant", "content": "<ref-object> <bbox>"}],
        "images": ["box.png"], "objects": {"ref": ["a disc", "it"], "bbox": boxes}}
    with open(f"{folder}/objects.jsonl", "w", encoding="utf8") as file:
        file.write(json.dumps(record) + "\n")
    with open(config, encoding="utf8") as file:
        text = file.read().replace("train.jsonl", "objects.jsonl")
    with open(f"{folder}/objects.yaml", "w", encoding="utf8") as file:
        file.write(text)
    processor = Qwen2VLImageProcessorPil.from_pretrained(f"{folder}/model")
    made, tokens = processed(processor, [f"{folder}/images/box.png"])
    _, rows, columns = made["image_grid_thw"][0].tolist()
    sides = [1000, 1000]
    if kind == "qwen2_5_vl":
        sides = [columns * PATCH[kind], rows * PATCH[kind]]
    want = []
    for box in ([10, 3.25, 60.5, 45], boxes[1]):
        numbers = [round(x / size[i % 2] * sides[i % 2]) for i, x in enumerate(box)]
        points = ",".join(f"({x},{y})" for x, y in zip(numbers[::2], numbers[1::2]))
        want.append(f"<|box_start|>{points}<|box_end|>" if kind == "qwen2_vl" else str(numbers))
    names = record["objects"]["ref"]
    if kind == "qwen2_vl":
        names = [f"<|object_ref_start|>{name}<|object_ref_end|>" for name in names]
    turns = [{"from": "human", "value": f"<image>Find {names[0]} and {want[0]}"},
             {"from": "gpt", "value": f"{names[1]} {want[1]}"}]
    out = f"{folder}/objects.safetensors"
    done = tiny_case.run(f"{folder}/objects.yaml", 1, "data", "show", "0", "--pixels", out)
    results.check("objects: shown with their boxes", done.returncode == 0
                  and turns[1]["value"] in done.stdout, done.stdout[-500:] + done.stderr[-300:])
    results.check("objects: ids of the text with its boxes",
                  load_file(out)["input_ids"].flatten().tolist() ==
                  tokenizer.encode(rendered(kind, turns, tokens)).ids, str(turns))


def greedy(model, ids, made, stop):
    ids = torch.tensor([ids])
    kinds = (ids == model.config.image_token_id).int()
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids),
                         mm_token_type_ids=kinds, max_new_tokens=16, do_sample=False,
                         eos_token_id=stop, pad_token_id=0, **made)
    answer = out[0, ids.shape[1]:].tolist()
    return answer[:answer.index(stop)] if stop in answer else answer


def check_answers(results, folder, kind, where, model, tokenizer):
    """`generate` with a folder alone: its template, its pictures."""
    processor = Qwen2VLImageProcessorPil.from_pretrained(f"{folder}/exported")
    paths = [f"{folder}/a.png", f"{folder}/b.png"]
    tiny_case.draw(paths[0], "red", "disc", (90, 60), 3)
    tiny_case.draw(paths[1], "blue", "bar", (40, 110), 4)
    for question, count in (("<image>\nWhat is it?", 1), ("<image>\n<image>\nWhat is it?", 2),
                            ("What is 3 plus 2?", 0)):
        made, tokens = processed(processor, paths[:count])
        text = rendered(kind, [{"from": "human", "value": question}], tokens, prompt=True)
        stop = tokenizer.token_to_id("<|im_end|>")
        want = tokenizer.decode(greedy(model, tokenizer.encode(text).ids, made, stop))
        pictures = [word for path in paths[:count] for word in ("--image", path)]
        done = tiny_case.program("generate", where, "--prompt", question, "--max-new-tokens", "16",
                                 "--set", "train.precision=fp32", *pictures)
        results.check(f"{os.path.basename(where)}: {question!r} is answered as by Transformers",
                      done.returncode == 0 and done.stdout == want + "\n" != "\n",
                      f"ours {done.stdout!r} theirs {want!r} {done.stderr[-300:]}")


def check_export(results, folder, kind, tokenizer):
    done = tiny_case.program("export", f"{folder}/run", "--out", f"{folder}/exported")
    results.check("export", done.returncode == 0, done.stderr[-300:])
    names = set(load_file(f"{folder}/exported/model.safetensors"))
    results.check("the names that the folder came with",
                  names == set(load_file(f"{folder}/model/model.safetensors")), str(names)[:200])
    model, report = KINDS[kind][0].from_pretrained(f"{folder}/exported", output_loading_info=True)
    results.check("every weight is found and none is left over",
                  not report["missing_keys"] and not report["unexpected_keys"], str(report)[:300])
    processor = Qwen2VLImageProcessorPil.from_pretrained(f"{folder}/exported")
    made, tokens = processed(processor, [f"{folder}/images/0000_0.png"])
    text = rendered(kind, [{"from": "human", "value": "<image>\na"}], tokens)
    inputs = {"input_ids": torch.tensor([tokenizer.encode(text).ids]), **made}
    save_file(inputs, f"{folder}/inputs.safetensors")
    done = tiny_case.program("check", f"{folder}/exported", f"{folder}/inputs.safetensors", "--out",
                             f"{folder}/out.safetensors")
    results.check("check", done.returncode == 0, done.stderr[-300:])
    kinds = (inputs["input_ids"] == model.config.image_token_id).int()
    with torch.no_grad():
        want = model.eval()(**inputs, mm_token_type_ids=kinds).logits
    error = (load_file(f"{folder}/out.safetensors")["logits"] - want).abs().max() / want.abs().max()
    results.check("the logits of Transformers", error <= 1e-5, f"{error:.1e} of the largest")
    inputs["input_ids"][0, -3] = tokenizer.token_to_id("<|video_pad|>")
    save_file(inputs, f"{folder}/video.safetensors")
    done = tiny_case.program("check", f"{folder}/exported", f"{folder}/video.safetensors", "--out",
                             f"{folder}/no.safetensors")
    results.check("a video's token without a video is refused in one line",
                  done.returncode == 4 and "video_grid_thw: has 0 videos" in done.stderr
                  and done.stderr.count("equipoise: /") == 1, done.stderr[-300:])
    return model


def check_modules(results, folder, config):
    """A folder with the names of Transformers' modules: the same samples, the same first loss, and
    exported under its names."""
    shutil.copytree(f"{folder}/model", f"{folder}/modules")
    weights = load_file(f"{folder}/model/model.safetensors")

    def name(key):
        if key.startswith("visual."):
            return "model." + key
        return key.replace("model.", "model.language_model.", 1) if key != "lm_head.weight" else key
    renamed = {name(key): weight for key, weight in weights.items()}
    save_file(renamed, f"{folder}/modules/model.safetensors", {"format": "pt"})
    done = tiny_case.run(config, 1, model__hf=f"{folder}/modules", run__dir=f"{folder}/run2",
                         train__steps=1)
    results.check("names of modules: trains", done.returncode == 0, done.stderr[-300:])
    losses = tiny_case.losses(f"{folder}/run")[0], tiny_case.losses(f"{folder}/run2")[0]
    results.check("names of modules: the same loss", abs(losses[0] - losses[1]) <= 1e-5 * losses[0],
                  str(losses))
    done = tiny_case.program("export", f"{folder}/run2", "--out", f"{folder}/exported2")
    results.check("names of modules: exported in them", done.returncode == 0 and
                  set(load_file(f"{folder}/exported2/model.safetensors")) == set(renamed),
                  done.stderr[-300:])


def write_config(folder, kind):
    template = "chatml" if kind == "qwen3_vl" else "qwen2-vl"
    config = f"{folder}/config.yaml"
    with open(config, "w", encoding="utf8") as file:
        file.write(f"""run: {{dir: {folder}/run}}
model: {{hf: {folder}/model}}
data:
  train: [{{annotations: {folder}/train.jsonl, images: {folder}/images}}]
  template: {template}
  max_tokens: 160
train: {{steps: 12, precision: fp32, global_batch: 4, lr: 3.0e-3, warmup: 2, threads: 1}}
checkpoint: {{every: 12}}
""")
    return config


def run_kind(results, kind):
    folder = tempfile.mkdtemp(prefix=kind)
    records = tiny_case.write_records(folder, 24, seed=2)
    qwen_videos.add_records(folder, PATCH[kind])
    texts = [turn["value"] for record in records for turn in record["conversations"]]
    tokenizer = write_folder(f"{folder}/model", kind, texts + [SYSTEM, "user assistant\n"])
    config = write_config(folder, kind)
    check_samples(results, folder, kind, config, records, tokenizer)
    qwen_videos.check_samples(results, folder, kind, config)
    check_objects(results, folder, kind, config, tokenizer)
    done = tiny_case.run(config, 1, "plan", "--ranks", "4")
    results.check("plan", done.returncode == 0 and "projector" in done.stdout, done.stderr[-300:])
    mesh = {"pipeline": 1, "tensor": 2} if kind == "qwen2_5_vl" else {"pipeline": 2, "tensor": 1}
    done = tiny_case.run(config, 2, **{f"parallel__{axis}": n for axis, n in mesh.items()},
                         parallel__data=1)
    results.check(f"{kind} trains on two ranks", done.returncode == 0, done.stderr[-400:])
    losses = tiny_case.losses(f"{folder}/run")
    results.check("the loss falls", len(losses) == 12 and losses[-1] < 0.8 * losses[0], str(losses))
    model = qwen_videos.qwen_vl.with_published_positions(
        check_export(results, folder, kind, tokenizer).eval())
    for where in (f"{folder}/run", f"{folder}/exported"):
        check_answers(results, folder, kind, where, model, tokenizer)
        qwen_videos.check_answer(results, folder, kind, where, model)
    qwen_videos.check_logits(results, folder, kind, model)
    with open(f"{folder}/run/quarantine.jsonl", encoding="utf8") as file:
        results.check("a damaged frame is quarantined", "clips/cut/1.png: " in file.read())
    if kind == "qwen2_5_vl":
        check_modules(results, folder, config)
    shutil.rmtree(folder)


def main():
    results = tiny_case.Results()
    for kind in KINDS:
        run_kind(results, kind)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
