"""fp16 with a scaled loss: a scale that is far too large is lowered by steps that are skipped, on
all ranks alike; the run goes on, is killed, and resumes with the same scale and the same bits."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import safetensors

import checkpoint_reader
import tiny_case
from live_run import ranks_of, steps_done
from refusals import Cases

HUGE = 1 << 30
STEPS = 30
FP16 = dict(train__precision="fp16", train__global_batch=4, train__schedule="constant",
            train__steps=STEPS, checkpoint__every=4, checkpoint__keep=20,
            train__loss_scale__initial=HUGE, train__loss_scale__growth_interval=4)
KEYS = ("loss", "grad_norm", "loss_scale", "tokens")


class Bench:
    def __init__(self, results, folder):
        self.results, self.folder = results, folder
        self.cases = Cases(results)
        self.config = tiny_case.write_case(folder)

    def settings(self, name, **settings):
        return {**FP16, "run__dir": f"{self.folder}/{name}", **settings}

    def run(self, name, ranks, **settings):
        """(what it wrote to the log, its metrics)"""
        done = tiny_case.run(self.config, ranks, **self.settings(name, **settings))
        self.results.check(f"{name}: trains", done.returncode == 0,
                           done.stderr[-1500:] if done.returncode else "")
        return done.stderr, tiny_case.metrics(f"{self.folder}/{name}")

    def newest(self, name, step=STEPS):
        return f"{self.folder}/{name}/checkpoints/step-{step:08d}"


def state_of(folder):
    with open(f"{folder}/index.json") as file:
        return json.load(file)["state"]


def overflows(rows):
    return [row["step"] for row in rows if row["grad_norm"] is None]


def check_scales(bench, log, rows):
    """Each overflow halves the scale, and four steps without one double it."""
    check, scale, good = bench.results.check, HUGE, 0
    expected = []
    for row in rows:
        expected.append(scale)
        good = 0 if row["grad_norm"] is None else good + 1
        scale = scale / 2 if row["grad_norm"] is None else scale * 2 if good == 4 else scale
        good %= 4
    scales = [row["loss_scale"] for row in rows]
    check("an overflow halves the scale and four steps without double it", scales == expected,
          str(scales))
    lost = overflows(rows)
    check("more than five overflows in a row end no run",
          lost[:6] == list(range(1, 7)), str(lost))
    check("all losses are finite", all(row["loss"] > 0 for row in rows))
    check("most steps are taken in the end", sum(step > STEPS // 2 for step in lost) <= 4,
          str(lost))
    check("the scale grows again", "from now on" in log and max(
        b - a for a, b in zip(scales, scales[1:])) > 0)
    check("each overflow is told", log.count("gradients overflow with a loss scale of") == len(lost)
          and f"step 1: gradients overflow with a loss scale of {HUGE}: skipped; {HUGE // 2} from"
          in log, log[-1500:])
    state = state_of(bench.newest("two"))
    check("skipped steps are none of the optimizer's, and none that count as not finite",
          (state["optimizer_step"], state["non_finite_in_a_row"]) == (STEPS - len(lost), 0),
          str(state))
    check("the checkpoint holds the scale of the next step",
          state["loss_scale"] == {"scale": scale, "good_steps": good}, str(state))
    check("the model learns", rows[-1]["loss"] < 0.9 * rows[0]["loss"], str(rows[-1]["loss"]))


def same_as(bench, name, rows, expected, bound=0.0):
    """Metrics beside those of another run."""
    apart = [row["step"] for row, other in zip(rows, expected)
             if row["loss_scale"] != other["loss_scale"] or
             abs(row["loss"] - other["loss"]) > bound * other["loss"]]
    bench.results.check(f"{name}: scales and losses of the other run",
                        not apart and len(rows) == len(expected), f"differ at {apart[:5]}")


def killed(bench, expected):
    """SIGKILL of both ranks where the scale has become another since the last checkpoint."""
    name = "killed"
    lost = overflows(expected)
    line = tiny_case.command(bench.config, 2, **bench.settings(name))
    for stop in (lost[2], lost[-1] + 1):
        with open(f"{bench.folder}/{name}.log", "a") as log:
            process = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True,
                                       env=tiny_case.environment())
        while process.poll() is None and steps_done(f"{bench.folder}/{name}") < stop:
            time.sleep(0.001)
        for rank in ranks_of(process.pid):
            os.kill(rank, signal.SIGKILL)
        bench.results.check(f"killed at step {stop}", process.wait(timeout=300) != 0)
    log, rows = bench.run(name, 2)
    bench.results.check("it goes on from a checkpoint", "going on from" in log, log[-800:])
    differing = [row["step"] for row, other in zip(rows, expected)
                 if any(row[key] != other[key] for key in KEYS)]
    bench.results.check("metrics, the scale among them, are those of the run that never stopped",
                        not differing and len(rows) == STEPS, f"differ at {differing[:5]}")
    differing = checkpoint_reader.differing(bench.newest(name), bench.newest("two"))
    bench.results.check("so are weights and moments", not differing, str(differing[:3]))
    bench.results.check("and the state", state_of(bench.newest(name)) ==
                        state_of(bench.newest("two")))


def at_the_minimum(bench):
    """A scale that can become no smaller: overflows count as steps that are not finite."""
    bench.cases.refused("overflows at the smallest scale", tiny_case.command(
        bench.config, 2, **bench.settings("least", train__loss_scale__minimum=HUGE // 2)), 5,
        "5 in a row", f"loss scale at its minimum of {HUGE // 2}")
    for key, value, says in (("initial", 1000, "take 512 or 1024"), ("minimum", 48, "32 or 64"),
                             ("initial", 0, "train.loss_scale.initial"),
                             ("growth_interval", 0, "train.loss_scale.growth_interval")):
        bench.cases.refused(f"{key} {value}", tiny_case.command(
            bench.config, 1, **bench.settings("none", **{f"train__loss_scale__{key}": value})), 2,
            says)


def files(bench):
    """Masters in fp32, frozen weights in fp16; a run of them goes on, is exported and answers."""
    frozen = dict(model__freeze="[vision]", train__steps=4, train__loss_scale__initial=1024)
    bench.run("frozen", 2, **frozen)
    found = {}
    for rank in (0, 1):
        path = f"{bench.newest('frozen', 4)}/rank-{rank:05d}.safetensors"
        with safetensors.safe_open(path, "np") as file:
            for key in file.keys():
                found.setdefault("vision_tower" in key, set()).add(file.get_slice(key).get_dtype())
    bench.results.check("frozen weights are saved in fp16, others in fp32",
                        found == {True: {"F16"}, False: {"F32"}}, str(found))
    log, rows = bench.run("frozen", 1, **{**frozen, "train__steps": 6})
    bench.results.check("such a run goes on", "going on from" in log and len(rows) == 6)
    run_dir = f"{bench.folder}/two"
    answer = tiny_case.program("generate", run_dir, "--prompt", "What is 3 plus 2?")
    bench.results.check("an fp16 run answers", answer.returncode == 0 and answer.stdout.strip(),
                        answer.stderr[-500:])
    for dtype, name in (("fp16", "F16"), ("fp32", "F32")):
        out = f"{bench.folder}/exported_{dtype}"
        done = tiny_case.program("export", run_dir, "--out", out, "--dtype", dtype)
        bench.results.check(f"it is exported as {dtype}", done.returncode == 0, done.stderr[-500:])
        with safetensors.safe_open(f"{out}/model.safetensors", "np") as file:
            dtypes = {file.get_slice(key).get_dtype() for key in file.keys()}
        bench.results.check(f"its file holds {name}", dtypes == {name}, str(dtypes))
    pretrained = dict(model__hf=f"{bench.folder}/exported_fp16", model__init="pretrained",
                      train__steps=1, train__loss_scale__initial=1024)
    _, rows = bench.run("from-fp16", 1, **pretrained)
    bench.results.check("its fp16 file is trained on", rows[0]["loss"] > 0, str(rows))


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="fp16")
    bench = Bench(results, folder)
    log, rows = bench.run("two", 2)
    check_scales(bench, log, rows)
    same_as(bench, "one process", bench.run("one", 1)[1], rows, 1e-3)
    for name, settings in (("whole", dict(parallel__zero=0)), ("zero3", dict(parallel__zero=3)),
                           ("pipeline", dict(parallel__pipeline=2))):
        same_as(bench, name, bench.run(name, 2, **settings)[1], rows, 1e-3)
    exact = bench.run("fp32", 1, train__precision="fp32")[1]
    results.check("fp32 has no scale", all("loss_scale" not in row for row in exact))
    results.check("losses are those of fp32 until steps are skipped",
                  abs(exact[0]["loss"] - rows[0]["loss"]) < 2e-3 * exact[0]["loss"])
    killed(bench, rows)
    at_the_minimum(bench)
    files(bench)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
