"""model.unfreeze: parts of frozen modules are trained on one rank and on several with the same
losses, after SIGKILL too; what is frozen keeps its bits, in checkpoints and exports; and what the
key refuses."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import safetensors.torch
import torch

import checkpoint_reader
import tiny_case
from live_run import ranks_of, steps_done
from refusals import Cases

STEPS = 16
FREEZE = "[vision, llm]"
UNFREEZE = '["vision[-1:]", "llm[-1:]", lm_head]'
# Of two blocks each.
TRAINED = ("encoder.layer.1.", "encoder.layers.1.", "model.layers.1.", "language_model.layers.1.",
           "lm_head.", "multi_modal_projector.")
MESHES = {"data": (2, dict(parallel__data=2, parallel__zero=1)),
          "ZeRO 3": (2, dict(parallel__data=2, parallel__zero=3)),
          "pipeline": (2, dict(parallel__pipeline=2)),
          "tensor": (2, dict(parallel__tensor=2))}


class Bench:
    """A model with weights of its own, and runs that begin with them."""

    def __init__(self, results, folder):
        self.results, self.folder = results, folder
        self.config = tiny_case.write_case(folder)
        self.start = f"{folder}/start"
        done = tiny_case.run(self.config, run__dir=f"{folder}/first", train__steps=1)
        exported = tiny_case.program("export", f"{folder}/first", "--out", self.start)
        results.check("a model to begin with", done.returncode == exported.returncode == 0,
                      done.stderr[-500:] + exported.stderr[-500:])

    def settings(self, name, **more):
        return {**dict(run__dir=f"{self.folder}/{name}", model__hf=self.start,
                       model__init="pretrained", model__freeze=FREEZE, model__unfreeze=UNFREEZE,
                       train__steps=STEPS, train__schedule="constant", checkpoint__every=4,
                       eval__every=4, eval__samples=8,
                       data__eval=f"[{{annotations: {self.folder}/train.jsonl, "
                                  f"images: {self.folder}/images}}]"), **more}

    def run(self, name, ranks=1, **more):
        done = tiny_case.run(self.config, ranks, **self.settings(name, **more))
        self.results.check(f"{name}: trains", done.returncode == 0, done.stderr[-800:])
        return done.stderr

    def rows(self, name):
        return tiny_case.metrics(f"{self.folder}/{name}")

    def close(self, name, expected, bound):
        keys = ("loss", "grad_norm", "eval_loss")
        errors = [abs(row[key] - other[key]) / abs(other[key])
                  for row, other in zip(self.rows(name), expected) for key in keys if key in other]
        self.results.check(f"{name}: losses, gradient norms and losses on held-out samples",
                           len(errors) > 2 * STEPS and len(self.rows(name)) == STEPS and
                           max(errors) < bound, f"{max(errors, default=0):.1e}")

    def newest(self, name):
        return os.path.realpath(f"{self.folder}/{name}/checkpoints/latest")


def exported(bench, name):
    """What is trained has moved, and nothing else, in a whole folder of the model."""
    out = f"{bench.folder}/{name}-exported"
    done = tiny_case.program("export", f"{bench.folder}/{name}", "--out", out)
    bench.results.check(f"{name}: exported, without adapters", done.returncode == 0 and
                        "adapter_config.json" not in os.listdir(out), done.stderr[-500:])
    before, after = (safetensors.torch.load_file(f"{each}/model.safetensors")
                     for each in (bench.start, out))
    moved = {key for key in before if not before[key].equal(after[key])}
    trained = {key for key in before if any(part in key for part in TRAINED)}
    bench.results.check(f"{name}: all names", before.keys() == after.keys())
    bench.results.check(f"{name}: what is trained has moved, and nothing else",
                        moved == trained and 0 < len(trained) < len(before),
                        str(sorted(moved ^ trained)[:4]))
    done = tiny_case.program("generate", f"{bench.folder}/{name}", "--prompt", "What is 3 plus 2?")
    bench.results.check(f"{name}: answers", done.returncode == 0, done.stderr[-500:])


def killed(bench, expected):
    """SIGKILL of both ranks between two checkpoints; the same command goes on, on other ranks."""
    line = tiny_case.command(bench.config, 2, **bench.settings("killed", parallel__data=2))
    with open(f"{bench.folder}/killed.log", "w", encoding="utf8") as log:
        process = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True,
                                   env=tiny_case.environment())
    while process.poll() is None and steps_done(f"{bench.folder}/killed") < 6:
        time.sleep(0.001)
    for rank in ranks_of(process.pid):
        os.kill(rank, signal.SIGKILL)
    bench.results.check("killed", process.wait(timeout=300) != 0)
    log = bench.run("killed", 1)
    bench.results.check("it goes on from a checkpoint", "going on from" in log, log[-500:])
    bench.close("killed", expected, 1e-5)


def saved(bench):
    """A checkpoint of bf16 has every weight, those that are frozen in bf16 and without moments."""
    bench.run("bf16", train__precision="bf16", model__unfreeze="[lm_head]", train__steps=4)
    tensors = {}
    for name in os.listdir(bench.newest("bf16")):
        if name.endswith(".safetensors"):
            tensors.update(safetensors.torch.load_file(f"{bench.newest('bf16')}/{name}"))
    start = {name for name in checkpoint_reader.read(bench.newest("one"))
             if not name.startswith("exp_avg")}
    weights = {name for name in tensors if not name.startswith("exp_avg")}
    bench.results.check("bf16: every weight is saved", weights == start, str(weights ^ start)[:200])
    wrong = [name for name in weights
             if (tensors[name].dtype == torch.float32) != (f"exp_avg.{name}" in tensors) or
             (tensors[name].dtype == torch.float32) !=
             ("lm_head" in name or "multi_modal_projector" in name)]
    bench.results.check("bf16: masters and moments of what is trained alone", not wrong,
                        str(wrong[:4]))


def refused(bench):
    cases = Cases(bench.results)
    for name, settings, *words in (
            ("not frozen", dict(model__freeze="[vision]", model__unfreeze="[lm_head]"),
             "model.unfreeze: lm_head: llm is not in model.freeze"),
            ("no slice", dict(model__unfreeze='["vision[1]"]'),
             "model.unfreeze: vision[1]: is no slice"),
            ("an empty slice", dict(model__unfreeze='["vision[2:]"]'),
             "selects none of the 2 blocks of vision"),
            ("a typo", dict(model__unfreeze="[lm_haed]"), "did you mean 'lm_head'?"),
            ("no quotes", dict(model__unfreeze="[vision[-1:]]"), 'write "vision[-1:]" in quotes'),
            ("a part of a product", dict(model__unfreeze="[language_model.*q_proj]"),
             "model.unfreeze: ", "name both, or neither"),
            ("beside adapters", dict(model__adapter__targets="[all-linear]"),
             "model.unfreeze: beside model.adapter", "model.adapter.train"),
            ("other parts on resume", dict(run__dir=f"{bench.folder}/one",
                                           model__unfreeze="[lm_head]"), "model.unfreeze")):
        cases.refused(f"refused: {name}", tiny_case.command(
            bench.config, 1, **bench.settings("refused", **settings)), 2, *words)
    cases.refused("refused: an encoder that runs ahead", tiny_case.command(
        bench.config, 2, **bench.settings("refused", parallel__encoder="optimus",
                                          parallel__prefetch="true", parallel__pipeline=2)),
        2, "parallel.prefetch", "vision is trained")


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="unfreeze")
    bench = Bench(results, folder)
    log = bench.run("one")
    results.check("the log says what is trained", "model.unfreeze trains " in log and
                  "of vision, in 1 of its 3 layers" in log, log[-500:])
    expected = bench.rows("one")
    for name, (ranks, mesh) in MESHES.items():
        bench.run(name, ranks, **mesh)
        bench.close(name, expected, 1e-5)
    exported(bench, "one")
    exported(bench, "ZeRO 3")
    killed(bench, expected)
    saved(bench)
    planned = tiny_case.run(bench.config, 1, "plan", **bench.settings("planned"))
    results.check("the plan says what is trained", planned.returncode == 0 and
                  "model.unfreeze trains " in planned.stdout, planned.stderr[-500:])
    refused(bench)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
