"""What a folder needs to answer questions about pictures, and what Transformers makes of them: a
tokenizer for the tiny models' vocabulary, an image processor, prompts.

Each printable character is one token, so that the text of an answer tells its ids. Transformers'
processors are imported where they are used: they take seconds.
"""
import importlib
import json
import os

import torch
import transformers
from PIL import Image, ImageDraw
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import transformers_oracle_test as oracle

PAD, END, START, FIRST_LETTER = oracle.PAD, 2, 3, 4
LETTERS = "\n" + "".join(map(chr, range(32, 127)))
INTERNVL = ["<img>", "</img>", "<IMG_CONTEXT>"]
QWEN = ["<|vision_end|>", "<|vision_start|>", "<|video_pad|>", "<|image_pad|>"]
LLAVA = ["<image>"]
# Before a picture, each of its tokens, behind it.
AROUND = {"internvl": ("<img>", "<IMG_CONTEXT>", "</img>"), "llava": ("", "<image>", ""),
          "qwen": ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")}
TOKEN = 28 * 28  # pixels of a token of Qwen-VL


def kind_of(model):
    """model_type, of a model without an encoder the empty text."""
    return model.config.model_type if hasattr(model.config, "vision_config") else ""


def marks_of(kind):
    """The tokens for pictures; the last one's id is IMAGE."""
    if not kind:
        return []
    return INTERNVL if kind == "internvl" else QWEN if kind.startswith("qwen") else LLAVA


def letter_ids():
    return range(FIRST_LETTER, FIRST_LETTER + len(LETTERS))


def write_tokenizer(folder, kind, with_marks=True):
    """ChatML's tokens, those for pictures and a token for each character. Without marks the
    vocabulary ends before the first of them, so that they get these ids when they are added."""
    marks = marks_of(kind)
    first = oracle.IMAGE + 1 - len(marks)
    special = {"<|endoftext|>": PAD, "<|im_end|>": END, "<|im_start|>": START}
    if with_marks:
        special |= {mark: first + i for i, mark in enumerate(marks)}
    texts = {i: text for text, i in special.items()}
    shown = {" ": "\u0120", "\n": "\u010a"}  # of the alphabet of bytes
    texts |= {FIRST_LETTER + i: shown.get(letter, letter) for i, letter in enumerate(LETTERS)}
    size = oracle.IMAGE + 1 if with_marks else first
    vocabulary = {texts.get(i, f"<unused {i}>"): i for i in range(size)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    tokenizer.save(os.path.join(folder, "tokenizer.json"))


def processor_class(module, name):
    return getattr(importlib.import_module(f"transformers.models.{module}"), name)


def pil_processor(model, name, **settings):
    """Transformers' image processor `name` that computes with Pillow, as the program does."""
    module = f"{model}.image_processing_pil_{model}"
    return processor_class(module, name + "ImageProcessorPil")(**settings)


def image_processor(model):
    """Transformers' processor of a model's pictures; None without an encoder."""
    config, kind = model.config, kind_of(model)
    square = {"height": 56, "width": 56}
    if not kind:
        return None
    if kind == "internvl":
        return pil_processor("got_ocr2", "GotOcr2", size=square, crop_to_patches=False,
                             image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])
    if kind.startswith("qwen"):
        return pil_processor("qwen2_vl", "Qwen2VL", patch_size=14,
                             size={"shortest_edge": 3 * TOKEN, "longest_edge": 6 * TOKEN})
    if kind == "llava_next":
        return pil_processor("llava_next", "LlavaNext", size={"shortest_edge": 56},
                             crop_size=square, image_grid_pinpoints=config.image_grid_pinpoints)
    if kind == "llava_onevision":
        side = config.vision_config.image_size
        return pil_processor("llava_onevision", "LlavaOnevision",
                             size={"height": side, "width": side},
                             image_grid_pinpoints=config.image_grid_pinpoints)
    if config.vision_config.model_type == "clip_vision_model":
        return pil_processor("clip", "CLIP", size={"shortest_edge": 56}, crop_size=square)
    return pil_processor("siglip", "Siglip", size=square)


def write_processor(folder, model):
    """InternVL's tiles are settings of the run."""
    if kind_of(model) not in ("", "internvl"):
        image_processor(model).save_pretrained(folder)


def draw(folder):
    """Two pictures of other shapes than any encoder's; their paths."""
    paths = []
    for name, size, colour in (("a.png", (90, 60), (220, 30, 30)), ("b.png", (40, 110),
                                                                      (40, 60, 220))):
        picture = Image.new("RGB", size, (20, 50, 30))
        box = [size[0] // 5, size[1] // 4, size[0] * 3 // 5, size[1] * 3 // 4]
        ImageDraw.Draw(picture).ellipse(box, fill=colour)
        paths.append(os.path.join(folder, name))
        picture.save(paths[-1])
    return paths


def write_records(folder):
    """A record with two pictures and one without; the file of each."""
    draw(folder)
    answer = {"from": "gpt", "value": "a red disc and a blue one"}
    shown = {"id": "shown", "image": ["a.png", "b.png"], "conversations": [
        {"from": "human", "value": "<image>\nWhat is it, and <image>?"}, answer]}
    told = {"id": "told", "conversations": [{"from": "human", "value": "What is 3 plus 2?"},
                                             answer]}
    files = []
    for record in (shown, told):
        files.append(os.path.join(folder, record["id"] + ".jsonl"))
        with open(files[-1], "w", encoding="utf8") as out:
            out.write(json.dumps(record) + "\n")
    return files


def sized_processor(folder, model):
    """The processor of LLaVA-NeXT and LLaVA-OneVision, which counts the tokens of a picture."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=os.path.join(folder, "tokenizer.json"), pad_token="<|endoftext|>",
        eos_token="<|im_end|>")
    if kind_of(model) == "llava_next":
        return transformers.LlavaNextProcessor(
            image_processor(model), tokenizer, patch_size=28, num_additional_image_tokens=1,
            vision_feature_select_strategy="default")
    videos = processor_class("llava_onevision.video_processing_llava_onevision",
                             "LlavaOnevisionVideoProcessor")()
    return transformers.LlavaOnevisionProcessor(
        image_processor(model), tokenizer, videos,
        num_image_tokens=(model.config.vision_config.image_size // 28) ** 2,
        vision_feature_select_strategy="full",
        vision_aspect_ratio=model.config.vision_aspect_ratio)


def prompt(folder, model, question, paths):
    """Transformers' inputs for a question of a user, in ChatML."""
    kind = kind_of(model)
    text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    pictures = [Image.open(path).convert("RGB") for path in paths]
    if kind in ("llava_next", "llava_onevision"):
        together = pictures if kind == "llava_next" else [pictures]
        made = sized_processor(folder, model)(text=text, images=together if pictures else None,
                                              return_tensors="pt")
        return {key: made[key] for key in ("input_ids", "pixel_values", "image_sizes",
                                           "batch_num_images") if key in made}
    made, counts = {}, [oracle.TOKENS_PER_TILE] * len(pictures)
    if pictures:
        made = dict(image_processor(model)(pictures, return_tensors="pt"))
        made = {key: made[key] for key in ("pixel_values", "image_grid_thw") if key in made}
    if "image_grid_thw" in made:
        counts = [int(grid.prod()) // 4 for grid in made["image_grid_thw"]]
    before, token, after = AROUND.get(kind, AROUND["qwen"])
    for count in counts:
        text = text.replace("<image>", before + "\0" * count + after, 1)
    ids = Tokenizer.from_file(os.path.join(folder, "tokenizer.json")).encode(
        text.replace("\0", token), add_special_tokens=False).ids
    made["input_ids"] = torch.tensor([ids])
    if kind.startswith("qwen"):
        made["mm_token_type_ids"] = (made["input_ids"] == oracle.IMAGE).int()
    return made
