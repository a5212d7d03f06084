"""Tests in C++ with Catch2, and in Python.

`cached`: whether an earlier result may stand while no input has changed. Not where processes, time
or the memory of the machine decide: those run each time, whatever is in a cache (scripts/test
refuses tests that lack it).
"""

load("//third_party:precompiled.bzl", "cc_test")

def _tags(tags, cached):
    return tags + ([] if cached else ["external"])  # Bazel's word for a result that is not kept

def equipoise_test(name, deps = [], tags = [], cached = True, **kwargs):
    """cc_test with Catch2's main."""
    cc_test(
        name = name,
        srcs = kwargs.pop("srcs", [name + ".cc"]),
        deps = deps + [
            "//tests:catch_main",
            "//third_party:catch2",
            "//third_party:sanitizer_defaults",
        ],
        tags = _tags(tags, cached),
        **kwargs
    )

def equipoise_python_test(name, args = [], data = [], tags = [], cached = False, **kwargs):
    """NAME.py, run by the environment's Python; its last line is `N passed, N failed`."""
    test = name + ".py"
    native.sh_test(
        name = name,
        srcs = ["//tests:run_python.sh"],
        args = ["$(location %s)" % test] + args,
        data = [test] + data,
        tags = _tags(tags, cached),
        **kwargs
    )
