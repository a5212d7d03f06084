"""clang-tidy as a Bazel action for each source file: files that did not change are not read again.

bazel build --aspects=//third_party:lint.bzl%tidy --output_groups=tidy //...
"""

_SOURCES = ["cc", "cpp"]

def _flags(context):
    flags = ["-std=c++20", "-x", "c++", "-Wno-everything"]
    defines = context.defines.to_list() + context.local_defines.to_list()
    flags += ["-D" + define for define in defines]
    flags += ["-iquote" + folder for folder in context.quote_includes.to_list()]
    flags += ["-I" + folder for folder in context.includes.to_list()]
    for folder in context.system_includes.to_list():
        flags += ["-isystem", folder]
    return flags

def _tidy_impl(target, ctx):
    if target.label.workspace_name or CcInfo not in target or not hasattr(ctx.rule.attr, "srcs"):
        return []
    context = target[CcInfo].compilation_context
    stamps = []
    for source in ctx.rule.files.srcs:
        if source.extension not in _SOURCES or not source.is_source:
            continue
        stamp = ctx.actions.declare_file("%s.%s.tidy" % (target.label.name, source.basename))
        arguments = ctx.actions.args()
        arguments.add_all([stamp, ctx.file._config, source])
        arguments.add_all(_flags(context))
        arguments.add_all([flag for flag in ctx.rule.attr.copts if flag.startswith("-D")])
        ctx.actions.run(
            executable = ctx.executable._run,
            arguments = [arguments],
            inputs = depset([source, ctx.file._config], transitive = [context.headers]),
            outputs = [stamp],
            mnemonic = "ClangTidy",
            progress_message = "clang-tidy " + source.short_path,
            # LibTorch has 9,000 headers: linking each into a sandbox costs more than the check.
            execution_requirements = {"no-sandbox": "1"},
        )
        stamps.append(stamp)
    return [OutputGroupInfo(tidy = depset(stamps))]

tidy = aspect(
    implementation = _tidy_impl,
    attrs = {
        "_config": attr.label(default = "//:.clang-tidy", allow_single_file = True),
        "_run": attr.label(
            default = "//third_party:clang_tidy",
            executable = True,
            cfg = "host",
        ),
    },
)
