"""Masters as bf16 weights and remainders, or none, and AdamW's moments in bf16 and in 8 bits: what
the checkpoint holds, that a run goes on from it with the same bits, on another mesh too, and that
ZeRO changes none."""
import shutil
import sys
import tempfile

import safetensors

import checkpoint_reader
import tiny_case

BF16 = dict(train__precision="bf16", train__moments="bf16", train__global_batch=4)


def dtypes(folder):
    """Dtypes of the weights and of the moments in a checkpoint's files."""
    found = {"weights": set(), "moments": set()}
    with safetensors.safe_open(f"{folder}/rank-00000.safetensors", "np") as file:
        for name in file.keys():
            kind = "moments" if name.startswith("exp_avg") else "weights"
            found[kind].add(file.get_slice(name).get_dtype())
    return found


def step(run_dir, number):
    return f"{run_dir}/checkpoints/step-{number:08d}"


def eight_bits(results, folder, run):
    """train.moments: 8bit."""
    settings = {**BF16, "train__moments": "8bit"}

    def same(one, other, what):
        differing = checkpoint_reader.differing(step(f"{folder}/{one}", 6),
                                                step(f"{folder}/{other}", 6))
        results.check(f"8 bits: {what}", not differing, str(differing[:3]))

    run("codes", 2, train__steps=6, **settings)
    run("codes-legs", 2, train__steps=3, **settings)
    run("codes-legs", 2, train__steps=6, parallel__zero=0, **settings)
    same("codes-legs", "codes", "a run that goes on without ZeRO has the bits of one with it that "
         "never stopped")
    run("codes-alone", 1, train__steps=6, **settings)
    run("codes-split", 1, train__steps=3, **settings)
    run("codes-split", 2, train__steps=6, parallel__pipeline=2, **settings)
    same("codes-split", "codes-alone", "a run that goes on over pipeline ranks has the bits of one "
         "rank's")
    found = dtypes(step(f"{folder}/codes", 6))
    results.check("8 bits: checkpoints hold fp32 numbers", found["moments"] == {"F32"}, str(found))
    losses = [tiny_case.metrics(f"{folder}/{name}")[-1]["loss"] for name in ("codes", "exact")]
    results.check("8 bits: rounding moves the loss a little", losses[0] != losses[1] and
                  abs(losses[0] - losses[1]) < 0.02 * losses[1], str(losses))
    done = run("legs", 1, train__steps=10, **settings)
    results.check("8 bits: goes on from fp32 moments, and says so",
                  'train.moments was "fp32" and is "8bit"' in done.stderr, done.stderr[-800:])


def without_masters(results, folder, run):
    """train.master: none."""
    settings = {**BF16, "train__master": "none"}

    def same(one, other, what):
        differing = checkpoint_reader.differing(step(f"{folder}/{one}", 6),
                                                step(f"{folder}/{other}", 6))
        results.check(f"no masters: {what}", not differing, str(differing[:3]))

    run("weights", 2, train__steps=6, **settings)
    run("weights-legs", 2, train__steps=3, **settings)
    run("weights-legs", 2, train__steps=6, parallel__zero=0, **settings)
    same("weights-legs", "weights", "a run that goes on without ZeRO has the bits of one with it "
         "that never stopped")
    run("weights-alone", 1, train__steps=6, **settings)
    run("weights-split", 1, train__steps=3, **settings)
    run("weights-split", 2, train__steps=6, parallel__pipeline=2, **settings)
    same("weights-split", "weights-alone", "a run that goes on over pipeline ranks has the bits of "
         "one rank's")
    run("weights-offloaded", 2, train__steps=6, train__offload="[optimizer]", **settings)
    same("weights-offloaded", "weights", "offloading changes no bit")
    found = dtypes(step(f"{folder}/weights", 6))
    results.check("no masters: checkpoints hold bf16 weights", found["weights"] == {"BF16"},
                  str(found))
    losses = [tiny_case.metrics(f"{folder}/{name}")[-1]["loss"] for name in ("weights", "whole")]
    results.check("no masters: rounding moves the loss a little", losses[0] != losses[1] and
                  abs(losses[0] - losses[1]) < 0.02 * losses[1], str(losses))
    done = run("weights", 1, train__steps=8, **BF16)
    results.check("no masters: fp32 ones go on from bf16 weights, and a line says so",
                  'train.master was "none" and is "fp32"' in done.stderr, done.stderr[-800:])
    found = dtypes(step(f"{folder}/weights", 8))
    results.check("no masters: then they are saved in fp32", found["weights"] == {"F32"},
                  str(found))
    done = run("plain", 1, train__steps=8, **settings)
    results.check("no masters: bf16 weights go on from fp32 masters, and a line says so",
                  'train.master was "fp32" and is "none"' in done.stderr, done.stderr[-800:])


def refusals(results, folder, config):
    refused = tiny_case.run(config, 1, run__dir=f"{folder}/none", train__moments="fp16")
    results.check("another dtype is refused", refused.returncode == 2 and
                  "train.moments" in refused.stderr, refused.stderr[-300:])
    for settings, says in (({"train__offload": "[optimizer, parameters]"}, "add gradients"),
                           ({"train__offload": "[optimizer, gradients]", "parallel__zero": 1},
                            "parallel.zero: 1 keeps gradients whole")):
        refused = tiny_case.run(config, 1, run__dir=f"{folder}/none", **settings)
        lines = [line for line in refused.stderr.splitlines() if says in line]
        results.check(f"{settings} is refused in a line",
                      refused.returncode == 2 and len(lines) == 1, refused.stderr[-500:])
    for precision in ("fp32", "fp16"):
        refused = tiny_case.run(config, 1, run__dir=f"{folder}/none", train__master="none",
                                train__precision=precision)
        lines = [line for line in refused.stderr.splitlines() if "train.master: none" in line]
        results.check(f"{precision} without masters is refused in a line",
                      refused.returncode == 2 and len(lines) == 1 and precision in lines[0],
                      refused.stderr[-500:])


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp()
    config = tiny_case.write_case(folder)

    def run(name, ranks, **settings):
        done = tiny_case.run(config, ranks, run__dir=f"{folder}/{name}", **settings)
        results.check(f"{name}: trains", done.returncode == 0,
                      done.stderr[-800:] if done.returncode else "")
        return done

    run("whole", 2, train__steps=6, **BF16)
    run("legs", 2, train__steps=3, **BF16)
    run("legs", 2, train__steps=6, **BF16)
    whole = step(f"{folder}/whole", 6)
    differing = checkpoint_reader.differing(step(f"{folder}/legs", 6), whole)
    results.check("a run that goes on has the bits of one that never stopped", not differing,
                  str(differing[:3]))
    run("plain", 2, train__steps=6, parallel__zero=0, **BF16)
    differing = checkpoint_reader.differing(step(f"{folder}/plain", 6), whole)
    results.check("ZeRO changes no bit", not differing, str(differing[:3]))
    done = run("offloaded", 2, train__steps=6, train__offload="[optimizer]", **BF16)
    differing = checkpoint_reader.differing(step(f"{folder}/offloaded", 6), whole)
    results.check("offloading changes no bit", not differing, str(differing[:3]))
    results.check("on CPUs there is nothing to offload, and a line says so",
                  done.stderr.count("train.offload saves nothing on a CPU") == 1,
                  done.stderr[-800:])
    everything = "[optimizer, gradients, parameters]"
    run("by_layer", 2, train__steps=3, train__offload=everything, **BF16)
    run("by_layer", 2, train__steps=6, parallel__zero=3, **BF16)
    run("zero_3", 2, train__steps=6, parallel__zero=3, **BF16)
    differing = checkpoint_reader.differing(step(f"{folder}/by_layer", 6),
                                            step(f"{folder}/zero_3", 6))
    results.check("offloading gradients and parameters changes no bit either, and goes on without",
                  not differing, str(differing[:3]))
    run("alone", 1, train__steps=2, train__offload=everything, **BF16)
    found = dtypes(whole)
    results.check("masters are saved in fp32, moments in bf16",
                  found == {"weights": {"F32"}, "moments": {"BF16"}}, str(found))

    exact = {**BF16, "train__moments": "fp32"}
    run("exact", 2, train__steps=6, **exact)
    found = dtypes(step(f"{folder}/exact", 6))
    results.check("moments are fp32 where nothing is said", found["moments"] == {"F32"}, str(found))
    losses = [tiny_case.metrics(f"{folder}/{name}")[-1]["loss"] for name in ("whole", "exact")]
    results.check("rounding moments moves the loss a little", losses[0] != losses[1] and
                  abs(losses[0] - losses[1]) < 0.02 * losses[1], str(losses))
    done = run("legs", 1, train__steps=8, **exact)
    results.check("goes on with fp32 moments, and says so",
                  'train.moments was "bf16" and is "fp32"' in done.stderr, done.stderr[-800:])

    without_masters(results, folder, run)
    for name, more in (("alone", ()), ("plain", ("--set", "train.precision=fp32"))):
        done = tiny_case.program("generate", f"{folder}/{name}", "--prompt", "What is 3 plus 2?",
                                 "--max-new-tokens", "2", *more)
        results.check(f"{name}: how the optimizer's state lay is nothing to answers",
                      done.returncode == 0, done.stderr[-400:])
    eight_bits(results, folder, run)
    refusals(results, folder, config)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
