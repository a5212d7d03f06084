"""`parallel.prefetch`: a frozen encoder that runs a step ahead changes no bit of losses, gradient
norms and checkpoints, whatever comes between two steps: evaluation, answers, a restart, a step that
is skipped; and where it cannot run ahead, that is said in one line."""
import json
import os
import shutil
import sys
import tempfile

import checkpoint_reader
import tiny_case
from refusals import Cases

STEPS = 6
FROZEN = "[vision, projector]"


def rows(run_dir):
    keys = ("step", "loss", "grad_norm", "tokens", "samples", "images", "skipped_samples")
    return [[row.get(key) for key in keys] for row in tiny_case.metrics(run_dir)]


def held_out(run_dir):
    return [row["eval_loss"] for row in tiny_case.metrics(run_dir) if "eval_loss" in row]


def checkpoint(run_dir, step):
    return f"{run_dir}/checkpoints/step-{step:08d}"


def spoil(folder, number):
    """Cuts a picture short behind its head, so that it fails when it is decoded."""
    for name in sorted(os.listdir(f"{folder}/images")):
        if not name.startswith(f"{number:04d}_"):
            continue
        path = f"{folder}/images/{name}"
        os.truncate(path, os.path.getsize(path) * 6 // 10)


def same_bits(results, folder, config, ranks, name, **settings):
    """Runs without and with; returns the folder of the latter."""
    settings = {**dict(train__steps=STEPS, train__schedule="constant", train__global_batch=8,
                       checkpoint__every=2, data__max_bad_share=1, model__freeze=FROZEN,
                       parallel__pipeline=2, parallel__encoder="optimus"), **settings}
    dirs = [f"{folder}/{name}_{kind}".replace(" ", "_") for kind in ("without", "ahead")]
    for run_dir, prefetch in zip(dirs, ("false", "true")):
        done = tiny_case.run(config, ranks, run__dir=run_dir, parallel__prefetch=prefetch,
                             **settings)
        results.check(f"{name}, prefetch {prefetch}", done.returncode == 0, done.stderr[-700:]
                      if done.returncode else "")
    without, ahead = dirs
    results.check(f"{name}: losses, norms and counts", rows(ahead) == rows(without) and
                  len(rows(ahead)) == STEPS, f"{rows(ahead)} {rows(without)}"
                  if rows(ahead) != rows(without) else "")
    results.check(f"{name}: pictures that cannot be decoded",
                  sum(row["skipped_samples"] for row in tiny_case.metrics(ahead)) > 0)
    results.check(f"{name}: held-out losses", held_out(ahead) == held_out(without))
    differing = checkpoint_reader.differing(checkpoint(ahead, STEPS), checkpoint(without, STEPS))
    results.check(f"{name}: weights and moments", not differing, str(differing[:3]))
    return ahead, settings


def goes_on(results, config, ranks, ahead, settings):
    """As if the run had been lost after the checkpoint of step 4, in which step 5 was encoded."""
    whole = f"{ahead}_whole"
    shutil.copytree(ahead, whole)
    shutil.rmtree(checkpoint(ahead, STEPS))
    done = tiny_case.run(config, ranks, run__dir=ahead, parallel__prefetch="true", **settings)
    results.check("goes on from step 4", done.returncode == 0 and "(step 4 of 6)" in done.stderr,
                  done.stderr[-700:])
    results.check("the same losses", rows(ahead) == rows(whole))
    differing = checkpoint_reader.differing(checkpoint(ahead, STEPS), checkpoint(whole, STEPS))
    results.check("the same weights and moments", not differing, str(differing[:3]))


def encoded_ahead(results, folder, config):
    """In a trace the micro-batches of the next step have numbers behind those of this one: 4 of
    each here."""
    run_dir = f"{folder}/traced"
    done = tiny_case.run(config, 2, run__dir=run_dir, run__trace_steps=2, train__steps=2,
                         train__global_batch=4, model__freeze=FROZEN, parallel__pipeline=2,
                         parallel__encoder="optimus", parallel__prefetch="true")
    results.check("a run with a trace", done.returncode == 0, done.stderr[-500:])
    with open(f"{run_dir}/trace.json") as file:
        events = json.load(file)["traceEvents"]
    names = [event["name"] for event in events if event.get("ph") == "X"]
    ahead = {name for name in names if name[:1].isdigit() and "V" in name and
             int(name.split("V")[1]) >= 4}
    results.check("passes for the next step in the trace", len(ahead) >= 1, str(sorted(set(names))))


def refusals(results, folder, config):
    cases = Cases(results)
    good = dict(run__dir=f"{folder}/refused", train__steps=1, model__freeze=FROZEN,
                parallel__pipeline=2, parallel__encoder="optimus", parallel__prefetch="true")
    for name, words, change in (
            ("an encoder that is trained", ("vision is trained", "model.freeze"),
             {"model__freeze": "[llm]"}),
            ("an encoder with adapters", ("vision is trained, or has adapters",),
             {"model__freeze": "[]", "model__adapter__targets": "[all-linear]"}),
            ("inline", ("an encoder that is inline", "parallel.encoder"),
             {"parallel__encoder": "inline"}),
            ("disaggregated", ("an encoder that is disaggregated", "parallel.encoder"),
             {"parallel__encoder": "disaggregated"})):
        cases.refused(name, tiny_case.command(config, 2, **{**good, **change}), 2,
                      "parallel.prefetch: ", *words)


def planned(results, folder, config):
    """`encoder: auto`: a step ahead where the planner takes an encoder in the bubbles."""
    for name, more in (("planned", {}), ("planned inline", {"parallel__pipeline": 1})):
        run_dir = f"{folder}/{name}".replace(" ", "_")
        done = tiny_case.run(config, 2, run__dir=run_dir, train__steps=3, train__global_batch=8,
                             model__freeze=FROZEN, parallel__encoder="auto",
                             parallel__prefetch="true", data__max_bad_share=1, **more)
        results.check(name, done.returncode == 0 and len(rows(run_dir)) == 3, done.stderr[-700:])


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="prefetch")
    config = tiny_case.write_case(folder)
    spoil(folder, 3)
    spoil(folder, 11)
    source = f"[{{annotations: {folder}/train.jsonl, images: {folder}/images}}]"

    def two_ranks():
        goes_on(results, config, 2, *same_bits(results, folder, config, 2, "two ranks",
                                               data__eval=source, eval__every=2, eval__samples=6))
        ahead, _ = same_bits(results, folder, config, 2, "fp16", train__precision="fp16",
                             train__loss_scale__initial=1099511627776)
        results.check("fp16: steps that overflow",
                      len({row["loss_scale"] for row in tiny_case.metrics(ahead)}) > 1)
        encoded_ahead(results, folder, config)

    def four_ranks():
        same_bits(results, folder, config, 4, "data ranks", parallel__data=2,
                  parallel__encoder="dep", parallel__schedule="zb_h1")
        # Of one copy, whose projector is trained where it is without prefetch too: on one rank.
        same_bits(results, folder, config, 2, "a trained projector", model__freeze="[vision]",
                  parallel__encoder="three_phase", parallel__encoder_ranks=2,
                  parallel__schedule="interleaved", train__clip=0)
        refusals(results, folder, config)
        planned(results, folder, config)

    tiny_case.side_by_side(two_ranks, four_ranks)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
