"""Stages that take a step of InternVL2-2B's shape apart, and that train it in every way."""
import gzip
import re
import shutil
import time

from machine import FILE_LIMIT, Failed, is_lines, last_line
from notes import finish, losses_of, markdown
from speed_stages import median_of, shape_settings, shape_steps

KERNEL_LINES = 60  # of the table of kernels, in the report


def traced(machine, found, name, **settings):
    """CUDA kernels of a step by time, and their trace. The table is written behind the trace."""
    steps = 5 if machine.on_gpu else machine.numbers["shape_steps"]
    folder = machine.scratch / name

    def is_time(_):
        lines = folder / "metrics.jsonl"
        return is_lines(lines, steps) and ((folder / "kernels.txt").exists()
                                           or is_lines(lines, steps + 5))
    try:
        _, text = machine.train(name, "shape", until=is_time, keep=True, run__trace_steps=0,
                                run__kernel_trace=1, **{**shape_settings(machine), **settings})
        if not (folder / "kernels.txt").exists():
            said = [line for line in text.splitlines() if "kernel_trace" in line
                    and not line.startswith("$")]
            raise Failed("no kernels.txt: " + last_line("\n".join(said) or text))
        lines = (folder / "kernels.txt").read_text(encoding="utf-8").splitlines()
        shutil.copy(folder / "kernels.txt", machine.logs / f"{name}.txt")
        data = gzip.compress((folder / "kernels.0.json").read_bytes())
        if len(data) < FILE_LIMIT:
            (machine.results / f"{name}.json.gz").write_bytes(data)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found["sections"].append((f"{name} by time".capitalize(),
                              "\n".join(["```", *lines[:KERNEL_LINES], "```"])))
    return lines[-1].strip() if lines else "an empty table"


def kernels(machine, found):
    notes = [traced(machine, found, "kernels")]
    if machine.on_gpu:
        notes.append("fp8: " + traced(machine, found, "kernels-fp8", train__fp8="true"))
    return "; ".join(notes)


# -- ways of training

LORA = {"model__adapter__targets": "all-linear", "model__adapter__rank": 16}
# What is set beside configs/shape.yaml; the first is what the others are compared with.
METHODS = {
    "full training": {},
    "train.fp8=true": {"train__fp8": "true"},
    "train.attention=flash": {"train__attention": "flash"},
    "train.kernels=aten": {"train__kernels": "aten"},
    "train.deterministic=true": {"train__deterministic": "true"},
    "train.moments=8bit": {"train__moments": "8bit"},
    "train.master=none": {"train__master": "none"},
    "train.precision=fp16": {"train__precision": "fp16"},
    "train.moments=bf16": {"train__moments": "bf16"},
    "balance.recompute=elementwise": {"balance__recompute": "elementwise"},
    "balance.recompute=full": {"balance__recompute": "full"},
    "LoRA": LORA,
    "QLoRA, nf4": {**LORA, "model__base": "nf4"},
    "LoRA over int8": {**LORA, "model__base": "int8"},
    "train.offload=[optimizer]": {"train__offload": "[optimizer]"},
    "balance.recompute=full_offload": {"train__offload": "[activations]",
                                       "balance__recompute": "full_offload"},
    "train.offload=[optimizer,gradients]": {"train__offload": "[optimizer,gradients]"},
    "train.offload=[optimizer,gradients,parameters]": {
        "train__offload": "[optimizer,gradients,parameters]"},
    "balance.recompute=offload": {"train__offload": "[activations]",
                                  "balance__recompute": "offload"},
}
SHORT_METHODS = ("full training", "LoRA", "train.moments=bf16")
METHOD_STEPS = 3
METHOD_LIMIT_S = 80  # of one of them


def method_row(machine, name, settings):
    """What a way of training takes, measured and forecast."""
    steps = METHOD_STEPS if machine.on_gpu else min(METHOD_STEPS, machine.numbers["shape_steps"])
    word = re.sub(r"\W+", "-", name).strip("-")
    rows, text = shape_steps(machine, f"method-{word}", steps, **settings)
    rows = {step: rows[step] for step in sorted(rows)[:steps]}
    losses = losses_of(rows)
    peaks = [row["mem_peak_bytes"] for row in rows.values() if row.get("mem_peak_bytes")]
    probe = re.search(r"probe: it takes [0-9.]+ MiB .*forecast ([0-9.]+) MiB", text)
    return {"step_s": median_of(rows, "step_s"),
            "peak_gib": max(peaks) / 2**30 if peaks else None,
            "forecast_gib": float(probe[1]) / 1024 if probe else None,
            "forecast_s": median_of(rows, "predicted_step_s"),
            "first_loss": losses[0], "last_loss": losses[-1]}


def methods_table(rows):
    def shown(row, key, digits):
        return "-" if row.get(key) is None else f"{row[key]:.{digits}f}"
    keys = {"step_s": 3, "of_full": 3, "peak_gib": 2, "forecast_gib": 2, "forecast_s": 3,
            "first_loss": 4, "last_loss": 4}
    head = ["way", "step s", "of full", "peak GiB", "forecast GiB", "forecast s", "first loss",
            "last loss", ""]
    return markdown(head, [[row["way"], *(shown(row, key, digits) for key, digits in keys.items()),
                            row.get("error", "").replace("|", "/")] for row in rows])


def methods(machine, found):
    """The same steps by each way of training, as many ways as there is time for."""
    names = METHODS if machine.on_gpu else SHORT_METHODS
    end, quickest, full = machine.end, None, None
    rows = found["methods"] = []
    left = []
    for name in names:
        begin = time.monotonic()
        if quickest and begin + quickest > end:
            left.append(name)
            continue
        machine.end = min(end, begin + METHOD_LIMIT_S) if machine.on_gpu else end
        row = {"way": name}
        try:
            row.update(method_row(machine, name, METHODS[name]))
            seconds = time.monotonic() - begin
            quickest = min(seconds, quickest or seconds)
            full = full or (row["step_s"] if not METHODS[name] else None)
            row["of_full"] = row["step_s"] / full if full else None
        except Failed as error:
            if time.monotonic() > end:
                left.append(name)
                continue
            row["error"] = str(error)
        rows.append(row)
    found["methods_left_out"] = left
    late = [f"left out for want of time: {', '.join(left)}"] if left else []
    found["sections"].append(("Ways of training", "\n\n".join([methods_table(rows), *late])))
    wrong = [f"{row['way']}: {row['error']}" for row in rows if "error" in row]
    return finish([f"{len(rows) - len(wrong)} ways measured", *late], wrong)
