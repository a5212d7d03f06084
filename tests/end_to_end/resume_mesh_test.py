"""A run that goes on with other ranks and another stage of ZeRO each time is
the run that never stopped: same losses, weights and moments within rounding, every sample of the
order used once."""
import shutil
import sys
import tempfile

import numpy

import checkpoint_reader
import tiny_case

BATCH = 12
# Ranks, parallel.zero, last step.
LEGS = [(2, 1, 4), (1, 1, 7), (4, 3, 9), (3, 0, 12), (2, 2, 14), (3, 1, 16)]
KEYS = ("tokens", "samples", "images", "lr")


def apart(rows, expected, key):
    return max(abs(r[key] - e[key]) / abs(e[key]) for r, e in zip(rows, expected))


def norm(tensors):
    return numpy.sqrt(sum((t.astype(numpy.float64) ** 2).sum() for t in tensors))


def states_apart(run_dir, expected_dir, step):
    """Largest relative distance of all weights, all first and all second moments."""
    got, expected = (checkpoint_reader.read(f"{d}/checkpoints/step-{step:08d}")
                     for d in (run_dir, expected_dir))
    assert got.keys() == expected.keys()
    kinds = {}
    for name in expected:
        kinds.setdefault(name.split(".")[0] if name.startswith("exp_avg") else "", []).append(name)
    assert len(kinds) == 3
    return max(norm([got[n] - expected[n] for n in names]) / norm([expected[n] for n in names])
               for names in kinds.values())


def windows(results, folder, config):
    """balance.window: a run that stops in the middle of a window goes on with the same packs."""
    settings = dict(train__global_batch=BATCH, train__schedule="constant", balance__window=25)
    whole, legs, other = (f"{folder}/window_{name}" for name in ("whole", "legs", "other"))
    for run_dir, ranks, steps in ((whole, 1, 6), (legs, 2, 2), (legs, 1, 3), (legs, 3, 6)):
        done = tiny_case.run(config, ranks, run__dir=run_dir, train__steps=steps, **settings)
        results.check(f"windows of 25 samples: {ranks} ranks to step {steps}",
                      done.returncode == 0, done.stderr[-500:] if done.returncode else "")
    expected, got = tiny_case.metrics(whole), tiny_case.metrics(legs)
    packs = lambda rows: [[row[k] for k in KEYS] for row in rows]
    results.check("windows: the same packs in every step",
                  len(got) == 6 and packs(got) == packs(expected))
    loss = apart(got, expected, "loss")
    results.check("windows: losses within 1e-5", loss <= 1e-5, f"worst relative {loss:.2e}")
    refused = tiny_case.run(config, 1, run__dir=legs, train__steps=7,
                            **{**settings, "balance__window": 30})
    results.check("another window, other packs: refused", refused.returncode == 2 and
                  "balance.window was 25 and is 30" in refused.stderr, refused.stderr[-300:])
    done = tiny_case.run(config, 1, run__dir=other, train__steps=6,
                         **{**settings, "balance__window": 0})
    results.check("the whole epoch makes other packs", done.returncode == 0 and
                  packs(tiny_case.metrics(other)) != packs(expected), done.stderr[-300:])


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="mesh")
    config = tiny_case.write_case(folder)
    last = LEGS[-1][-1]
    # The schedule of the learning rate belongs to the whole run, so each leg is stopped by its stop
    # step: a constant rate after the warm-up knows no end.
    settings = dict(train__global_batch=BATCH, train__schedule="constant", checkpoint__every=1000)
    whole, legs = f"{folder}/whole", f"{folder}/legs"
    done = tiny_case.run(config, 1, run__dir=whole, train__steps=last, **settings)
    results.check("the run that never stops", done.returncode == 0, done.stderr[-300:])
    for ranks, zero, stop in LEGS:
        done = tiny_case.run(config, ranks, run__dir=legs, train__steps=stop, parallel__zero=zero,
                             **settings)
        results.check(f"{ranks} ranks, zero {zero}, to step {stop}", done.returncode == 0,
                      done.stderr[-500:])
    results.check("another mesh is said to round differently",
                  "losses will be equal within rounding" in done.stderr, done.stderr[-300:])
    expected, got = tiny_case.metrics(whole), tiny_case.metrics(legs)
    results.check("each step stands once", [r["step"] for r in got] == list(range(1, last + 1)))
    results.check("the same packs in every step", [[r[k] for k in KEYS] for r in got] ==
                  [[r[k] for k in KEYS] for r in expected])
    results.check("the steps differ from each other, so that a shift would show",
                  apart(got[1:], expected[:-1], "loss") > 1e-3)
    loss, norm = apart(got, expected, "loss"), apart(got, expected, "grad_norm")
    results.check("losses within 1e-5", loss <= 1e-5, f"worst relative {loss:.2e}")
    results.check("gradient norms within 1e-3", norm <= 1e-3, f"worst relative {norm:.2e}")

    states = states_apart(legs, whole, last)
    results.check("weights, moments within 1e-3", states <= 1e-3, f"worst {states:.2e}")

    # 16 steps of 12 packs are several epochs: each uses every sample once.
    seen = sum(r["samples"] for r in got)
    results.check("more than one epoch", seen > 60, f"{seen} samples")
    other = tiny_case.run(config, 1, run__dir=legs, train__steps=last + 1, train__seed=5,
                          **settings)
    results.check("another seed, another order: refused", other.returncode == 2 and
                  "train.seed was 1 and is 5" in other.stderr, other.stderr[-300:])
    windows(results, folder, config)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
