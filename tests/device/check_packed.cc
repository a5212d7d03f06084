#include "tests/device/check_packed.h"

#include <catch2/catch.hpp>
#include <functional>
#include <memory>

#include "models/weights/gptq_part.h"
#include "models/weights/packed_part.h"
#include "tests/models/model_support.h"

namespace equipoise::testing {
namespace {

// fp16, bf16 and fp32 numbers as their bits, so that -0 is not 0.
at::Tensor BitsOf(const at::Tensor& x) {
  return x.cpu().view(x.scalar_type() == at::kFloat ? at::kInt : at::kShort);
}

}  // namespace

void CheckPackedWeights(int64_t rows, int64_t columns, at::Device device) {
  const at::Tensor matrix = Normal({rows, columns}, 1);
  using Make = std::function<std::shared_ptr<const PackedWeight>(const MatrixPart&, at::Device)>;
  const auto packed = [&](Packing packing) {
    return [&, packing](const MatrixPart& part, at::Device where) {
      return PackedPart(matrix, packing, part, where, "w");
    };
  };
  const GptqMatrix codes = RoundToGptq(matrix, {/*group_size=*/64});
  const std::vector<std::pair<std::string, Make>> forms = {
      {"nf4", packed(Packing::kNf4)},
      {"int8", packed(Packing::kInt8)},
      {"gptq",
       [&](const MatrixPart& part, at::Device where) { return GptqPart(codes, part, where); }}};
  std::vector<MatrixPart> parts = {{-1, 0, {rows, columns}}};
  if (columns % kNf4Block == 0) {
    parts.push_back({0, 1, {rows - 1, columns}});
    for (const int64_t begin : {int64_t{0}, int64_t{13}, columns / 2})
      parts.push_back({1, begin, {rows, columns - begin}});
  }
  for (const auto& [name, make] : forms) {
    for (const MatrixPart& part : parts) {
      const auto here = make(part, at::kCPU), there = make(part, device);
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        INFO(name << " columns " << columns << " dim " << part.dim << " begin " << part.begin
                  << " dtype " << dtype);
        const at::Tensor found = there->Unpacked(dtype);
        CHECK(found.device() == device);
        CHECK(BitsOf(found).equal(BitsOf(here->Unpacked(dtype))));
      }
    }
  }
}

}  // namespace equipoise::testing
