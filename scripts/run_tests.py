"""Builds and runs the tests; `scripts/test` starts it.

usage: scripts/test [FILTER] [--asan]
       scripts/test fast [FILES]

FILTER   only targets whose label contains this text, such as models or //tests/data:image_test
fast     a dozen tests at most, none of them large, that are nearest to what has changed: FILES, or
         what differs from the last commit, or else what it changed. An answer within a minute.
--asan   run everything under the address and undefined-behaviour sanitizers; without it, tests
         that link no LibTorch run once plain and once under the sanitizers, as far as these come
         in the first 75 minutes: the others are listed as skipped

The last lines tell how many cases there are, then `skipped: NAME: reason` for each that did not
run, then `N passed, N failed`. A skipped case is neither, and one that runs again under the
sanitizers is still one case. Exits with 1 when a case failed, a target did not build, or none ran.
"""
import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GIB_PER_JOB = 1.5  # a file that includes LibTorch, with the sanitizers
LOG_LINES = 300  # shown of a failing target's log
SLOWEST = 5  # targets named with their times
NEAREST = 12  # tests of `fast`
SECOND_RUN_MINUTES = 75  # from the start, set-up included: no later for the second, sanitized run

OWN_SUMMARY = re.compile(r"^(\d+) passed, (\d+) failed\s*$", re.MULTILINE)
CATCH_PASSED = re.compile(r"^All tests passed \(\d+ assertions? in (\d+) test cases?\)",
                          re.MULTILINE)
CATCH_FAILED = re.compile(r"^test cases:\s*(\d+) \|(.*)$", re.MULTILINE)
CATCH_NONE = re.compile(r"^No tests ran|^No test cases matched", re.MULTILINE)
SKIPPED = re.compile(r"^skipped: .+$", re.MULTILINE)
# What depends on processes, time or the memory of the machine: mpirun and the program; direct users
# of deadlines between ranks.
OF_THE_MACHINE = ("rdeps(//..., @mpi//:mpi + //trainer/device:memory_stats + @cuda//:runtime + "
                  "//scripts:launch) + rdeps(//..., //parallel/comm:engine + "
                  "//parallel/comm:rank_status + //parallel/comm:thread_communicator, 1)")
SANDBOX_NOISE = re.compile(r"^\d{10}\.\d+: src/main/tools/linux-sandbox.*\n", re.MULTILINE)


def skipped_in(log):
    """The lines of a log that tell what was skipped, each once."""
    return list(dict.fromkeys(SKIPPED.findall(log)))


def count_cases(log, target_passed):
    """(passed, failed) test cases of one target, from its log.

    A target that failed has at least one failed case (it may have died before its summary); one
    that passed without any summary is one case, or none where it says that it was skipped. Catch
    counts a case that says so as passed, summaries of our own do not.
    """
    passed, failed = (1, 0) if target_passed else (0, 0)
    own = OWN_SUMMARY.findall(log)
    catch_failed = CATCH_FAILED.findall(log)
    catch_passed = CATCH_PASSED.findall(log)
    skipped = len(skipped_in(log))
    if own:
        passed, failed = (int(number) for number in own[-1])
    elif catch_failed:
        counts = {word: int(number) for number, word in
                  re.findall(r"(\d+) (passed|failed)\b(?! as expected)", catch_failed[-1][1])}
        passed, failed = counts.get("passed", 0) - skipped, counts.get("failed", 0)
    elif catch_passed:
        passed = int(catch_passed[-1]) - skipped
    elif CATCH_NONE.search(log):
        passed, failed = 0, 1
    elif skipped:
        passed = 0
    if not target_passed:
        failed = max(failed, 1)
    return max(passed, 0), failed


UNBUILT = "FAILED_TO_BUILD"


def read_events(path):
    """{label: (status, [log files], seconds)} from Bazel's build event file; none when cached."""
    results = {}
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except json.JSONDecodeError:  # the last line, where Bazel was stopped
                continue
            built = event.get("completed")  # `aborted`, where Bazel was stopped before
            if built is not None and not built.get("success"):
                label = event["id"]["targetCompleted"]["label"]
                results.setdefault(label, (UNBUILT, [], 0))
            summary = event.get("testSummary")
            if summary is None:
                continue
            logs = [urllib.parse.unquote(urllib.parse.urlparse(log["uri"]).path)
                    for log in summary.get("passed", []) + summary.get("failed", [])]
            ran = summary.get("totalNumCached", 0) == 0
            seconds = int(summary.get("totalRunDurationMillis", 0)) / 1000 if ran else 0
            results[event["id"]["testSummary"]["label"]] = (summary["overallStatus"], logs, seconds)
    return results


def bazel(*arguments, **options):
    return subprocess.run(["bazel", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, check=False,
                          text=True, **options)


def stopped_at(deadline, *arguments):
    """Runs Bazel, until time.time() is `deadline` where there is one; whether it was stopped."""
    with subprocess.Popen(["bazel", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL) as process:
        try:
            process.wait(None if deadline is None else max(1, deadline - time.time()))
            return False
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait()
            return True


def query(expression):
    """Labels, and whether every package could be read."""
    done = bazel("query", "--keep_going", "--noshow_progress", expression, stdout=subprocess.PIPE)
    return sorted(done.stdout.split()), done.returncode == 0


def jobs():
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return max(1, min(cores, int(memory / GIB_PER_JOB)))


def progress_options():
    """On a terminal one line that changes; elsewhere a line a minute."""
    if sys.stderr.isatty():
        return ["--show_progress_rate_limit=0.5"]
    return ["--curses=no", "--color=no", "--show_progress_rate_limit=60"]


class Tally:
    """What the targets gave, each of their cases once, however often it ran."""

    def __init__(self):
        self.targets = {}  # label: [passed, failed] cases
        self.again = set()  # labels of those that ran a second time, under the sanitizers
        self.skipped = []

    def count(self, target, passed, failed):
        """A case that passes in one run and fails in another has failed."""
        if target not in self.targets:
            self.targets[target] = [passed, failed]
            return
        self.again.add(target)
        before = self.targets[target]
        now = max(before[1], failed)
        self.targets[target] = [max(0, max(sum(before), passed + failed) - now), now]

    def passed(self):
        return sum(passed for passed, _ in self.targets.values())

    def failed(self):
        return sum(failed for _, failed in self.targets.values())

    def summary(self):
        cases = self.passed() + self.failed()
        count = (f"{cases} different cases in {len(self.targets)} targets ran, "
                 f"{len(self.skipped)} more were skipped")
        if self.again:
            again = sum(sum(self.targets[target]) for target in self.again)
            count += f"; {again} ran a second time, under the sanitizers"
        return [count, *self.skipped, f"{self.passed()} passed, {self.failed()} failed"]

    def run(self, title, targets, options, deadline=None):
        """`deadline`: for a second run of targets, which may end before it has reached all."""
        if not targets:
            return
        print(f"{title}: {len(targets)} test targets", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            events = os.path.join(folder, "events.json")
            pattern_file = os.path.join(folder, "targets")
            with open(pattern_file, "w", encoding="utf-8") as file:
                file.write("\n".join(targets))
            stopped = stopped_at(deadline, "test", "--keep_going", "--test_output=summary",
                                 "--test_summary=none", *progress_options(), f"--jobs={jobs()}",
                                 f"--build_event_json_file={events}",
                                 f"--target_pattern_file={pattern_file}", *options)
            results = read_events(events) if os.path.exists(events) else {}
        for target in targets:
            result = results.get(target)
            reached = result and (result[1] or result[0] == UNBUILT)
            if stopped and target in self.targets and not reached:
                self.skipped.append(f"skipped: {target} ({title}): not reached in "
                                    f"{SECOND_RUN_MINUTES} minutes; its plain run counts")
                continue
            self.add(title, target, result)
        slowest = sorted(((seconds, target) for target, (_, _, seconds) in results.items()
                          if seconds >= 1), reverse=True)[:SLOWEST]
        if slowest:
            print("slowest: " + ", ".join(f"{target} {seconds:.0f} s"
                                          for seconds, target in slowest), flush=True)

    def add(self, title, target, result):
        status, logs, _ = result or ("NO_STATUS", [], 0)
        text = ""
        for log in logs:
            with open(log, encoding="utf-8", errors="replace") as file:
                text += SANDBOX_NOISE.sub("", file.read())
        if not logs:
            print(f"FAILED ({title}) {target}: did not build")
            self.count(target, 0, 1)
            return
        passed, failed = count_cases(text, status in ("PASSED", "FLAKY"))
        self.count(target, passed, failed)
        self.skipped += [line for line in skipped_in(text) if line not in self.skipped]
        if failed:
            lines = text.splitlines()
            print(f"FAILED ({title}) {target}: {status.lower()}")
            if len(lines) > LOG_LINES:
                print(f"  ... the first {len(lines) - LOG_LINES} lines are in {logs[-1]}")
            print("\n".join("  " + line for line in lines[-LOG_LINES:]))


def run_all(tally, text, asan, started):
    targets, complete = query("tests(//...) except attr(tags, manual, //...)")
    kept, sorted_out = query(
        f"tests({OF_THE_MACHINE}) except attr(tags, 'manual|external', //...)")
    if not (complete and sorted_out):
        print("FAILED: a BUILD file could not be read")
        tally.count("//...", 0, 1)
    for target in kept:
        print(f"FAILED {target}: it depends on the machine; set `cached = False` in its BUILD file")
        tally.count(target, 0, 1)
    chosen = [target for target in targets if text in target]
    if not chosen:
        print(f"no test target contains '{text}'", file=sys.stderr)
        return
    if asan:
        tally.run("asan", chosen, ["--config=asan"])
        return
    tally.run("plain", chosen, [])
    pure, known = query("kind(cc_test, tests(//...)) except attr(tags, manual, //...)"
                        " except rdeps(//..., @torch//:torch_cpu)")
    if not (pure and known):
        print("FAILED: the tests for the sanitizers cannot be listed")
        tally.count("//... (asan)", 0, 1)
    tally.run("asan", [target for target in pure if target in chosen], ["--config=asan"],
              started + 60 * SECOND_RUN_MINUTES)


def changed_files():
    """What differs from the last commit, new files too, or what that has changed."""
    def git(*arguments):
        done = subprocess.run(["git", *arguments], cwd=ROOT, check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return done.stdout.split("\n")[:-1]
    return (git("diff", "--name-only", "HEAD") + git("ls-files", "-o", "--exclude-standard")
            or git("diff", "--name-only", "HEAD~1", "HEAD"))


def nearest_tests(files, ask=query):
    """Tests that depend on the files, over the fewest steps first; the small ones of equal ones."""
    chosen = []
    for depth in range(1, 5 if files else 1):
        near = f"tests(rdeps(//tests/..., set({' '.join(files)}), {depth}))"
        for size in ("small", "medium"):
            found, _ = ask(f"attr(size, {size}, {near}) except attr(tags, manual, //...)")
            chosen += [target for target in found if target not in chosen]
        if len(chosen) >= NEAREST:
            break
    return chosen[:NEAREST]


def run_fast(tally, files):
    targets = nearest_tests([shlex.quote(file) for file in files or changed_files()])
    if targets:
        tally.run("plain", targets, [])
    else:
        print("no test that is not large depends on what has changed", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(prog="scripts/test", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage=argparse.SUPPRESS)
    parser.add_argument("filter", nargs="?", default="", help=argparse.SUPPRESS)
    parser.add_argument("files", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--asan", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    started = float(os.environ.get("EQUIPOISE_TESTS_STARTED") or time.time())
    tally = Tally()
    if arguments.files and arguments.filter != "fast":
        parser.error("one FILTER is enough; FILES follow `fast`")
    if arguments.filter == "fast":
        run_fast(tally, arguments.files)
    else:
        run_all(tally, arguments.filter, arguments.asan, started)
    print("\n".join(tally.summary()), flush=True)
    return 1 if tally.failed() or not (tally.passed() or tally.skipped) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
