"""Native C++ rules under the name that other rule sets load them from.

Debian's bazel-rules-cc does not load in Bazel 4.2.3; the native rules do all that is needed.
"""

cc_library = native.cc_library
cc_binary = native.cc_binary
cc_test = native.cc_test
cc_import = native.cc_import
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
