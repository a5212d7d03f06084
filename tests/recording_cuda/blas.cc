// A recording libcublas.so.13: a product is a launch under the function's name. See runtime.cc.

#include <cstdlib>

#include "tests/recording_cuda/recording.h"

// Arguments are not read, so none are declared.
#define SUCCEEDS(name) \
  extern "C" int name() { return 0; }
#define LAUNCHES(name)          \
  extern "C" int name() {       \
    RecordingCudaLaunch(#name); \
    return 0;                   \
  }

extern "C" int cublasCreate_v2(void** handle) {
  *handle = std::malloc(64);
  return 0;
}

extern "C" int cublasDestroy_v2(void* handle) {
  std::free(handle);
  return 0;
}

extern "C" int cublasGetMathMode(void*, int* mode) {
  *mode = 0;
  return 0;
}

extern "C" int cublasGetPointerMode_v2(void*, int* mode) {
  *mode = 0;
  return 0;
}

LAUNCHES(cublasCdotc_v2)
LAUNCHES(cublasCdotu_v2)
LAUNCHES(cublasCgelsBatched)
LAUNCHES(cublasCgemmStridedBatched)
LAUNCHES(cublasCgemm_v2)
LAUNCHES(cublasCgemv_v2)
LAUNCHES(cublasCgeqrfBatched)
LAUNCHES(cublasCgetrfBatched)
LAUNCHES(cublasCgetrsBatched)
LAUNCHES(cublasCtrsmBatched)
LAUNCHES(cublasCtrsm_v2)
LAUNCHES(cublasDdot_v2)
LAUNCHES(cublasDgelsBatched)
LAUNCHES(cublasDgemmStridedBatched)
LAUNCHES(cublasDgemm_v2)
LAUNCHES(cublasDgemv_v2)
LAUNCHES(cublasDgeqrfBatched)
LAUNCHES(cublasDgetrfBatched)
LAUNCHES(cublasDgetrsBatched)
LAUNCHES(cublasDotEx)
LAUNCHES(cublasDtrsmBatched)
LAUNCHES(cublasDtrsm_v2)
LAUNCHES(cublasGemmEx)
LAUNCHES(cublasGemmStridedBatchedEx)
LAUNCHES(cublasSdot_v2)
SUCCEEDS(cublasSetMathMode)
SUCCEEDS(cublasSetPointerMode_v2)
SUCCEEDS(cublasSetStream_v2)
SUCCEEDS(cublasSetWorkspace_v2)
LAUNCHES(cublasSgelsBatched)
LAUNCHES(cublasSgemmEx)
LAUNCHES(cublasSgemmStridedBatched)
LAUNCHES(cublasSgemm_v2)
LAUNCHES(cublasSgemv_v2)
LAUNCHES(cublasSgeqrfBatched)
LAUNCHES(cublasSgetrfBatched)
LAUNCHES(cublasSgetrsBatched)
LAUNCHES(cublasStrsmBatched)
LAUNCHES(cublasStrsm_v2)
LAUNCHES(cublasZdotc_v2)
LAUNCHES(cublasZdotu_v2)
LAUNCHES(cublasZgelsBatched)
LAUNCHES(cublasZgemmStridedBatched)
LAUNCHES(cublasZgemm_v2)
LAUNCHES(cublasZgemv_v2)
LAUNCHES(cublasZgeqrfBatched)
LAUNCHES(cublasZgetrfBatched)
LAUNCHES(cublasZgetrsBatched)
LAUNCHES(cublasZtrsmBatched)
LAUNCHES(cublasZtrsm_v2)
