"""Repositories for LibTorch and Open MPI, found in .venv or where an environment variable says."""

def _environment(ctx):
    link = ctx.path(Label("//:WORKSPACE")).dirname.get_child(".venv")
    if not link.exists:
        fail("there is no .venv; run scripts/setup")
    return link.realpath

def _torch_impl(ctx):
    root = ctx.os.environ.get("EQUIPOISE_TORCH", "")
    if not root:
        root = str(_environment(ctx)) + "/lib/python3.11/site-packages/torch"
    ctx.symlink(root + "/lib", "lib")

    # Every child but fmt: torch carries fmt 12, which would shadow the one that spdlog needs.
    for child in ctx.path(root + "/include").readdir():
        if child.basename != "fmt":
            ctx.symlink(child, "include/" + child.basename)
    ctx.file("BUILD", """
# The CPU libraries alone: a program linked to torch_cuda starts at 440 MB and 0.45 s.
# Not in `srcs`: Bazel's copies break the $ORIGIN search paths of the wheel.
cc_library(
    name = "torch_cpu",
    hdrs = glob(["include/**/*.h", "include/**/*.hpp", "include/**/*.cuh"]),
    includes = ["include", "include/torch/csrc/api/include"],
    linkopts = [
        "-L{lib}",
        "-Wl,--no-as-needed",
        "-ltorch_cpu",
        "-lc10",
        "-Wl,--as-needed",
        "-Wl,--disable-new-dtags",
        "-Wl,-rpath,{lib}",
    ],
    visibility = ["//visibility:public"],
)
""".format(lib = ctx.path(root + "/lib").realpath))

torch_repository = repository_rule(
    implementation = _torch_impl,
    environ = ["EQUIPOISE_TORCH"],
    local = True,
)

def _mpi_impl(ctx):
    root = ctx.os.environ.get("EQUIPOISE_MPI", "")
    if not root:
        root = str(_environment(ctx))
    for child in ctx.path(root + "/include").readdir():
        if child.basename.startswith("mpi") or child.basename == "openmpi":
            ctx.symlink(child, "include/" + child.basename)
    ctx.file("BUILD", """
cc_library(
    name = "mpi",
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
    linkopts = ["-L{lib}", "-lmpi", "-Wl,--disable-new-dtags", "-Wl,-rpath,{lib}"],
    visibility = ["//visibility:public"],
)
""".format(lib = ctx.path(root + "/lib").realpath))

mpi_repository = repository_rule(
    implementation = _mpi_impl,
    environ = ["EQUIPOISE_MPI"],
    local = True,
)
