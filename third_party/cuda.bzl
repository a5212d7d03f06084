"""cc_library of CUDA sources: nvcc compiles each .cu file, on machines without a GPU too."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@cuda//:found.bzl", "FOUND")

_ARCHITECTURES = ["80", "90", "100"]  # Ampere, Hopper, Blackwell
_PTX = "100"  # kept as well, for what comes later

_FLAGS = [
    "-std=c++20",
    "-O3",
    "--Werror=all-warnings",
    "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror",
    "--generate-code=arch=compute_{0},code=compute_{0}".format(_PTX),
] + ["--generate-code=arch=compute_{0},code=sm_{0}".format(a) for a in _ARCHITECTURES]

def _include_flags(context):
    flags = ["-D" + define for define in context.defines.to_list()]
    quoted = ["."] + context.quote_includes.to_list()
    flags += ["-I" + folder for folder in quoted]  # nvcc has no -iquote
    folders = context.includes.to_list() + context.system_includes.to_list()
    return flags + ["-isystem=" + folder for folder in folders]

def _objects_impl(ctx):
    if not FOUND:
        fail("no nvcc; run scripts/setup, or set EQUIPOISE_CUDA to a folder that holds bin/nvcc")
    infos = [dep[CcInfo] for dep in ctx.attr.deps]
    context = cc_common.merge_cc_infos(cc_infos = infos).compilation_context
    host = find_cpp_toolchain(ctx)
    objects = []
    for source in ctx.files.srcs:
        result = ctx.actions.declare_file("%s/%s.o" % (ctx.label.name, source.basename))
        arguments = ctx.actions.args()
        arguments.add_all(_FLAGS)
        arguments.add("-ccbin=" + host.compiler_executable)
        arguments.add_all(_include_flags(context))
        arguments.add_all(["-c", source, "-o", result])
        ctx.actions.run(
            executable = ctx.executable._nvcc,
            arguments = [arguments],
            inputs = depset(
                [source] + ctx.files.hdrs,
                transitive = [context.headers, host.all_files, ctx.attr._toolkit.files],
            ),
            outputs = [result],
            mnemonic = "Nvcc",
            progress_message = "nvcc " + source.short_path,
            use_default_shell_env = True,  # nvcc looks for the host's tools in PATH
        )
        objects.append(result)
    return [DefaultInfo(files = depset(objects))]

_objects = rule(
    implementation = _objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "_nvcc": attr.label(
            default = "@cuda//:nvcc",
            executable = True,
            allow_single_file = True,
            cfg = "host",
        ),
        "_toolkit": attr.label(default = "@cuda//:toolkit"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def cuda_library(name, srcs, hdrs = [], deps = [], **kwargs):
    _objects(
        name = name + "_objects",
        srcs = srcs,
        hdrs = hdrs,
        deps = deps + ["@cuda//:runtime"],
        testonly = kwargs.get("testonly", False),
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = [":%s_objects" % name],
        hdrs = hdrs,
        deps = deps + ["@cuda//:runtime"],
        **kwargs
    )
