"""Sharded state (ZeRO 1; with one micro-batch a rank 2 and 3) is the run with whole state (ZeRO 0),
bit for bit: losses, gradient norms, weights and moments, also after going on from the other's
checkpoint."""
import shutil
import sys
import tempfile

import checkpoint_reader
import tiny_case

RANKS = 3
SETTINGS = dict(train__global_batch=6, train__schedule="constant", checkpoint__every=4,
                parallel__bucket_bytes=100_000)
KEYS = ("step", "loss", "grad_norm")


def rows(run_dir):
    return [[row[key] for key in KEYS] for row in tiny_case.metrics(run_dir)]


def equal(results, name, one, other):
    a, b = checkpoint_reader.read(one), checkpoint_reader.read(other)
    different = [k for k in a if k not in b or a[k].shape != b[k].shape or (a[k] != b[k]).any()]
    results.check(name, a and a.keys() == b.keys() and not different, str(different[:5]))


def compare(results, config, folder, precision, freeze):
    case = f"{precision}, frozen {freeze}"
    runs = {zero: f"{folder}/{precision}-{len(freeze)}-zero{zero}" for zero in (0, 1)}
    settings = dict(SETTINGS, train__precision=precision, model__freeze=freeze)
    for zero, run_dir in runs.items():
        done = tiny_case.run(config, RANKS, run__dir=run_dir, train__steps=4, parallel__zero=zero,
                             **settings)
        results.check(f"{case}: zero {zero} trains", done.returncode == 0, done.stderr[-500:])
    results.check(f"{case}: same losses and norms", rows(runs[0]) == rows(runs[1]))
    checkpoints = [f"{run_dir}/checkpoints/step-00000004" for run_dir in runs.values()]
    equal(results, f"{case}: same weights and moments", *checkpoints)
    results.check(f"{case}: whole tensors with zero 0, pieces with zero 1",
                  checkpoint_reader.num_pieces(checkpoints[0]) == 0 and
                  checkpoint_reader.num_pieces(checkpoints[1]) > 50)
    # Each goes on as the other.
    for zero, run_dir in runs.items():
        done = tiny_case.run(config, RANKS, run__dir=run_dir, train__steps=8,
                             parallel__zero=1 - zero, **settings)
        results.check(f"{case}: zero {zero} goes on as {1 - zero}", done.returncode == 0 and
                      "going on from" in done.stderr, done.stderr[-500:])
        results.check(f"{case}: in the same environment", "rounding only" not in done.stderr)
    results.check(f"{case}: then the same losses and norms", rows(runs[0]) == rows(runs[1]) and
                  len(rows(runs[0])) == 8)
    checkpoints = [f"{run_dir}/checkpoints/step-00000008" for run_dir in runs.values()]
    equal(results, f"{case}: then the same weights and moments", *checkpoints)
    return runs[1]


def compare_shared(results, config, folder, precision, freeze):
    """ZeRO 2 and 3, in turns, beside ZeRO 0."""
    case = f"{precision}, frozen {freeze}"
    settings = dict(SETTINGS, train__global_batch=RANKS, train__precision=precision,
                    model__freeze=freeze, checkpoint__every=2)
    whole = f"{folder}/{precision}-{len(freeze)}-whole"
    done = tiny_case.run(config, RANKS, run__dir=whole, train__steps=8, parallel__zero=0,
                         **settings)
    results.check(f"{case}: zero 0 trains", done.returncode == 0, done.stderr[-500:])
    for first, then in ((2, 3), (3, 2), (3, 0), (1, 3)):
        run_dir = f"{folder}/{precision}-{len(freeze)}-{first}-{then}"
        for steps, zero in ((4, first), (8, then)):
            done = tiny_case.run(config, RANKS, run__dir=run_dir, train__steps=steps,
                                 parallel__zero=zero, **settings)
            results.check(f"{case}: zero {zero} to step {steps}", done.returncode == 0,
                          done.stderr[-500:])
        results.check(f"{case}: zero {first}, then {then}: same losses and norms",
                      rows(run_dir) == rows(whole) and len(rows(whole)) == 8)
        equal(results, f"{case}: zero {first}, then {then}: same weights and moments",
              *(f"{each}/checkpoints/step-00000008" for each in (whole, run_dir)))


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="zero")
    config = tiny_case.write_case(folder)
    compare(results, config, folder, "fp32", "[]")
    run_dir = compare(results, config, folder, "bf16", "[vision]")
    # Other commands read pieces too.
    done = tiny_case.run(f"{run_dir}/checkpoints/step-00000004", 1, "export", "--out",
                         f"{folder}/exported")
    results.check("export reads pieces", done.returncode == 0, done.stderr[-300:])
    saved = checkpoint_reader.read(f"{run_dir}/checkpoints/step-00000004")
    exported = checkpoint_reader.load_file(f"{folder}/exported/model.safetensors")
    results.check("and writes the weights of the checkpoint", exported and all(
        (exported[name] == saved[name]).all() for name in exported))
    compare_shared(results, config, folder, "fp32", "[]")
    compare_shared(results, config, folder, "bf16", "[vision]")
    refused = tiny_case.run(config, 2, run__dir=f"{folder}/other", parallel__zero=2,
                            parallel__pipeline=2, parallel__encoder="optimus")
    results.check("zero 2 with an encoder in the bubbles is refused", refused.returncode == 2 and
                  "parallel.zero: 2 and encoder: optimus" in refused.stderr, refused.stderr[-300:])
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
