"""Videos of Qwen2-VL, Qwen2.5-VL and Qwen3-VL beside Transformers' processors and models."""
import json
import os
import sys

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torchvision.transforms.functional import pil_to_tensor
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLForConditionalGeneration,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)
from transformers.image_utils import OPENAI_CLIP_STD
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

import tiny_case
import video_clips

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models"))
import qwen_vl  # pylint: disable=wrong-import-position

KINDS = {"qwen2_vl": (Qwen2VLForConditionalGeneration, Qwen2VLProcessor, Qwen2VLVideoProcessor),
         "qwen2_5_vl": (Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor,
                        Qwen2VLVideoProcessor),
         "qwen3_vl": (Qwen3VLForConditionalGeneration, Qwen3VLProcessor, Qwen3VLVideoProcessor)}
SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
FIRST = 24  # number of the first record with a video
# How far Torchvision's bicubic resize of whole numbers may be from Pillow's, which pictures have.
RESIZED = 2 / 255 / 0.26


def write_settings(folder, kind, patch, mean):
    """Frames of two to four tokens; Qwen3-VL's processor counts those of all frames together."""
    token = (2 * patch) ** 2
    most = 4 * token * (6 if kind == "qwen3_vl" else 1)
    KINDS[kind][2](size={"shortest_edge": 2 * token, "longest_edge": most}, patch_size=patch,
                   image_mean=mean, image_std=OPENAI_CLIP_STD).save_pretrained(folder)


def add_records(folder, patch):
    """A folder of five frames that need no resize; two lists around a picture, one of which does; a
    folder with a damaged frame."""
    listed = video_clips.draw_clips(folder, a=(4 * patch, 2 * patch), cut=(56, 56))
    records = [
        {"id": "v0", "video": "clips/a", "fps": 2, "query": "<video>\nWhat is it?",
         "response": "a green disc"},
        {"id": "v1", "videos": [listed, {"path": "clips/a", "fps": 3}], "image": "beside.png",
         "query": "Is <video> or <image> or <video> green?", "response": "a bar"},
        {"id": "v2", "video": "clips/cut", "query": "What is it?", "response": "a green disc"}]
    with open(f"{folder}/train.jsonl", "a", encoding="utf8") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)


def frames(folder, clip, count, numbers=None):
    names = [f"{folder}/images/clips/{clip}/{i}.png" for i in numbers or range(count)]
    return torch.stack([pil_to_tensor(Image.open(name).convert("RGB")) for name in names])


def metadata(count, fps, numbers=None):
    return {"total_num_frames": count, "fps": fps,
            "frames_indices": list(numbers or range(count))}


def processor_of(folder, kind):
    """The processor of the folder. Its text has a video's token alone for Qwen3-VL, whose processor
    writes the marks around each time."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json")
    return KINDS[kind][1](image_processor=Qwen2VLImageProcessorPil.from_pretrained(folder),
                          tokenizer=tokenizer,
                          video_processor=KINDS[kind][2].from_pretrained(folder))


def rendered(kind, question, answer=None):
    video = "<|video_pad|>"
    if kind != "qwen3_vl":
        video = f"<|vision_start|>{video}<|vision_end|>"
    said = question.replace("<video>", video).replace(
        "<image>", "<|vision_start|><|image_pad|><|vision_end|>")
    system = "" if kind == "qwen3_vl" else SYSTEM
    end = "" if answer is None else f"{answer}<|im_end|>\n"
    return f"{system}<|im_start|>user\n{said}<|im_end|>\n<|im_start|>assistant\n{end}"


def processed(folder, kind, text, videos, images=None):
    """`videos`: (frames, metadata) of each."""
    made = processor_of(folder, kind)(
        text=[text], images=images, videos=[pixels for pixels, _ in videos],
        video_metadata=[facts for _, facts in videos], do_sample_frames=False,
        return_tensors="pt")
    return {key: torch.as_tensor(value) for key, value in made.items() if key != "attention_mask"}


def check_sample(results, folder, kind, config, index, want, bounds, **settings):
    """`data show --pixels` beside what Transformers makes of the record."""
    out = f"{folder}/video{index}.safetensors"
    done = tiny_case.run(config, 1, "data", "show", str(FIRST + index), "--pixels", out, **settings)
    shown = done.returncode == 0 and "video clips/" in done.stdout
    results.check(f"video {index}: is shown", shown, done.stdout[-300:] + done.stderr[-300:])
    ours = load_file(out)
    results.check(f"video {index}: ids of Transformers' processor",
                  ours["input_ids"].equal(want["input_ids"]),
                  f"{ours['input_ids'].tolist()} {want['input_ids'].tolist()}")
    for key in ("image_grid_thw", "video_grid_thw", "second_per_grid_ts"):
        if key in want:
            results.check(f"video {index}: {key}",
                          key in ours and ours[key].float().equal(want[key].float()),
                          f"{ours.get(key)} {want[key]}")
    for key, bound in bounds.items():
        error = (ours[key] - want[key]).abs().max().item()
        results.check(f"video {index}: {key}", error <= bound, error)
    model = qwen_vl.with_published_positions(KINDS[kind][0].from_pretrained(f"{folder}/model"))
    facts = {key: want[key] for key in want if key.endswith(("_thw", "_ts"))}
    positions = model.model.get_rope_index(want["input_ids"], want["mm_token_type_ids"], **facts)[0]
    results.check(f"video {index}: positions of Transformers' model",
                  ours["position_ids"].equal(positions.long()),
                  f"{ours['position_ids'].tolist()} {positions.tolist()}")


def check_samples(results, folder, kind, config):
    model, exact = f"{folder}/model", 1e-6
    a, b = frames(folder, "a", 5), frames(folder, "b", 4)
    text = rendered(kind, "<video>\nWhat is it?", "a green disc")
    check_sample(results, folder, kind, config, 0,
                 processed(model, kind, text, [(a, metadata(5, 2.0))]),
                 {"pixel_values_videos": exact})
    # Three of five frames, at 1.2 a second.
    kept = [0, 2, 4]
    check_sample(results, folder, kind, config, 0,
                 processed(model, kind, text, [(frames(folder, "a", 5, kept),
                                                metadata(5, 2.0, kept))]),
                 {"pixel_values_videos": exact}, data__max_frames=3)
    beside = Image.open(f"{folder}/images/beside.png").convert("RGB")
    text = rendered(kind, "Is <video> or <image> or <video> green?", "a bar")
    check_sample(results, folder, kind, config, 1,
                 processed(model, kind, text, [(b, metadata(4, None)), (a, metadata(5, 3.0))],
                           [beside]),
                 {"pixel_values": exact, "pixel_values_videos": RESIZED})


def check_answer(results, folder, kind, where, model):
    """`generate` with a file of questions about videos."""
    questions = f"{folder}/questions.jsonl"
    with open(questions, "w", encoding="utf8") as out:
        out.write(json.dumps({"id": "q", "question": "<video>\nWhat is it?", "video": "clips/a",
                              "fps": 2}) + "\n")
        out.write(json.dumps({"id": "none", "question": "What is it?", "video": "a.mp4"}) + "\n")
    made = processed(f"{folder}/exported", kind, rendered(kind, "<video>\nWhat is it?"),
                     [(frames(folder, "a", 5), metadata(5, 2.0))])
    processor = processor_of(f"{folder}/exported", kind)
    stop = processor.tokenizer.convert_tokens_to_ids("<|im_end|>")
    given = model.generate(**made, attention_mask=torch.ones_like(made["input_ids"]),
                           max_new_tokens=16, do_sample=False, eos_token_id=stop, pad_token_id=0)
    want = processor.tokenizer.decode(given[0, made["input_ids"].shape[1]:],
                                      skip_special_tokens=True)
    done = tiny_case.program("generate", where, "--jsonl", questions, "--out",
                             f"{folder}/answers.jsonl", "--images", f"{folder}/images",
                             "--max-new-tokens", "16", "--set", "train.precision=fp32")
    with open(f"{folder}/answers.jsonl", encoding="utf8") as file:
        answers = [json.loads(line) for line in file]
    results.check(f"{os.path.basename(where)}: a question about a video is answered as by "
                  "Transformers", answers[0]["answer"] == want != "",
                  f"ours {answers[0]} theirs {want!r} {done.stderr[-300:]}")
    done = tiny_case.program("generate", where, "--prompt", "<video>\nWhat is it?", "--video",
                             f"{folder}/images/clips/a", "--fps", "2", "--max-new-tokens", "16",
                             "--set", "train.precision=fp32")
    results.check(f"{os.path.basename(where)}: and with --video", done.stdout == want + "\n",
                  f"{done.stdout!r} {done.stderr[-300:]}")
    results.check(f"{os.path.basename(where)}: a missing video is one line",
                  "a.mp4: no such file" in answers[1]["fault"], str(answers[1]))


def check_logits(results, folder, kind, model):
    """`check` of a picture and a video in one row."""
    made = processed(f"{folder}/exported", kind, rendered(kind, "<video> or <image>?", "a disc"),
                     [(frames(folder, "a", 5), metadata(5, 2.0))],
                     [Image.open(f"{folder}/images/beside.png").convert("RGB")])
    with torch.no_grad():
        want = model(**made).logits
    save_file({key: value.contiguous() for key, value in made.items()
               if key != "mm_token_type_ids"}, f"{folder}/videos.safetensors")
    done = tiny_case.program("check", f"{folder}/exported", f"{folder}/videos.safetensors", "--out",
                             f"{folder}/out.safetensors")
    results.check("check of a picture and a video", done.returncode == 0, done.stderr[-300:])
    error = (load_file(f"{folder}/out.safetensors")["logits"] - want).abs().max() / want.abs().max()
    results.check("the logits of Transformers, with a video", error <= 1e-5,
                  f"{error:.1e} of the largest")
