"""What the tests of the scripts that prepare a data set share."""

import json
import os
import subprocess
import sys
import unittest


def save_stamp(folder, name, picture, text):
    """A picture and, unless it is None, the text beside it."""
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    picture.save(path + ".png")
    if text is not None:
        with open(path + ".txt", "w", encoding="utf8") as file:
            file.write(text)


def read_records(folder, name):
    with open(os.path.join(folder, name), encoding="utf8") as file:
        return [json.loads(line) for line in file]


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, check=False
    )


def run_tests():
    """Those of the program; returns its exit code."""
    result = unittest.main(exit=False, verbosity=1).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    return 1 if failed else 0
