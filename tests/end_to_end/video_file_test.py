"""Videos' files, in a program that opens them, beside their frames as a list: the same samples and
answers; damaged ones end no run. A program that does not open them says what to do."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

os.environ["EQUIPOISE_BINARY"] = "trainer/equipoise_with_ffmpeg"

from PIL import Image
from safetensors.torch import load_file

import llava_onevision_test
import qwen2_vl_test
import tiny_case

WITHOUT = os.path.abspath("trainer/equipoise")
VIDEO_MAIN = os.path.abspath(sys.argv[1])
FRAMES, FPS, SIZE = 20, 10, (56, 28)
# Two and four a second of two seconds, as torch.linspace(0, 19, 4).round() and so on.
CHOSEN, OFTEN = (0, 6, 13, 19), (0, 3, 5, 8, 11, 14, 16, 19)
QUESTION = "What is it?"
CUT = "cut.mp4: is no video that is read (MP4, MOV, Matroska, WebM, AVI), or is cut"


def write_video(path, pictures, codec="libx264rgb"):
    pixels = b"".join(Image.open(picture).convert("RGB").tobytes() for picture in pictures)
    width, height = Image.open(pictures[0]).size
    subprocess.run([VIDEO_MAIN, path, str(width), str(height), str(FPS), codec, "6"],
                   input=pixels, check=True)


def add_videos(folder):
    """clip.mp4, clip.mkv and their frames; cut.mp4, whose end is missing, and broken.mp4, whose
    frames are damaged. Returns the records' names."""
    images = f"{folder}/images"
    os.makedirs(f"{images}/frames")
    pictures = [f"{images}/frames/{i}.png" for i in range(FRAMES)]
    for i, path in enumerate(pictures):
        tiny_case.draw(path, "green", tiny_case.SHAPES[i // 3 % 4], SIZE, i)
    write_video(f"{images}/clip.mp4", pictures)
    write_video(f"{images}/clip.mkv", pictures, "ffv1")
    with open(f"{images}/clip.mp4", "rb") as file:
        clip = file.read()
    with open(f"{images}/cut.mp4", "wb") as file:
        file.write(clip[:len(clip) * 2 // 3])
    begin = clip.index(b"mdat") + 4
    with open(f"{images}/broken.mp4", "wb") as file:
        file.write(clip[:begin + 1500] + b"\x55" * 1500 + clip[begin + 3000:])

    def listed(numbers):
        return [f"frames/{i}.png" for i in numbers]

    videos = {"file": "clip.mp4", "matroska": "clip.mkv",
              "list": {"frames": listed(CHOSEN), "fps": 2},
              "file often": {"path": "clip.mp4", "fps": 4},
              "list often": {"frames": listed(OFTEN), "fps": 4},
              "broken": "broken.mp4", "cut": "cut.mp4"}
    with open(f"{folder}/train.jsonl", "a", encoding="utf8") as out:
        for name, video in videos.items():
            out.write(json.dumps({"id": name, "video": video, "query": QUESTION,
                                  "response": "a green disc"}) + "\n")
    return pictures


def check_samples(results, folder, config):
    def shown(record, **settings):
        out = f"{folder}/sample.safetensors"
        done = tiny_case.run(config, 1, "data", "show", record, "--pixels", out, **settings)
        results.check(f"{record}: is shown", done.returncode == 0, done.stderr[-300:])
        return load_file(out)

    for names, settings in ((("list", "file", "matroska"), {}),
                            (("list often", "file often"), {})):
        want, *others = [shown(name, **settings) for name in names]
        for name, ours in zip(names[1:], others):
            results.check(f"{name}: the sample of its frames in a list",
                          set(ours) == set(want)
                          and all(ours[key].equal(want[key]) for key in want), sorted(want))
    done = tiny_case.run(config, 1, "data", "show", "file often", data__max_frames=6)
    results.check("data.max_frames bounds a file's frames", "6 frames" in done.stdout,
                  done.stdout[-300:])
    page = f"{folder}/sample.html"
    done = tiny_case.run(config, 1, "data", "show", "file", "--html", page)
    with open(page, encoding="utf8") as file:
        results.check("a page shows its frames", done.returncode == 0
                      and file.read().count("<h3>clip.mp4</h3>") == len(CHOSEN), done.stderr)
    done = tiny_case.run(config, 1, "data", "check")
    for name, words in (("broken", "broken.mp4: "), ("cut", CUT)):
        results.check(f"data check names the {name} file", words in done.stdout + done.stderr,
                      (done.stdout + done.stderr)[-400:])


def refusal(said):
    """The one line with which the program ends, behind those of its log."""
    lines = [line for line in said.splitlines() if "equipoise: " in line]
    return lines[0] if len(lines) == 1 and said.endswith(lines[0] + "\n") else ""


def check_answers(results, folder, pictures):
    images = f"{folder}/images"

    def given(*options):
        done = tiny_case.program("generate", f"{folder}/run", "--max-new-tokens", "8", "--set",
                                 "train.precision=fp32", *options)
        return done.stdout if done.returncode == 0 else f"{done.returncode}: {done.stderr}"

    asked = ("--prompt", QUESTION, "--video")
    want = given(*asked, ",".join(pictures[i] for i in CHOSEN), "--fps", "2")
    results.check("generate answers about a list of frames", want.strip() != ""
                  and ":" not in want, want)
    for name in ("clip.mp4", "clip.mkv"):
        ours = given(*asked, f"{images}/{name}")
        results.check(f"generate answers about {name} likewise", ours == want, ours)
    want = given(*asked, ",".join(pictures[i] for i in OFTEN), "--fps", "4")
    ours = given(*asked, f"{images}/clip.mp4", "--fps", "4")
    results.check("--fps says how many frames a second are taken", ours == want, (ours, want))
    for name, words in (("broken.mp4", "broken.mp4: "), ("cut.mp4", CUT),
                        ("none.mp4", "none.mp4: no such folder or file")):
        refused = given(*asked, f"{images}/{name}")
        results.check(f"generate refuses {name} in a line", refused.startswith("4: ")
                      and words in refusal(refused), refused)
    questions, answers = f"{folder}/questions.jsonl", f"{folder}/answers.jsonl"
    with open(questions, "w", encoding="utf8") as out:
        for video in ("clip.mp4", "broken.mp4"):
            out.write(json.dumps({"question": QUESTION, "video": video}) + "\n")
    given("--jsonl", questions, "--out", answers, "--images", images)
    with open(answers, encoding="utf8") as file:
        whole, broken = [json.loads(line) for line in file]
    results.check("a question of a file is answered likewise",
                  whole["answer"] + "\n" == given(*asked, f"{images}/clip.mp4"), whole)
    results.check("and one about a damaged video has a fault", "broken.mp4: " in broken["fault"],
                  broken)


def check_without(results, folder, config, pictures):
    """The program as it is built without the switch."""
    version = tiny_case.execute([WITHOUT, "--version"]).stdout
    ours = tiny_case.program("--version").stdout
    results.check("the version tells it", "FFmpeg" in ours, ours)
    if "FFmpeg" in version:
        print("skipped: video_file_test, a program without FFmpeg: all of the build is with it")
        return
    done = tiny_case.execute([WITHOUT, "generate", f"{folder}/run", "--prompt", QUESTION, "--video",
                              f"{folder}/images/clip.mp4"])
    results.check("without it a file is refused in a line that says what to do",
                  done.returncode == 4 and "--define ffmpeg=1" in refusal(done.stderr), done.stderr)
    line = tiny_case.command(config, 1, "data", "show", "file")
    done = tiny_case.execute([WITHOUT, *line[1:]])
    results.check("and its index is another", "--define ffmpeg=1" in done.stdout + done.stderr,
                  done.stdout[-300:] + done.stderr[-300:])


def write_config(folder, template):
    config = f"{folder}/config.yaml"
    with open(config, "w", encoding="utf8") as file:
        file.write(f"""run: {{dir: {folder}/run}}
model: {{hf: {folder}/model}}
data:
  train: [{{annotations: {folder}/train.jsonl, images: {folder}/images}}]
  template: {template}
  max_tokens: 160
  max_bad_share: 0.5
train: {{steps: 4, precision: fp32, global_batch: 4, lr: 3.0e-3, warmup: 2, threads: 1}}
checkpoint: {{every: 4}}
""")
    return config


def run_family(results, name, write_folder):
    folder = tempfile.mkdtemp(prefix=name)
    records = tiny_case.write_records(folder, 20, seed=2)
    texts = [turn["value"] for record in records for turn in record["conversations"]]
    write_folder(f"{folder}/model", texts + [qwen2_vl_test.SYSTEM, "user assistant\n"])
    pictures = add_videos(folder)
    config = write_config(folder, "qwen2-vl")
    check_samples(results, folder, config)
    done = tiny_case.run(config, 2, parallel__data=2, parallel__pipeline=1, parallel__tensor=1)
    results.check(f"{name}: trains on two ranks", done.returncode == 0, done.stderr[-400:])
    with open(f"{folder}/run/quarantine.jsonl", encoding="utf8") as file:
        named = file.read()
    results.check("both bad files are quarantined",
                  "broken.mp4: " in named and "cut.mp4: " in named, named)
    check_answers(results, folder, pictures)
    check_without(results, folder, config, pictures)
    shutil.rmtree(folder)


def main():
    results = tiny_case.Results()
    run_family(results, "qwen2_5_vl",
               lambda *of: qwen2_vl_test.write_folder(of[0], "qwen2_5_vl", of[1]))
    run_family(results, "onevision", llava_onevision_test.write_folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
