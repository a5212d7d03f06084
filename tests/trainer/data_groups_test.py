"""`data groups` of 1.27 million samples drawn from the shipped histogram, over 8, 64 and 512 data
ranks: every sample once, no limit exceeded, the promised evenness, in bounded memory. Usage:
data_groups_test.py PROGRAM HISTOGRAM."""

import json
import os
import random
import subprocess
import sys
import tempfile

PROGRAM, HISTOGRAM = sys.argv[1:3]
TILES, TOKENS = 9, 4096
SAMPLES = 1_267_819
MOST_BYTES = 1 << 30


def draw_samples(path):
    """All of the histogram's samples in a random order, as cost lines; [(tiles, tokens)]."""
    with open(HISTOGRAM) as file:
        rows = json.load(file)["rows"]
    samples = [(tiles, tokens) for tiles, tokens, count in rows for _ in range(count)]
    random.Random(0).shuffle(samples)
    with open(path, "w") as out:
        out.writelines(f'{{"vit_num":{v},"token_num":{t}}}\n' for v, t in samples)
    return samples


def group(folder, costs, ranks):
    """(standard output, peak bytes, path of the groups) of one command."""
    config, out = f"{folder}/config{ranks}.yaml", f"{folder}/groups{ranks}.jsonl"
    with open(config, "w") as file:
        file.write(f"model: {{preset: internvl2-26b}}\ntrain: {{global_batch: {4 * ranks}}}\n"
                   f"parallel: {{data: {ranks}}}\n"
                   f"balance: {{group: isf+, tiles: {TILES}, tokens: {TOKENS}}}\n")
    command = [PROGRAM, "data", config, "groups", "--costs", costs, "--out", out]
    with open(f"{folder}/stdout", "w+") as stdout:
        child = subprocess.Popen(command, stdout=stdout)
        _, status, usage = os.wait4(child.pid, 0)
        assert status == 0, status
        stdout.seek(0)
        return stdout.read(), usage.ru_maxrss * 1024, out


def main():
    passed = failed = 0

    def check(what, good, detail=""):
        nonlocal passed, failed
        passed += good
        failed += not good
        print(f"{'' if good else 'FAILED: '}{what} {detail}")

    with tempfile.TemporaryDirectory() as folder:
        costs = f"{folder}/costs.jsonl"
        samples = draw_samples(costs)
        check("samples", len(samples) == SAMPLES, len(samples))
        for ranks in (8, 64, 512):
            table, peak, out = group(folder, costs, ranks)
            check(f"{ranks} ranks: memory", peak < MOST_BYTES, f"{peak / 2**20:.0f} MiB")
            pad, vision, text, time = map(float, table.splitlines()[-1].split(")")[1].split()[1:5])
            check(f"{ranks} ranks: even", pad == 0 and vision <= 0.02 and text <= 0.02 and
                  time <= 0.01, f"pad {pad}, dist {vision} {text} {time}")
            seen = bytearray(SAMPLES)
            places, twice, over, wrong = {}, 0, 0, 0
            with open(out) as lines:
                for line in map(json.loads, lines):
                    sizes = [samples[i] for i in line["samples"]]
                    for i in line["samples"]:
                        twice += seen[i]
                        seen[i] = 1
                    over += line["tiles"] > TILES or line["tokens"] > TOKENS
                    wrong += line["tiles"] != sum(v for v, _ in sizes)
                    wrong += line["tokens"] != sum(t for _, t in sizes)
                    step = places.setdefault(line["step"], set())
                    step.add((line["data_rank"], line["micro_batch"]))
            os.remove(out)
            check(f"{ranks} ranks: each sample once", sum(seen) == SAMPLES and twice == 0,
                  f"{sum(seen)} seen, {twice} twice")
            check(f"{ranks} ranks: limits and sums", over == wrong == 0, f"{over} {wrong}")
            full = {(r, m) for r in range(ranks) for m in range(4)}
            check(f"{ranks} ranks: a pack for each rank and micro-batch of a step", all(
                places[step] == full for step in range(len(places) - 1)), len(places))
    print(f"{passed} passed, {failed} failed")
    sys.exit(int(failed > 0))


main()
