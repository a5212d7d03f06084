"""Stages that train InternVL2-2B's shape in every way that saves memory or time."""
import gzip
import re
import shutil
import statistics

from machine import Failed, is_lines, last_line

GIB = 2**30
LORA = {"model__adapter__targets": "all-linear", "model__adapter__rank": 16}
# What is set beside configs/shape.yaml; the first is what the others are compared with.
METHODS = {
    "full training": {},
    "train.attention=cudnn_tiles": {"train__attention": "cudnn_tiles"},
    "train.fp8=true": {"train__fp8": "true"},
    "both of these": {"train__fp8": "true", "train__attention": "cudnn_tiles"},
    "train.offload=[optimizer]": {"train__offload": "[optimizer]"},
    "train.offload=[optimizer,gradients]": {"train__offload": "[optimizer,gradients]"},
    "train.offload=[optimizer,gradients,parameters]": {
        "train__offload": "[optimizer,gradients,parameters]"},
    "balance.recompute=offload": {"train__offload": "[activations]",
                                  "balance__recompute": "offload"},
    "balance.recompute=full": {"balance__recompute": "full"},
    "balance.recompute=full_offload": {"train__offload": "[activations]",
                                       "balance__recompute": "full_offload"},
    "LoRA": LORA,
    "QLoRA, nf4": {**LORA, "model__base": "nf4"},
    "LoRA over int8": {**LORA, "model__base": "int8"},
    "train.moments=bf16": {"train__moments": "bf16"},
    "train.moments=8bit": {"train__moments": "8bit"},
    "train.master=none": {"train__master": "none"},
    "train.precision=fp16": {"train__precision": "fp16"},
    "train.deterministic=true": {"train__deterministic": "true"},
    "train.kernels=aten": {"train__kernels": "aten"},
}
SHORT_METHODS = ("full training", "LoRA", "train.moments=bf16")
PROBED = re.compile(r"probe: it takes ([0-9.]+) MiB .*forecast ([0-9.]+) MiB")
STEPS = 3


def method_row(machine, name, settings):
    """Step seconds, their forecast, GiB, their forecast, the last loss."""
    word = "method-" + re.sub(r"\W+", "-", name)
    rows, text = machine.train(word, "shape", run__trace_steps=0,
                               until=lambda folder: is_lines(folder / "metrics.jsonl", STEPS),
                               **settings)
    timed = [rows[step] for step in sorted(rows)][1:]
    if not timed:
        raise Failed("no steps: " + last_line(text))
    seconds = statistics.median(row["step_s"] for row in timed)
    predicted = timed[-1].get("predicted_step_s")
    probed = PROBED.search(text)
    forecast = f"{float(probed[2]) / 1024:.1f}" if probed else "-"
    peak = max(row.get("mem_peak_bytes", 0) for row in timed) / GIB
    return {"step_s": seconds, "predicted_step_s": predicted, "peak_gib": peak,
            "forecast_gib": forecast, "loss": timed[-1]["loss"]}


def methods(machine, found, shape_settings):
    names = METHODS if machine.on_gpu else SHORT_METHODS
    lines, wrong, results = [], [], {}
    for name in names:
        settings = {**shape_settings(machine), **METHODS[name]}
        try:
            row = results[name] = method_row(machine, name, settings)
        except Failed as error:
            wrong.append(f"{name}: {error}")
            continue
        base = results.get("full training", row)["step_s"]
        predicted = row["predicted_step_s"]
        lines.append(f"| {name} | {row['step_s']:.3f} | {row['step_s'] / base:.3f} | "
                     + (f"{predicted:.3f}" if predicted else "-")
                     + f" | {row['peak_gib']:.1f} | {row['forecast_gib']} | {row['loss']:.4f} |")
    head = ["| method | s a step | of the first | forecast | GiB | forecast | loss |",
            "|---|---|---|---|---|---|---|"]
    found["methods"] = results
    found["sections"].append(("Methods", "\n".join(
        head + lines + [""] + ["- " + text for text in wrong])))
    if wrong:
        raise Failed("; ".join(wrong))
    return f"{len(results)} ways to train"


def kernels(machine, found, shape_settings):
    """The kernels of a step by time, and their Chrome trace."""
    name, steps = "kernels", 4
    try:
        machine.train(name, "shape", run__trace_steps=0, run__kernel_trace=1, keep=True,
                      until=lambda folder: is_lines(folder / "metrics.jsonl", steps),
                      **shape_settings(machine))
        folder = machine.scratch / name
        table = (folder / "kernels.txt").read_text(encoding="utf-8")
        with open(folder / "kernels.0.json", "rb") as trace, gzip.open(
                machine.results / "kernels.json.gz", "wb") as out:
            shutil.copyfileobj(trace, out)
    finally:
        shutil.rmtree(machine.scratch / name, ignore_errors=True)
    found["sections"].append(("Kernels", "```\n" + "\n".join(table.splitlines()[:70]) + "\n```"))
    return table.strip().splitlines()[-1]
