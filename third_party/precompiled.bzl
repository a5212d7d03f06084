"""cc_library, cc_binary and cc_test that begin with a precompiled header.

Reading the headers of LibTorch and of the standard library is most of the time to compile a file.
GCC reads them once (precompiled_header) and starts each file from there, where its flags are those
of the header; where they differ it reads the header as text.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

_TORCH = "@torch//:torch_cpu"

# Warnings that GCC 12 gives wrongly within std::string, and hides only in system headers that it
# reads as text.
_NO_WARNINGS = [
    "-Wno-array-bounds",
    "-Wno-restrict",
    "-Wno-stringop-overflow",
    "-Wno-stringop-overread",
]

def _precompiled_header_impl(ctx):
    host = find_cpp_toolchain(ctx)
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = host,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )

    # A copy of another name beside the result: the header itself would be found before it.
    name = ctx.file.header.basename.replace(".h", "_precompiled.h")
    text = ctx.actions.declare_file(name)
    ctx.actions.expand_template(template = ctx.file.header, output = text, substitutions = {})
    result = ctx.actions.declare_file(name + ".gch")
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = host,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts,
        include_directories = context.includes,
        quote_include_directories = context.quote_includes,
        system_include_directories = context.system_includes,
        preprocessor_defines = context.defines,
    )
    flags = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = variables,
    )
    ctx.actions.run(
        executable = host.compiler_executable,
        arguments = flags + ["-w", "-iquote", "."] +
                    ["-x", "c++-header", text.path, "-o", result.path],
        inputs = depset(
            [text] + ctx.files.included,
            transitive = [context.headers, host.all_files],
        ),
        outputs = [result],
        mnemonic = "PrecompileHeader",
        progress_message = "precompiling " + ctx.file.header.short_path,
        execution_requirements = {"no-sandbox": "1"},  # as of compilations: .bazelrc
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
    )
    own = cc_common.create_compilation_context(
        headers = depset([text, result] + ctx.files.included),
    )
    return [CcInfo(compilation_context = own)]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "header": attr.label(allow_single_file = [".h"]),
        "included": attr.label_list(allow_files = [".h"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def _begun(deps, copts, kwargs):
    name = "torch" if _TORCH in deps else "standard"
    path = "third_party/precompiled/%s_precompiled.h" % name
    kwargs["deps"] = deps + select({
        "//third_party/precompiled:used": ["//third_party/precompiled:" + name],
        "//conditions:default": [],
    })
    kwargs["copts"] = copts + select({
        "//third_party/precompiled:used": _NO_WARNINGS + ["-include", path],
        "//conditions:default": [],
    })
    return kwargs

def cc_library(deps = [], copts = [], **kwargs):
    native.cc_library(**_begun(deps, copts, kwargs))

def cc_binary(deps = [], copts = [], **kwargs):
    native.cc_binary(**_begun(deps, copts, kwargs))

def cc_test(deps = [], copts = [], **kwargs):
    native.cc_test(**_begun(deps, copts, kwargs))
