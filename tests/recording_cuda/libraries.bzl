"""The recording libraries, in the order in which a process is to preload them."""

RECORDING_LIBRARIES = [
    "//tests/recording_cuda:" + name
    for name in [
        "libcuda.so.1",
        "libnvidia-ml.so.1",
        "libcudart.so.13",
        "libcublasLt.so.13",
        "libcublas.so.13",
    ]
]
