"""scripts/bench/methods with a tiny model on records made here: full training and LoRA on two
ranks beside Transformers. Usage: bench_methods_test.py (EQUIPOISE as in tiny_case)."""

import json
import os
import subprocess
import sys
import tempfile

sys.path[:0] = ["tests/end_to_end"]
import tiny_case  # noqa: E402  pylint: disable=wrong-import-position

STEPS = 3
ROUNDED = "LoRA, GPTQ base"
MORE = ["LoRA, tensor 2", ROUNDED, "full training, ZeRO 3 within pairs, four ranks"]


def run_bench(folder, *more):
    line = [sys.executable, "scripts/bench/methods", "--quick", "--equipoise", tiny_case.EQUIPOISE,
            "--data", f"{folder}/data", "--records", f"{folder}/train.jsonl", "--images",
            f"{folder}/images", "--work", folder, "--json", f"{folder}/out.json", *more]
    return subprocess.run(line, capture_output=True, text=True, timeout=1800, check=False)


def write_records(folder):
    """Records with one picture each."""
    records = [record for record in tiny_case.write_records(folder, 120, seed=3)
               if isinstance(record.get("image"), str)]
    with open(f"{folder}/train.jsonl", "w", encoding="utf8") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)


def check_figures(results, rows):
    for name, row in rows.items():
        results.check(f"{name}: ran", not row["failed"] and len(row["rounds"]) == 1, str(row))
        for figures in row["rounds"]:
            results.check(f"{name}: a loss for each step, falling",
                          len(figures["losses"]) == STEPS and
                          figures["losses"][-1] < figures["losses"][0], str(figures))
            results.check(f"{name}: time and memory", figures["step_s"] > 0 and
                          figures["rss_bytes"] > 1 << 20, str(figures))


def check_equal(results, rows):
    """What has to be equal: losses with Transformers', bytes with what the method sends."""
    one = {name: row["rounds"][0] for name, row in rows.items() if row["rounds"]}
    full, ddp = one["full training, ZeRO 0"], one["Transformers, DDP"]
    apart = max(abs(a - b) / b for a, b in zip(full["losses"], ddp["losses"]))
    results.check("full training has the losses of Transformers", apart < 5e-4, f"{apart:.1e}")
    first = [figures["losses"][0] for name, figures in one.items() if name != ROUNDED]
    near = abs(one[ROUNDED]["losses"][0] - first[0]) / first[0]
    results.check("rounded weights begin near the others", 0 < near < 0.05, f"{near:.1e}")
    results.check("all begin with the same weights and packs",
                  max(first) - min(first) < 5e-4 * max(first), str(first))
    if full["sent_bytes"] is None:
        print("skipped: bytes on the wire: no network of our own here (root is needed)")
        return
    gradients = 4 * ddp["trained"]  # each of two ranks sends as much in a sum over them
    for name in ("full training, ZeRO 0", "Transformers, DDP"):
        ratio = one[name]["sent_bytes"] / (2 * gradients)
        results.check(f"{name}: sends its gradients", 0.9 < ratio < 1.5, f"{ratio:.3f}")
    results.check("LoRA sends less", one["LoRA"]["sent_bytes"] < full["sent_bytes"] / 2,
                  f"{one['LoRA']['sent_bytes']} {full['sent_bytes']}")


def check_refusal(results, folder):
    """A program that cannot run a method: the row says so, and the exit code."""
    program = f"{folder}/refuses"
    with open(program, "w", encoding="utf8") as out:
        out.write(f"#!/bin/sh\n[ \"$1\" = train ] || exec {tiny_case.EQUIPOISE} \"$@\"\n"
                  "echo 'equipoise: train.x: is unknown' >&2\nexit 2\n")
    os.chmod(program, 0o755)
    done = run_bench(folder, "--no-peers", "--methods", "LoRA", "--equipoise", program)
    results.check("a refused method", done.returncode == 1 and
                  "not run: exit 2: equipoise: train.x: is unknown" in done.stdout,
                  f"{done.returncode} {done.stdout[-500:]} {done.stderr[-500:]}")
    done = run_bench(folder, "--methods", "magic")
    results.check("an unknown method", done.returncode == 2 and "--list" in done.stderr,
                  done.stderr[-300:])


def main():
    results = tiny_case.Results()
    with tempfile.TemporaryDirectory(prefix="methods") as folder:
        write_records(folder)
        done = run_bench(folder, "--methods", "full training, ZeRO 0", "LoRA", *MORE)
        results.check("the bench ran", done.returncode == 0, done.stderr[-2000:])
        if done.returncode == 0:
            with open(f"{folder}/out.json", encoding="utf8") as file:
                rows = {row["name"]: row for row in json.load(file)["rows"]}
            in_table = [f"\n| {name} | " in done.stdout for name in rows]
            results.check("a row for each method and peer in the table",
                          len(rows) == 4 + len(MORE) and all(in_table), done.stdout)
            check_figures(results, rows)
            check_equal(results, rows)
            check_refusal(results, folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
