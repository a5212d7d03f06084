"""After a training run: the exported folder loads in Transformers with the same logits, and
`generate` gives the ids of Transformers' greedy generate, with and without a picture."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from tokenizers import Tokenizer

import tiny_case

NEW_TOKENS = 20


def prompt_ids(tokenizer, question, image_tokens):
    text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    text = text.replace("<image>", "<img>" + "<IMG_CONTEXT>" * image_tokens + "</img>")
    return tokenizer.encode(text, add_special_tokens=False).ids


def pixels(path):
    picture = np.asarray(Image.open(path).convert("RGB"), dtype=np.float32) / 255
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return torch.tensor(
        ((picture - mean) / std).transpose(2, 0, 1)[None], dtype=torch.float32
    ).contiguous()


def greedy(model, ids, picture):
    """Greedy ids through full forward passes: no cache, no generation settings to agree on."""
    ids = list(ids)
    answer = []
    for _ in range(NEW_TOKENS):
        inputs = {"input_ids": torch.tensor([ids + answer])}
        if picture is not None:
            inputs["pixel_values"] = picture
        with torch.no_grad():
            token = int(model(**inputs).logits[0, -1].argmax())
        if token == model.config.get_text_config().eos_token_id:
            break
        answer.append(token)
    return answer


def hf_generate(model, ids, picture):
    inputs = {
        "input_ids": torch.tensor([ids]),
        "attention_mask": torch.ones(1, len(ids), dtype=torch.long),
    }
    if picture is not None:
        inputs["pixel_values"] = picture
    eos = model.config.get_text_config().eos_token_id
    out = model.generate(
        **inputs, max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=eos, pad_token_id=0
    )
    answer = out[0, len(ids):].tolist()
    return answer[:answer.index(eos)] if eos in answer else answer


def answer_in(model, tokenizer, wanted):
    """Leaves tokens of one such character alone in the running: none ends an answer early."""
    head = model.get_output_embeddings().weight
    with torch.no_grad():
        for token in range(head.shape[0]):
            text = tokenizer.decode([token], skip_special_tokens=False)
            if not (len(text) == 1 and wanted(text)):
                head[token] = 0
    return model.eval()


def answer_in_letters(model, tokenizer):
    """The text of an answer tells its ids."""
    return answer_in(model, tokenizer, lambda text: text.isascii() and text.isprintable())


def check_terminal(results, folder, model, tokenizer):
    """A model that answers in control characters: a pipe gets them, a terminal gets escapes."""
    answer_in(model, tokenizer, lambda text: text.isascii() and not text.isprintable()
              and text not in "\n\t\r").save_pretrained(folder)
    line = [tiny_case.EQUIPOISE, "generate", folder, "--prompt", "What is 3 plus 2?",
            "--max-new-tokens", "8", "--set", "train.precision=fp32"]
    piped = subprocess.run(line, capture_output=True, env=tiny_case.environment()).stdout
    terminal, stdout = os.openpty()
    done = subprocess.run(line, stdout=stdout, stderr=subprocess.PIPE, env=tiny_case.environment())
    os.close(stdout)
    shown = os.read(terminal, 1 << 16)
    os.close(terminal)
    results.check("a pipe gets control characters as they are",
                  len(piped) == 9 and all(byte < 32 or byte == 127 for byte in piped), repr(piped))
    results.check("a terminal gets them as escapes", done.returncode == 0 and
                  shown.decode() == "".join(f"\\x{byte:02x}" for byte in piped[:-1]) + "\r\n",
                  repr(shown))


def compare_answers(results, name, folder, model, tokenizer, picture_path, in_letters=False):
    for question, picture in (("<image>\nWhat is it?", picture_path), ("What is 3 plus 2?", None),
                              ("Tell me: was ist das?", None)):
        if picture is None and "<image>" in question:
            continue
        ids = prompt_ids(tokenizer, question, 4)
        values = pixels(picture) if picture else None
        want = hf_generate(model, ids, values)
        results.check(
            f"{name}: Transformers agrees with itself", want == greedy(model, ids, values)
        )
        line = [
            tiny_case.EQUIPOISE,
            "generate",
            folder,
            "--prompt",
            question,
            "--max-new-tokens",
            str(NEW_TOKENS),
            "--set",
            "train.precision=fp32",
        ] + (["--image", picture] if picture else [])
        done = subprocess.run(line, capture_output=True, text=True, env=tiny_case.environment())
        text = tokenizer.decode(want, skip_special_tokens=True)
        if in_letters:
            results.check(f"{name}: {NEW_TOKENS} tokens, a letter each, not all one",
                          len(want) == len(text) == NEW_TOKENS and len(set(want)) > 1, repr(text))
        results.check(
            f"{name}: {question.strip()!r}",
            done.returncode == 0 and done.stdout == text + "\n",
            f"ours {done.stdout!r} theirs {text!r} {done.stderr[-200:]}",
        )


def sampled(folder, seed):
    line = [tiny_case.EQUIPOISE, "generate", folder, "--prompt", "What is 3 plus 2?",
            "--max-new-tokens", "12", "--temperature", "2", "--seed", str(seed),
            "--set", "train.precision=fp32"]
    return subprocess.run(line, capture_output=True, text=True, env=tiny_case.environment()).stdout


def compare_samples(results, folder):
    answers = [sampled(folder, seed) for seed in (1, 1, 2, 3)]
    results.check("sampling: the same seed gives the same answer",
                  answers[0] == answers[1] != "", repr(answers[0]))
    results.check("sampling: other seeds give others", len(set(answers)) > 1)


def with_settings(folder, target, **settings):
    """A copy of a model's folder with a generation_config.json of these settings."""
    shutil.copytree(folder, target)
    with open(f"{target}/generation_config.json", "w") as out:
        json.dump(settings, out)
    return target


def check_settings(results, folder, tokenizer, picture):
    """generation_config.json: every end token, and the repetition penalty where it is asked for."""
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    question = "<image>\nWhat is it?"
    ids = prompt_ids(tokenizer, question, 4)
    inputs = {"input_ids": torch.tensor([ids]), "pixel_values": pixels(picture),
              "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
    penalties = {}
    for penalty in (1.0, 1.3, 0.8):
        out = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0,
                             repetition_penalty=penalty)[0, len(ids):].tolist()
        penalties[penalty] = tokenizer.decode(out, skip_special_tokens=True)
    results.check("the penalties tell answers apart", len(set(penalties.values())) == 3,
                  str(penalties))
    target = with_settings(folder, f"{folder}_penalty", repetition_penalty=1.3)
    ask = ("generate", target, "--prompt", question, "--image", picture, "--max-new-tokens",
           str(NEW_TOKENS), "--set", "train.precision=fp32")
    for penalty, theirs in penalties.items():
        for ranks in ((), ("parallel.tensor=2",), ("parallel.pipeline=2",)):
            line = [tiny_case.MPIRUN, "-n", "2"] if ranks else []
            line += [tiny_case.EQUIPOISE, *ask, "--repetition-penalty", str(penalty)]
            done = tiny_case.execute(line + [part for each in ranks for part in ("--set", each)])
            results.check(f"penalty {penalty} {ranks}: Transformers' answer",
                          done.stdout == theirs + "\n" and "repetition" not in done.stderr,
                          f"{done.stdout!r} {theirs!r} {done.stderr[-200:]}")
    unasked = tiny_case.program(*ask)
    results.check("a folder's penalty that is not asked for is named",
                  unasked.stdout == penalties[1.0] + "\n" and
                  unasked.stderr.count("--repetition-penalty 1.3") == 1, unasked.stderr[-300:])
    wrong = tiny_case.program(*ask, "--repetition-penalty", "0")
    results.check("a penalty of 0 is refused", wrong.returncode == 2 and
                  "--repetition-penalty: must be above 0" in wrong.stderr, wrong.stderr[-200:])
    last = tokenizer.encode(penalties[1.0], add_special_tokens=False).ids[-1]
    target = with_settings(folder, f"{folder}_ends", eos_token_id=[2, last])
    out = AutoModelForImageTextToText.from_pretrained(target).eval().generate(
        **inputs, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0)[0, len(ids):]
    cut = tokenizer.decode(out.tolist(), skip_special_tokens=True)
    done = tiny_case.program("generate", target, *ask[2:])
    results.check("an answer ends at every end token of generation_config.json",
                  out[-1] == last and len(cut) > 1 and done.stdout == cut[:-1] + "\n",
                  f"{done.stdout!r} {cut!r} {done.stderr[-200:]}")


def answer_command(folder, out, ranks, *more):
    line = [tiny_case.MPIRUN, "-n", str(ranks)] if ranks > 1 else []
    line += [tiny_case.EQUIPOISE, "generate", folder, "--jsonl", f"{folder}/questions.jsonl",
             "--images", f"{folder}/..", "--out", out, "--set", "train.precision=fp32", *more]
    return line + ([] if "--max-new-tokens" in more else ["--max-new-tokens", str(NEW_TOKENS)])


def answer_file(folder, out, ranks=1, *more):
    done = tiny_case.execute(answer_command(folder, out, ranks, *more))
    rows = []
    if done.returncode == 0:
        with open(out) as lines:
            rows = [json.loads(row) for row in lines]
    return done, rows


def compare_files(results, folder, model, tokenizer, picture):
    """A file of questions: Transformers' greedy answers, the same on every mesh and batch."""
    texts = ["What is 3 plus 2?", "<image>\nWhat is it?", "Tell me: was ist das?", "Why?"]
    wanted, cut = [], []
    for text in texts:
        values = pixels(picture) if "<image>" in text else None
        ids = hf_generate(model, prompt_ids(tokenizer, text, 4), values)
        wanted.append(tokenizer.decode(ids, skip_special_tokens=True))
        cut.append(len(ids) >= NEW_TOKENS)
    with open(f"{folder}/questions.jsonl", "w") as out:
        for i, text in enumerate(texts):
            row = {"question_id": i + 10, "question": text, "answers": ["no", wanted[i]]}
            out.write(json.dumps(row | ({"image": "plain.png"} if i == 1 else {})) + "\n")
        out.write(json.dumps({"image": "gone.png", "text": "What?", "answer": "x"}) + "\n")
        out.write(json.dumps({"image": "plain.png", "query": "<image><ref-object>?", "response":
                              "<bbox>", "objects": {"ref": ["it"], "bbox": [[0.5, 0, 1, 0.25]],
                                                    "bbox_type": "norm1"}}) + "\n")
    done, alone = answer_file(folder, f"{folder}/answers.jsonl")
    results.check("a file of questions: Transformers' answers",
                  [row["answer"] for row in alone[:-1]] == wanted + [""], done.stderr[-300:])
    results.check("a question with ms-swift's objects is asked with its boxes",
                  alone[5]["question"] == "<image><ref>it</ref>?" and "fault" not in alone[5] and
                  alone[5]["references"] == ["<box>[[500, 0, 1000, 250]]</box>"], str(alone[5]))
    results.check("ids, scores, and why there is no answer",
                  [row["id"] for row in alone] == [10, 11, 12, 13, 4, 5]
                  and [row["exact"] for row in alone] == [1, 1, 1, 1, 0, 0]
                  and "gone.png" in alone[4].get("fault", "") and "exact 0.6667" in done.stderr,
                  str(alone)[-300:] + done.stderr[-200:])
    told = [row.get("cut", False) for row in alone]
    results.check("answers that were cut are told", any(told) and told[:4] == cut
                  and "fault" in alone[4] and not told[4]
                  and f"{sum(told)} as long as --max-new-tokens allows" in done.stderr,
                  f"{told} {cut}")
    _, few = answer_file(folder, f"{folder}/few.jsonl", 1, "--max-new-tokens", "2")
    results.check("as many tokens as allowed", [row.get("cut", False) for row in few]
                  == [True] * 4 + [False, True], str(few)[-300:])
    for out, message in ((folder, "is a folder; name a file"),
                         (f"{folder}/none/a.jsonl", "no such folder; make it")):
        done, _ = answer_file(folder, out, 2)
        results.check("a place where no answers can be written is told before they are asked",
                      done.returncode == 5 and f"--out: {out}: {message}" in done.stderr
                      and "as long as" not in done.stderr, done.stderr[-300:])
    drawn = ["--temperature", "2", "--top-p", "0.9", "--seed", "5"]
    _, drawn_alone = answer_file(folder, f"{folder}/drawn.jsonl", 1, *drawn)
    results.check("drawn answers are others", drawn_alone != alone and len(drawn_alone) == 6)
    for ranks, more in ((1, ["--batch", "1"]), (2, []), (2, ["--set", "parallel.pipeline=2"]),
                        (2, ["--set", "parallel.tensor=2", "--batch", "2"])):
        name = f"{ranks} ranks {' '.join(more)}"
        done, rows = answer_file(folder, f"{folder}/more.jsonl", ranks, *more)
        results.check(f"{name}: the same answers", rows == alone, done.stderr[-300:])
        done, rows = answer_file(folder, f"{folder}/more.jsonl", ranks, *more, *drawn)
        results.check(f"{name}: the same drawn answers", rows == drawn_alone, done.stderr[-300:])


def kill_among_answers(line, part):
    """Once three batches are answered, those with pictures."""
    process = subprocess.Popen(line, stderr=subprocess.DEVNULL, env=tiny_case.environment())
    while process.poll() is None:
        if os.path.exists(part):
            with open(part, "rb") as file:
                if file.read().count(b"\n") >= 4:
                    break
    process.kill()
    process.wait()


def compare_killed(results, folder):
    """A command that is killed keeps the answers so far; the same command, on any mesh, asks for
    the others alone, and another command for all."""
    more = ["--batch", "1", "--max-new-tokens", "100"]
    out, part = f"{folder}/killed.jsonl", f"{folder}/killed.jsonl.part"
    _, whole = answer_file(folder, f"{folder}/whole.jsonl", 1, *more)
    for ranks, again, known in ((1, more, True), (2, more, True),
                                (1, [*more[:-1], "101"], False),
                                (1, [*more, "--set", "train.precision=bf16"], False)):
        kill_among_answers(answer_command(folder, out, 1, *more), part)
        name = f"killed, then {ranks} ranks {' '.join(again)}"
        results.check(f"{name}: some answers are kept", os.path.exists(part)
                      and not os.path.exists(out))
        done, rows = answer_file(folder, out, ranks, *again)
        results.check(f"{name}: those that were given are not asked for again",
                      ("of 6 questions were answered before" in done.stderr) == known,
                      done.stderr[-300:])
        results.check(f"{name}: the answers of a command that was not killed",
                      (rows == whole or not known) and len(rows) == 6 and
                      not os.path.exists(part), f"{rows} {whole}")
        os.remove(out)
    kill_among_answers(answer_command(folder, out, 1, *more), part)
    with open(part, "a") as kept:  # by hand: questions that are none
        kept.write('[[6,"no","",true],[-1,"no","",true],[4000000000000,"no","",true]]\n')
    _, rows = answer_file(folder, out, 1, *more)
    os.remove(out)
    results.check("kept answers to no question are passed over", rows == whole, f"{rows} {whole}")
    kill_among_answers(answer_command(folder, out, 1, *more), part)
    shutil.copy(f"{folder}/../plain.png", f"{folder}/../gone.png")
    _, rows = answer_file(folder, out, 1, *more)
    os.remove(f"{folder}/../gone.png")
    results.check("a picture that was mended meanwhile is asked about",
                  len(rows) == 6 and "fault" not in rows[4], str(rows[4:5]))


def check_refusals(results, run, picture):
    """What would be passed over without a word."""
    ask = ("--prompt", "What is it?")
    no_folder = f"--adapter: goes over a Hugging Face folder, {run} is a run; `equipoise export`"
    for name, arguments, message in (
            ("an adapter over a run", ("generate", run, *ask, "--adapter", run), no_folder),
            ("an adapter to export over a run",
             ("export", run, "--adapter", run, "--out", f"{run}/no"), no_folder),
            ("a picture given as --images", ("generate", run, *ask, "--images", picture),
             "--images: is the folder of --jsonl's pictures; give a picture as --image")):
        done = tiny_case.program(*arguments)
        results.check(f"{name} is refused", done.returncode == 2 and message in done.stderr,
                      done.stderr[-300:])


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="export")
    config = tiny_case.write_case(folder)
    done = tiny_case.run(config, 2, train__steps=30)
    results.check("30 steps on two ranks", done.returncode == 0, done.stderr[-400:])
    exported = f"{folder}/exported"
    os.makedirs(exported)
    # As an export that was killed leaves it.
    with open(f"{exported}/model.safetensors", "wb") as cut_off:
        cut_off.write(b"half")
    done = subprocess.run(
        [tiny_case.EQUIPOISE, "export", f"{folder}/run", "--out", exported],
        capture_output=True,
        text=True,
        env=tiny_case.environment(),
    )
    results.check(
        "export prints the checkpoint and the folder",
        done.returncode == 0
        and done.stdout.split("\n") == [f"from {folder}/run/checkpoints/step-00000030", exported,
                                        ""],
        done.stderr,
    )
    with open(f"{exported}/chat_template.jinja") as file:
        results.check("a folder that tells no template of its own gets that of its training",
                      "data.template chatml" in file.readline())
    again = subprocess.run(
        [tiny_case.EQUIPOISE, "export", f"{folder}/run", "--out", exported],
        capture_output=True,
        text=True,
        env=tiny_case.environment(),
    )
    results.check(
        "export does not overwrite",
        again.returncode == 2 and "holds a model" in again.stderr,
        again.stderr,
    )

    model, report = AutoModelForImageTextToText.from_pretrained(exported, output_loading_info=True)
    model.eval()
    results.check("every weight is found and none is left over",
                  not report["missing_keys"] and not report["unexpected_keys"], str(report)[:300])
    tokenizer = Tokenizer.from_file(f"{exported}/tokenizer.json")
    picture = f"{folder}/plain.png"
    tiny_case.draw(picture, "red", "disc", (56, 56), 3)
    ids = torch.tensor([prompt_ids(tokenizer, "<image>\nWhat is it?", 4)])
    save_file({"input_ids": ids, "pixel_values": pixels(picture)}, f"{folder}/inputs.safetensors")
    for name, path in (("exported folder", exported),):
        done = subprocess.run(
            [
                tiny_case.EQUIPOISE,
                "check",
                path,
                f"{folder}/inputs.safetensors",
                "--out",
                f"{folder}/out.safetensors",
            ],
            capture_output=True,
            text=True,
            env=tiny_case.environment(),
        )
        results.check(f"check on the {name}", done.returncode == 0, done.stderr[-300:])
        with torch.no_grad():
            want = model(input_ids=ids, pixel_values=pixels(picture)).logits
        got = load_file(f"{folder}/out.safetensors")["logits"]
        error = ((got - want).abs().max() / want.abs().max()).item()
        results.check(
            f"{name}: same logits in Transformers", error <= 1e-5, f"{error:.2e} of the largest"
        )
    check_refusals(results, f"{folder}/run", picture)
    compare_answers(results, "run folder", f"{folder}/run", model, tokenizer, picture)
    compare_answers(results, "exported folder", exported, model, tokenizer, picture)

    torch.manual_seed(3)
    random_model = answer_in_letters(AutoModelForImageTextToText.from_config(model.config),
                                     tokenizer)
    random_folder = f"{folder}/random"
    random_model.save_pretrained(random_folder)
    shutil.copy(f"{exported}/tokenizer.json", random_folder)
    compare_answers(results, "random model", random_folder, random_model, tokenizer, picture,
                    in_letters=True)
    compare_samples(results, random_folder)
    check_settings(results, random_folder, tokenizer, picture)
    compare_files(results, random_folder, random_model, tokenizer, picture)
    compare_killed(results, random_folder)

    text_model = answer_in_letters(AutoModelForCausalLM.from_config(model.config.text_config),
                                   tokenizer)
    text_folder = f"{folder}/text"
    text_model.save_pretrained(text_folder)
    shutil.copy(f"{exported}/tokenizer.json", text_folder)
    compare_answers(results, "text-only model", text_folder, text_model, tokenizer, None,
                    in_letters=True)
    control_folder = f"{folder}/control"
    shutil.copytree(text_folder, control_folder)
    check_terminal(results, control_folder,
                   AutoModelForCausalLM.from_config(model.config.text_config), tokenizer)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
