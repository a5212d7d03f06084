"""CUDA sources: nvcc compiles them, on machines without a GPU too.

cuda_library links them with CUDA's runtime. cuda_image embeds kernels that the program loads by the
driver when there is one, and links nothing.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@cuda//:found.bzl", "FOUND")

_ARCHITECTURES = ["80", "90", "100"]  # Ampere, Hopper, Blackwell
_PTX = "100"  # kept as well, for what comes later

_FLAGS = [
    "-std=c++20",
    "-O3",
    "--expt-relaxed-constexpr",
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

def _arguments(ctx, context, host):
    arguments = ctx.actions.args()
    arguments.add_all(_FLAGS)
    arguments.add("-ccbin=" + host.compiler_executable)
    arguments.add_all(_include_flags(context))
    return arguments

def _objects_impl(ctx):
    if not FOUND:
        fail("no nvcc; run scripts/setup, or set EQUIPOISE_CUDA to a folder that holds bin/nvcc")
    infos = [dep[CcInfo] for dep in ctx.attr.deps]
    context = cc_common.merge_cc_infos(cc_infos = infos).compilation_context
    host = find_cpp_toolchain(ctx)
    objects = []
    for source in ctx.files.srcs:
        result = ctx.actions.declare_file("%s/%s.o" % (ctx.label.name, source.basename))
        arguments = _arguments(ctx, context, host)
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

_TOOLS = {
    "_nvcc": attr.label(
        default = "@cuda//:nvcc",
        executable = True,
        allow_single_file = True,
        cfg = "host",
    ),
    "_toolkit": attr.label(default = "@cuda//:toolkit"),
    "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
}

_objects = rule(
    implementation = _objects_impl,
    attrs = dict(
        _TOOLS,
        srcs = attr.label_list(allow_files = [".cu"]),
        hdrs = attr.label_list(allow_files = [".h", ".cuh"]),
        deps = attr.label_list(providers = [CcInfo]),
    ),
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

def _fatbin_impl(ctx):
    infos = [dep[CcInfo] for dep in ctx.attr.deps]
    context = cc_common.merge_cc_infos(cc_infos = infos).compilation_context
    host = find_cpp_toolchain(ctx)
    arguments = _arguments(ctx, context, host)
    arguments.add_all(ctx.attr.options)
    arguments.add_all(["-fatbin", "-Xptxas=-v", ctx.file.src, "-o", ctx.outputs.image])
    ctx.actions.run_shell(
        # ptxas says what each kernel uses on stderr.
        command = "log=$1; shift; \"$@\" 2> $log || { cat $log >&2; exit 1; }",
        arguments = [ctx.outputs.log.path, ctx.executable._nvcc.path, arguments],
        inputs = depset(
            [ctx.file.src],
            transitive = [context.headers, host.all_files, ctx.attr._toolkit.files],
        ),
        tools = [ctx.executable._nvcc],
        outputs = [ctx.outputs.image, ctx.outputs.log],
        mnemonic = "Nvcc",
        progress_message = "nvcc " + ctx.file.src.short_path,
        use_default_shell_env = True,
    )

_fatbin = rule(
    implementation = _fatbin_impl,
    attrs = dict(
        _TOOLS,
        src = attr.label(allow_single_file = [".cu"]),
        options = attr.string_list(),
        deps = attr.label_list(providers = [CcInfo]),
        image = attr.output(),
        log = attr.output(),
    ),
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def cuda_image(name, src, function, deps = [], options = []):
    """Kernels for all architectures as bytes, behind a function of name.h; null without nvcc.

    Args:
      name: of the library; name.fatbin has the image, name.ptxas.txt what ptxas says of it.
      src: a .cu file.
      function: declared in name.h as `const void* FUNCTION()`, in namespace equipoise.
      deps: libraries of its headers.
      options: of nvcc, beside those of all.
    """
    declaration = "namespace equipoise { const void* %s(); }" % function
    native.genrule(
        name = name + "_header",
        outs = [name + ".h"],
        cmd = "printf '#pragma once\n%s\n' > $@" % declaration,
    )
    if FOUND:
        _fatbin(
            name = name + "_fatbin",
            src = src,
            image = name + ".fatbin",
            log = name + ".ptxas.txt",
            options = options,
            deps = deps,
        )
        bytes = "od -An -v -tx8 -w32 $< | sed 's/ \\([0-9a-f]\\+\\)/0x\\1,/g'"
        command = "{ echo 'static const unsigned long long kImage[] = {'; %s; echo '};'; }" % bytes
        result = "kImage"
    else:
        command = "true"
        result = "nullptr"
    native.genrule(
        name = name + "_source",
        srcs = [name + ".fatbin"] if FOUND else [],
        outs = [name + ".cc"],
        cmd = "{ %s; echo 'namespace equipoise { const void* %s() { return %s; } }'; } > $@" %
              (command, function, result),
    )
    native.cc_library(
        name = name,
        srcs = [name + ".cc"],
        hdrs = [name + ".h"],
    )
