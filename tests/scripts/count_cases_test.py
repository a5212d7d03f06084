"""count_cases_test.py CATCH_KINDS   scripts/run_tests.py reads the logs of test targets: these are
the logs it must tell apart, those of Catch as Catch writes them."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile

# (cases that the program of Catch runs, expected (passed, failed), skipped)
CATCH = [
    (["passes"], (1, 0), 0),
    (["passes", "passes too"], (2, 0), 0),
    (["fails"], (0, 1), 0),
    (["passes", "fails", "passes too"], (2, 1), 0),
    (["throws", "passes"], (1, 1), 0),
    (["fails as it shall"], (0, 0), 0),
    (["passes", "fails", "fails as it shall"], (1, 1), 0),
    (["skips"], (0, 0), 1),
    (["skips", "passes", "passes too"], (2, 0), 1),
    (["skips", "skips for each"], (0, 0), 2),
    (["skips", "skips for each", "passes", "fails"], (1, 1), 2),
    (["asserts by throwing alone"], (1, 0), 0),
    (["asserts by throwing alone", "skips", "passes"], (2, 0), 1),
    (["passes", "dies", "passes too"], (2, 1), 0),
    (["no such case"], (0, 1), 0),
]

# (log, the target's status is "passed", expected (passed, failed))
COUNTS = [
    ("start\n7 passed, 2 failed\n", False, (7, 2)),
    ("3 passed, 0 failed\nmore\n9 passed, 0 failed\n", True, (9, 0)),
    ("text about 3 passed, 0 failed\n", True, (1, 0)),
    ("", True, (1, 0)),
    ("skipped: //a:b: no GPU\n", True, (0, 0)),
    ("skipped: one part of it: no fixtures\n7 passed, 0 failed\n", True, (7, 0)),
    ("skipped: //a:b: no GPU\nSegmentation fault\n", False, (0, 1)),
    ("", False, (0, 1)),
    # It died after its summary, or hid a failure behind exit code 0.
    ("All tests passed (2 assertions in 2 test cases)\nleak\n", False, (2, 1)),
    ("4 passed, 1 failed\n", True, (4, 1)),
]


def load(path):
    loader = importlib.machinery.SourceFileLoader("test_script", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("test_script", loader))
    loader.exec_module(module)
    return module


def check_catch(script, program):
    """The faults in the counts of what Catch prints."""
    for names, wanted, skipped in CATCH:
        done = subprocess.run([program, ",".join(f'"{name}"' for name in names)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        found = script.count_cases(done.stdout, done.returncode == 0)
        lines = script.skipped_in(done.stdout)
        right = found == wanted and len(lines) == skipped
        yield "" if right else f"{names}: found {found}, {lines}, wanted {wanted}, {skipped}"


def check_logs(script):
    for log, target_passed, wanted in COUNTS:
        found = script.count_cases(log, target_passed)
        yield "" if found == wanted else f"{log!r}: found {found}, wanted {wanted}"
    found = script.skipped_in("a\nskipped: x: no fixtures\nnot skipped: y\nskipped: x: no fixtures")
    yield "" if found == ["skipped: x: no fixtures"] else f"skipped: {found}"


def check_events(script):
    logs = [{"uri": "file:///x%20y/test.log"}]
    events = [{"id": {"started": {}}}]
    for label, more in (("//a:b", {"totalRunDurationMillis": "1500"}),
                        ("//a:c", {"totalRunDurationMillis": "1500", "totalNumCached": 1})):
        events.append({"id": {"testSummary": {"label": label}},
                       "testSummary": {"overallStatus": "PASSED", "passed": logs, **more}})
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
        file.write("".join(json.dumps(event) + "\n" for event in events))
    found = script.read_events(file.name)
    os.unlink(file.name)
    wanted = {label: ("PASSED", ["/x y/test.log"], seconds)
              for label, seconds in (("//a:b", 1.5), ("//a:c", 0))}
    yield "" if found == wanted else f"events: {found}"


def check_tally(script):
    """A case that runs twice is one, and has failed where one of its runs has."""
    tally = script.Tally()
    for target, passed, failed in (("//a:b", 5, 0), ("//a:c", 2, 1), ("//a:d", 4, 0),
                                   ("//a:b", 5, 0), ("//a:c", 3, 0), ("//a:d", 3, 1)):
        tally.count(target, passed, failed)
    tally.skipped = ["skipped: x: no GPU"]
    wanted = ["12 different cases in 3 targets ran, 1 more were skipped; 12 ran a second time, "
              "under the sanitizers", "skipped: x: no GPU", "10 passed, 2 failed"]
    yield "" if tally.summary() == wanted else f"summary: {tally.summary()}"


def check_deadline(script):
    """A second run that is stopped: what it has not reached is skipped, by its name; a target that
    failed in it counts. A first run that lacks a target has failed."""
    tally = script.Tally()
    tally.count("//a:reached", 5, 0)
    tally.count("//a:late", 4, 0)
    tally.count("//a:unbuilt", 3, 0)
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "test.log")
        with open(log, "w", encoding="utf-8") as file:
            file.write("4 passed, 1 failed\n")
        event = {"id": {"testSummary": {"label": "//a:reached"}},
                 "testSummary": {"overallStatus": "FAILED", "failed": [{"uri": "file://" + log}]}}

        def stopped(_, *arguments):
            path = [a.split("=")[1] for a in arguments if a.startswith("--build_event")][0]
            with open(path, "w", encoding="utf-8") as file:
                for label, end in (("unbuilt", {"completed": {"failureDetail": {}}}),
                                   ("late", {"aborted": {"reason": "USER_INTERRUPTED"}})):
                    unfinished = {"id": {"targetCompleted": {"label": f"//a:{label}"}}, **end}
                    file.write(json.dumps(unfinished) + "\n")
                file.write(json.dumps(event) + '\n{"id": {"testSumm')
            return True
        script.stopped_at = stopped
        with contextlib.redirect_stdout(io.StringIO()):
            tally.run("asan", ["//a:reached", "//a:late", "//a:unbuilt"], [], deadline=1)
            tally.run("plain", ["//a:new"], [])
    yield "" if tally.failed() == 3 and tally.passed() == 10 else f"stopped: {tally.targets}"
    lines = [line.split(" (")[0] for line in tally.skipped]
    yield "" if lines == ["skipped: //a:late"] else f"stopped: {tally.skipped}"


def check_nearest(script):
    """`fast` takes the tests over the fewest steps, small ones before others, a dozen at most."""
    def ask(expression):
        depth = int(expression.split("), ")[-1].split(")")[0]) if "rdeps" in expression else 0
        size = "small" if "small" in expression else "medium"
        return [f"//tests:{size}{i}" for i in range(3 * (depth - 1))], True
    found = script.nearest_tests(["a.cc"], ask)
    wanted = [*(f"//tests:small{i}" for i in range(3)), *(f"//tests:medium{i}" for i in range(3)),
              *(f"//tests:small{i}" for i in range(3, 6)),
              *(f"//tests:medium{i}" for i in range(3, 6))]
    yield "" if found == wanted else f"nearest: {found}"
    yield "" if script.nearest_tests([], ask) == [] else "nearest: of nothing"


def main():
    sys.dont_write_bytecode = True
    script = load("scripts/run_tests.py")
    faults = [*check_catch(script, sys.argv[1]), *check_logs(script), *check_events(script),
              *check_tally(script), *check_nearest(script), *check_deadline(script)]
    failed = [fault for fault in faults if fault]
    print("".join(f"FAILED {fault}\n" for fault in failed), end="")
    print(f"{len(faults) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


sys.exit(main())
