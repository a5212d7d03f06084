"""Budgets on what training gives a GPU to do, and the memory forecast beside the caching allocator,
both counted by the recording CUDA on a machine without a GPU.
Usage: gpu_count_test.py PROGRAM LIBRARY..."""

import json
import os
import subprocess
import sys

PROGRAM, LIBRARIES = sys.argv[1], sys.argv[2:]
GIB = 1 << 30

# Launches of both passes over a layer of InternVL2-2B, and passes over memory in MiB, at 8,192
# tokens of which 2,000 are trained and 20 tiles. The head's products are two each, as its 92,553
# columns have no aligned size. A sum over rows, as gradients of biases and norms are, is two: of
# chunks of rows, and of the chunks. LibTorch's norms read their gradient and input once more than
# their arguments tell, which own sums show. To be lowered when a change lowers the count.
LAUNCHES = {"decoder_block": 38, "vision_block": 57, "patch_embedding": 14, "projector": 23,
            "token_embedding": 6, "head": 39}
BYTES = {"decoder_block": 5220, "vision_block": 5350, "head": 6750}
# By LibTorch's kernels alone.
ATEN_LAUNCHES = {"decoder_block": 45, "vision_block": 52, "patch_embedding": 13, "projector": 20,
                 "token_embedding": 6, "head": 48}
ATEN_BYTES = dict(BYTES, decoder_block=6800, head=14200)
# The gradient norm and AdamW on split masters are a launch each. Bytes for each parameter: the
# gradient read, twice; weight, remainder and two moments read and written.
NORM_BYTES, UPDATE_BYTES = 4, 4 + 2 * (2 + 2 + 2 * 4)
# Of a step: waits of the host for the device, beside those that the executor's clock makes.
HOST_READS = 3

# Whole models and stages of them, at full shapes: a rank of a mesh, or all.
STEPS = {
    "2B, 8k tokens": ["--model", "internvl2-2b", "--micro-batches", "2"],
    "2B, recomputed": ["--model", "internvl2-2b", "--micro-batches", "2", "--recompute"],
    "8B on one GPU, recomputed": ["--model", "internvl2-8b", "--micro-batches", "2", "--recompute"],
    "8B on one GPU, bf16 moments, recomputed": [
        "--model", "internvl2-8b", "--micro-batches", "2", "--recompute", "--bf16-moments"],
    "8B, rank 1 of 4": ["--model", "internvl2-8b", "--micro-batches", "8", "--pipeline", "4",
                        "--rank", "1"],
    "26B, rank 0 of 8": ["--model", "internvl2-26b", "--micro-batches", "8", "--pipeline", "8",
                         "--tiles", "10", "--tokens", "4096", "--targets", "1000",
                         "--recompute"],
    "26B, rank 7 of 8": ["--model", "internvl2-26b", "--micro-batches", "8", "--pipeline", "8",
                         "--tiles", "10", "--tokens", "4096", "--targets", "1000",
                         "--recompute", "--rank", "7"],
}


class Results:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, good, detail):
        self.passed += good
        self.failed += not good
        print(f"{'' if good else 'FAILED: '}{what}: {detail}")


def count(what, options=()):
    environment = dict(os.environ, LD_PRELOAD=":".join(os.path.abspath(p) for p in LIBRARIES),
                       PYTORCH_ALLOC_CONF="expandable_segments:True")  # as the program sets it
    done = subprocess.run([PROGRAM, what, *options], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=300)
    if "cannot open shared object file" in done.stderr and "libtorch_cuda" in done.stderr:
        print("skipped: gpu_count: LibTorch without CUDA")
        print("0 passed, 0 failed")
        sys.exit(0)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return json.loads(done.stdout)


def check_layers(results, kernels, options, most_launches, most_bytes):
    for layer in count("layers", options)["layers"]:
        kind, there, back = layer["kind"], layer["forward"], layer["backward"]
        launches = there["launches"] + back["launches"]
        results.check(f"launches of {kind}, {kernels}", 0 < launches <= most_launches[kind],
                      f"{launches} of at most {most_launches[kind]}")
        mib = (there["bytes"] + back["bytes"]) / 2**20
        if kind in most_bytes:
            results.check(f"bytes of {kind}, {kernels}", 0 < mib <= most_bytes[kind],
                          f"{mib:.0f} MiB of at most {most_bytes[kind]}")
        waits = there["waits"] + back["waits"]
        results.check(f"the host does not wait in {kind}", waits == 0, f"{waits} waits")


def check_optimizer(results, name, options, step):
    parameters = step["forecast"]["gradients"] / 4
    update_bytes = UPDATE_BYTES - (8 if "--bf16-moments" in options else 0)
    for part, least in ("norm", NORM_BYTES), ("update", update_bytes):
        launches, each = step[part]["launches"], step[part]["bytes"] / parameters
        results.check(f"launches of the {part}, {name}", launches == 1, launches)
        results.check(f"bytes of the {part}, {name}", 0.99 * least < each < 1.01 * least,
                      f"{each:.2f} a parameter, {least} at least")


def main():
    results = Results()
    check_layers(results, "own kernels", (), LAUNCHES, BYTES)
    check_layers(results, "LibTorch's kernels", ("--aten",), ATEN_LAUNCHES, ATEN_BYTES)
    for name, options in STEPS.items():
        step = count("step", options)
        reads = sum(step[part]["to_host"] for part in ("passes", "norm", "update"))
        results.check(f"reads of the host, {name}", 0 < reads <= HOST_READS,
                      f"{reads} of at most {HOST_READS}")
        check_optimizer(results, name, options, step)
        allocated, reserved = step["allocated_bytes"], step["reserved_bytes"]
        forecast = step["forecast_bytes"]
        results.check(f"forecast beside allocated, {name}", abs(forecast / allocated - 1) <= 0.03,
                      f"{forecast / GIB:.2f} GiB, {allocated / GIB:.2f} GiB, "
                      f"{100 * (forecast / allocated - 1):+.2f} %")
        results.check(f"forecast beside reserved, {name}", abs(forecast / reserved - 1) <= 0.10,
                      f"{reserved / GIB:.2f} GiB, {100 * (forecast / reserved - 1):+.2f} %")
    print(f"{results.passed} passed, {results.failed} failed")
    sys.exit(int(results.failed > 0))


main()
