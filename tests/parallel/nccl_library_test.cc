// The table filled from the real libraries; with a GPU, a world of one rank on it.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <glob.h>
#include <link.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <thread>

#include "configs/base/error.h"
#include "parallel/comm/mpi_environment.h"
#include "parallel/comm/nccl_api.h"
#include "tests/skip_case.h"
#include "trainer/device/compute_device.h"

namespace equipoise {
namespace {

// The first file of the packages that pip has put beside LibTorch's, whatever the version of Python
// and wherever they are: a pattern behind `nvidia/`. Empty: there is none.
std::string FromPackages(const std::string& pattern) {
  void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  const link_map* loaded = nullptr;
  if (torch == nullptr || dlinfo(torch, RTLD_DI_LINKMAP, &loaded) != 0) return "";
  const auto library = std::filesystem::canonical(loaded->l_name);  // torch/lib/libtorch_cpu.so
  const auto packages = library.parent_path().parent_path().parent_path();
  glob_t found{};
  const int status = glob((packages / "nvidia" / pattern).c_str(), 0, nullptr, &found);
  const std::string first = status == 0 ? found.gl_pathv[0] : "";
  globfree(&found);
  return first;
}

// With CUDA's runtime, which LibTorch's library for GPUs has opened where there is one, and which
// not every machine without a GPU has in its own folders.
NcclApi LoadFromPackages() {
  dlopen(FromPackages("*/lib/libcudart.so.1*").c_str(), RTLD_NOW | RTLD_GLOBAL);
  return LoadNcclApi(FromPackages("nccl/lib/libnccl.so.2"));
}

TEST_CASE("a library that is absent or another is refused by name", "[comm]") {
  CHECK_THROWS_WITH(LoadNcclApi("/no/such/libnccl.so.2"),
                    Catch::Contains("parallel.nccl: /no/such/libnccl.so.2: cannot open"));
  CHECK_THROWS_WITH(LoadNcclApi("libc.so.6"), Catch::Contains("parallel.nccl: "));
  CHECK_THROWS_AS(LoadNcclApi("libc.so.6"), ConfigError);
}

TEST_CASE("a library that the process has loaded comes before others", "[comm]") {
  constexpr char kNotLoaded[] = "libBrokenLocale.so.1";  // one of glibc's
  REQUIRE(dlopen(kNotLoaded, RTLD_NOW | RTLD_NOLOAD) == nullptr);
  CHECK(OpenLibrary({kNotLoaded, "libc.so.6"}).name == "libc.so.6");
  CHECK(OpenLibrary({"/no/such/library", "libc.so.6"}).name == "libc.so.6");
  if (std::filesystem::exists("/lib/x86_64-linux-gnu/libBrokenLocale.so.1"))
    CHECK(OpenLibrary({kNotLoaded, "/no/such/library"}).name == kNotLoaded);
}

TEST_CASE("NCCL's own library fills the table", "[comm]") {
  if (FromPackages("nccl/lib/libnccl.so.2").empty()) {
    return testing::SkipCase("no NCCL beside LibTorch");
  }
  const NcclApi api = LoadFromPackages();
  int version = 0;
  REQUIRE(api.version(&version) == 0);
  CHECK(version >= 22800);
  CHECK(std::string(api.error_text(5)).find("invalid usage") != std::string::npos);
}

TEST_CASE("a rank alone on a GPU sums, gathers, sends to itself", "[comm][gpu]") {
  const MpiEnvironment alone;
  at::Device device = at::kCPU;
  try {
    device = OpenComputeDevice("cuda", alone);
  } catch (const ConfigError& error) {
    return testing::SkipCase(error.what());
  }
  const NcclApi api = LoadFromPackages();
  const CudaApi& cuda = api.cuda;

  constexpr int kCount = 1000;
  constexpr size_t kBytes = kCount * sizeof(float);
  const at::Tensor from = at::arange(kCount, at::TensorOptions(device).dtype(at::kFloat));
  const at::Tensor to = at::zeros_like(from);
  void *host = nullptr, *stream = nullptr, *event = nullptr, *comm = nullptr;
  cuda.Check(cuda.host_alloc(&host, kBytes, 0), "cudaHostAlloc");
  cuda.Check(cuda.stream_create(&stream, CudaApi::kNonBlockingStream), "cudaStreamCreate");
  cuda.Check(cuda.event_create(&event, CudaApi::kEventWithoutTiming), "cudaEventCreate");
  NcclUniqueId id;
  api.Check(api.new_id(&id), "ncclGetUniqueId");
  api.Check(api.init(&comm, 1, id, 0), "ncclCommInitRank");
  void *in = from.data_ptr(), *out = to.data_ptr();
  const auto run = [&](float value, auto call) {
    from.add_(value - from[0].item<float>());
    cuda.Check(cuda.stream_synchronize(cuda.compute_stream()), "cudaStreamSynchronize");
    api.Check(api.group_start(), "ncclGroupStart");
    api.Check(call(), "call");
    api.Check(api.group_end(), "ncclGroupEnd");
    cuda.Check(cuda.event_record(event, stream), "cudaEventRecord");
    int state = CudaApi::kNotReady;
    while ((state = cuda.event_query(event)) == CudaApi::kNotReady) std::this_thread::yield();
    cuda.Check(state, "cudaEventQuery");
  };
  const auto check = [&](float value, auto call) {
    to.zero_();
    run(value, call);
    CHECK(to.equal(from));
    CHECK(to[kCount - 1].item<float>() == value + kCount - 1);
  };
  constexpr int kType = NcclApi::kFloat32;
  check(1, [&] { return api.all_reduce(in, out, kCount, kType, NcclApi::kSum, comm, stream); });
  check(2, [&] { return api.reduce_scatter(in, out, kCount, kType, NcclApi::kSum, comm, stream); });
  check(3, [&] { return api.all_gather(in, out, kCount, kType, comm, stream); });
  check(4, [&] { return api.broadcast(in, out, kCount, kType, 0, comm, stream); });
  check(5, [&] {
    const int error = api.send(in, kCount, kType, 0, comm, stream);
    return error != 0 ? error : api.receive(out, kCount, kType, 0, comm, stream);
  });
  run(6, [&] { return cuda.copy(host, in, kBytes, CudaApi::kDeviceToHost, stream); });
  CHECK(static_cast<const float*>(host)[kCount - 1] == 6 + kCount - 1);
  int error = -1;
  CHECK(api.async_error(comm, &error) == 0);
  CHECK(error == 0);
  CHECK(api.destroy(comm) == 0);
  cuda.event_destroy(event);
  cuda.stream_destroy(stream);
  cuda.host_free(host);
}

}  // namespace
}  // namespace equipoise
