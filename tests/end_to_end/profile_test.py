"""`equipoise profile` measures the layers of a model, and training takes its file."""
import json
import os
import shutil
import sys
import tempfile

import tiny_case
from refusals import Cases

KINDS = {"patch_embedding", "vision_block", "projector", "token_embedding", "decoder_block", "head"}


def check_profile(results, name, path, table, links):
    with open(path) as file:
        profile = json.load(file)
    layers = profile["layers"]
    results.check(f"{name}: every kind of layer", {row["layer_kind"] for row in layers} == KINDS)
    results.check(f"{name}: a table row for each measurement",
                  sum(line.split()[0] in KINDS for line in table.splitlines()) == len(layers))
    blocks = [row for row in layers if row["layer_kind"] == "decoder_block" and row["tensor"] == 1]
    results.check(f"{name}: packed rows have fewer pairs",
                  len({(r["tokens"], r["token_pairs"]) for r in blocks}) == len(blocks)
                  and len({r["tokens"] for r in blocks}) < len(blocks), str(blocks[:2]))
    results.check(f"{name}: recompute keeps less",
                  all(r["kept_bytes"][3] < min(r["kept_bytes"][1:3]) and
                      max(r["kept_bytes"][1:3]) < r["kept_bytes"][0] for r in blocks))
    results.check(f"{name}: precision, threads, device",
                  profile["precision"] == "fp32" and profile["threads"] == 1
                  and profile["device"] and "LibTorch" in profile["versions"])
    results.check(f"{name}: links {'are' if links else 'are not'} measured", all(
        (profile[key]["bytes_per_s"] > 0) == links for key in ("point_to_point", "all_reduce")))


def main():
    results = tiny_case.Results()
    folder = os.path.realpath(tempfile.mkdtemp(prefix="profile"))
    config = tiny_case.write_case(folder)
    for ranks in (1, 2):
        path = f"{folder}/profile{ranks}.json"
        done = tiny_case.run(config, ranks, "profile", "--out", path, "--sweeps", "1",
                             parallel__timeout_s=77, train__deterministic="true")
        results.check(f"{ranks} ranks: profile", done.returncode == 0, done.stderr[-400:])
        results.check(f"{ranks} ranks: set up as --set says",
                      "1 thread each, 77 s for a wait at most, deterministic" in done.stderr,
                      done.stderr[-400:])
        check_profile(results, f"{ranks} ranks", path, done.stdout, ranks > 1)
    settings = dict(train__steps=2, cluster__profile=path)
    done = tiny_case.run(config, 2, run__dir=f"{folder}/run", parallel__pipeline=2, **settings)
    results.check("training predicts from it", done.returncode == 0 and "probe: " in done.stderr,
                  done.stderr[-400:])
    cases = Cases(results)
    cases.refused("of another precision", tiny_case.command(
        config, 1, run__dir=f"{folder}/bf16", train__precision="bf16", **settings), 2, path, "fp32",
        "bf16")
    cases.refused("no sweeps", tiny_case.command(
        config, 1, "profile", "--sweeps", "0"), 2, "sweeps")
    cases.refused("a folder that is not there", tiny_case.command(
        config, 1, "profile", "--out", f"{folder}/absent/p.json"), 2, "--out", f"{folder}/absent")
    cases.refused("no model", tiny_case.command(config, 1, "profile", model__hf=""), 2, "model.hf")
    cases.refused("no such model", tiny_case.command(
        config, 1, "profile", model__hf=f"{folder}/none"), 4, f"model.hf: {folder}/none", "no such")
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
