"""Islands that meet at outer steps (train.diloco): the same on every mesh and after every stop, the
outer step is torch.optim.SGD's, and what cannot be is refused."""
import json
import os
import shutil
import sys
import tempfile

import numpy
import torch

import checkpoint_reader
import tiny_case
from refusals import Cases

EVERY = 4
SETTINGS = dict(train__diloco__islands=2, train__diloco__every=EVERY, train__schedule="constant",
                train__global_batch=8, checkpoint__every=3, checkpoint__keep=99)


def at(run_dir, step):
    return f"{run_dir}/checkpoints/step-{step:08d}"


def is_moment(name):
    return "exp_avg" in name or name.startswith("outer_momentum.")


def weights(tensors, prefix=""):
    """Those under a prefix, by the weight's own name."""
    return {n[len(prefix):]: t for n, t in tensors.items()
            if n.startswith(prefix) and not is_moment(n) and
            (prefix or not n.startswith("island-"))}


def apart(got, expected):
    assert got.keys() == expected.keys()
    norm = lambda ts: numpy.sqrt(sum((t.astype(numpy.float64) ** 2).sum() for t in ts))
    return norm([got[n] - expected[n] for n in expected]) / norm(list(expected.values()))


def worst(run_dir, expected, key):
    rows = tiny_case.metrics(run_dir)
    assert len(rows) == len(expected)
    return max(abs(r[key] - e[key]) / abs(e[key]) for r, e in zip(rows, expected))


def train(results, name, config, ranks, run_dir, *more, **settings):
    done = tiny_case.run(config, ranks, "train", *more, run__dir=run_dir,
                         **{**SETTINGS, **settings})
    results.check(name, done.returncode == 0, done.stderr[-800:] if done.returncode else "")
    return done.stderr


def meshes(results, folder, config):
    """However an island is spread over its ranks, it trains the same model."""
    run = f"{folder}/whole"
    log = train(results, "two islands of a rank", config, 2, run, train__steps=10)
    results.check("islands are named at the start", "DiLoCo: 2 islands of 1 rank" in log)
    expected = tiny_case.metrics(run)
    results.check("an outer step at the end of each round, and of the run",
                  [r["step"] for r in expected if "outer_s" in r] == [4, 8, 10])
    results.check("losses fall", expected[-1]["loss"] < 0.9 * expected[0]["loss"])
    plain = f"{folder}/plain"
    train(results, "one model", config, 2, plain, train__steps=10, train__diloco__islands=1,
          train__diloco__every=0)
    first, other = tiny_case.losses(run), tiny_case.losses(plain)
    results.check("the first loss is that of one model, later ones are not",
                  abs(first[0] / other[0] - 1) < 1e-6 and abs(first[3] / other[3] - 1) > 1e-5)
    final = checkpoint_reader.read(at(run, 10))

    def spread(name, **parallel):
        mesh_dir = f"{folder}/{name.replace(' ', '_')}"
        train(results, name, config, 4, mesh_dir, train__steps=10, checkpoint__every=100,
              **{f"parallel__{k}": v for k, v in parallel.items()})
        loss, norm = (worst(mesh_dir, expected, key) for key in ("loss", "grad_norm"))
        results.check(f"{name}: losses within 1e-5, norms within 1e-3",
                      loss <= 1e-5 and norm <= 1e-3, f"{loss:.1e} {norm:.1e}")
        got = checkpoint_reader.read(at(mesh_dir, 10))
        error = apart(weights(got), weights(final))
        results.check(f"{name}: weights within 1e-3", got.keys() == final.keys() and error <= 1e-3,
                      f"{error:.1e}")

    tiny_case.side_by_side(
        lambda: spread("data 2", data=2),
        lambda: spread("data 2 with ZeRO 0", data=2, zero=0),
        lambda: spread("data 2 with ZeRO 3", data=2, zero=3),
        lambda: spread("pipeline 2", pipeline=2, schedule="1f1b"),
        lambda: spread("tensor 2", tensor=2),
        lambda: spread("context 2", context=2, zero=2),
        lambda: spread("encoder in the bubbles", pipeline=2, encoder="optimus"))
    return run


def outer_steps(results, folder, config):
    """Two rounds beside torch.optim.SGD, from the weights that islands have within them: those of a
    run that would meet later."""
    steps = dict(checkpoint__every=EVERY)
    rounds, first, second = (f"{folder}/{n}" for n in ("rounds", "first", "second"))
    train(results, "two rounds", config, 2, rounds, train__steps=2 * EVERY + 1, **steps)
    late = dict(train__steps=2 * EVERY + 1, train__diloco__every=100, **steps)
    train(results, "a round that goes on", config, 2, first, **late)
    log = train(results, "the second round goes on", config, 2, second, "--resume",
                at(rounds, EVERY), **late)
    results.check("other rounds are told", "train.diloco.every was 4 and is 100" in log)
    trained = [checkpoint_reader.read(at(first, EVERY)),
               checkpoint_reader.read(at(second, 2 * EVERY))]
    ends = [checkpoint_reader.read(at(rounds, EVERY)),
            checkpoint_reader.read(at(rounds, 2 * EVERY))]
    results.check("islands have weights of their own within a round, and none between rounds",
                  len(weights(trained[0], "island-1.")) == len(weights(trained[0])) > 10 and
                  not weights(ends[0], "island-0."))
    results.check("within a round the checkpoint's weights are those that it began with",
                  apart(weights(trained[1]), weights(ends[0])) == 0)
    names = sorted(weights(trained[0]))
    params = [torch.tensor(trained[0][n]) for n in names]
    sgd = torch.optim.SGD(params, lr=0.7, momentum=0.9, nesterov=True)
    for number, (islands, end) in enumerate(zip(trained, ends)):
        for name, p in zip(names, params):
            mean = (islands[f"island-0.{name}"] + islands[f"island-1.{name}"]) / 2
            p.grad = p.detach() - torch.tensor(mean)
        sgd.step()
        error = apart(weights(end), dict(zip(names, [p.numpy() for p in params])))
        buffers = [sgd.state[p]["momentum_buffer"].numpy() for p in params]
        momentum = apart({n: end[f"outer_momentum.{n}"] for n in names},
                         dict(zip(names, buffers)))
        results.check(f"outer step {number + 1} is that of torch.optim.SGD",
                      error <= 1e-6 and momentum <= 1e-5, f"{error:.1e} {momentum:.1e}")
    moments = [n for n in ends[1] if n.startswith("island-1.exp_avg.")]
    results.check("the islands' moments are their own", len(moments) == len(names) and
                  apart({n: ends[1][n] for n in moments},
                        {n: ends[1][n.removeprefix("island-1.")] for n in moments}) > 0.1)


def stops(results, folder, config, whole):
    """A run that goes on from within a round is the run that never stopped."""
    expected = tiny_case.metrics(whole)
    for ranks, name, parallel in ((2, "as many ranks", {}), (4, "pipeline 2", {"pipeline": 2}),
                                  (4, "data 2 with ZeRO 3", {"data": 2, "zero": 3})):
        on = f"{folder}/on_{name.replace(' ', '_')}"
        train(results, f"on from within a round: {name}", config, ranks, on, "--resume",
              at(whole, 6), train__steps=10, **{f"parallel__{k}": v for k, v in parallel.items()})
        loss = worst(on, expected[6:], "loss")
        results.check(f"{name}: losses of the run that never stopped", loss <= 1e-5, f"{loss:.1e}")
        if not parallel:
            other = checkpoint_reader.differing(at(on, 10), at(whole, 10))
            results.check("as many ranks: the same bits", loss == 0 and not other, str(other)[:200])
    exported = f"{folder}/exported"
    done = tiny_case.program("export", at(whole, 6), "--out", exported)
    got = checkpoint_reader.load_file(f"{exported}/model.safetensors")
    outer = weights(checkpoint_reader.read(at(whole, 6)))
    results.check("export takes the weights that the round began with",
                  done.returncode == 0 and all((got[n] == outer[n]).all() for n in got),
                  done.stderr[-300:])


def over(results, folder, config):
    """With no step left within a round, answers are those of the model that export takes."""
    long = dict(train__diloco__every=20, checkpoint__every=30)
    questions = f"[{{annotations: {folder}/train.jsonl, images: {folder}/images}}]"
    run, done = f"{folder}/long", f"{folder}/over"
    train(results, "a long round", config, 2, run, train__steps=40, **long)
    log = train(results, "nothing left to do", config, 2, done, "--resume", at(run, 30),
                train__steps=30, eval__answers=questions, **long)
    results.check("that is said", "step 30 is within a round of train.diloco" in log and
                  "that is of the weights with which it began" not in log)
    exported, asked = f"{folder}/begun", f"{folder}/asked.jsonl"
    tiny_case.program("export", at(run, 30), "--out", exported)
    tiny_case.program("generate", exported, "--jsonl", f"{folder}/train.jsonl", "--images",
                      f"{folder}/images", "--out", asked)
    texts = lambda path: [json.loads(line)["answer"][:40] for line in open(path)]
    got, expected = texts(f"{done}/answers.jsonl"), texts(asked)
    results.check("answers within a round are those of the model that export takes",
                  got == expected, f"{got[:3]} {expected[:3]}")


def alike(results, folder, config):
    """Islands with the same samples are one model, and an outer step without momentum changes
    nothing then."""
    record = open(f"{folder}/train.jsonl").readline()
    with open(f"{folder}/same.jsonl", "w") as out:
        out.writelines(record.replace('"r0"', f'"s{i}"') for i in range(60))
    same = dict(data__train=f"[{{annotations: {folder}/same.jsonl, images: {folder}/images}}]",
                train__steps=6, train__diloco__lr=1, train__diloco__momentum=0)
    two, one = f"{folder}/two", f"{folder}/one"
    train(results, "two islands, the same samples", config, 2, two, train__global_batch=4, **same)
    train(results, "one model on half of them", config, 1, one, train__global_batch=2, **same,
          **{"train__diloco__islands": 1, "train__diloco__every": 0})
    loss = worst(two, tiny_case.metrics(one), "loss")
    results.check("they are one model", loss <= 1e-5, f"{loss:.1e}")


def damaged(results, folder, config):
    """Pictures that one island cannot decode change the weight of its own targets alone."""
    pictures = f"{folder}/damaged"
    shutil.copytree(f"{folder}/images", pictures)
    for name in sorted(os.listdir(pictures))[:12]:
        with open(f"{pictures}/{name}", "r+b") as file:
            file.truncate(os.path.getsize(f"{pictures}/{name}") // 2)
    data = dict(data__train=f"[{{annotations: {folder}/train.jsonl, images: {pictures}}}]",
                data__max_bad_share=1, train__steps=5)
    two, four = f"{folder}/bad_two", f"{folder}/bad_four"
    train(results, "damaged pictures", config, 2, two, **data)
    train(results, "damaged pictures, pipeline 2", config, 4, four, parallel__pipeline=2, **data)
    expected = tiny_case.metrics(two)
    loss, norm = (worst(four, expected, key) for key in ("loss", "grad_norm"))
    results.check("damaged pictures: the same on both meshes", loss <= 1e-5 and norm <= 1e-3 and
                  expected[-1]["skipped_samples"] > 0, f"{loss:.1e} {norm:.1e}")


def adapters(results, folder, config, whole):
    """What else a rank may hold of a model, in bf16."""
    exported = f"{folder}/base"
    done = tiny_case.program("export", whole, "--out", exported)
    results.check("a base", done.returncode == 0, done.stderr[-300:])
    start = dict(model__hf=exported, model__init="pretrained", train__precision="bf16",
                 train__steps=8, checkpoint__every=2)
    for name, more in (("adapters, moments of 8 bits", {"model__adapter__targets": "[all-linear]",
                                                        "train__moments": "8bit"}),
                       ("no masters", {"train__master": "none"})):
        run = f"{folder}/{name.replace(' ', '_').replace(',', '')}"
        train(results, name, config, 2, run, **start, **more)
        for step, place in ((2, "within a round"), (4, "between rounds")):
            on = f"{run}_{step}"
            train(results, f"{name}: on from {place}", config, 2, on, "--resume", at(run, step),
                  **start, **more)
            other = checkpoint_reader.differing(at(on, 8), at(run, 8))
            results.check(f"{name}: from {place} the same losses and bits", not other and
                          tiny_case.losses(run)[step:] == tiny_case.losses(on), str(other)[:200])


def shown(results, folder, config, whole):
    plan = tiny_case.run(config, 1, "plan", "--ranks", "4", "--json", f"{folder}/plan.json",
                         **SETTINGS)
    results.check("plan names the islands", plan.returncode == 0 and
                  "islands  2 of 2 ranks, each by the plan below" in plan.stdout and
                  "the plan uses 2 ranks" in plan.stdout, plan.stdout[:600] + plan.stderr[-300:])
    with open(f"{folder}/plan.json") as file:
        islands = json.load(file)
    results.check("plan --json: of all islands", islands["ranks"] == 4 and
                  islands["global_batch"] == 8 and islands["mesh"]["data"] <= 2 and
                  islands["islands"]["count"] == 2 and islands["islands"]["every"] == EVERY)
    traced = f"{folder}/traced"
    train(results, "a trace", config, 4, traced, train__steps=4, run__trace_steps=2,
          parallel__pipeline=2)
    doctor = tiny_case.program("doctor", traced)
    results.check("doctor reads a run of islands", doctor.returncode == 0, doctor.stderr[-300:])
    dry = tiny_case.run(config, 2, "train", "--dry-run", **SETTINGS)
    results.check("the dry run prints the plan", dry.returncode == 0 and
                  "islands  2 of 1 rank" in dry.stdout, dry.stdout[:300] + dry.stderr[-300:])
    results.check("islands of a machine send nothing between nodes",
                  "each rank sends 0 GB between nodes" in dry.stdout, dry.stdout[:1200])


def refusals(results, folder, config, whole):
    cases = Cases(results)

    def refused(name, ranks, *words, more=(), **settings):
        line = tiny_case.command(config, ranks, "train", *more,
                                 **{**SETTINGS, "run__dir": f"{folder}/refused", **settings})
        cases.refused(name, line, 2, *words)

    refused("islands that never meet", 2, "train.diloco.every", train__diloco__every=0)
    refused("ranks that cannot be shared out", 3, "train.diloco.islands", "multiple of 2")
    refused("packs that cannot be dealt", 2, "train.global_batch", "2 islands",
            train__global_batch=7)
    refused("a measure within a round", 2, "eval.every", "multiple of 4", eval__every=6)
    refused("answers within a round", 2, "eval.answer_every", "multiple of 4",
            eval__answer_every=2)
    refused("a measure within a round of one island", 1, "eval.every", "multiple of 4",
            train__diloco__islands=1, eval__every=6)
    refused("a mesh for one island", 4, "2 islands of 2 ranks", parallel__data=4)
    refused("a goal that chooses ranks", 2, "goal.max_gpus", goal__max_gpus=4)
    refused("other islands than the checkpoint's", 4, "train.diloco.islands was 2 and is 4",
            more=("--resume", at(whole, 6)), train__diloco__islands=4)
    refused("no islands, from a checkpoint of two", 2, "train.diloco",
            more=("--resume", at(whole, 6)), train__diloco__islands=1, train__diloco__every=0)


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="diloco")
    config = tiny_case.write_case(folder)
    whole = meshes(results, folder, config)
    tiny_case.side_by_side(lambda: outer_steps(results, folder, config),
                           lambda: stops(results, folder, config, whole),
                           lambda: over(results, folder, config),
                           lambda: alike(results, folder, config),
                           lambda: damaged(results, folder, config),
                           lambda: adapters(results, folder, config, whole),
                           lambda: shown(results, folder, config, whole),
                           lambda: refusals(results, folder, config, whole))
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
