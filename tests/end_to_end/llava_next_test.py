"""LLaVA-NeXT from a folder in Hugging Face's form: pictures of any resolution as several tiles, a
trained vector behind each row of patches. Its samples are those of Transformers' processor; it is
trained, planned, profiled, checked, exported, and answers as Transformers does."""
import json
import os
import shutil
import sys
import tempfile

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import (CLIPVisionConfig, LlamaConfig, LlavaNextConfig,
                          LlavaNextForConditionalGeneration, LlavaNextProcessor,
                          PreTrainedTokenizerFast)
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil)

import llava_videos
import tiny_case
from llava_test import SYSTEM, write_tokenizer

SIDE, PATCH = 56, 14
RESOLUTIONS = [[56, 112], [112, 56], [112, 112], [56, 168]]


def write_folder(folder, texts):
    os.makedirs(folder)
    tokenizer = write_tokenizer(folder, texts)
    text = LlamaConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=48, intermediate_size=96,
                       num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                       max_position_embeddings=512, bos_token_id=1, eos_token_id=2,
                       pad_token_id=tokenizer.token_to_id("<pad>"), initializer_range=0.05)
    vision = CLIPVisionConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=3,
                              num_attention_heads=4, image_size=SIDE, patch_size=PATCH)
    torch.manual_seed(11)
    LlavaNextForConditionalGeneration(LlavaNextConfig(
        text_config=text, vision_config=vision, image_grid_pinpoints=RESOLUTIONS,
        image_token_index=tokenizer.token_to_id("<image>"))).save_pretrained(folder)
    LlavaNextImageProcessorPil(size={"shortest_edge": SIDE}, image_mean=[0.4, 0.5, 0.6],
                               crop_size={"height": SIDE, "width": SIDE},
                               image_grid_pinpoints=RESOLUTIONS).save_pretrained(folder)


def next_processor(folder):
    return LlavaNextProcessor(
        LlavaNextImageProcessorPil.from_pretrained(folder),
        PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json", bos_token="<s>",
                                eos_token="</s>", pad_token="<pad>"),
        patch_size=PATCH, vision_feature_select_strategy="default", num_additional_image_tokens=1)


def vicuna(conversations, prompt=False):
    """Vicuna's text of a record, with one mark a picture."""
    text = SYSTEM + " "
    for turn in conversations:
        said = turn["value"]
        text += f"USER: {said} " if turn["from"] == "human" else f"ASSISTANT: {said}</s>"
    return text + ("ASSISTANT:" if prompt else "")


class Family:
    """What LLaVA-NeXT and the family made of it (llava_onevision_test.py) differ in."""
    name, template = "llava_next", "vicuna_v1"
    videos = False  # taken as such, not as pictures
    max_frames = 2  # of a video; 0: all
    max_tokens = 512  # of a pack: a few records
    model = LlavaNextForConditionalGeneration
    resolutions = RESOLUTIONS
    texts = ["USER: ASSISTANT:", SYSTEM]
    end = 2  # the token behind an answer
    write_folder = staticmethod(write_folder)
    processor = staticmethod(next_processor)
    rendered = staticmethod(vicuna)

    @staticmethod
    def as_images(pictures):
        """A text's pictures as the processor takes them."""
        return pictures

    @staticmethod
    def sizes_count(inputs):
        """Whether the model uses the sizes of the pictures."""
        return True


def inputs_of(family, processor, text, paths):
    """The model's input, by Transformers, with the tiles of all pictures one after the other."""
    pictures = [Image.open(path).convert("RGB") for path in paths]
    made = processor(text=text, images=family.as_images(pictures) or None, return_tensors="pt")
    return {key: made[key] for key in ("input_ids", "image_sizes", "pixel_values",
                                       "batch_num_images") if key in made}


def check_samples(results, folder, config, records, family):
    """`data show --pixels` of records with one, two and no pictures."""
    processor = family.processor(f"{folder}/model")
    for index, record in enumerate(records[:6]):
        out = f"{folder}/sample{index}.safetensors"
        done = tiny_case.run(config, 1, "data", "show", str(index), "--pixels", out)
        results.check(f"record {index}: is shown", done.returncode == 0, done.stderr[-300:])
        ours = load_file(out)
        names = record.get("image", [])
        names = [names] if isinstance(names, str) else names
        theirs = inputs_of(family, processor, family.rendered(record["conversations"]),
                           [f"{folder}/images/{name}" for name in names])
        results.check(f"record {index}: ids of Transformers' processor",
                      ours["input_ids"].equal(theirs["input_ids"]),
                      f"{ours['input_ids'].shape} {theirs['input_ids'].shape}")
        if not names:
            continue
        results.check(f"record {index}: sizes", not family.sizes_count(theirs)
                      or ours["image_sizes"].equal(theirs["image_sizes"]))
        results.check(f"record {index}: the same tensors",
                      set(ours) - {"labels"} == set(theirs), set(ours) ^ set(theirs))
        if "batch_num_images" in theirs:
            results.check(f"record {index}: the number of pictures",
                          ours["batch_num_images"].equal(theirs["batch_num_images"]))
        resolutions = [sum(1 for tile in picture if tile.abs().sum() > 0)
                       for picture in theirs["pixel_values"]]
        tiles = torch.cat([picture[:count] for picture, count
                           in zip(theirs["pixel_values"], resolutions)])
        results.check(f"record {index}: tiles", ours["pixel_values"].shape == tiles.shape
                      and (ours["pixel_values"] - tiles).abs().max().item() <= 1e-6,
                      f"{ours['pixel_values'].shape} {tiles.shape}")


def check_export(results, folder, family):
    done = tiny_case.program("export", f"{folder}/run", "--out", f"{folder}/exported")
    results.check("export", done.returncode == 0, done.stderr[-300:])
    model, report = family.model.from_pretrained(f"{folder}/exported", output_loading_info=True)
    results.check("every weight is found and none is left over",
                  not report["missing_keys"] and not report["unexpected_keys"], str(report)[:300])
    before, after = (load_file(f"{folder}/{name}/model.safetensors")
                     for name in ("model", "exported"))
    tiny_case.check_names(results, f"{folder}/exported", model, "vision_tower.vision_model.")
    results.check("the vector behind rows is trained",
                  not before["image_newline"].equal(after["image_newline"]))
    with open(f"{folder}/exported/config.json", encoding="utf8") as file:
        results.check("the resolutions are kept",
                      json.load(file)["image_grid_pinpoints"] == family.resolutions)
    processor = family.processor(f"{folder}/exported")
    paths = [f"{folder}/wide.png", f"{folder}/tall.png"]
    tiny_case.draw(paths[0], "green", "bar", (150, 47), 3)
    tiny_case.draw(paths[1], "blue", "frame", (33, 101), 4)
    for text, shown in (("<image> or <image>?", paths), ("<image>?", paths[:1])):
        inputs = inputs_of(family, processor, family.rendered(
            [{"from": "human", "value": text}]), shown)
        save_file(inputs, f"{folder}/inputs.safetensors")
        with torch.no_grad():
            want = model.eval()(**inputs).logits
        done = tiny_case.program("check", f"{folder}/exported", f"{folder}/inputs.safetensors",
                                 "--out", f"{folder}/out.safetensors")
        results.check(f"check {text}", done.returncode == 0, done.stderr[-300:])
        ours = load_file(f"{folder}/out.safetensors")["logits"]
        error = (ours - want).abs().max() / want.abs().max()
        results.check(f"the logits of Transformers, {text}", error <= 1e-5,
                      f"{error:.1e} of the largest")


def check_answers(results, folder, where, family):
    """`generate` with a folder alone: its template, its pictures."""
    model = family.model.from_pretrained(f"{folder}/exported").eval()
    processor = family.processor(f"{folder}/exported")
    for question, paths in (("<image>\nWhat is it?", [f"{folder}/wide.png"]),
                            ("<image>\n<image>\nWhat is it?",
                             [f"{folder}/tall.png", f"{folder}/wide.png"]),
                            ("What is 3 plus 2?", [])):
        inputs = inputs_of(family, processor, family.rendered(
            [{"from": "human", "value": question}], True), paths)
        out = model.generate(**inputs, max_new_tokens=16, do_sample=False,
                             eos_token_id=family.end, pad_token_id=0)
        answer = out[0, inputs["input_ids"].shape[1]:].tolist()
        answer = answer[:answer.index(family.end)] if family.end in answer else answer
        want = processor.tokenizer.backend_tokenizer.decode(answer)
        images = [word for path in paths for word in ("--image", path)]
        done = tiny_case.program("generate", where, "--prompt", question, "--max-new-tokens", "16",
                                 "--set", "train.precision=fp32", *images)
        results.check(f"{os.path.basename(where)}: {question!r} is answered as by Transformers",
                      done.returncode == 0 and done.stdout == want + "\n" != "\n",
                      f"ours {done.stdout!r} theirs {want!r} {done.stderr[-300:]}")


def write_config(folder, family):
    config = f"{folder}/next.yaml"
    with open(config, "w", encoding="utf8") as file:
        file.write(f"""run: {{dir: {folder}/run}}
model: {{hf: {folder}/model}}
data:
  train: [{{annotations: {folder}/train.jsonl, images: {folder}/images}}]
  template: {family.template}
  max_tokens: {family.max_tokens}
  max_frames: {family.max_frames}
  max_bad_share: 0.2
balance: {{tiles: 16}}
train: {{steps: 12, precision: fp32, global_batch: 4, lr: 3.0e-3, warmup: 2, threads: 1}}
checkpoint: {{every: 12}}
""")
    return config


def check_family(family):
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix=family.name)
    records = tiny_case.write_records(folder, 20, seed=2)
    texts = [turn["value"] for record in records for turn in record["conversations"]]
    family.write_folder(f"{folder}/model", texts + family.texts)
    config = write_config(folder, family)
    videos = llava_videos.add_records(folder, len(records))

    check_samples(results, folder, config, records, family)
    if family.videos:
        llava_videos.check_samples(results, folder, config, family, videos)
        llava_videos.check_unlike(results, folder, config, videos)
    done = tiny_case.run(config, 1, "plan", "--ranks", "4")
    results.check("plan", done.returncode == 0 and "projector" in done.stdout, done.stderr[-300:])
    done = tiny_case.run(config, 1, "profile", "--out", f"{folder}/profile.json", "--sweeps", "1")
    results.check("profile", done.returncode == 0 and "projector" in done.stdout,
                  done.stderr[-300:])
    done = tiny_case.run(config, 2, parallel__pipeline=2, parallel__tensor=1, parallel__data=1)
    results.check("trains on two pipeline ranks", done.returncode == 0, done.stderr[-400:])
    losses = tiny_case.losses(f"{folder}/run")
    results.check("the loss falls", len(losses) == 12 and losses[-1] < 0.8 * losses[0], str(losses))
    with open(f"{folder}/run/quarantine.jsonl", encoding="utf8") as file:
        results.check("a damaged frame is quarantined", "clips/cut/1.png: " in file.read())
    tiny_case.draw(f"{folder}/images/0001_0.jpg", "red", "disc", (57, 300), 1)
    with open(f"{folder}/images/0002_0.png", "rb+") as file:
        file.truncate(60)
    done = tiny_case.run(config, 2, run__dir=f"{folder}/changed", parallel__data=2,
                         parallel__pipeline=1, parallel__tensor=1, data__max_bad_share=0.5)
    results.check("pictures that have changed or are damaged do not stop a run",
                  done.returncode == 0, done.stderr[-400:])
    done = tiny_case.run(config, 1, data__template="plain", model__freeze="[vision, llm]",
                         run__dir=f"{folder}/first_stage", train__steps=3,
                         train__global_batch=2, data__max_bad_share=0.5)
    results.check("the first stage of LLaVA's training", done.returncode == 0,
                  done.stderr.strip()[-400:])
    check_export(results, folder, family)
    for where in (f"{folder}/run", f"{folder}/exported"):
        check_answers(results, folder, where, family)
        llava_videos.check_answers(results, folder, where, family, family.videos)
    if family.videos:
        llava_videos.check_logits(results, folder, family)
    check_refusal(results, folder, config)
    shutil.rmtree(folder)
    results.finish()


def check_refusal(results, folder, config):
    path = f"{folder}/model/preprocessor_config.json"
    if not os.path.exists(path):
        path = f"{folder}/model/processor_config.json"
    with open(path, encoding="utf8") as file:
        settings = json.load(file)
    settings.get("image_processor", settings)["image_grid_pinpoints"] = [[56, 112]]
    with open(path, "w", encoding="utf8") as file:
        json.dump(settings, file)
    done = tiny_case.run(config, 1, "data", "show", "0")
    results.check("resolutions that differ from the model's are refused in one line",
                  done.returncode == 4 and "image_grid_pinpoints" in done.stderr
                  and len(done.stderr.strip().splitlines()) == 1, done.stderr[-400:])


if __name__ == "__main__":
    sys.exit(check_family(Family))
