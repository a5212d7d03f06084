// Storages that lie in host memory for a while.

#include "models/stages/offloaded_activations.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

namespace equipoise {
namespace {

TEST_CASE("storages are emptied and filled again", "[models][cpu]") {
  const at::Tensor x = at::randn({64, 32}), copy = x.clone();
  const at::Tensor view = x.narrow(1, 8, 8), others = at::randn({64, 32}), small = at::randn({4});
  const at::Tensor kept = others.clone();
  OffloadedActivations offloaded({x, view, others.narrow(0, 0, 2), small}, {others});
  CHECK(offloaded.bytes() == 64 * 32 * 4);
  CHECK(x.equal(copy));
  offloaded.Release();
  CHECK(x.storage().data() == nullptr);
  CHECK(others.equal(kept));
  CHECK(small.storage().data() != nullptr);
  offloaded.Release();
  offloaded.Return();
  offloaded.Return();
  offloaded.Wait();
  CHECK(x.equal(copy));
  CHECK(view.equal(copy.narrow(1, 8, 8)));
  offloaded.Release();
  CHECK(x.equal(copy));
}

TEST_CASE("what comes back before it has left stays where it is", "[models][cpu]") {
  const at::Tensor x = at::randn({64, 32}), copy = x.clone();
  const void* const data = x.const_data_ptr();
  OffloadedActivations offloaded({x}, {});
  offloaded.Return();
  offloaded.Release();
  offloaded.Wait();
  CHECK(x.const_data_ptr() == data);
  CHECK(x.equal(copy));
}

}  // namespace
}  // namespace equipoise
