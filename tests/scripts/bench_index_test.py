"""scripts/bench/index with the quickstart's configuration on records made here."""

import re
import subprocess
import sys
import tempfile

sys.path[:0] = ["tests/end_to_end"]
import tiny_case  # noqa: E402  pylint: disable=wrong-import-position

COUNT = 500


def main():
    results = tiny_case.Results()
    with tempfile.TemporaryDirectory(prefix="index") as folder:
        tiny_case.write_case(folder)
        line = [sys.executable, "scripts/bench/index", "--equipoise", tiny_case.EQUIPOISE,
                "--config", "configs/quickstart.yaml", "--model", f"{folder}/model", "--records",
                f"{folder}/train.jsonl", "--images", f"{folder}/images", "--count", str(COUNT),
                "--rounds", "1"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
        results.check("the bench ran", done.returncode == 0, done.stderr[-2000:])
        results.check("it says what it counted",
                      re.search(rf"^{COUNT} records \(\d+ distinct, {COUNT} usable\)", done.stdout,
                                re.M), done.stdout)
        results.check("it has a figure for both", "built anew: " in done.stdout and
                      "opened: " in done.stdout, done.stdout)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
