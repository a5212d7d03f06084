// The table filled from the real libraries; with a GPU, a world of one rank on it.
#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <thread>

#include "configs/base/error.h"
#include "parallel/comm/nccl_api.h"
#include "tests/skip_case.h"

namespace equipoise {
namespace {

// The folder of the Python environment's packages; empty: there is none.
std::string Packages() {
  const char* python = std::getenv("EQUIPOISE_PYTHON");
  if (python == nullptr) return "";
  const std::string text(python);
  return text.substr(0, text.rfind("/bin/")) + "/lib/python3.11/site-packages";
}

// With CUDA's runtime, which LibTorch's library for GPUs has opened where there is one, and which
// not every machine without a GPU has in its own folders.
NcclApi LoadFromPackages() {
  dlopen((Packages() + "/nvidia/cu13/lib/libcudart.so.13").c_str(), RTLD_NOW | RTLD_GLOBAL);
  return LoadNcclApi(Packages() + "/nvidia/nccl/lib/libnccl.so.2");
}

TEST_CASE("a library that is absent or another is refused by name", "[comm]") {
  CHECK_THROWS_WITH(LoadNcclApi("/no/such/libnccl.so.2"),
                    Catch::Contains("parallel.nccl: /no/such/libnccl.so.2: cannot open"));
  CHECK_THROWS_WITH(LoadNcclApi("libc.so.6"), Catch::Contains("parallel.nccl: "));
  CHECK_THROWS_AS(LoadNcclApi("libc.so.6"), ConfigError);
}

TEST_CASE("NCCL's own library fills the table", "[comm]") {
  if (Packages().empty()) return testing::SkipCase("no environment");
  const NcclApi api = LoadFromPackages();
  int version = 0;
  REQUIRE(api.version(&version) == 0);
  CHECK(version >= 22800);
  CHECK(std::string(api.error_text(5)).find("invalid usage") != std::string::npos);
}

// Pinned memory stands for the GPU's: NCCL and CUDA reach it all the same.
TEST_CASE("a rank alone on a GPU sums, gathers, sends to itself", "[comm][gpu]") {
  if (Packages().empty()) return testing::SkipCase("no environment");
  const NcclApi api = LoadFromPackages();
  const CudaApi& cuda = api.cuda;
  int devices = 0;
  if (cuda.device_count(&devices) != 0 || devices == 0) return testing::SkipCase("no GPU");

  constexpr int kCount = 1000;
  void *in = nullptr, *out = nullptr, *stream = nullptr, *event = nullptr, *comm = nullptr;
  cuda.Check(cuda.set_device(0), "cudaSetDevice");
  cuda.Check(cuda.host_alloc(&in, kCount * sizeof(float), 0), "cudaHostAlloc");
  cuda.Check(cuda.host_alloc(&out, kCount * sizeof(float), 0), "cudaHostAlloc");
  cuda.Check(cuda.stream_create(&stream, CudaApi::kNonBlockingStream), "cudaStreamCreate");
  cuda.Check(cuda.event_create(&event, CudaApi::kEventWithoutTiming), "cudaEventCreate");
  NcclUniqueId id;
  api.Check(api.new_id(&id), "ncclGetUniqueId", nullptr);
  api.Check(api.init(&comm, 1, id, 0), "ncclCommInitRank", nullptr);
  const auto from = static_cast<float*>(in), to = static_cast<float*>(out);
  const auto run = [&](float value, auto call) {
    for (int i = 0; i < kCount; ++i) from[i] = value + static_cast<float>(i);
    api.Check(api.group_start(), "ncclGroupStart", nullptr);
    api.Check(call(), "call", comm);
    api.Check(api.group_end(), "ncclGroupEnd", comm);
    cuda.Check(cuda.event_record(event, stream), "cudaEventRecord");
    int state = CudaApi::kNotReady;
    while ((state = cuda.event_query(event)) == CudaApi::kNotReady) std::this_thread::yield();
    cuda.Check(state, "cudaEventQuery");
    CHECK(to[0] == value);
    CHECK(to[kCount - 1] == value + kCount - 1);
  };
  constexpr int kType = NcclApi::kFloat32;
  run(1, [&] { return api.all_reduce(in, out, kCount, kType, NcclApi::kSum, comm, stream); });
  run(2, [&] { return api.reduce_scatter(in, out, kCount, kType, NcclApi::kSum, comm, stream); });
  run(3, [&] { return api.all_gather(in, out, kCount, kType, comm, stream); });
  run(4, [&] { return api.broadcast(in, out, kCount, kType, 0, comm, stream); });
  run(5, [&] {
    const int error = api.send(in, kCount, kType, 0, comm, stream);
    return error != 0 ? error : api.receive(out, kCount, kType, 0, comm, stream);
  });
  run(6,
      [&] { return cuda.copy(out, in, kCount * sizeof(float), CudaApi::kDeviceToHost, stream); });
  int error = -1;
  CHECK(api.async_error(comm, &error) == 0);
  CHECK(error == 0);
  CHECK(api.destroy(comm) == 0);
  cuda.event_destroy(event);
  cuda.stream_destroy(stream);
  cuda.host_free(in);
  cuda.host_free(out);
}

}  // namespace
}  // namespace equipoise
