"""The stages that measure: kernels, steps of a real model's shape."""
import json
import os
import re
import statistics

from machine import Failed, Skipped, is_lines, last_line
from notes import answer, finish, markdown


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


def shape_steps(machine, name, steps, **settings):
    """Steps of the shape's configuration: rows of metrics by step, and the output."""
    rows, text = machine.train(name, "shape", run__trace_steps=0,
                               until=lambda folder: is_lines(folder / "metrics.jsonl", steps),
                               **{**shape_settings(machine), **settings})
    if not rows:
        raise Failed("no steps: " + last_line(text))
    return rows, text


def median_of(rows, key):
    """Of the steps behind the first; absent: None."""
    values = [rows[step].get(key) for step in sorted(rows)][1 if len(rows) > 1 else 0:]
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def timed_shape(machine, name, steps, **settings):
    """Median seconds of the steps behind the first, and the peak."""
    rows, _ = shape_steps(machine, name, steps, **settings)
    return (median_of(rows, "step_s"),
            max(row.get("mem_peak_bytes") or 0 for row in rows.values()))


def choices(machine, found):
    """The same steps with each choice that only a GPU can settle."""
    steps = max(2, machine.numbers["shape_steps"] // 2)
    kinds = {"own kernels": {},
             "train.kernels: aten": {"train__kernels": "aten"},
             "train.attention: flash": {"train__attention": "flash"}}
    times, notes, wrong = {}, [], []
    for name, settings in kinds.items():
        try:
            times[name] = timed_shape(machine, "choice-" + re.sub(r"\W+", "-", name), steps,
                                      **settings)[0]
        except Failed as error:
            wrong.append(f"{name}: {error}")
            continue
        base = times.get("own kernels")
        ratio = f", {times[name] / base:.3f} of the first" if base and len(times) > 1 else ""
        notes.append(f"{name}: {times[name]:.3f} s{ratio}")
    found["choices"] = times
    found["sections"].append(("Choices, seconds a step",
                              "\n".join("- " + note for note in notes + wrong)))
    return finish(notes, wrong)


def shape_8b(machine, found):
    """InternVL2-8B's shape, whose state fills a GPU of 141 GB."""
    ways = {"train.moments=bf16": {"train__moments": "bf16"}}
    if machine.on_gpu:
        memory = answer("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
        if not memory.split("\n")[0].strip().isdigit() or int(memory.split("\n")[0]) < 120_000:
            raise Skipped(f"needs a GPU of 141 GB, not of {memory.splitlines()[:1]} MiB")
        ways["train.moments=8bit"] = {"train__moments": "8bit"}
        ways["train.moments=bf16, train.fp8=true"] = {"train__moments": "bf16",
                                                      "train__fp8": "true"}
        ways = {name: {**settings, "model__hf": "models/internvl2-8b"}
                for name, settings in ways.items()}
    results, wrong = found.setdefault("shape_8b", {}), []
    for name, settings in ways.items():
        try:
            rows, text = shape_steps(machine, "8b-" + re.sub(r"\W+", "-", name), 3, **settings)
        except Failed as error:
            wrong.append(f"{name}: {error}")
            continue
        results[name] = {key: median_of(rows, key)
                         for key in ("step_s", "mfu", "predicted_step_s", "mem_peak_bytes")}
        results[name]["probe"] = [line for line in text.splitlines() if "probe: it" in line]
    found["sections"].append(("InternVL2-8B's shape", "\n".join(
        f"- {name}: {row}" for name, row in results.items())))
    return finish([f"{name}: {row['step_s']:.3f} s a step" + (
        f", MFU {row['mfu']:.1%}" if row["mfu"] else "") for name, row in results.items()], wrong)


def profile_shape(machine, found):
    layers = machine.profile(machine.results, "shape", "shape", machine.numbers["sweeps"],
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
