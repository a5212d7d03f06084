"""Updates that come one step late (parallel.schedule: pipedream_2bw): the same on every mesh and
after every stop, with both versions of the weights in checkpoints; what cannot be is refused."""
import json
import os
import shutil
import sys
import tempfile

import numpy

import checkpoint_reader
import tiny_case
from refusals import Cases

SCHEDULE = "pipedream_2bw"
STEPS = 9
SETTINGS = dict(parallel__schedule=SCHEDULE, parallel__data=1, train__global_batch=8,
                train__steps=STEPS, checkpoint__every=1, checkpoint__keep=99)


def at(run_dir, step):
    return f"{run_dir}/checkpoints/step-{step:08d}"


def apart(got, expected):
    assert got.keys() == expected.keys()
    norm = lambda ts: numpy.sqrt(sum((t.astype(numpy.float64) ** 2).sum() for t in ts))
    return norm([got[n] - expected[n] for n in expected]) / norm(list(expected.values()))


def weights(tensors, prefix=""):
    """Those under a prefix, by the weight's own name."""
    return {n[len(prefix):]: t for n, t in tensors.items() if n.startswith(prefix) and
            (prefix or not n.startswith(("exp_avg", "previous.")))}


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
    whole = f"{folder}/whole"
    log = train(results, "one rank", config, 1, whole)
    results.check("the schedule is named at the start", f"tensor 1, {SCHEDULE}" in log)
    expected = tiny_case.metrics(whole)
    results.check("losses fall", expected[-1]["loss"] < 0.9 * expected[0]["loss"])
    plain = f"{folder}/plain"
    train(results, "updates at once", config, 1, plain, parallel__schedule="1f1b")
    late, now = tiny_case.losses(whole), tiny_case.losses(plain)
    # The first update, at a learning rate of 0, changes nothing: the third step is the first one
    # that would see the second.
    results.check("the third step does not see the second update",
                  late[:2] == now[:2] and late[2] != now[2], f"{late[:3]} {now[:3]}")
    final = checkpoint_reader.read(at(whole, STEPS))

    def spread(name, ranks, bits=False, **settings):
        run = f"{folder}/{name.replace(' ', '_')}"
        train(results, name, config, ranks, run, checkpoint__every=100,
              **{k.replace("mesh__", "parallel__"): v for k, v in settings.items()})
        loss, norm = (worst(run, expected, key) for key in ("loss", "grad_norm"))
        results.check(f"{name}: losses within 1e-5, norms within 1e-3",
                      loss <= 1e-5 and norm <= 1e-3, f"{loss:.1e} {norm:.1e}")
        got = checkpoint_reader.read(at(run, STEPS))
        error = apart(weights(got), weights(final))
        results.check(f"{name}: weights within 1e-3", got.keys() == final.keys() and error <= 1e-3,
                      f"{error:.1e}")
        if bits:
            results.check(f"{name}: the bits of one rank", loss == 0 and error == 0)

    tiny_case.side_by_side(
        lambda: spread("pipeline 2", 2, bits=True, mesh__pipeline=2),
        lambda: spread("pipeline 4", 4, bits=True, mesh__pipeline=4),
        lambda: spread("pipeline 2 and measures between steps", 2, bits=True, mesh__pipeline=2,
                       data__eval=f"[{{annotations: {folder}/train.jsonl, "
                                  f"images: {folder}/images}}]",
                       eval__every=2, eval__samples=16),
        lambda: spread("pipeline 2, recomputed", 2, bits=True, mesh__pipeline=2,
                       balance__recompute="full"),
        lambda: spread("data 2 x pipeline 2", 4, mesh__pipeline=2, mesh__data=2),
        lambda: spread("data 2 x pipeline 2 with ZeRO 0", 4, mesh__pipeline=2, mesh__data=2,
                       mesh__zero=0),
        lambda: spread("pipeline 2 x tensor 2", 4, mesh__pipeline=2, mesh__tensor=2),
        lambda: spread("data 2", 2, mesh__data=2),
        lambda: spread("encoder apart", 3, mesh__pipeline=3, mesh__encoder="disaggregated"))
    return whole


def versions(results, folder, whole):
    """A checkpoint has the weights of the one before it as well: those of the next step."""
    for step in range(1, STEPS + 1):
        tensors = checkpoint_reader.read(at(whole, step))
        previous = weights(tensors, "previous.")
        if step == 1:
            results.check("each trained weight is there in both versions",
                          previous.keys() == weights(tensors).keys())
            continue
        before = weights(checkpoint_reader.read(at(whole, step - 1)))
        results.check(f"step {step} has the weights of step {step - 1}",
                      apart(previous, before) == 0 and apart(previous, weights(tensors)) > 0)


def stops(results, folder, config, whole):
    """A run that goes on begins with an empty pipeline, and is the run that never stopped."""
    expected = tiny_case.metrics(whole)
    for ranks, name, parallel in ((1, "one rank", {}), (2, "pipeline 2", {"pipeline": 2}),
                                  (4, "data 2 x pipeline 2", {"data": 2, "pipeline": 2})):
        on = f"{folder}/on_{name.replace(' ', '_')}"
        train(results, f"on from step 4: {name}", config, ranks, on, "--resume", at(whole, 4),
              **{f"parallel__{k}": v for k, v in parallel.items()})
        loss = worst(on, expected[4:], "loss")
        results.check(f"{name}: losses of the run that never stopped", loss <= 1e-5, f"{loss:.1e}")
        if "data" in parallel:
            continue
        other = checkpoint_reader.differing(at(on, STEPS), at(whole, STEPS))
        results.check(f"{name}: the same bits", loss == 0 and not other, str(other)[:200])
    # From updates at once the first step is of the newest weights, as there is no other version.
    plain, on = f"{folder}/plain", f"{folder}/from_plain"
    log = train(results, "on from a run with updates at once", config, 2, on, "--resume",
                at(plain, 4), parallel__pipeline=2)
    now = tiny_case.losses(plain)[4:]
    late = tiny_case.losses(on)
    results.check("its first step is that of the run it goes on from",
                  late[0] == now[0] and late[2] != now[2], f"{late[:3]} {now[:3]}")
    results.check("the other schedule is told", 'parallel.schedule was "1f1b" and is ' in log)
    back = f"{folder}/back"
    train(results, "on with updates at once", config, 1, back, "--resume", at(whole, 4),
          parallel__schedule="1f1b")
    exported = f"{folder}/exported"
    done = tiny_case.program("export", at(whole, 4), "--out", exported)
    got = checkpoint_reader.load_file(f"{exported}/model.safetensors")
    newest = weights(checkpoint_reader.read(at(whole, 4)))
    results.check("export takes the newest weights", done.returncode == 0 and
                  all((got[n] == newest[n]).all() for n in got), done.stderr[-300:])


def damaged(results, folder, config):
    """Pictures that cannot be decoded: found when a pass runs ahead, counted in their own step."""
    pictures = f"{folder}/damaged"
    shutil.copytree(f"{folder}/images", pictures)
    for name in sorted(os.listdir(pictures))[:12]:
        with open(f"{pictures}/{name}", "r+b") as file:
            file.truncate(os.path.getsize(f"{pictures}/{name}") // 2)
    data = dict(data__train=f"[{{annotations: {folder}/train.jsonl, images: {pictures}}}]",
                data__max_bad_share=1)
    one, two = f"{folder}/bad_one", f"{folder}/bad_two"
    train(results, "damaged pictures", config, 1, one, **data)
    train(results, "damaged pictures, pipeline 3", config, 3, two, parallel__pipeline=3, **data)
    expected = tiny_case.metrics(one)
    results.check("damaged pictures: the same bits on both meshes",
                  worst(two, expected, "loss") == 0 and expected[-1]["skipped_samples"] > 0 and
                  [r["skipped_samples"] for r in tiny_case.metrics(two)] ==
                  [r["skipped_samples"] for r in expected])


def adapters(results, folder, config, whole):
    """What else a rank may hold of a model, in bf16."""
    exported = f"{folder}/base"
    done = tiny_case.program("export", whole, "--out", exported)
    results.check("a base", done.returncode == 0, done.stderr[-300:])
    start = dict(model__hf=exported, model__init="pretrained", train__precision="bf16",
                 parallel__pipeline=2)
    for name, more in (("adapters, moments of 8 bits", {"model__adapter__targets": "[all-linear]",
                                                        "train__moments": "8bit"}),
                       ("no masters", {"train__master": "none"}),
                       ("an optimizer in host memory", {"train__offload": "[optimizer]"}),
                       ("a frozen encoder", {"model__freeze": "[vision]"})):
        run = f"{folder}/{name.replace(' ', '_').replace(',', '')}"
        train(results, name, config, 2, run, **start, **more)
        on = f"{run}_on"
        train(results, f"{name}: on from step 4", config, 2, on, "--resume", at(run, 4), **start,
              **more)
        other = checkpoint_reader.differing(at(on, STEPS), at(run, STEPS))
        results.check(f"{name}: the same losses and bits", not other and
                      tiny_case.losses(run)[4:] == tiny_case.losses(on), str(other)[:200])


def diverged(results, folder, config):
    """Weights that steps fail with are of the last two updates: neither is gone on from."""
    run = f"{folder}/diverged"
    line = dict(parallel__pipeline=2, train__warmup=1)
    done = tiny_case.run(config, 2, "train", run__dir=run,
                         **{**SETTINGS, **line, "train__lr": "1e10"})
    results.check("a run that diverges ends after five skipped steps", done.returncode == 5 and
                  "5 in a row" in done.stderr, done.stderr[-400:])
    train(results, "the same command goes on with a lower rate", config, 2, run,
          **{**line, "train__lr": "1e-4"})


def shown(results, folder, config):
    plan = tiny_case.run(config, 1, "plan", "--ranks", "4", "--json", f"{folder}/plan.json",
                         **{**SETTINGS, "parallel__pipeline": 4})
    with open(f"{folder}/plan.json") as file:
        planned = json.load(file)
    results.check("plan plans it where it is asked for", plan.returncode == 0 and
                  planned["mesh"]["pipeline"] == 4 and f", {SCHEDULE}," in plan.stdout,
                  plan.stdout[:600] + plan.stderr[-300:])
    free = {k: v for k, v in SETTINGS.items() if not k.startswith("parallel")}
    searched = tiny_case.run(config, 1, "plan", "--ranks", "4", **free)
    results.check("and never by itself",
                  searched.returncode == 0 and f", {SCHEDULE}" not in searched.stdout)
    traced = f"{folder}/traced"
    train(results, "a trace", config, 2, traced, run__trace_steps=3, parallel__pipeline=2,
          run__probe="true")
    for name, source in (("run", traced), ("plan", f"{folder}/plan.json"),
                         ("run without a trace", f"{folder}/whole")):
        doctor = tiny_case.program("doctor", source)
        results.check(f"doctor reads its {name}", doctor.returncode == 0, doctor.stderr[-300:])


def refusals(results, folder, config):
    cases = Cases(results)

    def refused(name, ranks, *words, **settings):
        line = tiny_case.command(config, ranks, "train",
                                 **{**SETTINGS, "run__dir": f"{folder}/refused", **settings})
        cases.refused(name, line, 2, "parallel.schedule: pipedream_2bw", *words)

    refused("ZeRO 3", 2, "parallel.zero: 3", "use zero: 1", parallel__zero=3, parallel__data=2)
    refused("gradients in host memory", 1, "train.offload",
            train__offload="[optimizer, gradients]")
    refused("an encoder in the bubbles", 2, "parallel.encoder: optimus",
            parallel__encoder="optimus", parallel__pipeline=2)
    refused("an encoder ahead", 2, "parallel.prefetch", parallel__encoder="auto",
            parallel__prefetch="true", parallel__pipeline=2, model__freeze="[vision, projector]")
    refused("fp16", 1, "train.precision: fp16", "use bf16", train__precision="fp16")
    refused("islands", 2, "train.diloco", train__diloco__islands=2, train__diloco__every=4)


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="pipedream_2bw")
    config = tiny_case.write_case(folder)
    whole = meshes(results, folder, config)
    tiny_case.side_by_side(lambda: versions(results, folder, whole),
                           lambda: stops(results, folder, config, whole),
                           lambda: damaged(results, folder, config),
                           lambda: adapters(results, folder, config, whole),
                           lambda: diverged(results, folder, config),
                           lambda: shown(results, folder, config),
                           lambda: refusals(results, folder, config))
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
