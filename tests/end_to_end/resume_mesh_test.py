"""A run that goes on with another number of ranks each time (2 -> 1 -> 4 -> 2) is the run that
never stopped: same losses within rounding, every sample of the order used once."""
import shutil
import sys
import tempfile

import tiny_case

BATCH = 8
LEGS = [(2, 4), (1, 9), (4, 11), (2, 16)]  # ranks, last step
KEYS = ("tokens", "samples", "images", "lr")


def apart(rows, expected, key):
    return max(abs(r[key] - e[key]) / abs(e[key]) for r, e in zip(rows, expected))


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="mesh")
    config = tiny_case.write_case(folder)
    last = LEGS[-1][1]
    # The schedule of the learning rate belongs to the whole run, so each leg is stopped by its stop
    # step: a constant rate after the warm-up knows no end.
    settings = dict(train__global_batch=BATCH, train__schedule="constant", checkpoint__every=1000)
    whole, legs = f"{folder}/whole", f"{folder}/legs"
    done = tiny_case.run(config, 1, run__dir=whole, train__steps=last, **settings)
    results.check("the run that never stops", done.returncode == 0, done.stderr[-300:])
    for ranks, stop in LEGS:
        done = tiny_case.run(config, ranks, run__dir=legs, train__steps=stop, **settings)
        results.check(f"{ranks} ranks to step {stop}", done.returncode == 0, done.stderr[-500:])
    results.check("another mesh is said to round differently",
                  "losses will be equal within rounding" in done.stderr, done.stderr[-300:])
    expected, got = tiny_case.metrics(whole), tiny_case.metrics(legs)
    results.check("each step stands once", [r["step"] for r in got] == list(range(1, last + 1)))
    results.check("the same packs in every step", [[r[k] for k in KEYS] for r in got] ==
                  [[r[k] for k in KEYS] for r in expected])
    results.check("the steps differ from each other, so that a shift would show",
                  len({tuple(r[k] for k in KEYS[:3]) for r in expected}) > last // 2)
    loss, norm = apart(got, expected, "loss"), apart(got, expected, "grad_norm")
    results.check("losses within 1e-5", loss <= 1e-5, f"worst relative {loss:.2e}")
    results.check("gradient norms within 1e-3", norm <= 1e-3, f"worst relative {norm:.2e}")

    # 16 steps of 8 packs are several epochs: each uses every sample once.
    seen = sum(r["samples"] for r in got)
    results.check("more than one epoch", seen > 60, f"{seen} samples")
    other = tiny_case.run(config, 1, run__dir=legs, train__steps=last + 1, train__seed=5,
                          **settings)
    results.check("another seed, another order: refused", other.returncode == 2 and
                  "train.seed was 1 and is 5" in other.stderr, other.stderr[-300:])
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
