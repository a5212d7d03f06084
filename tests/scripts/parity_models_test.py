"""scripts/parity-models makes a table without a cell beyond its bound, and sees wrong programs."""
import json
import subprocess
import sys
import textwrap

import script_case
from script_case import FOLDER

SCRIPT, PROGRAM = sys.argv[1], sys.argv[2]
CHECKS = ["logits", "loss", "gradients", "ten steps", "packed", "several pictures", "text alone",
          "frozen", "export", "generate"]

# In place of the trainer: one that computes with other weights than those it is given, and exports
# others than it has trained.
WRONG = """
    #!{python}
    import os, shutil, subprocess, sys, tempfile
    from safetensors.torch import load_file, save_file

    def change(folder, weight, factor):
        path = os.path.join(folder, "model.safetensors")
        weights = load_file(path)
        weights[weight] *= factor
        save_file(weights, path, {{"format": "pt"}})

    line = sys.argv[1:]
    with tempfile.TemporaryDirectory() as home:
        if line[0] in ("check", "generate"):
            line[1] = shutil.copytree(line[1], os.path.join(home, "copy"))
        if line[0] == "check":
            change(line[1], "model.layers.1.mlp.down_proj.weight", 1.001)
        if line[0] == "generate":
            change(line[1], "model.norm.weight", -1)
        code = subprocess.run([{program!r}, *line]).returncode
    if line[0] == "export":
        change(line[line.index("--out") + 1], "model.norm.weight", 1.001)
    sys.exit(code)
"""


def run(*arguments, program=PROGRAM):
    """Exit code, the table's rows {family: [cells]}, and all that was printed."""
    done = subprocess.run([sys.executable, SCRIPT, "--program", str(program), *arguments],
                          capture_output=True, text=True, check=False)
    lines = done.stdout.split("| family |")[-1].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return done.returncode, {row[0]: row[1:] for row in rows}, done.stdout + done.stderr


def every_cell_of_two_families_holds():
    code, rows, said = run("--families", "qwen2 tied", "llava_next llama", "--jobs", "2",
                           "--json", str(FOLDER / "cells.json"))
    assert code == 0 and "**" not in said, said
    assert set(rows) == {"qwen2 tied", "llava_next llama"}, said
    cells = json.loads((FOLDER / "cells.json").read_text(encoding="utf8"))
    for family, of_row in cells.items():
        assert list(of_row) == CHECKS and len(rows[family]) == len(CHECKS), said
        for check, cell in of_row.items():
            without = family == "qwen2 tied" and check in ("several pictures", "text alone",
                                                           "frozen")
            assert bool(cell.get("reason")) == without and bool(cell.get("errors")) != without, said
            assert all(line["ok"] for line in cell.get("errors", [])), said
    # What is measured is no zero: two programs round differently. A loss is one number, and may be
    # the same.
    measured = [float(rows["llava_next llama"][i]) for i in range(9)]
    assert all(0 < error < 1e-4 for error in measured[:1] + measured[2:]), rows
    assert measured[1] < 1e-6, rows
    assert rows["llava_next llama"][9] == "equal", rows


def wrong_weights_are_seen():
    path = FOLDER / "wrong"
    script_case.write_program(path, textwrap.dedent(WRONG).format(python=sys.executable,
                                                                  program=PROGRAM))
    code, rows, said = run("--families", "qwen2 tied", "--checks", "logits", "gradients", "packed",
                           "export", "generate", program=path)
    assert code == 1 and all(cell.startswith("**") for cell in rows["qwen2 tied"]), said
    assert rows["qwen2 tied"][4] == "**differs**" and "answer with 0 pictures" in said, said
    assert "- qwen2 tied, gradients: gradients: " in said, said
    assert "- qwen2 tied, export: weights after: 1.00e-03" in said, said


def a_program_that_fails_is_no_green_cell():
    path = FOLDER / "broken"
    script_case.write_program(path, "#!/bin/sh\necho equipoise: no weights >&2\nexit 5\n")
    code, rows, said = run("--families", "qwen2 tied", "--checks", "loss", "generate",
                           program=path)
    assert code == 1 and rows["qwen2 tied"] == ["**failed**"] * 2, said
    assert "no weights" in said, said


def a_word_that_nothing_contains_is_refused():
    code, rows, said = run("--checks", "none-such")
    assert code == 1 and not rows and "--checks none-such: none of logits, loss" in said, said


sys.exit(script_case.run_cases([
    every_cell_of_two_families_holds,
    wrong_weights_are_seen,
    a_program_that_fails_is_no_green_cell,
    a_word_that_nothing_contains_is_refused,
]))
