// The other functions of libcublasLt.so.13 that LibTorch imports: descriptors, which nothing reads.
// Apart, because the header declares their arguments.

#define SUCCEEDS(name) \
  extern "C" int name() { return 0; }

SUCCEEDS(cublasLtMatmulDescCreate)
SUCCEEDS(cublasLtMatmulDescDestroy)
SUCCEEDS(cublasLtMatmulDescSetAttribute)
SUCCEEDS(cublasLtMatmulPreferenceCreate)
SUCCEEDS(cublasLtMatmulPreferenceDestroy)
SUCCEEDS(cublasLtMatmulPreferenceSetAttribute)
SUCCEEDS(cublasLtMatrixLayoutCreate)
SUCCEEDS(cublasLtMatrixLayoutDestroy)
SUCCEEDS(cublasLtMatrixLayoutSetAttribute)
