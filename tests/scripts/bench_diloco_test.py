"""scripts/bench/diloco with a tiny case: two ranks over a network of limited speed, with gradients
summed in every step, and as two islands."""

import json
import subprocess
import sys
import tempfile

sys.path[:0] = ["tests/end_to_end"]
import tiny_case  # noqa: E402  pylint: disable=wrong-import-position

STEPS, EVERY = 6, 3
NO_NETWORK = 3


def run_bench(config, *more):
    line = [sys.executable, "scripts/bench/diloco", "--config", config, "--equipoise",
            tiny_case.EQUIPOISE, "--steps", str(STEPS), "--every", str(EVERY), "--rounds", "1",
            "--rate", "200mbit", *more]
    return subprocess.run(line, capture_output=True, text=True, timeout=600, check=False,
                          env=tiny_case.environment())


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="bench_diloco")
    config = tiny_case.write_case(folder)
    done = run_bench(config, "--json", f"{folder}/out.json")
    if done.returncode == NO_NETWORK:
        print("skipped: a network of limited speed: root and tc are needed")
        results.check("no network of its own is told", "no network" in done.stderr, done.stderr)
        results.finish()
    results.check("it ran", done.returncode == 0 and "times as fast" in done.stdout,
                  done.stdout[-500:] + done.stderr[-800:])
    with open(f"{folder}/out.json", encoding="utf8") as file:
        summed, islands = json.load(file).values()
    sent = summed[0]["bytes_per_step"] / islands[0]["bytes_per_step"]
    results.check("islands send a part of the bytes", 1.5 < sent < EVERY + 0.5, f"{sent:.2f}")
    results.check("times and losses", all(run[0]["step_s"] > 0 and run[0]["loss"] > 0
                                          for run in (summed, islands)))
    done = run_bench(config, "--every", "4")
    results.check("steps that are no whole rounds are refused", done.returncode == 1 and
                  "multiple of --every" in done.stderr, done.stderr[-300:])
    results.finish()


if __name__ == "__main__":
    main()
