"""The stages of a run, in the order in which one that fails stops the rest."""
import dataclasses
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
from typing import Callable

import method_stages
from machine import Failed, Machine, Skipped, is_lines, last_line

# How far losses may be from those of another device or mesh, relative: the first one, before any
# step, and all of them. AdamW's first steps go by the sign of a gradient, so that rounding spreads:
# 30 steps of the quickstart in bf16 are 2e-5 and 2e-3 from those in fp32.
BOUNDS = {"fp32": (1e-5, 5e-3), "bf16": (2e-3, 2e-2)}


@dataclasses.dataclass(frozen=True)
class Stage:
    name: str
    timeout_s: int
    work: Callable[[Machine, dict], str]


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def losses_of(rows):
    return [rows[step]["loss"] for step in sorted(rows)]


def apart(losses, expected):
    """The largest relative differences: of the first loss, of all."""
    pairs = list(zip(losses, expected))
    every = [abs(a - b) / max(abs(b), 1e-12) for a, b in pairs]
    return every[0], max(every)


def compare(name, losses, expected, precision, wrong):
    """Words for the note; what is outside the bounds is added to `wrong`."""
    if len(losses) != len(expected):
        wrong.append(f"{name}: {len(losses)} steps, not {len(expected)}")
        return f"{name}: {len(losses)} steps"
    first, largest = apart(losses, expected)
    if not (first <= BOUNDS[precision][0] and largest <= BOUNDS[precision][1]):
        wrong.append(f"{name}: losses are off by {first:.1e} and {largest:.1e}")
    return f"{name}: {first:.1e}, {largest:.1e}"


def finish(notes, wrong):
    if wrong:
        raise Failed("; ".join(wrong) + (f" ({'; '.join(notes)})" if notes else ""))
    return "; ".join(notes)


# -- what is there

def answer(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        return (done.stdout + done.stderr).strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"


def machine_facts(machine, found):
    facts = {"kernel": " ".join(platform.uname()[:3]), "glibc": platform.libc_ver()[1],
             "python": platform.python_version(), "torch": machine.torch,
             "cores": os.cpu_count(), "memory": answer("free", "-m"),
             "/dev/shm": answer("df", "-m", "/dev/shm")}
    missing = []
    environment = dict(machine.environment)
    environment["LD_LIBRARY_PATH"] = machine.torch + "/lib"
    for program in sorted((machine.pack / "bundle").glob("*.bin")):
        done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False,
                              env=environment)
        missing += [f"{program.name}: {line.strip()}" for line in done.stdout.splitlines()
                    if "not found" in line]
    facts["libraries that are not found"] = ", ".join(missing) or "none"
    code, version = machine.run("version", [machine.program("equipoise"), "--version"], check=False)
    facts["program"] = last_line(version)
    if machine.on_gpu:
        gpus = answer("nvidia-smi", "--query-gpu=name,driver_version,memory.total",
                      "--format=csv,noheader")
        facts["nvidia-smi"] = gpus
        found["device"] = gpus.splitlines()[0] if gpus else "no answer of nvidia-smi"
    else:
        found["device"] = "dry run on the CPU"
    found["facts"] = facts
    found["sections"].append(
        ("Machine", "\n".join(f"- {key}: {' '.join(str(value).split())}"
                              for key, value in facts.items())))
    if missing or code != 0:
        raise Failed("; ".join(missing) or facts["program"])
    return f"{found['device']}; {facts['cores']} cores; {facts['program']}"


# -- does it compute

def profile(machine, name, config, sweeps, **settings):
    """Measures layers; the rows of the file."""
    out = machine.results / f"profile-{name}.json"
    command = [machine.program("equipoise"), "profile", f"configs/{config}.yaml", "--out", out,
               "--sweeps", sweeps, "--set", f"train.device={machine.device}"]
    for key, value in settings.items():
        command += ["--set", f"{key.replace('__', '.')}={value}"]
    machine.run(f"profile-{name}", command)
    return json.loads(out.read_text(encoding="utf-8"))["layers"]


def say_why(machine, precision):
    """After a failure on a GPU: once more with each launch waited for, and under the sanitizer."""
    command = [machine.program("equipoise.bin"), "profile", "configs/quickstart.yaml", "--sweeps",
               1, "--out", machine.scratch / "p.json", "--set", "train.device=cuda", "--set",
               f"train.precision={precision}"]
    library = f"{machine.torch}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}"
    # The sanitizer wants the program, not its launcher.
    common = {"LD_LIBRARY_PATH": library, "CUDA_LAUNCH_BLOCKING": "1", "GOMP_SPINCOUNT": "0"}
    machine.run("why-blocking", command, check=False, **common)
    if shutil.which("compute-sanitizer"):
        machine.run("why-sanitizer", ["compute-sanitizer", *command], check=False, **common)


def profile_small(machine, _):
    notes = []
    for precision in ("fp32", "bf16"):
        try:
            layers = profile(machine, f"small-{precision}", "quickstart", 1,
                             train__precision=precision)
        except Failed as failure:
            if machine.on_gpu:
                machine.end += 60
                try:
                    say_why(machine, precision)
                except Failed:  # of time; the log has what came
                    pass
            raise failure
        notes.append(f"{precision}: {len(layers)} measurements")
    return "; ".join(notes)


def catch_test(machine, name):
    """Runs a test program; its output. One that ran no case for want of a GPU is skipped."""
    code, text = machine.run(name, [machine.program(name)], check=False, OMP_NUM_THREADS="1")
    if code != 0:
        wrong = [line.strip() for line in text.splitlines() if "FAILED" in line or "error" in line]
        raise Failed(f"exit {code}: " + "; ".join(wrong[:4] or [last_line(text)]))
    return text


def parity_test(machine, found):
    try:
        text = catch_test(machine, "gpu_parity_test")
    finally:
        log = machine.logs / "gpu_parity_test.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        cells = [line.split("\t")[1:] for line in lines if line.startswith("cell\t")]
        if cells:
            head = ["cell", "loss", "gradients", "move", "all", "bits"]
            found["sections"].append(("Cells on the GPU beside the CPU", markdown(head, cells)))
    if "skipped:" in text:
        raise Skipped("no GPU")
    return f"{len(cells)} cells as on the CPU"


def ops_test(machine, found):
    try:
        text = catch_test(machine, "gpu_ops_test")
    finally:
        log = machine.logs / "gpu_ops_test.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        rows = [line.split("\t")[1:] for line in lines if line.startswith("ops\t")]
        if rows and machine.on_gpu:
            rows = [row for row in rows if row[0] != "CPU"]  # there the shapes are small
            head = ["kernels", "operation", "precision", "result", "gradients"]
            found["sections"].append(("Operations beside fp64, relative errors",
                                      markdown(head, rows)))
    if machine.on_gpu and "skipped:" in text:
        raise Skipped("no GPU")
    worst = {p: max(max(float(r[3]), float(r[4])) for r in rows if r[2] == p)
             for p in ("fp32", "bf16")}
    where = "real shapes" if machine.on_gpu else "small shapes on the CPU; real ones need a GPU"
    return f"{where}: fp32 within {worst['fp32']:.1e}, bf16 within {worst['bf16']:.1e}"


# -- does it train

def reference(machine):
    """The CPU's losses in fp32."""
    return json.loads((machine.pack / "reference/fp32.json").read_text(encoding="utf-8"))


def killed_and_resumed(machine, settings):
    """kill -9 behind a checkpoint, then the same command to some steps more; rows, output."""
    at = machine.numbers["kill_at"]

    def is_time(folder):
        return is_lines(folder / "metrics.jsonl", at) and (folder / "checkpoints/latest").exists()
    # Without an end, so that the kill cannot come too late.
    rows, _ = machine.train("killed", "quickstart", until=is_time, keep=True,
                            **{**settings, "train__steps": 1000000})
    steps = max(machine.numbers["steps"], max(rows) + 2)
    rows, text = machine.train("killed+resumed", "quickstart",
                               **{**settings, "train__steps": steps})
    return rows, text


def resume(machine, wrong, expected):
    """A run that is killed and goes on, beside one that is not, and that one beside `expected`,
    which is as long as it or shorter."""
    settings = {"train__precision": "bf16", "train__deterministic": "true"}
    rows, text = killed_and_resumed(machine, settings)
    whole, _ = machine.train("deterministic-again", "quickstart",
                             **{**settings, "train__steps": max(rows)})
    twice = losses_of(whole)[:len(expected)] == expected
    same = losses_of(rows) == losses_of(whole)
    if "going on from" not in text:
        wrong.append("the killed run did not go on from a checkpoint")
    if not twice:
        wrong.append("train.deterministic: two runs differ")
    if not same:
        wrong.append("the killed run differs from one that was not")
    bits = {True: "same bits", False: "other bits"}
    return f"deterministic twice: {bits[twice]}; killed and resumed: {bits[same]}"


def quickstart(machine, found):
    notes, wrong = [], []
    results = {}

    def train(name, precision, deterministic="false"):
        rows, _ = machine.train(name, "quickstart", train__precision=precision,
                                train__deterministic=deterministic,
                                checkpoint__every=machine.numbers["steps"])
        results[name] = losses_of(rows)
        return results[name]

    def attempt(work):
        try:
            return work()
        except Failed as error:
            wrong.append(str(error))
            return None
    for precision in ("fp32", "bf16"):
        losses = attempt(lambda p=precision: train(p, p))
        if losses:
            notes.append(compare(f"{precision} beside the CPU", losses,
                                 reference(machine), precision, wrong))
    again = attempt(lambda: train("bf16-again", "bf16"))
    if again:
        notes.append("bf16 twice: " + ("same" if again == results.get("bf16") else "other")
                     + " bits")
    once = attempt(lambda: train("deterministic", "bf16", "true"))
    if once:
        notes.append(attempt(lambda: resume(machine, wrong, once)) or "")
    found["losses"] = results
    found["sections"].append(("Quickstart's losses", markdown(
        ["run", "first", "last"], [[name, f"{each[0]:.6f}", f"{each[-1]:.6f}"]
                                   for name, each in results.items()])))
    return finish([note for note in notes if note], wrong)


def ranks(machine, found):
    """Two ranks that share the GPU, staged, beside one."""
    steps = machine.numbers["rank_steps"]
    expected = found.get("losses", {}).get("fp32") or reference(machine)
    notes, wrong = [], []
    meshes = {"data 2, zero 1": {"data": 2, "zero": 1},
              "pipeline 2, 1f1b": {"pipeline": 2, "schedule": "1f1b"},
              "pipeline 2, zb_v": {"pipeline": 2, "schedule": "zb_v"},
              "tensor 2": {"tensor": 2}}
    for name, mesh in meshes.items():
        settings = {f"parallel__{key}": value for key, value in mesh.items()}
        try:
            rows, _ = machine.train("ranks-" + re.sub(r"\W+", "-", name), "quickstart", ranks=2,
                                    train__precision="fp32", train__steps=steps,
                                    checkpoint__every=steps, run__trace_steps=0,
                                    parallel__timeout_s=30, **settings)
            notes.append(compare(name, losses_of(rows), expected[:steps], "fp32", wrong))
        except Failed as error:
            wrong.append(str(error))
    return finish(notes, wrong)


def nccl_test(machine, _):
    text = catch_test(machine, "nccl_library_test")
    skipped = re.findall(r"skipped: ([^\n]*)", text)
    if skipped and machine.on_gpu:
        raise Failed("; ".join(skipped))
    return "the tables are filled" + ("; skipped: no GPU for a world of one" if skipped else
                                      ", a world of one rank")


# -- how fast it is

def bench_ops(machine, found):
    if not machine.python_has_torch:
        raise Skipped("this python3 has no torch")
    out = machine.results / "bench_ops.json"
    short = [] if machine.on_gpu else ["--short"]
    machine.run("bench_ops", machine.tool("bench_ops.py", "--device", machine.device, "--out", out,
                                          *short))
    rows = json.loads(out.read_text(encoding="utf-8"))
    timed = [row for row in rows if row["us"] is not None]
    if machine.on_gpu:
        found["sections"].append(("Prices of kernels", markdown(
            ["operation", "variant", "us", ""],
            [[row["operation"], row["variant"], "-" if row["us"] is None else f"{row['us']:.1f}",
              row["note"].replace("|", "/")] for row in rows])))
    return f"{len(timed)} of {len(rows)} kernels timed"


def shape_settings(machine):
    """On a CPU the quickstart's small model takes the place of the 2B one."""
    if machine.on_gpu:
        threads = max(1, min(12, (os.cpu_count() or 1) - 2))
        return {"train__precision": "bf16", "data__threads": threads}
    return {"model__hf": "models/quickstart", "data__max_tokens": 640, "train__global_batch": 1}


def shape(machine, found):
    steps = machine.numbers["shape_steps"]
    rows, text = machine.train("shape", "shape", run__trace_steps=min(3, steps),
                               until=lambda folder: is_lines(folder / "metrics.jsonl", steps),
                               **shape_settings(machine))
    # The first two bring up kernels and the allocator.
    timed = [rows[step] for step in sorted(rows)][2 if len(rows) > 3 else 0:]
    if not timed:
        raise Failed("no steps: " + last_line(text))
    seconds = statistics.median(row["step_s"] for row in timed)
    result = {"step_s": seconds,
              "tokens_per_s": sum(r["tokens"] for r in timed) / sum(r["step_s"] for r in timed)}
    for key in ("mfu", "mem_peak_bytes", "predicted_step_s", "data_wait_s"):
        values = [row[key] for row in timed if row.get(key) is not None]
        if values:
            result[key] = statistics.median(values)
    found["shape"] = result
    memory = [line.strip() for line in text.splitlines() if "probe:" in line or "planned" in line]
    found["sections"].append(("InternVL2-2B's shape" if machine.on_gpu else "A small shape",
                              "\n".join(["- " + line for line in memory]
                                        + [f"- {k}: {v:.6g}" for k, v in result.items()])))
    more = f", MFU {result['mfu']:.1%}" if "mfu" in result else ""
    return f"{seconds:.3f} s a step, {result['tokens_per_s']:.0f} tokens/s{more}"


def timed_shape(machine, name, steps, **settings):
    """Steps of the shape's configuration; the median seconds and peak of those behind the first."""
    rows, text = machine.train(name, "shape", run__trace_steps=0,
                               until=lambda folder: is_lines(folder / "metrics.jsonl", steps),
                               **{**shape_settings(machine), **settings})
    timed = [rows[step] for step in sorted(rows)][1 if len(rows) > 1 else 0:]
    if not timed:
        raise Failed("no steps: " + last_line(text))
    return (statistics.median(row["step_s"] for row in timed),
            max(row.get("mem_peak_bytes", 0) for row in timed))


def choices(machine, found):
    """The same steps with each choice that only a GPU can settle."""
    steps = max(2, machine.numbers["shape_steps"] // 2)
    kinds = {"own kernels, flash attention": {},
             "train.kernels: aten": {"train__kernels": "aten"},
             "train.attention: cudnn_tiles": {"train__attention": "cudnn_tiles"}}
    times, notes, wrong = {}, [], []
    for name, settings in kinds.items():
        try:
            times[name] = timed_shape(machine, "choice-" + re.sub(r"\W+", "-", name), steps,
                                      **settings)[0]
        except Failed as error:
            wrong.append(f"{name}: {error}")
            continue
        base = times.get("own kernels, flash attention")
        ratio = f", {times[name] / base:.3f} of the first" if base and len(times) > 1 else ""
        notes.append(f"{name}: {times[name]:.3f} s{ratio}")
    found["choices"] = times
    found["sections"].append(("Choices, seconds a step",
                              "\n".join("- " + note for note in notes + wrong)))
    return finish(notes, wrong)


def methods(machine, found):
    return method_stages.methods(machine, found, shape_settings)


def kernels(machine, found):
    return method_stages.kernels(machine, found, shape_settings)


def shape_8b(machine, found):
    """InternVL2-8B's shape, whose state fills a GPU of 141 GB."""
    settings = {"train__moments": "bf16"}
    if machine.on_gpu:
        memory = answer("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
        if not memory.split("\n")[0].strip().isdigit() or int(memory.split("\n")[0]) < 120_000:
            raise Skipped(f"needs a GPU of 141 GB, not of {memory.splitlines()[:1]} MiB")
        settings["model__hf"] = "models/internvl2-8b"
    seconds, peak = timed_shape(machine, "shape-8b", 2, **settings)
    found["shape_8b"] = {"step_s": seconds, "mem_peak_bytes": peak}
    return f"{seconds:.3f} s a step, {peak / 2**30:.1f} GiB"


def profile_shape(machine, found):
    layers = profile(machine, "shape", "shape", machine.numbers["sweeps"],
                     **shape_settings(machine))
    file = machine.results / "profile-shape.json"
    plans = {}
    # The same step by the constants and by what was measured.
    for name, more in (("constants", {}), ("profile", {"cluster__profile": file})):
        out = machine.scratch / f"plan-{name}.json"
        command = [machine.program("equipoise"), "plan", "configs/shape.yaml", "--ranks", 1,
                   "--json", out]
        settings = {"train__device": machine.device, "data__cache": machine.scratch / "cache",
                    **shape_settings(machine), **more}
        for key, value in settings.items():
            command += ["--set", f"{key.replace('__', '.')}={value}"]
        code, text = machine.run(f"plan-{name}", command, check=False)
        plan = json.loads(out.read_text(encoding="utf-8")) if code == 0 else {}
        step = plan.get("step_s", {})
        plans[name] = (f"{step['p50']:.3f} s" if isinstance(step, dict) and "p50" in step
                       else last_line(text))
    found["predicted"] = plans
    return (f"{len(layers)} measurements; a step predicted by constants: {plans['constants']}, by "
            f"the profile: {plans['profile']}")


def transformers(machine, found):
    if not machine.python_has_torch:
        raise Skipped("this python3 has no torch")
    numbers = machine.numbers
    model, size = "models/internvl2-2b", [
        "--tokens", numbers["shape_tokens"], "--rows", numbers["shape_rows"]]
    if not machine.on_gpu:
        model, size = "models/quickstart", ["--tokens", 640, "--rows", 1]
    out = machine.scratch / "loop.json"
    machine.run("transformers", machine.tool(
        "transformers_loop.py", model, "data/shape.jsonl", "--images", "data/shape", "--device",
        machine.device, "--tiles", numbers["tiles"], "--steps", numbers["loop_steps"], "--warmup",
        2 if numbers["loop_steps"] > 3 else 1, "--out", out, *size))
    result = json.loads(out.read_text(encoding="utf-8"))
    found["transformers"] = result
    ours = found.get("shape", {}).get("tokens_per_s")
    ratio = f"; ours is {ours / result['tokens_per_s']:.2f} times as fast" if ours else ""
    return f"{result['step_s']:.3f} s a step, {result['tokens_per_s']:.0f} tokens/s{ratio}"


STAGES = [
    Stage("machine", 30, machine_facts),
    Stage("profile", 60, profile_small),
    Stage("gpu_parity_test", 100, parity_test),
    Stage("gpu_ops_test", 60, ops_test),
    Stage("quickstart", 90, quickstart),
    Stage("ranks", 70, ranks),
    Stage("nccl_library_test", 30, nccl_test),
    Stage("bench_ops", 60, bench_ops),
    Stage("shape", 130, shape),
    Stage("profile_shape", 80, profile_shape),
    Stage("transformers", 90, transformers),
    Stage("kernels", 60, kernels),
    Stage("methods", 400, methods),
    Stage("choices", 100, choices),
    Stage("shape_8b", 90, shape_8b),
]
