"""What a run goes on from, what it says then, and what it never does: lose a good checkpoint, start
anew in silence, or train on weights that are not finite."""
import glob
import json
import os
import shutil
import sys
import tempfile

from safetensors.numpy import load_file, save_file

import checkpoint_reader
import tiny_case
from refusals import Cases


class Bench:
    def __init__(self, results, folder):
        self.results, self.folder = results, folder
        self.cases = Cases(results)
        self.config = tiny_case.write_case(folder)

    def run(self, name, says="", ranks=1, *more, silent=(), **settings):
        done = tiny_case.run(self.config, ranks, "train", *more, **settings)
        says = [says] if isinstance(says, str) else says
        self.results.check(name, done.returncode == 0 and all(s in done.stderr for s in says) and
                           not any(s in done.stderr for s in silent),
                           f"exit {done.returncode} {done.stderr[-1500:]}" if done.returncode or
                           not all(s in done.stderr for s in says) else "")
        return done

    def refused(self, name, code, *words, ranks=1, more=(), **settings):
        self.cases.refused(name, tiny_case.command(self.config, ranks, "train", *more, **settings),
                           code, *words)


def steps_in(run_dir):
    return sorted(int(path[-8:]) for path in glob.glob(f"{run_dir}/checkpoints/step-*"))


def destroyed(bench, ranks):
    """A learning rate that makes the weights useless: the good checkpoints stay, the same command
    fails the same way, and with a better rate the run comes back."""
    check, run_dir = bench.results.check, f"{bench.folder}/destroyed{ranks}"
    good = dict(run__dir=run_dir, checkpoint__every=1, checkpoint__keep=2, train__warmup=0,
                train__schedule="constant")
    bench.run(f"{ranks} ranks: a good start", ranks=ranks, train__steps=3, **good)
    # Of 1e20 no number overflows in the update itself, of 1e38 some do.
    for lr in (1e20, 1e38):
        for attempt in ("first", "second"):
            bench.refused(f"{ranks} ranks, rate {lr}, {attempt} time", 5, "5 in a row", "train.lr",
                          ranks=ranks, train__lr=lr, train__clip=0, train__steps=60, **good)
            left = steps_in(run_dir)
            check("a good checkpoint is left", 3 in left and len(left) <= 3, str(left))
    done = bench.run(f"{ranks} ranks: with a better rate it goes on", "going on from", ranks,
                     train__steps=6, **good)
    check("from the last good step", "step-00000003 (step 3 of 6)" in done.stderr,
          done.stderr[-800:])
    straight = f"{bench.folder}/straight{ranks}"
    bench.run("the run without the bad rate", ranks=ranks, train__steps=6,
              **{**good, "run__dir": straight})
    differing = checkpoint_reader.differing(*(f"{d}/checkpoints/step-00000006"
                                              for d in (run_dir, straight)))
    check("weights and moments are as if it had never been given", not differing,
          str(differing[:3]))


def poisoned_model(bench):
    run_dir, exported = f"{bench.folder}/source", f"{bench.folder}/exported"
    bench.run("a run to export", [f"saved {run_dir}/checkpoints/step-00000002 (", "MiB in",
                                  f"last checkpoint: {run_dir}/checkpoints/step-00000002",
                                  f"equipoise export {run_dir} --out"],
              run__dir=run_dir, train__steps=2)
    done = tiny_case.execute([tiny_case.EQUIPOISE, "export", run_dir, "--out", exported])
    bench.results.check("its export", done.returncode == 0, done.stderr)
    bench.refused("model.hf is a run folder", 4, "is a run folder", f"equipoise export {run_dir}",
                  model__hf=run_dir, run__dir=f"{bench.folder}/none")
    weights = f"{exported}/model.safetensors"
    whole = load_file(weights)
    name = next(n for n in whole if n.endswith("layers.1.mlp.up_proj.weight"))
    settings = dict(model__hf=exported, model__init="pretrained", train__steps=1)
    spoilt = {n: t.copy() for n, t in whole.items()}
    spoilt[name][3, 5] = float("nan")
    save_file(spoilt, weights, metadata={"format": "pt"})
    for ranks in (1, 2):  # of a pipeline, the second has the tensor
        bench.refused(f"pretrained weights with a NaN, {ranks} ranks", 4, "model.safetensors", name,
                      "infinite or no numbers", ranks=ranks, parallel__pipeline=ranks,
                      run__dir=f"{bench.folder}/poisoned{ranks}", **settings)
    spoilt[name][:] = 0
    save_file(spoilt, weights, metadata={"format": "pt"})
    bench.run("a matrix of zeros is trained on, and told", ["1 weight matrices", name], 2,
              parallel__pipeline=2, run__dir=f"{bench.folder}/zeros", **settings)
    spoilt[name][:] = 1e6
    save_file(spoilt, weights, metadata={"format": "pt"})
    large = f"{bench.folder}/large"
    bench.run("large weights", run__dir=large, train__lr=0, **settings)
    bench.cases.refused("an export beyond fp16's range", [
        tiny_case.EQUIPOISE, "export", large, "--out", f"{bench.folder}/half", "--dtype", "fp16"],
        2, name, "bf16")


def changed(bench):
    run_dir = f"{bench.folder}/changed"
    settings = dict(run__dir=run_dir, train__schedule="cosine", train__lr=1e-3)
    bench.run("8 steps", silent=["settings changed"], train__steps=8, **settings)
    bench.run("the same again", "nothing left to do: step 8 of 8; raise train.steps",
              silent=["settings changed"], train__steps=8, **settings)
    bench.run("fewer", "nothing left to do: step 8 of 7", train__steps=7, **settings)
    bench.run("more steps: the curve is another", [
        "train.steps was 8 and is 10; the learning rate of step 9 is",
        "and would have been 0"], train__steps=10, **settings)
    bench.run("other settings", [
        "checkpoint.every was 5 and is 4", "train.global_batch was 8 and is 4",
        "train.lr was 0.001 and is 0.0005", "train.schedule was \"cosine\" and is \"constant\"",
        "train.steps was 10 and is 11", "is in another order now"],
        train__steps=11, train__global_batch=4,
        checkpoint__every=4, **{**settings, "train__lr": 5e-4, "train__schedule": "constant"})
    annotations = f"{bench.folder}/train.jsonl"
    with open(annotations) as file:
        records = file.readlines()
    with open(annotations, "a") as file:
        file.write(records[0])
    bench.refused("a grown file of records is named", 2, "made from other records", annotations,
                  "changed since", train__steps=12, **settings)
    with open(annotations, "w") as file:
        file.writelines(records)
    bench.run("put back", "going on from", train__steps=12, **settings)


def of_version_2(path):
    with open(path) as file:
        index = json.load(file)
    for key in ("settings", "xxh3_64"):
        del index[key]
    del index["sections"]["data"]["files"]
    index["version"] = 2
    return index


def other_program(bench, path, index, settings):
    """A version of the program that made other tokens of the same records: only the checksum of the
    index tells. Its weights can be had."""
    content = index["sections"]["data"]["content"]
    index["sections"]["data"]["content"] = "1"
    with open(path, "w") as file:
        json.dump(index, file)
    newest = os.path.dirname(path)
    bench.refused("samples that another version of the program counted", 2,
                  f"{newest}: made from other samples", "another version of this program",
                  f"equipoise export {newest} --out", train__steps=8, **settings)
    exported = f"{bench.folder}/of_another_version"
    done = tiny_case.execute([tiny_case.EQUIPOISE, "export", newest, "--out", exported])
    bench.results.check("its weights are exported", done.returncode == 0, done.stderr)
    bench.run("and trained on", f"reading weights from {exported}", train__steps=1,
              model__hf=exported, model__init="pretrained",
              **{**settings, "run__dir": f"{exported}_run"})
    index["sections"]["data"]["content"] = content
    with open(path, "w") as file:
        json.dump(index, file)


def damaged(bench):
    """What FindCheckpoint() cannot see: the index says one thing, the model needs another."""
    check, run_dir = bench.results.check, f"{bench.folder}/damaged"
    settings = dict(run__dir=run_dir, checkpoint__every=2, train__schedule="constant")
    bench.run("6 steps", train__steps=6, **settings)
    newest, kept = f"{run_dir}/checkpoints/step-00000006", f"{bench.folder}/kept"
    path = f"{newest}/index.json"
    index = of_version_2(path)
    with open(path, "w") as file:
        json.dump(index, file)
    other_program(bench, path, index, settings)
    bench.run("a checkpoint of version 2 is read, and told", [
        "step-00000006: of format version 2", "going on from", "step 6 of 6"], train__steps=6,
        **settings)
    shutil.copytree(newest, kept)
    name = next(n for n in index["tensors"] if n.endswith("q_proj.weight") and "exp" not in n)
    faults = {
        "a tensor under another name": lambda i: i["tensors"].update(
            {name[:-1] + "u": i["tensors"].pop(name)}),
        "a moment that is absent": lambda i: i["tensors"].pop(f"exp_avg_sq.{name}"),
        "another shape": lambda i: i["tensors"].update({name: {
            "shape": [1, 64], "pieces": [{"file": i["tensors"][name]}]}}),
        "a pack beyond the epoch": lambda i: i["state"].update(pack=100000),
    }
    for ranks, (fault, edit) in zip((1, 2, 1, 2), faults.items()):
        spoilt = json.loads(json.dumps(index))
        edit(spoilt)
        with open(f"{kept}/index.json", "w") as file:
            json.dump(spoilt, file)
        shutil.rmtree(newest)
        shutil.copytree(kept, newest)
        bench.refused(f"{fault}, asked for by name", 4, "step-00000006", ranks=ranks,
                      more=("--resume", newest), train__steps=6, **settings)
        done = bench.run(f"{fault}, {ranks} ranks", [
            "this checkpoint is passed over", "step-00000004 (step 4 of 6)"], ranks,
            train__steps=6, **settings)
        check("and the steps stand once", done.returncode == 0 and
              [row["step"] for row in tiny_case.metrics(run_dir)] == [1, 2, 3, 4, 5, 6])


def micro_batches(bench):
    run_dir = f"{bench.folder}/micro_batches"
    settings = dict(run__dir=run_dir, balance__group="random", train__global_batch=2)
    bench.run("packs of 2 samples", train__steps=2, train__micro_batch=2, **settings)
    bench.refused("packs of 3 are others", 2, "train.micro_batch was 2 and is 3", train__steps=3,
                  train__micro_batch=3, **settings)
    path = f"{run_dir}/checkpoints/step-00000002/index.json"
    index = of_version_2(path)
    del index["sections"]["train"]["micro_batch"]
    with open(path, "w") as file:
        json.dump(index, file)
    bench.run("a checkpoint from before it was written is read", "going on from", train__steps=3,
              train__micro_batch=2, **settings)


def metrics_alone(bench):
    check, run_dir = bench.results.check, f"{bench.folder}/alone"
    settings = dict(run__dir=run_dir, checkpoint__every=3, train__schedule="constant")
    bench.run("5 steps", train__steps=5, **settings)
    rows = tiny_case.metrics(run_dir)
    shutil.move(f"{run_dir}/checkpoints", f"{run_dir}/elsewhere")
    bench.refused("checkpoints that are gone", 4, "metrics.jsonl: has 5 steps", "--resume none",
                  train__steps=6, **settings)
    check("metrics are as they were", tiny_case.metrics(run_dir) == rows)
    bench.run("anew on request", "kept as", 1, "--resume", "none", train__steps=2, **settings)
    with open(f"{run_dir}/metrics.jsonl.1") as lines:
        check("the old metrics are kept", [json.loads(line) for line in lines] == rows)
    # As a job that was killed before its first checkpoint leaves it.
    shutil.rmtree(f"{run_dir}/checkpoints")
    os.remove(f"{run_dir}/report.html")
    bench.run("a run that had not saved yet starts anew by itself", "metrics.jsonl.2",
              train__steps=2, **settings)
    check("with metrics of its own", [r["step"] for r in tiny_case.metrics(run_dir)] == [1, 2])


def in_the_way(bench):
    run_dir = f"{bench.folder}/blocked"
    for place in ("checkpoints/latest", "stop"):
        os.makedirs(f"{run_dir}/{place}")
        bench.refused(f"a folder {place}", 5, place, "move it away", run__dir=run_dir,
                      train__steps=1)
        shutil.rmtree(run_dir)
    # A folder in which no file can be made, and folders in the place of files.
    os.makedirs(f"{run_dir}/report.html")
    os.makedirs(f"{run_dir}/trace.json")
    os.symlink("/proc", f"{run_dir}/tensorboard")
    done = bench.run("files that only show the run do not end it", [
        "report.html", "trace.json", "tensorboard"], run__dir=run_dir, train__steps=4,
        run__trace_steps=1)
    bench.results.check("each is told once", done.stderr.count("goes on without it") == 3,
                        done.stderr[-1500:])
    bench.results.check("it trained and saved", steps_in(run_dir) == [4] and
                        len(tiny_case.metrics(run_dir)) == 4)


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="resume")
    bench = Bench(results, folder)
    tiny_case.side_by_side(lambda: destroyed(bench, 1), lambda: destroyed(bench, 2),
                           lambda: poisoned_model(bench), lambda: damaged(bench),
                           lambda: metrics_alone(bench), lambda: in_the_way(bench),
                           lambda: micro_batches(bench))
    changed(bench)  # changes the records
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
