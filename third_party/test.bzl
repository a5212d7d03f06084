"""cc_test with Catch2's main."""

def equipoise_test(name, deps = [], tags = [], **kwargs):
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
