"""Runs `equipoise check` and measures how far its results are from a reference's.

Used by transformers_oracle_test.py, parity_fixtures_test.py and scripts/parity-models. Bounds are
those of docs/design.md, section 5; each comparison keeps the largest error it saw, and the table of
them is printed.
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
FP16 = {"logits": 4e-3, "gradient": 7e-3}  # an eighth: fp16 has three bits more
# How many times Transformers' own error ours may be where that error is near the bound or above it.
# In 16 bits this holds for every tensor; in fp32 for those of ZERO_IN_EXACT_ARITHMETIC alone.
FP32_NOISE, BF16_NOISE = 3.0, 1.5
# Gradients that are zero in exact arithmetic, as a share of the norm of all gradients.
FP32_ZERO = 1e-7

# Tensors whose gradient is rounding noise alone, by what is compared; every other one has the plain
# bound. A key's bias adds the same number to all scores of a query, which the softmax takes out
# again, so its gradient is 0. That is exact in encoders without QK normalisation; where keys are
# rotated it holds for the slow pairs of a head, whose angle hardly changes within a sequence. There
# the gradient as a whole is no noise, but AdamW divides each element by its own size, so that the
# bias's noise is as large as any other step once weights are compared.
ZERO_IN_EXACT_ARITHMETIC = {
    "gradients": re.compile(
        r"vision_tower\.encoder\.layers?\.\d+\.(self_attn|attention)\.k_proj\.bias"),
    "weights after": re.compile(r".*\.k_proj\.bias"),
}


def program():
    """The built program: that of tiny_case.py, the first argument, or the one of the runfiles."""
    path = sys.argv[1] if len(sys.argv) > 1 else "trainer/equipoise"
    return os.path.abspath(os.environ.get("EQUIPOISE_BINARY", path))


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


def start_check(*arguments, ranks=1):
    """Runs `equipoise check` to its end."""
    command = [program(), "check", *arguments]
    if ranks > 1:
        command = [os.environ["EQUIPOISE_MPIRUN"], "-n", str(ranks)] + command
    environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False,
                          env={**environment, **os.environ})


def run_check(model, inputs, *, gradients=False, recipe=None, settings=(), ranks=1):
    """The output tensors of `equipoise check`; `inputs` is a path or a dict of tensors, `recipe`
    what --steps takes or a recipe itself."""
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(inputs, dict):
            path = os.path.join(folder, "inputs.safetensors")
            save_file({name: tensor.contiguous() for name, tensor in inputs.items()}, path)
            inputs = path
        out = os.path.join(folder, "out.safetensors")
        arguments = [model, inputs, "--out", out] + (["--gradients"] if gradients else [])
        if isinstance(recipe, dict):
            with open(os.path.join(folder, "recipe.json"), "w", encoding="utf8") as file:
                json.dump(recipe, file)
            recipe = file.name
        if recipe is not None:
            arguments += ["--steps", recipe]
        for setting in settings:
            arguments += ["--set", setting]
        done = start_check(*arguments, ranks=ranks)
        if done.returncode != 0:
            raise RuntimeError(
                f"check {' '.join(arguments)}: exit {done.returncode}: {done.stderr.strip()}"
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


def worst_floors(draws, exact):
    """noise_floors() of several of Transformers' own runs, the worst of each kind."""
    floors = [noise_floors(own, exact) for own in draws]
    return {of_kind: max(each[of_kind] for each in floors) for of_kind in floors[0]}


def strip(tensors, prefix):
    return {name[len(prefix):]: t for name, t in tensors.items() if name.startswith(prefix)}


def is_noise(what, name):
    return bool(ZERO_IN_EXACT_ARITHMETIC[what].fullmatch(name))


def compare_tensors(report, case, what, tensors, exact, floors, bound):
    """Every tensor against Transformers in double precision. Where the noise rule is open to a
    tensor and its floor (see noise_floors) is near the bound or beyond it, against that floor."""
    low = bound in (BF16["gradient"], FP16["gradient"])
    factor = BF16_NOISE if low else FP32_NOISE
    report.check(case, what + " names", set(tensors) == set(exact),
                 str(set(tensors) ^ set(exact))[:200])
    if set(tensors) != set(exact):
        return
    errors = gradient_errors(tensors, exact)
    zeros = [name for name in exact if what == "gradients" and is_noise(what, name)]
    if zeros and not low:
        norm = sum(g.double().square().sum() for g in exact.values()).sqrt()
        shares = {name: (tensors[name].double().norm() / norm).item() for name in zeros}
        worst = max(zeros, key=lambda name: rank(shares[name]))
        report.add(case, "key biases / all", shares[worst], FP32_ZERO, worst)
    noisy = {}
    for name in exact:
        if factor * floors[kind(name)] > bound and (low or is_noise(what, name)):
            noisy.setdefault(kind(name), []).append(name)
    strict = [name for name in exact if name not in sum(noisy.values(), [])]
    worst = max(strict, key=lambda name: rank(errors[name]))
    report.add(case, what, errors[worst], bound, worst)
    rows = []
    for of_kind, names in noisy.items():
        floor = floors[of_kind]
        ratio = max(rank(errors[name]) for name in names) / floor
        rows.append((ratio, f"floor {floor:.1e}; {len(names)} x {of_kind}"))
    for ratio, detail in [max(rows)] if low and rows else rows:
        report.add(case, what + " / floor", ratio, factor, detail)


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


def overall_error(tensors, exact):
    """||a - b|| / ||b|| over all tensors together."""
    difference = sum((tensors[k].double() - b).square().sum() for k, b in exact.items())
    return (difference / sum(b.square().sum() for b in exact.values())).sqrt().item()


def check_bf16(report, case):
    """Ours and Transformers' own bf16 run, both against its run in double precision."""
    _, logits, grads = case.exact
    what = case.name + " bf16"
    ours = run_check(case.folder, case.batch, gradients=True,
                     settings=["train.precision=bf16"])
    error = logit_error(ours["logits"], logits)
    own = max(logit_error(run[1], logits) for run in case.bf16)
    # The noise of a draw of weights: some take Transformers' own run beyond the bound.
    report.add(what, "logits", error, max(BF16["logits"], 1.5 * own))
    report.add(what, "logits / own", error / own, 1.5)
    mine = strip(ours, "grad.")
    error = overall_error(mine, grads)
    report.add(what, "all gradients", error, BF16["gradient"])
    own = max(overall_error(run[2], grads) for run in case.bf16)
    report.add(what, "all gradients / own", error / own, 1.5)
    compare_tensors(report, what, "gradients", mine, grads,
                    worst_floors([run[2] for run in case.bf16], grads), BF16["gradient"])
