"""Tiny random models of Transformers in fp16, by it and by `equipoise check`: both beside its run
in double precision. The loss is scaled in both, and gradients are divided by the scale."""
import copy
import sys
import tempfile

import torch
import transformers

import parity
import reference
import transformers_oracle_test as oracle

NAMES = ("qwen2 tied", "internvl 300m qwen2", "internvl 6b llama", "llava clip llama", "qwen2_5_vl")
SCALE = 4096.0
FP16 = ["train.precision=fp16"]


def own_run(case):
    """Logits [B, T, V] and gradients of Transformers' own fp16 run."""
    model = copy.deepcopy(case.model).half()
    _, logits, grads = reference.gradients(model, case.samples, case.key_of, SCALE)
    width = case.batch["input_ids"].shape[1]
    return (oracle.join(logits, case.samples, width),
            {name: g.double() / SCALE for name, g in grads.items()})


def check_case(report, case):
    what, (_, logits, grads) = case.name + " fp16", case.exact
    own_logits, own = own_run(case)
    ours = parity.run_check(case.folder, case.batch, gradients=True, settings=FP16)
    error, noise = (parity.logit_error(t, logits) for t in (ours["logits"], own_logits))
    report.add(what, "logits", error, max(parity.FP16["logits"], 1.5 * noise))
    report.add(what, "logits / own", error / noise, 1.5)
    mine = parity.strip(ours, "grad.")
    error = parity.overall_error(mine, grads)
    report.add(what, "all gradients", error, parity.FP16["gradient"])
    report.add(what, "all gradients / own", error / parity.overall_error(own, grads), 1.5)
    parity.compare_tensors(report, what, "gradients", mine, grads, parity.noise_floors(own, grads),
                           parity.FP16["gradient"])
    # It is fp16 that was computed: fp32 is a thousand times as near.
    report.check(what, "differs from fp32", error > 1e-5, str(error))


def check_steps(report, case):
    """AdamW's steps on fp32 masters, beside the same in double precision."""
    ours = parity.run_check(case.folder, case.batch, recipe=oracle.RECIPE, settings=FP16)
    losses, norms, _ = reference.adamw_steps(
        copy.deepcopy(case.model).double(), case.samples, oracle.RECIPE, case.key_of)
    for what, mine, exact in (("losses", ours["losses"], losses),
                              ("grad norms", ours["grad_norms"], norms)):
        exact = torch.tensor(exact, dtype=torch.float64)
        report.add(case.name + " fp16", what, ((mine - exact).abs() / exact).max().item(), 1e-2)


def check_scales(report, case):
    """Any scale gives the same gradients, as long as none is lost: powers of two are exact. One
    that overflows is lowered until it does not."""
    runs = {scale: parity.run_check(
        case.folder, case.batch, gradients=True,
        settings=FP16 + [f"train.loss_scale.initial={scale}"]) for scale in (64, 4096, 1 << 40)}
    first = parity.strip(runs[4096], "grad.")
    for scale in (64, 1 << 40):
        error = parity.overall_error(parity.strip(runs[scale], "grad."),
                                     {name: g.double() for name, g in first.items()})
        report.add(f"{case.name} fp16", f"scale {scale} / 4096", error, parity.FP16["gradient"])
        report.check(f"{case.name} fp16", f"loss with {scale}",
                     runs[scale]["loss"].equal(runs[4096]["loss"]))


def main():
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    report = parity.Report()
    for seed, name in enumerate(NAMES):
        with tempfile.TemporaryDirectory() as folder:
            case = oracle.Case(name, seed, folder)
            check_case(report, case)
            if name == "internvl 300m qwen2":
                check_steps(report, case)
                check_scales(report, case)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
