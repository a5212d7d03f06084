"""Videos of LLaVA-OneVision beside Transformers' processor and model, and of LLaVA-NeXT, whose
videos are their frames as pictures."""
import json
import os

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torchvision.transforms.functional import pil_to_tensor

import tiny_case
import video_clips

SIDE = 56  # pixels of a tile
FRAMES = video_clips.FRAMES
# How far Torchvision's bicubic resize of whole numbers may be from Pillow's, which pictures have,
# with the smallest deviation of the folder's.
RESIZED = 2 / 255 / 0.3
QUESTION = "What is it?"


def add_records(folder, count):
    """Behind `count` records: a folder of frames that need no resize; a list that does, a picture
    and the folder again; a folder with a damaged frame."""
    listed = video_clips.draw_clips(folder, a=(SIDE, SIDE), cut=(SIDE, SIDE))
    records = [
        {"id": "v0", "video": "clips/a", "query": f"<video>\n{QUESTION}",
         "response": "a green disc"},
        {"id": "v1", "videos": [listed, "clips/a"], "image": "beside.png",
         "query": "Is <video> or <image> or <video> green?", "response": "a bar"},
        {"id": "v2", "video": "clips/cut", "query": QUESTION, "response": "a green disc"}]
    with open(f"{folder}/train.jsonl", "a", encoding="utf8") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)
    return {"native": count, "mixed": count + 1}


def turns(question, answer=None):
    said = [{"from": "human", "value": question}]
    return said + ([{"from": "gpt", "value": answer}] if answer else [])


def frames_of(folder, clip, numbers):
    return [f"{folder}/images/clips/{clip}/{i}.png" for i in numbers]


def processed(family, model, text, videos, images=()):
    """The model's input, by Transformers; `videos`: the paths of the frames of each."""
    loaded = [torch.stack([pil_to_tensor(Image.open(path).convert("RGB")) for path in paths])
              for paths in videos]
    pictures = [Image.open(path).convert("RGB") for path in images]
    made = family.processor(model)(text=[text], images=family.as_images(pictures) or None,
                                   videos=loaded or None, return_tensors="pt")
    return {key: made[key] for key in ("input_ids", "pixel_values", "image_sizes",
                                       "batch_num_images", "pixel_values_videos") if key in made}


def check_samples(results, folder, config, family, numbers):
    """`data show --pixels` beside what Transformers makes of the record."""
    model, beside = f"{folder}/model", f"{folder}/images/beside.png"

    def shown(what, number, want, bounds, **settings):
        out = f"{folder}/video.safetensors"
        done = tiny_case.run(config, 1, "data", "show", str(number), "--pixels", out, **settings)
        results.check(f"{what}: is shown", done.returncode == 0 and "video clips/" in done.stdout,
                      done.stdout[-300:] + done.stderr[-300:])
        ours = load_file(out)
        results.check(f"{what}: the same tensors", set(ours) - {"labels"} == set(want),
                      set(ours) ^ set(want))
        for key in set(want) - set(bounds):
            results.check(f"{what}: {key} of Transformers' processor", ours[key].equal(want[key]),
                          f"{ours[key].tolist()} {want[key].tolist()}")
        for key, bound in bounds.items():
            error = (ours[key] - want[key].reshape(ours[key].shape)).abs().max().item()
            results.check(f"{what}: {key}", error <= bound, error)

    text = family.rendered(turns(f"<video>\n{QUESTION}", "a green disc"))
    shown("a video", numbers["native"],
          processed(family, model, text, [frames_of(folder, "a", range(FRAMES))]),
          {"pixel_values_videos": 1e-6})
    # Three of five frames.
    shown("a part of a video's frames", numbers["native"],
          processed(family, model, text, [frames_of(folder, "a", (0, 2, 4))]),
          {"pixel_values_videos": 1e-6}, data__max_frames=3)
    text = family.rendered(turns("Is <video> or <image> or <video> green?", "a bar"))
    videos = [frames_of(folder, "b", range(4)), frames_of(folder, "a", (0, 1, 3, 4))]
    want = processed(family, model, text, videos, [beside])
    shown("two videos and a picture", numbers["mixed"], want,
          {"pixel_values": 1e-6, "pixel_values_videos": RESIZED}, data__max_frames=4)
    resized = (load_file(f"{folder}/video.safetensors")["pixel_values_videos"]
               - want["pixel_values_videos"]).abs().amax((1, 2, 3, 4)).tolist()
    results.check("frames that need no resize are those of Transformers", resized[1] <= 1e-6,
                  resized)


def check_unlike(results, folder, config, numbers):
    """Videos that differ in length, which Transformers' tensors cannot hold: what is shown is what
    `check` takes."""
    out = f"{folder}/unlike.safetensors"
    done = tiny_case.run(config, 1, "data", "show", str(numbers["mixed"]), "--pixels", out)
    results.check("videos of four and five frames", done.returncode == 0
                  and load_file(out)["frames_per_video"].tolist() == [4, FRAMES],
                  done.stderr[-300:])
    done = tiny_case.program("check", f"{folder}/model", out, "--out", f"{folder}/out.safetensors")
    results.check("check takes them", done.returncode == 0, done.stderr[-300:])


def check_logits(results, folder, family):
    """`check` of a picture and a video in one row."""
    model = family.model.from_pretrained(f"{folder}/exported").eval()
    inputs = processed(family, f"{folder}/exported", family.rendered(turns("<video> or <image>?")),
                       [frames_of(folder, "b", range(4))], [f"{folder}/images/beside.png"])
    with torch.no_grad():
        want = model(**inputs).logits
    save_file({key: value.contiguous() for key, value in inputs.items()},
              f"{folder}/videos.safetensors")
    done = tiny_case.program("check", f"{folder}/exported", f"{folder}/videos.safetensors",
                             "--out", f"{folder}/out.safetensors")
    results.check("check of a video and a picture", done.returncode == 0, done.stderr[-300:])
    error = (load_file(f"{folder}/out.safetensors")["logits"] - want).abs().max() / want.abs().max()
    results.check("the logits of Transformers, with a video", error <= 1e-5,
                  f"{error:.1e} of the largest")


def answered(family, model, inputs):
    """What Transformers answers, without the token behind it."""
    out = model.generate(**inputs, max_new_tokens=16, do_sample=False, eos_token_id=family.end,
                         pad_token_id=0)
    answer = out[0, inputs["input_ids"].shape[1]:].tolist()
    return answer[:answer.index(family.end)] if family.end in answer else answer


def check_answers(results, folder, where, family, native):
    """`generate` with --video, alone, in parts and beside a picture, and with a file of
    questions."""
    model = family.model.from_pretrained(f"{folder}/exported").eval()
    decoder = family.processor(f"{folder}/exported").tokenizer.backend_tokenizer
    clip, beside = f"{folder}/images/clips/a", f"{folder}/images/beside.png"
    name = os.path.basename(where)

    def want(question, numbers, images):
        frames, pictures = frames_of(folder, "a", numbers), list(images)
        videos = [frames]
        if not native:  # each frame is a picture in a line of its own; the video stands first
            lines = "\n".join(f"Frame-{i + 1}: <image>" for i in range(len(frames)))
            question, videos, pictures = question.replace("<video>", lines), [], frames + pictures
        text = family.rendered(turns(question), True)
        return decoder.decode(answered(family, model, processed(
            family, f"{folder}/exported", text, videos, pictures)))

    def given(*options):
        done = tiny_case.program("generate", where, "--max-new-tokens", "16", "--set",
                                 "train.precision=fp32", "--set", "data.max_frames=3", *options)
        return done.stdout if done.returncode == 0 else done.stderr[-300:]

    listed = ",".join(frames_of(folder, "a", (0, 1)))
    for what, theirs, ours in (
            ("a folder of frames", want(f"<video>\n{QUESTION}", (0, 2, 4), []),
             given("--prompt", QUESTION, "--video", clip)),
            ("a list of frames and a picture",
             want(f"<video> or <image>? {QUESTION}", (0, 1), [beside]),
             given("--prompt", f"<video> or <image>? {QUESTION}", "--video", listed, "--image",
                   beside))):
        results.check(f"{name}: {what} is answered as by Transformers",
                      ours == theirs + "\n" != "\n", f"ours {ours!r} theirs {theirs!r}")
    questions, answers = f"{folder}/questions.jsonl", f"{folder}/answers.jsonl"
    with open(questions, "w", encoding="utf8") as out:
        out.write(json.dumps({"question": f"<video>\n{QUESTION}", "video": "clips/a"}) + "\n")
        out.write(json.dumps({"question": QUESTION, "video": "a.mp4"}) + "\n")
    given("--jsonl", questions, "--out", answers, "--images", f"{folder}/images")
    with open(answers, encoding="utf8") as file:
        given = [json.loads(line) for line in file]
    results.check(f"{name}: a question of a file is answered likewise",
                  given[0]["answer"] == want(f"<video>\n{QUESTION}", (0, 2, 4), []), str(given[0]))
    results.check(f"{name}: a missing video is one line", "a.mp4: no such file" in
                  given[1]["fault"], str(given[1]))
