"""LibTorch, Open MPI and the CUDA toolkit: from .venv, or from where a variable says."""

def _environment(ctx):
    link = ctx.path(Label("//:WORKSPACE")).dirname.get_child(".venv")
    if not link.exists:
        fail("there is no .venv; run scripts/setup")

    # Names the environment: Bazel reads the repositories again when it changes.
    ctx.read(Label("//:.venv/complete"))
    return link.realpath

def _check(ctx, variable, root, path):
    """Refuses a setting that does not hold what it should."""
    if not ctx.path(root + "/" + path).exists:
        where = variable + "=" + root if ctx.os.environ.get(variable) else root
        fail("%s: there is no %s; correct %s or run scripts/setup" % (where, path, variable))

def _torch_impl(ctx):
    root = ctx.os.environ.get("EQUIPOISE_TORCH", "")
    if not root:
        root = str(_environment(ctx)) + "/lib/python3.11/site-packages/torch"
    _check(ctx, "EQUIPOISE_TORCH", root, "include/ATen/core/Tensor.h")
    _check(ctx, "EQUIPOISE_TORCH", root, "lib/libtorch_cpu.so")
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
    _check(ctx, "EQUIPOISE_MPI", root, "include/mpi.h")
    _check(ctx, "EQUIPOISE_MPI", root, "lib/libmpi.so")
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

def _cuda_impl(ctx):
    root = ctx.os.environ.get("EQUIPOISE_CUDA", "")
    if root:
        _check(ctx, "EQUIPOISE_CUDA", root, "bin/nvcc")
    else:
        root = str(_environment(ctx)) + "/lib/python3.11/site-packages/nvidia/cu13"

    # A machine without nvcc still builds everything that is not CUDA.
    found = ctx.path(root + "/bin/nvcc").exists
    ctx.file("found.bzl", "FOUND = %s\n" % found)
    if not found:
        ctx.file("nvcc", "#!/bin/sh\nexit 1\n")
        ctx.file("BUILD", """
exports_files(["nvcc"])
filegroup(name = "toolkit", visibility = ["//visibility:public"])
cc_library(name = "headers", visibility = ["//visibility:public"])
cc_library(name = "runtime", visibility = ["//visibility:public"])
""")
        return
    for folder in ["bin", "include", "nvvm"]:
        ctx.symlink(root + "/" + folder, folder)
    lib = root + ("/lib64" if ctx.path(root + "/lib64").exists else "/lib")
    runtime = [
        file.basename
        for file in ctx.path(lib).readdir()
        if file.basename.startswith("libcudart.so")
    ]
    if not runtime:
        fail(lib + ": there is no libcudart.so")
    ctx.file("BUILD", """
alias(name = "nvcc", actual = "bin/nvcc", visibility = ["//visibility:public"])

filegroup(
    name = "toolkit",
    srcs = glob(["bin/**", "nvvm/**", "include/**"]),
    visibility = ["//visibility:public"],
)

cc_library(
    name = "headers",
    hdrs = glob(["include/**"]),
    includes = ["include"],
    visibility = ["//visibility:public"],
)

cc_library(
    name = "runtime",
    deps = [":headers"],
    linkopts = [
        "-L{lib}",
        "-l:{runtime}",
        "-Wl,--disable-new-dtags",
        "-Wl,-rpath,{lib}",
    ],
    visibility = ["//visibility:public"],
)
""".format(lib = ctx.path(lib).realpath, runtime = sorted(runtime)[0]))

cuda_repository = repository_rule(
    implementation = _cuda_impl,
    environ = ["EQUIPOISE_CUDA"],
    local = True,
)

# Arrow and Parquet, which PyPI's pyarrow brings with their headers; the library links them alone
# that is opened when a Parquet file is read.
def _arrow_impl(ctx):
    root = str(_environment(ctx)) + "/lib/python3.11/site-packages/pyarrow"
    libraries = []
    if ctx.path(root + "/include").exists:
        libraries = [
            file.basename
            for file in ctx.path(root).readdir()
            if file.basename.startswith(("libarrow.so.", "libparquet.so."))
        ]
    found = len(libraries) == 2
    ctx.file("found.bzl", "FOUND = %s\n" % found)
    if not found:
        ctx.file("BUILD", "")
        return
    for folder in ["arrow", "parquet"]:
        ctx.symlink(root + "/include/" + folder, "include/" + folder)
    ctx.file("BUILD", """
cc_library(
    name = "parquet",
    hdrs = glob(["include/**/*.h"]),
    includes = ["include"],
    linkopts = [
        "-L{root}",
        "-l:{parquet}",
        "-l:{arrow}",
        "-Wl,--disable-new-dtags",
        "-Wl,-rpath,{root}",
    ],
    visibility = ["//visibility:public"],
)
""".format(root = ctx.path(root).realpath, arrow = min(libraries), parquet = max(libraries)))

arrow_repository = repository_rule(
    implementation = _arrow_impl,
    local = True,
)

# NCCL's header alone, by which a test checks parallel/comm/nccl_api.h: the library is opened at run
# time.
def _nccl_impl(ctx):
    root = str(_environment(ctx)) + "/lib/python3.11/site-packages/nvidia/nccl"
    found = ctx.path(root + "/include/nccl.h").exists
    ctx.file("found.bzl", "FOUND = %s\n" % found)
    if found:
        ctx.symlink(root + "/include/nccl.h", "include/nccl.h")
    ctx.file("BUILD", """
cc_library(
    name = "headers",
    hdrs = glob(["include/*.h"], allow_empty = True),
    includes = ["include"],
    visibility = ["//visibility:public"],
)
""")

nccl_repository = repository_rule(
    implementation = _nccl_impl,
    local = True,
)
