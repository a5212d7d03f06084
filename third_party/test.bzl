"""Tests in C++ with Catch2, and in Python."""

def equipoise_test(name, deps = [], tags = [], **kwargs):
    """cc_test with Catch2's main."""
    native.cc_test(
        name = name,
        srcs = kwargs.pop("srcs", [name + ".cc"]),
        deps = deps + [
            "//tests:catch_main",
            "//third_party:catch2",
            "//third_party:sanitizer_defaults",
        ],
        tags = tags,
        **kwargs
    )

def equipoise_python_test(name, args = [], data = [], **kwargs):
    """NAME.py, run by the environment's Python; its last line is `N passed, N failed`."""
    test = name + ".py"
    native.sh_test(
        name = name,
        srcs = ["//tests:run_python.sh"],
        args = ["$(location %s)" % test] + args,
        data = [test] + data,
        **kwargs
    )
