"""Runs `equipoise check` and measures how far its results are from a reference's.

Used by transformers_oracle_test.py and parity_fixtures_test.py. Bounds are those of docs/design.md,
section 5; each comparison keeps the largest error it saw, and the table of them is printed.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

FP32 = {"logits": 1e-4, "loss": 1e-6, "gradient": 1e-4, "steps": 1e-5, "norms": 1e-4, "after": 1e-4}
BF16 = {"logits": 3e-2, "gradient": 5e-2}
# How many times Transformers' own error ours may be where that error is above the bound. In fp32
# these are tensors without a gradient in exact arithmetic, both results rounding noise alone.
FP32_NOISE, BF16_NOISE = 3.0, 1.5


def program():
    """The built program: beside this file's runfiles, or the first argument."""
    path = sys.argv[1] if len(sys.argv) > 1 else "trainer/equipoise"
    return os.path.abspath(path)


class Report:
    """Cases with their errors, printed as a table."""

    def __init__(self):
        self.rows, self.failed = [], 0

    def add(self, case, what, error, bound, worst=""):
        ok = error <= bound  # false for NaN
        self.failed += not ok
        self.rows.append((case, what, error, bound, worst, ok))

    def check(self, case, what, ok, detail=""):
        self.add(case, what, 0.0 if ok else float("inf"), 0.0, detail if not ok else "")

    def finish(self):
        width = max([len(row[0]) for row in self.rows] + [4])
        print(f"{'case':{width}}  {'what':22} {'error':>9}  {'bound':>8}")
        for case, what, error, bound, worst, ok in self.rows:
            mark = "" if ok else "  FAILED"
            print(f"{case:{width}}  {what:22} {error:9.2e}  {bound:8.1e}{mark}  {worst}")
        print(f"{len(self.rows) - self.failed} passed, {self.failed} failed")
        return 1 if self.failed or not self.rows else 0


def run_check(model, inputs, *, gradients=False, recipe=None, settings=(), ranks=1):
    """The output tensors of `equipoise check`; `inputs` is a path or a dict of tensors."""
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(inputs, dict):
            path = os.path.join(folder, "inputs.safetensors")
            save_file({name: tensor.contiguous() for name, tensor in inputs.items()}, path)
            inputs = path
        out = os.path.join(folder, "out.safetensors")
        command = [program(), "check", model, inputs, "--out", out]
        if ranks > 1:
            command = [os.environ["EQUIPOISE_MPIRUN"], "-n", str(ranks)] + command
        if gradients:
            command.append("--gradients")
        if recipe is not None:
            with open(os.path.join(folder, "recipe.json"), "w", encoding="utf8") as file:
                json.dump(recipe, file)
            command += ["--steps", file.name]
        for setting in settings:
            command += ["--set", setting]
        environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False,
                              env={**environment, **os.environ})
        if done.returncode != 0:
            raise RuntimeError(
                f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}"
            )
        return load_file(out)


def logit_error(ours, theirs):
    """Largest difference, as a share of the largest absolute logit."""
    return ((ours.double() - theirs.double()).abs().max() / theirs.double().abs().max()).item()


def gradient_errors(ours, exact):
    """Of each tensor: ||a - b|| / max(||b||, 1e-6 global norm)."""
    norm = sum(g.double().square().sum() for g in exact.values()).sqrt()
    return {name: ((ours[name].double() - b.double()).norm() /
                   max(b.double().norm(), 1e-6 * norm)).item() for name, b in exact.items()}


def kind(name):
    """The name without the layer's number."""
    return re.sub(r"\.\d+\.", ".*.", name)


def noise_floors(own, exact):
    """The error of Transformers' own run: for each kind of tensor the worst of its layers."""
    floors = {}
    for name, error in gradient_errors(own, exact).items():
        floors[kind(name)] = max(error, floors.get(kind(name), 0.0))
    return floors


def strip(tensors, prefix):
    return {name[len(prefix):]: t for name, t in tensors.items() if name.startswith(prefix)}


def compare_tensors(report, case, what, tensors, exact, own, bound):
    """Every tensor against Transformers in double precision; where Transformers' own run is near
    the bound or beyond it (InternViT's key biases), against its error."""
    factor = BF16_NOISE if bound == BF16["gradient"] else FP32_NOISE
    report.check(case, what + " names", set(tensors) == set(exact),
                 str(set(tensors) ^ set(exact))[:200])
    if set(tensors) != set(exact):
        return
    floors = noise_floors(own, exact)
    errors = gradient_errors(tensors, exact)
    noisy = {name for name in exact if factor * floors[kind(name)] > bound}
    strict = [name for name in exact if name not in noisy]
    worst = max(strict, key=lambda name: rank(errors[name]))
    report.add(case, what, errors[worst], bound, worst)
    if noisy:
        ratio = {name: errors[name] / floors[kind(name)] for name in noisy}
        worst = max(ratio, key=lambda name: rank(ratio[name]))
        report.add(case, what + " at noise", ratio[worst], factor,
                   f"of Transformers' {floors[kind(worst)]:.1e}; {len(noisy)} tensors, {worst}")


def rank(error):
    return error if error == error else float("inf")  # NaN is the worst


def compare_loss(report, case, ours, theirs):
    report.add(case, "loss", abs(ours - theirs) / abs(theirs), FP32["loss"])


def compare_steps(report, case, ours, losses, norms):
    """Losses of AdamW steps relative to the reference's, and the norms before clipping."""
    for what, mine, reference, bound in (("losses", ours["losses"], losses, FP32["steps"]),
                                         ("grad norms", ours["grad_norms"], norms, FP32["norms"])):
        reference = torch.tensor(reference, dtype=torch.float64)
        error = ((mine.double() - reference).abs() / reference.abs()).max().item()
        report.add(case, what, error if mine.shape == reference.shape else float("nan"), bound)
