"""Every case of scripts/bad-input has its documented outcome:
bad_input_corpus_test.py PROGRAM SCRIPT PAGE.

`data CONFIG check` looks at each; docs/bad_input.md lists them."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

from command_data_test import write_model


def check(program, folder, annotations):
    """(exit code, defects by line, standard error) of `data check` on a file."""
    config = f"{folder}/c.yaml"
    with open(config, "w") as file:
        file.write(f"""run: {{dir: {folder}/run}}
model: {{hf: {folder}/model, init: random}}
data:
  train: [{{annotations: {annotations}, images: {folder}/corpus/images}}]
  max_tokens: 512
  max_bad_share: 1.0
  cache: {folder}/cache
train: {{global_batch: 1}}
""")
    done = subprocess.run([program, "data", config, "check", "--json"], capture_output=True,
                          text=True, timeout=600, check=False)
    defects = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, {d["line"]: d for d in defects}, done.stderr.strip()


def outcome_of_file(program, folder, path):
    code, defects, message = check(program, folder, path)
    if code == 4:
        assert len(message.splitlines()) == 1, message
        return message
    assert code == 0, (path, code, message)
    return defects[min(defects)]["defect"] if defects else "ok"


def main():
    program, script, page = (os.path.abspath(word) for word in sys.argv[1:])
    passed = failed = 0

    def report(name, ok, detail):
        nonlocal passed, failed
        passed, failed = passed + bool(ok), failed + (not ok)
        if not ok:
            print(f"FAILED {name}: {detail}")

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, script, f"{folder}/corpus"], check=True)
        again = subprocess.run([sys.executable, script, f"{folder}/corpus"], capture_output=True,
                               text=True)
        report("a folder with files", again.returncode == 1 and again.stderr ==
               f"{folder}/corpus: is there already; give a new or empty folder\n", again.stderr)
        # A Python without Pillow, first alone, then beside a .venv that has it.
        os.makedirs(f"{folder}/scripts")
        bare = [sys.executable, "-S", "-I", shutil.copy(script, f"{folder}/scripts"), "--table"]
        done = subprocess.run(bare, capture_output=True, text=True)
        report("no Pillow", done.returncode == 1 and len(done.stderr.splitlines()) == 1 and
               "has no Pillow" in done.stderr, done.stderr)
        os.makedirs(f"{folder}/.venv/bin")
        with open(f"{folder}/.venv/bin/python", "w") as file:
            file.write(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        os.chmod(f"{folder}/.venv/bin/python", 0o755)
        done = subprocess.run(bare, capture_output=True, text=True)
        report("the .venv's Pillow", done.returncode == 0 and "| JPEG |" in done.stdout,
               done.stderr)
        write_model(f"{folder}/model")
        with open(f"{folder}/corpus/cases.json") as file:
            cases = json.load(file)
        code, defects, message = check(program, folder, f"{folder}/corpus/records.jsonl")
        assert code == 0, message
        for case in cases:
            name, wanted = f"{case['group']}: {case['name']}", case["outcome"]
            if "line" in case:
                found = defects.get(case["line"], {"defect": "ok", "reason": ""})
                reason = found["reason"]
                report(name, found["defect"] == wanted and "\n" not in reason, found)
            else:
                found = outcome_of_file(program, folder, f"{folder}/corpus/{case['file']}")
                report(name, found == wanted if wanted in ("ok", found) else wanted in found, found)
    table = subprocess.run([sys.executable, script, "--table"], capture_output=True, text=True,
                           check=True).stdout
    with open(page) as file:
        report("docs/bad_input.md", table in file.read(), "scripts/bad-input --table differs")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
