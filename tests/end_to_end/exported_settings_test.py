"""An exported folder alone answers as its run: it has the run's tiles, template and system text."""
import json
import os
import shutil
import sys
import tempfile

import pyarrow
import pyarrow.parquet

import tiny_case

QUESTIONS = 12


def answers(results, name, model, questions, images, out, *more, ranks=1):
    done = tiny_case.run(model, ranks, "generate", "--jsonl", questions, "--images", images,
                         "--out", out, "--max-new-tokens", "12", *more,
                         "--set", "train.precision=fp32")  # as trained: rounding may tip a word
    results.check(f"{name}: asked", done.returncode == 0, done.stderr[-400:])
    with open(out) as file:
        return [json.loads(line) for line in file]


def check_export(results, folder, config, name, **settings):
    """Trains with these settings, which are none of the model's folder, and asks run and export."""
    run, out = f"{folder}/{name}", f"{folder}/{name}_exported"
    done = tiny_case.run(config, 1, run__dir=run, train__steps=40, **settings)
    results.check(f"{name}: trained", done.returncode == 0, done.stderr[-400:])
    done = tiny_case.program("export", run, "--out", out)
    results.check(f"{name}: exported", done.returncode == 0, done.stderr[-400:])
    of_run, of_export = (answers(results, f"{name}, {model}", model, f"{folder}/ask.jsonl",
                                 f"{folder}/images", f"{folder}/answers.jsonl")
                         for model in (run, out))
    results.check(f"{name}: the export answers as the run",
                  of_run == of_export and len({row["answer"] for row in of_run}) > 1,
                  f"{of_run} {of_export}")
    return run, out


def check_adapters(results, folder, config):
    """Adapters' folder says with which tiles and template they were trained, for `generate` and for
    the whole model."""
    run, base, out = (f"{folder}/{name}" for name in ("lora", "tiles_exported", "adapters"))
    done = tiny_case.run(config, 1, run__dir=run, model__hf=base, model__init="pretrained",
                         model__adapter__targets="[all-linear]", train__steps=40,
                         data__tiles="{min: 1, max: 1}", data__system="Be brief.")
    results.check("adapters: trained", done.returncode == 0, done.stderr[-400:])
    for line in (["export", run, "--out", out],
                 ["export", base, "--adapter", out, "--merge", "--out", f"{folder}/merged"]):
        done = tiny_case.program(*line)
        results.check(f"{line[1]}: exported", done.returncode == 0, done.stderr[-400:])
    done = tiny_case.program("export", base, "--adapter", out, "--merge", "--out",
                             f"{folder}/refused", "--set", "model.bass=nf4")
    results.check("adapters: a setting that is none is refused", done.returncode == 2 and
                  "model.bass" in done.stderr, done.stderr)
    results.check("adapters: no model", not os.path.exists(f"{out}/config.json") and
                  os.path.exists(f"{out}/tokenizer.json"), str(os.listdir(out)))
    of_run, of_adapters, of_merged = (
        answers(results, " ".join(line), line[0], f"{folder}/ask.jsonl", f"{folder}/images",
                f"{folder}/answers.jsonl", *line[1:])
        for line in ([run], [base, "--adapter", out], [f"{folder}/merged"]))
    results.check("adapters over their base answer as the run", of_adapters == of_run,
                  f"{of_run} {of_adapters}")
    results.check("the merged model answers as the run", of_merged == of_run,
                  f"{of_run} {of_merged}")
    for mesh in ("data", "pipeline"):
        on_two = answers(results, f"adapters on two {mesh} ranks", base, f"{folder}/ask.jsonl",
                         f"{folder}/images", f"{folder}/answers.jsonl", "--adapter", out, "--set",
                         f"parallel.{mesh}=2", ranks=2)
        results.check(f"adapters on two {mesh} ranks: the same answers", on_two == of_run,
                      f"{of_run} {on_two}")


def check_parquet(results, folder, model, expected):
    """Pictures that lie in the rows of questions, with a name or without."""
    with open(f"{folder}/ask.jsonl") as file:
        records = [json.loads(line) for line in file]
    for path in (lambda name: f"elsewhere/{name}", lambda name: None):
        rows = {"question": [], "answer": [], "images": []}
        for record in records:
            rows["question"].append(record["conversations"][0]["value"])
            rows["answer"].append(record["conversations"][1]["value"])
            names = record.get("image", [])
            rows["images"].append([
                {"bytes": open(f"{folder}/images/{name}", "rb").read(), "path": path(name)}
                for name in ([names] if isinstance(names, str) else names)])
        pyarrow.parquet.write_table(pyarrow.table(rows), f"{folder}/ask.parquet", row_group_size=5)
        given = answers(results, "Parquet", model, f"{folder}/ask.parquet", f"{folder}/model",
                        f"{folder}/of_rows.jsonl")
        results.check("Parquet: the answers of the same questions in JSONL",
                      [row["answer"] for row in given] == [row["answer"] for row in expected] and
                      all(row["exact"] is not None for row in given), f"{given} {expected}")


def check_refusals(results, folder, run, out):
    """Nothing is written over a run, or over what the command reads."""
    questions = f"{folder}/own.jsonl"
    shutil.copy(f"{folder}/ask.jsonl", questions)
    config = f"{folder}/own.yaml"
    shutil.copy(f"{folder}/config.yaml", config)
    for name, kept, line in (
            ("a run's folder", f"{run}/config.yaml", ["export", run, "--out", run]),
            ("a checkpoint", f"{run}/config.yaml",
             ["export", run, "--out", f"{run}/checkpoints/latest"]),
            ("the questions", questions, ["generate", run, "--jsonl", questions, "--out",
                                          questions]),
            ("the configuration: plan", config, ["plan", config, "--html", config]),
            ("the configuration: data show", config, ["data", config, "show", "0", "--html",
                                                      config]),
            ("the inputs of check", questions, ["check", f"{folder}/model", questions, "--out",
                                                questions]),
            ("the recipe of check", questions, ["check", f"{folder}/model", config, "--steps",
                                                f"{questions}:b", "--out", questions]),
            ("the configuration: profile", config, ["profile", config, "--out", config])):
        with open(kept, "rb") as file:
            before = file.read()
        done = tiny_case.program(*line)
        with open(kept, "rb") as file:
            same = file.read() == before
        results.check(f"over {name}: refused in one line", done.returncode == 2 and same and
                      done.stderr.count("\n") == 1 and "equipoise: --" in done.stderr, done.stderr)
    results.check("no model in the run's folder", not os.path.exists(f"{run}/config.json"))
    # As an older program left it: the checkpoints count.
    shutil.copy(f"{out}/config.json", f"{run}/config.json")
    done = tiny_case.program("export", run, "--out", f"{folder}/once_more")
    results.check("a run's folder with a model in it is a run", done.returncode == 0 and
                  done.stdout.startswith(f"from {run}/checkpoints/"), done.stderr)


def check_pointer(results, folder):
    """What a clone without Git LFS has in place of a file."""
    shutil.copytree(f"{folder}/model", f"{folder}/cloned")
    with open(f"{folder}/cloned/tokenizer.json", "w") as file:
        file.write("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    done = tiny_case.run(f"{folder}/config.yaml", 1, model__hf=f"{folder}/cloned")
    results.check("a pointer in place of the tokenizer", done.returncode == 4 and
                  "tokenizer.json" in done.stderr and "git lfs pull" in done.stderr, done.stderr)


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="exported_settings")
    config = tiny_case.write_case(folder)
    with open(f"{folder}/train.jsonl") as file, open(f"{folder}/ask.jsonl", "w") as ask:
        ask.writelines(file.readlines()[:QUESTIONS])
    run, out = check_export(results, folder, config, "tiles", data__tiles="{min: 1, max: 3}")
    with open(f"{out}/preprocessor_config.json") as file:
        tiles = json.load(file)
    results.check("the tiles of the run", tiles["max_patches"] == 3 and tiles["crop_to_patches"],
                  str(tiles))
    with open(f"{folder}/answers.jsonl") as file:
        check_parquet(results, folder, run, [json.loads(line) for line in file])
    check_refusals(results, folder, run, out)
    check_adapters(results, folder, config)
    # Over a folder with a template of its own.
    with open(f"{folder}/model/chat_template.jinja", "w") as file:
        file.write("{{ '<|im_start|>' }} {{ '<|im_end|>' }}{# # Tools, as in Qwen3-VL's #}")
    _, out = check_export(results, folder, config, "own", data__template="chatml")
    with open(f"{out}/chat_template.jinja") as file:
        results.check("the same template stays as it is",
                      file.read().startswith("{{ '<|im_start|>' }}"))
    with open(f"{folder}/model/chat_template.jinja", "w") as file:
        file.write("{{ '<|im_start|>' }} {{ '<|im_end|>' }}")
    _, out = check_export(results, folder, config, "like", data__template="chatml")
    with open(f"{out}/chat_template.jinja") as file:
        results.check("one that only looks like it is written anew",
                      "data.template chatml" in file.readline())
    check_export(results, folder, config, "system", data__system="Be brief.")
    _, out = check_export(results, folder, config, "other", data__template="qwen3_no_thinking")
    with open(f"{out}/chat_template.jinja") as file:
        results.check("another template takes its place",
                      "data.template qwen3_no_thinking" in file.readline())
    check_pointer(results, folder)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
