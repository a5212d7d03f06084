"""Ranks x accumulation do not change a run: 1x8, 2x4, 4x2 and 8x1 give the same fp32 losses."""
import shutil
import sys
import tempfile

import tiny_case


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="accumulation")
    config = tiny_case.write_case(folder)
    curves = {}
    for ranks in (1, 2, 4, 8):
        run_dir = f"{folder}/run{ranks}"
        done = tiny_case.run(config, ranks, run__dir=run_dir, train__steps=20)
        results.check(
            f"{ranks} ranks x {8 // ranks} micro-batches train",
            done.returncode == 0,
            done.stderr[-500:],
        )
        if done.returncode == 0:
            curves[ranks] = tiny_case.metrics(run_dir)
    one = [row["loss"] for row in curves[1]]
    results.check(
        "20 steps, and the loss falls",
        len(one) == 20 and one[-1] < 0.8 * one[0],
        f"{one[0]} -> {one[-1]}",
    )
    for ranks, rows in curves.items():
        worst = max(abs(row["loss"] - base) / base for row, base in zip(rows, one))
        results.check(
            f"{ranks} ranks: losses equal those of one",
            worst <= 1e-5,
            f"worst relative {worst:.2e}",
        )
        norms = max(
            abs(row["grad_norm"] - base["grad_norm"]) / base["grad_norm"]
            for row, base in zip(rows, curves[1])
        )
        results.check(
            f"{ranks} ranks: gradient norms equal those of one",
            norms <= 1e-3,
            f"worst relative {norms:.2e}",
        )
        same = [(r["tokens"], r["samples"], r["images"]) for r in rows] == \
               [(r["tokens"], r["samples"], r["images"]) for r in curves[1]]
        results.check(f"{ranks} ranks: same tokens, samples and images each step", same)
    refused = tiny_case.run(config, 3, run__dir=f"{folder}/run3")
    results.check("a global batch that does not divide is refused", refused.returncode == 2 and
                  "train.global_batch" in refused.stderr, refused.stderr[-300:])
    for setting, value in (("model__freeze", "[vision,projector,llm]"),
                           ("balance__recompute_modules", "[visoin]")):
        done = tiny_case.run(config, 2, run__dir=f"{folder}/{setting}", **{setting: value})
        results.check(f"{setting} {value} is refused", done.returncode == 2 and
                      setting.replace("__", ".") in done.stderr, done.stderr[-300:])
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
