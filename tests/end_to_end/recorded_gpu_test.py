"""The program itself on a GPU that records and computes nothing (tests/recording_cuda): it opens
the device, LibTorch's own checks and allocator are passed, and it says what a run out of memory
lacks. Losses mean nothing there. Usage: recorded_gpu_test.py LIBRARY..."""

import json
import os
import re
import shutil
import sys
import tempfile

import tiny_case

LIBRARIES = ":".join(os.path.abspath(path) for path in sys.argv[1:])
# cuDNN brings a CUDA runtime of its own, which is not recorded.
GPU = dict(train__device="cuda", train__precision="bf16", train__attention="flash", eval__every=0)


def check_profile(results, config, folder):
    path = f"{folder}/profile.json"
    done = tiny_case.run(config, 1, "profile", "--sweeps", "1", "--out", path, **GPU)
    results.check("profile: measured", done.returncode == 0, done.stderr[-400:])
    with open(path) as file:
        profile = json.load(file)
    results.check("profile: of the GPU", profile["device"] == "NVIDIA H200", profile["device"])
    results.check("profile: memory by the GPU's allocator",
                  all(row["kept_bytes"][0] > 0 for row in profile["layers"]
                      if row["layer_kind"] == "decoder_block"))


def check_training(results, config, folder):
    for name, ranks, settings in (
            ("one rank", 1, {}),
            ("recomputed, frozen", 1, dict(balance__recompute="full", model__freeze="[vision]")),
            ("two ranks that share it, a pipeline", 2, dict(parallel__pipeline=2)),
            ("the encoder on a stream of its own", 2,
             dict(parallel__pipeline=2, parallel__encoder="optimus",
                  parallel__encoder_stream="true")),
            ("two ranks that share it, data and ZeRO", 2,
             dict(parallel__data=2, parallel__zero=1))):
        run = f"{folder}/{re.sub('[^a-z]', '', name)}"
        done = tiny_case.run(config, ranks, run__dir=run, train__steps=3, **GPU, **settings)
        results.check(f"{name}: trained", done.returncode == 0, done.stderr[-600:])
        if done.returncode != 0:
            continue
        rows = tiny_case.metrics(run)
        results.check(f"{name}: memory of the GPU",
                      len(rows) == 3 and all(0 < row["mem_peak_bytes"] <= row["mem_reserved_bytes"]
                                             for row in rows), str(rows[-1:]))
        results.check(f"{name}: plans for this GPU", "h200" in done.stderr, done.stderr[:400])
        results.check(f"{name}: plans with its share of the memory",
                      ("for each of 2 ranks that share it" in done.stderr) == (ranks == 2),
                      done.stderr[:400])


def check_memory(results, config, folder):
    """A GPU whose memory ends amid a step. The planner is told that there is enough."""
    os.environ["RECORDING_CUDA_MEMORY_MIB"] = "60"
    done = tiny_case.run(config, 1, run__dir=f"{folder}/full", train__steps=3, run__probe="false",
                         cluster__memory_gb=10, **GPU)
    del os.environ["RECORDING_CUDA_MEMORY_MIB"]
    last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
    results.check("out of memory: exit code", done.returncode == 5, f"{done.returncode} {last}")
    results.check("out of memory: one line with step, forecast and what to do",
                  re.search(r"step 1: GPU 0 is out of memory: \S+ GiB in tensors, .*; forecast \S+ "
                            r"GiB; lower balance.tokens", last) is not None, last)


def check_unknown(results, config, folder):
    os.environ["RECORDING_CUDA_DEVICE"] = "other"
    done = tiny_case.run(config, 2, run__dir=f"{folder}/other", train__steps=1, **GPU)
    del os.environ["RECORDING_CUDA_DEVICE"]
    results.check("a GPU that no preset knows is probed",
                  done.returncode == 0 and "no preset for NVIDIA Prototype" in done.stderr and
                  re.search(r"short probe of the GPU reached \S+ TFLOP/s and \d+ GB/s",
                            done.stderr) is not None, done.stderr[-600:])


def check_faults(results, config, folder):
    for fault, words in (("driver", "driver"), ("kernel", "no kernel image")):
        os.environ["RECORDING_CUDA_FAULT"] = fault
        for ranks in (1, 2):
            done = tiny_case.run(config, ranks, run__dir=f"{folder}/{fault}{ranks}", **GPU)
            lines = [line for line in done.stderr.splitlines() if "equipoise: " in line]
            results.check(f"{fault}, {ranks} ranks: one line, exit 2",
                          done.returncode == 2 and len(lines) == 1 and
                          all(word in lines[0] for word in ("train.device: LibTorch", words,
                                                            "or set it to cpu")),
                          f"{done.returncode} {lines}")
        del os.environ["RECORDING_CUDA_FAULT"]


def check_kernels(results, config, folder):
    """An image of own kernels that does not load, and a run without them."""
    os.environ["RECORDING_CUDA_FAULT"] = "image"
    for ranks in (1, 2):
        done = tiny_case.run(config, ranks, run__dir=f"{folder}/image{ranks}", **GPU)
        lines = [line for line in done.stderr.splitlines() if "equipoise: " in line]
        results.check(f"own kernels that do not load, {ranks} ranks: one line, exit 2",
                      done.returncode == 2 and len(lines) == 1 and
                      all(word in lines[0] for word in ("train.kernels: ", "error 209",
                                                        "set it to aten")),
                      f"{done.returncode} {lines}")
    done = tiny_case.run(config, 1, run__dir=f"{folder}/aten", train__kernels="aten", **GPU)
    results.check("train.kernels: aten loads none", done.returncode == 0, done.stderr[-600:])
    del os.environ["RECORDING_CUDA_FAULT"]


def main():
    results = tiny_case.Results()
    folder = os.path.realpath(tempfile.mkdtemp(prefix="recorded"))
    config = tiny_case.write_case(folder)
    os.environ["LD_PRELOAD"] = LIBRARIES
    try:
        said = tiny_case.run(config, 1, "profile", "--sweeps", "0", **GPU).stderr
        if re.search("libtorch_cuda.so: cannot open shared object file", said):
            print("skipped: recorded_gpu_test: LibTorch without CUDA")
            print("0 passed, 0 failed")
            return
        check_profile(results, config, folder)
        check_training(results, config, folder)
        check_memory(results, config, folder)
        check_unknown(results, config, folder)
        check_kernels(results, config, folder)
        check_faults(results, config, folder)
    finally:
        shutil.rmtree(folder)
    results.finish()


main()
