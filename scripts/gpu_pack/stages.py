"""The stages of a run, in the order in which one that fails stops the rest."""
import dataclasses
import json
import os
import platform
import re
import shutil
import subprocess
from typing import Callable

import method_stages
import speed_stages
from machine import Failed, Machine, Skipped, is_lines, last_line
from notes import answer, compare, finish, losses_of, markdown


@dataclasses.dataclass(frozen=True)
class Stage:
    name: str
    timeout_s: int
    work: Callable[[Machine, dict], str]


# -- what is there

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
            layers = machine.profile(machine.logs, f"small-{precision}", "quickstart", 1,
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
    """Runs a test program; its output."""
    code, text = machine.run(name, [machine.program(name)], check=False, OMP_NUM_THREADS="1")
    if code != 0:
        wrong = [line.strip() for line in text.splitlines() if "FAILED" in line or "error" in line]
        raise Failed(f"exit {code}: " + "; ".join(wrong[:4] or [last_line(text)]))
    return text


def require_gpu_cases(machine, text):
    """On a GPU no case of a test program may be skipped."""
    skipped = re.findall(r"skipped: ([^\n]*)", text)
    if skipped and machine.on_gpu:
        raise Failed("skipped: " + "; ".join(line[:300] for line in skipped))


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
    require_gpu_cases(machine, text)
    if not machine.on_gpu:
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
    require_gpu_cases(machine, text)
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
    require_gpu_cases(machine, text)
    skipped = "skipped: " in text
    return "the tables are filled" + ("; skipped: no GPU for a world of one" if skipped else
                                      ", a world of one rank")


STAGES = [
    Stage("machine", 30, machine_facts),
    Stage("profile", 60, profile_small),
    Stage("gpu_parity_test", 100, parity_test),
    Stage("gpu_ops_test", 60, ops_test),
    Stage("quickstart", 90, quickstart),
    Stage("ranks", 70, ranks),
    Stage("nccl_library_test", 30, nccl_test),
    Stage("bench_ops", 60, speed_stages.bench_ops),
    Stage("shape", 130, speed_stages.shape),
    Stage("profile_shape", 80, speed_stages.profile_shape),
    Stage("transformers", 90, speed_stages.transformers),
    Stage("kernels", 80, method_stages.kernels),
    Stage("choices", 100, speed_stages.choices),
    Stage("shape_8b", 220, speed_stages.shape_8b),
    Stage("methods", 400, method_stages.methods),  # as many ways as there is time for
]
