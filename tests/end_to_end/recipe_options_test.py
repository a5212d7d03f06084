"""Options that fine-tuning recipes of other trainers have: epochs, parts of a file to train on and
to hold out, at most so many samples, the last answer alone. Each gives the losses of the same run
said in another way."""
import json
import math
import os
import re
import shutil
import sys
import tempfile

import tiny_case

RANDOM = {"balance__group": "random", "train__micro_batch": 2, "train__global_batch": 4}


class Bench:
    def __init__(self, results, folder):
        self.results, self.folder = results, folder
        self.config = tiny_case.write_case(folder)
        with open(f"{folder}/train.jsonl", encoding="utf8") as file:
            self.lines = file.readlines()

    def run(self, name, ranks=1, **settings):
        """The metrics of a run."""
        where = f"{self.folder}/{name}"
        done = tiny_case.run(self.config, ranks, run__dir=where, **{**RANDOM, **settings})
        self.results.check(f"{name}: trains", done.returncode == 0, done.stderr[-400:])
        return tiny_case.metrics(where) if done.returncode == 0 else []

    def source(self, name, lines=None, **fields):
        """A source of records in a file of their own, or of those of the case."""
        path = f"{self.folder}/train.jsonl"
        if lines is not None:
            path = f"{self.folder}/{name}.jsonl"
            with open(path, "w", encoding="utf8") as file:
                file.writelines(lines)
        more = "".join(f", {key}: {value}" for key, value in fields.items())
        return f"[{{annotations: {path}, images: {self.folder}/images{more}}}]"


def check_epochs(bench):
    samples = RANDOM["train__micro_batch"] * RANDOM["train__global_batch"]
    for epochs in (0.5, 2):
        want = math.ceil(epochs * len(bench.lines) / samples)
        rows = bench.run(f"epochs-{epochs}", train__epochs=epochs)
        bench.results.check(f"{epochs} epochs are {want} steps", len(rows) == want, len(rows))
        steps = bench.run(f"steps-{want}", train__steps=want)
        bench.results.check("with the losses and rates of as many steps",
                            [(r["loss"], r["lr"]) for r in rows] ==
                            [(r["loss"], r["lr"]) for r in steps])
    with open(f"{bench.folder}/epochs-2/config.yaml", encoding="utf8") as file:
        text = file.read()
    bench.results.check("the run's configuration has both",
                        f"steps: {want}\n" in text and "epochs: 2\n" in text)
    again = tiny_case.run(bench.config, 2, run__dir=f"{bench.folder}/epochs-2", train__epochs=3,
                          **RANDOM)
    rows = tiny_case.metrics(f"{bench.folder}/epochs-2")
    bench.results.check("an epoch more goes on from there, on two ranks",
                        again.returncode == 0 and
                        len(rows) == math.ceil(3 * len(bench.lines) / samples),
                        f"{len(rows)} {again.stderr[-300:]}")
    # Half the batch from there on: what is left of another epoch, in steps of half the size.
    half = {**RANDOM, "train__global_batch": RANDOM["train__global_batch"] // 2}
    done = tiny_case.run(bench.config, 1, run__dir=f"{bench.folder}/epochs-2", train__epochs=4,
                         **half)
    packs = math.ceil(len(bench.lines) / RANDOM["train__micro_batch"])
    taken = len(rows) * RANDOM["train__global_batch"]
    want_steps = len(rows) + math.ceil((4 * packs - taken) / half["train__global_batch"])
    last = tiny_case.metrics(f"{bench.folder}/epochs-2")[-1]
    bench.results.check("in half the batch an epoch is twice the steps", done.returncode == 0 and
                        last["step"] == want_steps and abs(last["epoch"] - 4) < 0.2,
                        f"{last} {want_steps} {done.stderr[-300:]}")
    done = tiny_case.run(bench.config, 1, run__dir=f"{bench.folder}/epochs-2", train__epochs=4,
                         **half)
    bench.results.check("then nothing is left, and the key that would give more is named",
                        done.returncode == 0 and "nothing left to do" in done.stderr and
                        "raise train.epochs" in done.stderr, done.stderr[-300:])
    plan = tiny_case.run(bench.config, 1, "plan", "--ranks", "2", "--json",
                         f"{bench.folder}/plan.json", train__epochs=2, **RANDOM)
    with open(f"{bench.folder}/plan.json", encoding="utf8") as file:
        planned = json.load(file)["steps"]
    bench.results.check("plan counts them too", plan.returncode == 0 and planned == want, planned)
    with open(bench.config, encoding="utf8") as file:
        recipe = re.sub(r"steps: \d+", "epochs: 2", file.read())
    path = f"{bench.folder}/recipe.yaml"
    with open(path, "w", encoding="utf8") as file:
        file.write(recipe)
    short = tiny_case.run(path, 1, train__steps=3, run__dir=f"{bench.folder}/short", **RANDOM)
    bench.results.check("steps of the command line come before a recipe's epochs",
                        short.returncode == 0 and
                        len(tiny_case.metrics(f"{bench.folder}/short")) == 3)


def check_parts(bench):
    """The same records said by a part of the file, and by a file of their own."""
    cut = len(bench.lines) * 3 // 4
    first, last = bench.lines[:cut], bench.lines[cut:]
    settings = {"train__steps": 3, "eval__every": 1, "eval__samples": 100}
    said = bench.run("parts", data__train=bench.source("a", repeat=0.75),
                     data__eval=bench.source("b", repeat=0.25, take="last"), **settings)
    own = bench.run("files", data__train=bench.source("first", first),
                    data__eval=bench.source("last", last), **settings)
    bench.results.check("a part to train on and the rest held out",
                        [(r["loss"], r["eval_loss"]) for r in said] ==
                        [(r["loss"], r["eval_loss"]) for r in own])
    bench.results.check("the last records are not the first",
                        bench.run("first-held-out", data__train=bench.source("a", repeat=0.75),
                                  data__eval=bench.source("b", samples=len(last)),
                                  **settings)[-1]["eval_loss"] != own[-1]["eval_loss"])
    settings = {"train__steps": 3}
    most = bench.run("most", data__train=bench.source("c", max_samples=cut), **settings)
    bench.results.check("at most so many samples are the first",
                        [r["loss"] for r in most] == [r["loss"] for r in own])
    more = bench.run("more", data__train=bench.source("d", max_samples=10 ** 6), **settings)
    every = bench.run("every", data__train=bench.source("e"), **settings)
    bench.results.check("more than there are are all, once",
                        [r["loss"] for r in more] == [r["loss"] for r in every])


def check_shipped(bench):
    """Configurations that users begin with have no mistakes, whatever lies on this machine."""
    for name in sorted(os.listdir("configs")):
        if not name.endswith(".yaml"):
            continue
        done = tiny_case.program("plan", f"configs/{name}", "--ranks", "2")
        bench.results.check(f"configs/{name}", done.returncode in (0, 3, 4), done.stderr[-300:])


def check_turns(bench):
    """Trained on the last answer alone: the others have weight 0."""
    plain, marked = [], []
    for one, two in zip(bench.lines[::2], bench.lines[1::2]):
        record, other = json.loads(one), json.loads(two)
        if "image" in other:
            record, other = other, record
        if "image" in other:
            continue
        turns = record["conversations"] + other["conversations"]
        plain.append(json.dumps(dict(record, conversations=turns)) + "\n")
        turns = [dict(turns[0]), dict(turns[1], weight=0), *turns[2:]]
        marked.append(json.dumps(dict(record, conversations=turns)) + "\n")
    settings = {"train__steps": 3, "train__global_batch": 1}
    last = bench.run("last", data__train=bench.source("plain", plain), data__train_turns="last",
                     **settings)
    zero = bench.run("zero", data__train=bench.source("marked", marked), **settings)
    every = bench.run("all", data__train=bench.source("plain", plain), **settings)
    bench.results.check("the last answer alone is trained on",
                        [r["loss"] for r in last] == [r["loss"] for r in zero])
    bench.results.check("all are without it",
                        [r["loss"] for r in every] != [r["loss"] for r in last])


def check_intervals(bench):
    """Checkpoints and held-out losses each half of a pass over the data."""
    samples = RANDOM["train__micro_batch"] * RANDOM["train__global_batch"]
    epoch = len(bench.lines) / samples
    bench.results.check("a pass is no whole number of steps", epoch != int(epoch), epoch)
    settings = {"checkpoint__epochs": 0.5, "checkpoint__keep": 100, "eval__epochs": 0.5,
                "data__eval": bench.source("held", bench.lines[:6])}
    rows = bench.run("by-epochs", train__epochs=2, **settings)
    due = [math.ceil(half * epoch / 2) for half in range(1, 5)]
    kept = sorted(int(re.sub(r"\D", "", name)) for name in
                  os.listdir(f"{bench.folder}/by-epochs/checkpoints") if name.startswith("step-"))
    bench.results.check("a checkpoint behind each half of a pass", kept == due, f"{kept} {due}")
    measured = [r["step"] for r in rows if r.get("eval_loss") is not None]
    bench.results.check("and a held-out loss", measured == due, f"{measured} {due}")
    done = tiny_case.run(bench.config, 1, run__dir=f"{bench.folder}/rounds", eval__epochs=1,
                         train__diloco__every=2, data__eval=settings["data__eval"], **RANDOM)
    bench.results.check("passes do not end with rounds of DiLoCo",
                        done.returncode == 2 and "eval.epochs:" in done.stderr, done.stderr[-300:])
    done = tiny_case.run(bench.config, 1, run__dir=f"{bench.folder}/none", eval__epochs=1, **RANDOM)
    bench.results.check("nothing to measure",
                        done.returncode == 2 and "eval.epochs:" in done.stderr, done.stderr[-300:])


def check_lengths(bench):
    """Samples of more than data.max_tokens dropped: the run of a file without them."""
    long = [json.loads(line) for line in bench.lines[:3]]
    for record in long:
        record["conversations"][-1]["value"] += " and more" * 400
    lines = [json.dumps(record) + "\n" for record in long] + bench.lines[3:]
    settings = {"train__steps": 3, "data__max_tokens": 256}
    cut = bench.run("cut", data__train=bench.source("lengths", lines), **settings)
    where = f"{bench.folder}/dropped"
    dropped = bench.run("dropped", data__train=bench.source("lengths", lines),
                        data__too_long="drop", data__max_bad_share=0, **settings)
    without = bench.run("without", data__train=bench.source("short", lines[3:]), **settings)
    losses = [[r["loss"] for r in rows] for rows in (cut, dropped, without)]
    bench.results.check("dropped for their length", losses[1] == losses[2] and losses[1], losses)
    bench.results.check("without the setting they are cut", losses[0] != losses[1], losses)
    bench.results.check("and none counts as bad", dropped[-1]["skipped_samples"] == 0 and
                        not os.path.getsize(f"{where}/quarantine.jsonl"))
    done = tiny_case.run(bench.config, 1, "data", "check", data__too_long="drop",
                         data__train=bench.source("lengths", lines), data__max_tokens=256)
    bench.results.check("`data check` says how many",
                        done.returncode == 0 and "3 of " in done.stdout and
                        "are dropped" in done.stdout, done.stdout[-300:])


def check_hub(bench):
    """A model and records by their names on the Hub, as huggingface_hub keeps them."""
    cache = f"{bench.folder}/hub"
    os.environ["HF_HUB_CACHE"] = cache
    for name, source in (("models--org--Tiny-1.5B", f"{bench.folder}/model"),
                         ("datasets--org--shapes", bench.folder)):
        snapshot = f"{cache}/{name}/snapshots/0123abcd"
        os.makedirs(f"{cache}/{name}/refs")
        os.makedirs(snapshot)
        with open(f"{cache}/{name}/refs/main", "w", encoding="utf8") as file:
            file.write("0123abcd")
        files = os.listdir(source) if "model" in name else ["train.jsonl", "images"]
        for each in files:
            os.symlink(f"{source}/{each}", f"{snapshot}/{each}")
    named = bench.run("hub", ranks=2, train__steps=2, model__hf="org/Tiny-1.5B",
                      data__train="[{annotations: org/shapes/train.jsonl, "
                                  "images: org/shapes/images}]")
    plain = bench.run("no-hub", ranks=2, train__steps=2)
    bench.results.check("names of the Hub are what lies in its cache",
                        [r["loss"] for r in named] == [r["loss"] for r in plain])
    done = tiny_case.run(bench.config, 1, run__dir=f"{bench.folder}/no-model",
                         model__hf="org/other")
    bench.results.check("a name that is not there",
                        done.returncode == 4 and "hf download org/other" in done.stderr,
                        done.stderr[-300:])
    os.makedirs(f"{bench.folder}/splits")
    for name in ("train-00000-of-00001.jsonl", "test-00000-of-00001.jsonl"):
        shutil.copy(f"{bench.folder}/train.jsonl", f"{bench.folder}/splits/{name}")
    done = tiny_case.run(bench.config, 1, run__dir=f"{bench.folder}/mixed",
                         data__train=f"[{{annotations: {bench.folder}/splits}}]")
    bench.results.check("splits of a folder are not mixed",
                        done.returncode == 2 and "several splits (test, train)" in done.stderr,
                        done.stderr[-300:])


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="recipe")
    bench = Bench(results, folder)
    tiny_case.side_by_side(lambda: check_epochs(bench), lambda: check_parts(bench))
    tiny_case.side_by_side(lambda: check_turns(bench), lambda: check_shipped(bench))
    tiny_case.side_by_side(lambda: check_intervals(bench), lambda: check_lengths(bench))
    check_hub(bench)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
