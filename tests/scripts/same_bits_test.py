"""scripts/same-bits tells programs that compute the same from programs that do not."""
import subprocess
import sys

import script_case
from script_case import FOLDER

SCRIPT, PROGRAM = sys.argv[1], sys.argv[2]
TRAIN, CHECK = "train 1 rank precision", "check untied fp32 1 rank"


def program(name, body):
    path = FOLDER / name
    script_case.write_program(path, f"#!/bin/bash\n{body}\n")
    return path


def compare(new, only):
    """Exit code and lines of a comparison of the real program with another."""
    done = subprocess.run([sys.executable, SCRIPT, "--programs", PROGRAM, str(new), "--only", only],
                          capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, done.stdout.splitlines()


def a_program_equals_itself():
    for only, cases in ((CHECK, 3), (TRAIN, 1)):
        code, lines = compare(PROGRAM, only)
        assert code == 0 and lines[-1] == f"{cases} same, 0 differ, 0 new", lines


def another_rate_shows_in_the_losses():
    wrong = program("rate", f'exec {PROGRAM} "$@" $([ $1 = train ] && echo --set train.lr=1e-3)')
    code, lines = compare(wrong, TRAIN)
    assert code == 1 and lines[-1].startswith("0 same, 1 differ"), lines
    assert lines[0].startswith("differs") and ": step " in lines[0], lines


def another_gradient_is_named():
    wrong = program("weights", f'''
        out=$(printf '%s\\n' "$@" | grep '/out.safetensors')
        {PROGRAM} "$@" && {sys.executable} -c "
        import safetensors.torch as st
        tensors = st.load_file('$out')
        name = min(key for key in tensors if key.startswith('grad.'))
        tensors[name].flatten()[-1] += 1e-6
        st.save_file(tensors, '$out')"'''.replace("\n        ", "\n"))
    code, lines = compare(wrong, CHECK)
    assert code == 1 and all(line.startswith("differs") and "grad." in line
                             for line in lines[:-1]), lines


def what_the_other_program_refuses_is_new():
    done = subprocess.run([sys.executable, SCRIPT, "--programs", str(program("old", "exit 2")),
                           PROGRAM, "--only", TRAIN], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "0 same, 0 differ, 1 new", done
    code, lines = compare(program("broken", "exit 5"), TRAIN)
    assert code == 1 and "exit 0 and 5" in lines[0], lines


sys.exit(script_case.run_cases([
    a_program_equals_itself,
    another_rate_shows_in_the_losses,
    another_gradient_is_named,
    what_the_other_program_refuses_is_new,
]))
