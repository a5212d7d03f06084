"""An error that one rank alone meets ends all ranks, soon, with its reason and its exit code."""
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

import tiny_case


def mpirun(*ranks, programs=(), folders=()):
    """Exit code and stderr of one job of several programs, a rank each; with a folder to start each
    in. A job that hangs ends the test: its waits have 600 seconds, this one 300."""
    line = [tiny_case.MPIRUN]
    for i, rank in enumerate(ranks):
        program = programs[i] if programs else tiny_case.EQUIPOISE
        where = ["-wdir", folders[i]] if folders else []
        line += ([":"] if i else []) + ["-n", "1", *where, program, *rank]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300,
                          env=tiny_case.environment())
    return done.returncode, done.stderr


def cannot_write_metrics(results, config, folder):
    """Rank 0 alone writes metrics; a folder stands in the way."""
    os.makedirs(f"{folder}/blocked/metrics.jsonl")
    done = tiny_case.run(config, 3, run__dir=f"{folder}/blocked", train__global_batch=6)
    results.check("metrics that cannot be written: exit 5", done.returncode == 5,
                  str(done.returncode))
    results.check("metrics: every rank says why",
                  all(f"[rank {rank}] equipoise: " in done.stderr for rank in range(3)) and
                  done.stderr.count("metrics.jsonl: cannot be read") >= 3, done.stderr[-900:])


def other_configuration(results, config, folder):
    train = ["train", config, "--set", f"run.dir={folder}/two"]
    code, text = mpirun(train, [*train, "--set", "train.lr=1"])
    results.check("two configurations: exit 2", code == 2, str(code))
    results.check("two configurations: named",
                  "the configuration of rank 1 differs from that of rank 0 "
                  "(train.lr 0.002 -> 1" in text, text[-500:])


def other_program(results, config, folder):
    """A program of which a byte differs, as another build's would."""
    other = shutil.copy(tiny_case.EQUIPOISE, f"{folder}/equipoise")
    os.chmod(other, 0o755)
    with open(other, "ab") as out:
        out.write(b"\0")
    train = ["train", config, "--set", f"run.dir={folder}/programs"]
    code, text = mpirun(train, train, programs=(tiny_case.EQUIPOISE, other))
    told = [line for line in text.splitlines() if "equipoise: " in line]
    results.check("two programs: exit 2, one line that names both ranks", code == 2 and
                  len(told) == 1 and "the program of rank 1 differs from that of rank 0" in told[0],
                  f"exit {code}: {told}")


def other_plan(results, config, folder):
    """The same configuration names a schedule that is another one on each rank."""
    orders = ("0F0 0F1 0B0 0B1", "0F0 0B0 0F1 0B1")
    for i, order in enumerate(orders):
        os.makedirs(f"{folder}/at{i}")
        with open(f"{folder}/at{i}/schedule.txt", "w") as out:
            out.write("micro_batches 2\nstage 0 rank 0 next 1\nstage 1 rank 1\n"
                      f"rank 0: {order}\nrank 1: 1F0 1B0 1F1 1B1\n")
    train = ["train", config]
    for setting in (f"run.dir={folder}/plans", "parallel.pipeline=2", "train.global_batch=2",
                    "parallel.schedule=schedule.txt"):
        train += ["--set", setting]
    code, text = mpirun(train, train, folders=[f"{folder}/at{i}" for i in (0, 1)])
    told = [line for line in text.splitlines() if "equipoise: " in line]
    results.check("two plans: exit 2, one line that names both ranks and the op", code == 2 and
                  len(told) == 1 and "the plan of this step" in told[0] and "rank 0" in told[0] and
                  "rank 1" in told[0] and "0F1" in told[0], f"exit {code}: {told}")


def write_profile(measured, path, dear):
    """The rows of a profile with times that are given, not measured: `dear` is the one kind of
    layer that takes long."""
    with open(measured) as file:
        profile = json.load(file)
    for row in profile["layers"]:
        size = (100 if row["layer_kind"] == dear else 1) * (1 + row["tokens"] + row["image_tokens"])
        row.update({key: 1e-6 * size for key in row if key.endswith("_s")})
    with open(path, "w") as out:
        json.dump(profile, out)


def other_search(results, config, folder):
    """Ranks that read the same name find another profile each: where one sees dear encoder blocks,
    the other dear decoder blocks, another plan is the best."""
    done = tiny_case.run(config, 1, "profile", "--out", f"{folder}/profile.json", "--sweeps", "1")
    results.check("a profile to change", done.returncode == 0, done.stderr[-300:])
    for i, dear in enumerate(("vision_block", "decoder_block")):
        os.makedirs(f"{folder}/in{i}")
        write_profile(f"{folder}/profile.json", f"{folder}/in{i}/profile.json", dear)
    train = ["train", config]
    for setting in (f"run.dir={folder}/searches", "parallel.pipeline=2",
                    "cluster.profile=profile.json"):
        train += ["--set", setting]
    code, text = mpirun(train, train, folders=[f"{folder}/in{i}" for i in (0, 1)])
    told = [line for line in text.splitlines() if "equipoise: " in line]
    # Which key of the plans differs is the search's affair.
    results.check("two searches: exit 2, one line that names both ranks", code == 2 and
                  len(told) == 1 and "the plan of rank 1 differs from that of rank 0 (" in told[0],
                  f"exit {code}: {told}")


def pictures_of_ranks(folder, number, ranks, cut):
    """A folder for each rank to start in, with the records; `cut` ranks have two pictures cut in
    their bodies, so that they fail when they are decoded."""
    folders = [f"{folder}/seen{number}/{rank}" for rank in range(ranks)]
    for rank, place in enumerate(folders):
        shutil.copytree(f"{folder}/images", f"{place}/images")
        shutil.copy(f"{folder}/train.jsonl", place)
        for name in ("0001_0.jpg", "0006_0.png") if rank in cut else ():
            os.truncate(f"{place}/images/{name}",
                        os.path.getsize(f"{place}/images/{name}") * 7 // 10)
    return folders


def train_on(config, run_dir, settings, folders):
    """Exit code and stderr of a run of as many ranks as folders, and what it made of its samples:
    of each step its numbers, and what stands in quarantine."""
    source = "[{annotations: train.jsonl, images: images}]"
    train = ["train", config]
    for key, value in {"run.dir": run_dir, "data.train": source, "data.eval": source,
                       "eval.every": 4, "train.steps": 8, "parallel.timeout_s": 20,
                       **settings}.items():
        train += ["--set", f"{key}={value}"]
    code, text = mpirun(*[train] * len(folders), folders=folders)
    if code != 0:
        return code, text, [], []
    keys = ("loss", "grad_norm", "skipped_samples", "eval_loss")
    steps = [[row.get(key) for key in keys] for row in tiny_case.metrics(run_dir)]
    with open(f"{run_dir}/quarantine.jsonl") as lines:
        bad = [json.loads(line) for line in lines]
    return code, text, steps, sorted((row["line"], row["reason"]) for row in bad)


def other_pictures(results, config, folder):
    """Two pictures that the last of some ranks with the same micro-batches cannot decode: what
    depends on them is what it is where none can."""
    lanes = {"tensor": 2, "pipeline": 2, "encoder": "optimus", "encoder_tensor": 1}
    ahead = {"parallel.prefetch": "true", "model.freeze": "[vision, projector]"}
    meshes = (({"tensor": 2}, {}), ({"context": 2}, {}), ({"tensor": 2, "context": 2}, {}),
              (lanes, {}), (lanes, ahead))
    for number, (mesh, more) in enumerate(meshes):
        name = f"pictures, {mesh} {more}"
        ranks = math.prod(mesh.get(axis, 1) for axis in ("tensor", "context", "pipeline"))
        settings = {"data.cache": f"{folder}/cache", **more,
                    **{f"parallel.{key}": value for key, value in mesh.items()}}
        runs = [train_on(config, f"{folder}/pictures{number}{who}", settings,
                         pictures_of_ranks(folder, f"{number}{who}", ranks, cut))
                for who, cut in (("one", {ranks - 1}), ("all", set(range(ranks))))]
        results.check(f"{name}: the run goes on", all(run[0] == 0 for run in runs),
                      runs[0][1][-900:] if runs[0][0] else "")
        (_, _, steps, bad), (_, _, expected, all_bad) = runs
        results.check(f"{name}: the numbers of a run in which all ranks fail",
                      len(steps) == 8 and steps == expected, f"{steps[-1:]} {expected[-1:]}")
        results.check(f"{name}: both in quarantine, once, for the reason of the rank that fails",
                      [line for line, _ in bad] == [2, 7] and bad == all_bad, str(bad))


def pictures_before_the_loss(results, config, folder):
    """Two pictures that the encoder's rank cannot decode, while that of the loss can: their steps
    are skipped, and they count as bad."""
    for name, mesh in (("inline", {}), ("disaggregated", {"parallel.encoder": "disaggregated"})):
        settings = {"data.cache": f"{folder}/cache", "parallel.pipeline": 2,
                    "parallel.schedule": "1f1b", "data.max_bad_share": 0.2, **mesh}
        code, text, steps, bad = train_on(config, f"{folder}/before_{name}", settings,
                                          pictures_of_ranks(folder, f"before_{name}", 2, {0}))
        label = f"pictures before the loss, {name}"
        results.check(f"{label}: the run goes on", code == 0 and len(steps) == 8, text[-900:])
        results.check(f"{label}: both in quarantine, once", [line for line, _ in bad] == [2, 7],
                      str(bad))
        skipped = [i for i, step in enumerate(steps) if step[0] is None]
        counts = [0] + [step[2] for step in steps]
        results.check(f"{label}: the steps that have them are skipped, and no others",
                      skipped and skipped == [i for i in range(8) if counts[i + 1] > counts[i]],
                      str(steps))
        results.check(f"{label}: no held-out loss of black pictures",
                      all(step[3] is None for step in steps) and
                      "no held-out loss" in text, f"{steps} {text[-600:]}")


def other_model(results, config, folder):
    """Folders of one name, as on the disks of two machines: another setting, and another weight."""
    done = tiny_case.run(config, 1, run__dir=f"{folder}/trained", train__steps=1)
    results.check("a model to change", done.returncode == 0, done.stderr[-300:])
    for at in ("ours", "eps", "weights", "ends"):
        tiny_case.program("export", f"{folder}/trained", "--out", f"{folder}/{at}/model")
    with open(f"{folder}/ends/model/generation_config.json", "w") as out:
        json.dump({"eos_token_id": [1, 2, 3]}, out)
    with open(f"{folder}/eps/model/config.json") as file:
        description = json.load(file)
    description["transformers_version"] = "of another day"  # no difference
    description["text_config"]["rms_norm_eps"] = 1e-5
    with open(f"{folder}/eps/model/config.json", "w") as out:
        json.dump(description, out)
    weights = f"{folder}/weights/model/model.safetensors"
    with open(weights, "r+b") as out:
        out.seek(os.path.getsize(weights) - 4)
        out.write(b"\0\0\0\x3f")
    data = "[{annotations: %s/train.jsonl, images: %s/images}]" % (folder, folder)
    train = ["train", config]
    for setting in (f"run.dir={folder}/models", "model.hf=model", "model.init=pretrained",
                    f"data.train={data}"):
        train += ["--set", setting]
    ask = ["generate", "model", "--prompt", "What is it?", "--max-new-tokens", "1"]
    for name, words in (("eps", "rms_norm_eps"), ("weights", "weights "),
                        ("ends", "generation_config.json")):
        for line in (train, ask):
            code, text = mpirun(line, line, folders=[f"{folder}/ours", f"{folder}/{name}"])
            told = [line for line in text.splitlines() if "equipoise: " in line]
            results.check(f"two models, {name}, {line[0]}: exit 2, one line that names it",
                          code == 2 and len(told) == 1 and words in told[0] and
                          "the model of rank 1 differs from that of rank 0 (" in told[0],
                          f"exit {code}: {told}")
    other_adapter(results, config, folder, train, ask)
    code, text = mpirun(train, train, folders=[f"{folder}/ours", f"{folder}/ours"])
    results.check("one model: trained", code == 0, text[-600:])


def other_adapter(results, config, folder, train, ask):
    """Over one model an adapter of one name, of which the other has another element."""
    done = tiny_case.run(config, 1, run__dir=f"{folder}/adapted", train__steps=1,
                         model__hf=f"{folder}/ours/model", model__init="pretrained",
                         model__adapter__targets="[all-linear]")
    results.check("an adapter to change", done.returncode == 0, done.stderr[-300:])
    shutil.copytree(f"{folder}/ours/model", f"{folder}/adapter/model")
    for at in ("ours", "adapter"):
        tiny_case.program("export", f"{folder}/adapted", "--out", f"{folder}/{at}/lora")
    changed = f"{folder}/adapter/lora/adapter_model.safetensors"
    with open(changed, "r+b") as out:
        out.seek(os.path.getsize(changed) - 4)
        out.write(b"\0\0\0\x3f")
    for line in ([*train, "--set", "model.adapter.init=lora"], [*ask, "--adapter", "lora"]):
        code, text = mpirun(line, line, folders=[f"{folder}/ours", f"{folder}/adapter"])
        told = [line for line in text.splitlines() if "equipoise: " in line]
        results.check(f"two adapters, {line[0]}: exit 2, one line that names it",
                      code == 2 and len(told) == 1 and "(adapter's weights " in told[0],
                      f"exit {code}: {told}")


def other_checkpoint(results, config, folder):
    """A run's checkpoint of one name, which is another run's on the disk of another machine."""
    for at, rate in (("start0", 0.002), ("start1", 0.001)):
        done = tiny_case.run(config, 1, run__dir=f"{folder}/{at}/run", train__steps=2,
                             train__lr=rate)
        results.check("a checkpoint to change", done.returncode == 0, done.stderr[-300:])
    train = ["train", config, "--resume", "run/checkpoints/step-00000002"]
    for setting in (f"run.dir={folder}/two_starts", "train.steps=3"):
        train += ["--set", setting]
    code, text = mpirun(train, train, folders=[f"{folder}/start0", f"{folder}/start1"])
    told = [line for line in text.splitlines() if "equipoise: " in line]
    results.check("two checkpoints: exit 2, one line that names both ranks", code == 2 and
                  len(told) == 1 and "the checkpoint of rank 1 differs from that of rank 0 (" in
                  told[0], f"exit {code}: {told}")


def other_index(results, config, folder):
    """Held-out data whose index each machine has built for itself, one before a picture came."""
    for i in (0, 1):
        place = f"{folder}/held{i}"
        shutil.copytree(f"{folder}/images", f"{place}/images")
        shutil.copy(f"{folder}/train.jsonl", place)
        if i == 1:
            os.rename(f"{place}/images/0001_0.jpg", f"{place}/late.jpg")
        settings = ["--set", "data.eval=[{annotations: train.jsonl, images: images}]",
                    "--set", "data.max_bad_share=0.5"]
        done = subprocess.run([tiny_case.EQUIPOISE, "data", config, *settings, "--eval", "index"],
                              cwd=place, capture_output=True, text=True, timeout=300,
                              env=tiny_case.environment())
        results.check("an index to differ", done.returncode == 0, done.stderr[-300:])
        if i == 1:
            os.rename(f"{place}/late.jpg", f"{place}/images/0001_0.jpg")
    train = ["train", config, *settings, "--set", f"run.dir={folder}/held", "--set", "eval.every=2"]
    code, text = mpirun(train, train, folders=[f"{folder}/held0", f"{folder}/held1"])
    told = [line for line in text.splitlines() if "equipoise: " in line]
    results.check("two indices of held-out data: exit 2, one line that names the rank",
                  code == 2 and len(told) == 1 and
                  "train.jsonl: rank 1 sees other pictures" in told[0], f"exit {code}: {told}")


def missing_configuration(results, config, folder):
    """Rank 1 alone lacks the file; rank 0 waits for it in its first collective."""
    train = ["train", config, "--set", f"run.dir={folder}/lacks"]
    code, text = mpirun(train, ["train", f"{folder}/absent.yaml"])
    results.check("a file that one rank lacks: exit 2", code == 2, str(code))
    results.check("a file that one rank lacks: named", "absent.yaml" in text, text[-500:])


def mpi_does_not_start(results, config, folder):
    """One process, as mpirun would start it: mpirun itself may hang after such an end."""
    env = {**tiny_case.environment(), "OMPI_COMM_WORLD_SIZE": "1",
           "OMPI_MCA_pml": "absent"}  # a component that is not there
    done = subprocess.run(tiny_case.command(config, 1, run__dir=f"{folder}/no_mpi"), timeout=300,
                          capture_output=True, text=True, env=env)
    results.check("MPI does not start: exit 5", done.returncode == 5, str(done.returncode))
    told = [text for text in done.stderr.splitlines() if text.startswith("equipoise: ")]
    results.check("MPI does not start: one line, no stack", len(told) == 1 and
                  "MPI_Init" in told[0] and "terminate" not in done.stderr, done.stderr[-900:])


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="one")
    config = tiny_case.write_case(folder)
    for case in (cannot_write_metrics, other_configuration, other_program, other_plan,
                 other_search, other_model, other_checkpoint, other_index, other_pictures,
                 pictures_before_the_loss, missing_configuration, mpi_does_not_start):
        case(results, config, folder)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
