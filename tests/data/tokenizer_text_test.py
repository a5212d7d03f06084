"""Ids and text on varied text equal Hugging Face's: a short run of scripts/tokenizer-text.

python tokenizer_text_test.py TOKENIZE_PROGRAM SCRIPT
"""

import os
import subprocess
import sys
import tempfile

from tokenizer_hf_test import kinds, train

NAMES = ["gpt2", "qwen2", "llama3", "deepseek"]


def main():
    program, script = (os.path.abspath(word) for word in sys.argv[1:])
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name in NAMES:
            paths.append(os.path.join(folder, name + ".json"))
            train(*kinds()[name]).save(paths[-1])
        fixtures = os.environ.get("EQUIPOISE_FIXTURES")
        if fixtures:
            paths += [os.path.join(fixtures, "tokenizers", name)
                      for name in NAMES + ["llama2", "mistral-v3"]]
        else:
            print("skipped: tokenizer fixtures: no fixtures")
        for path in paths:
            done = subprocess.run([sys.executable, script, "--megabytes", "0.4", "--program",
                                   program, path], capture_output=True, text=True, check=False)
            passed, failed = passed + (done.returncode == 0), failed + (done.returncode != 0)
            if done.returncode:
                print(f"FAILED {path}: {done.stdout} {done.stderr}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
