"""scripts/run_tests.py reads the logs of test targets: these are the logs it must tell apart."""
import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile

# (log, the target's status is "passed", expected (passed, failed))
COUNTS = [
    ("All tests passed (52 assertions in 5 test cases)\n", True, (5, 0)),
    ("All tests passed (1 assertion in 1 test case)\n", True, (1, 0)),
    ("test cases:  12 |  11 passed | 1 failed\nassertions: 2 | 1 passed | 1 failed\n", False,
     (11, 1)),
    ("test cases: 2 | 2 failed\n", False, (0, 2)),
    ("test cases: 3 | 1 passed | 1 failed | 1 failed as expected\n", False, (1, 1)),
    ("No tests ran\n", True, (0, 1)),
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
    return found == {"//a:b": ("PASSED", ["/x y/test.log"], 1.5),
                     "//a:c": ("PASSED", ["/x y/test.log"], 0)}


def main():
    sys.dont_write_bytecode = True
    script = load("scripts/run_tests.py")
    passed = failed = 0
    for log, target_passed, wanted in COUNTS:
        found = script.count_cases(log, target_passed)
        passed += found == wanted
        failed += found != wanted
        if found != wanted:
            print(f"{log!r}: found {found}, wanted {wanted}")
    events = check_events(script)
    passed += events
    failed += not events
    skipped = script.SKIPPED.findall("a\nskipped: x: no fixtures\nnot skipped: y\n")
    passed += skipped == ["skipped: x: no fixtures"]
    failed += skipped != ["skipped: x: no fixtures"]
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
