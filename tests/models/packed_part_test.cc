#include "models/weights/packed_part.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <string>

#include "configs/base/error.h"
#include "models/spec/tensor_spec.h"
#include "models/weights/safetensors.h"
#include "parallel/kernels/dynamic_map.h"
#include "tests/skip_case.h"

namespace equipoise {
namespace {

at::Tensor Matrix(int64_t rows, int64_t columns) {
  const at::Tensor index = at::arange(rows * columns, at::kDouble);
  return (index * 0.7).sin().mul(index.remainder(5) + 0.1).to(at::kFloat).view({rows, columns});
}

at::Tensor Whole(const at::Tensor& matrix, Packing packing) {
  return PackedPart(matrix, packing, {-1, 0, matrix.sizes().vec()}, at::kCPU, "w")
      ->Unpacked(at::kFloat);
}

TEST_CASE("NF4 takes the nearest of its 16 values times the block's scale", "[packed][cpu]") {
  const at::Tensor matrix = Matrix(6, 128);
  const Nf4Blocks blocks = QuantizeNf4(matrix);
  const at::Tensor scales = ScalesOf(blocks);
  const at::Tensor exact = matrix.view({-1, kNf4Block}).abs().amax(1);
  CHECK((scales - exact).abs().max().item<double>() < 0.02 * exact.max().item<double>());
  const at::Tensor unpacked = Whole(matrix, Packing::kNf4).view({-1, kNf4Block});
  const std::vector<float>& values = Nf4Values();
  for (int64_t block = 0; block < unpacked.size(0); ++block) {
    for (int64_t i = 0; i < kNf4Block; i += 7) {
      const double x =
          matrix.view({-1, kNf4Block})[block][i].item<double>() / exact[block].item<double>();
      double nearest = values[0];
      for (const float value : values) {
        if (std::abs(value - x) < std::abs(nearest - x)) nearest = value;
      }
      CHECK(unpacked[block][i].item<double>() ==
            Approx(nearest * scales[block].item<double>()).margin(1e-6));
    }
  }
}

TEST_CASE("a block of zeros stays zero", "[packed][cpu]") {
  at::Tensor matrix = Matrix(2, 128);
  matrix[1].zero_();
  // Double quantisation moves the scale of 0 a little; its codes are those of 0.
  CHECK(Whole(matrix, Packing::kNf4)[1].abs().max().item<double>() == 0);
  CHECK(Whole(matrix, Packing::kInt8)[1].abs().max().item<double>() == 0);
}

TEST_CASE("the dynamic map has 256 ascending values between -1 and 1", "[packed][cpu]") {
  const std::vector<float>& values = DynamicMap(/*is_signed=*/true);
  REQUIRE(values.size() == 256);
  CHECK(std::is_sorted(values.begin(), values.end()));
  CHECK(values.front() == Approx(-0.99296875));
  CHECK(values.back() == 1);
  // Of bitsandbytes' create_dynamic_map(), to the bit: bounds that are rounded twice miss these.
  CHECK(values[137] == 0.000381250022F);
  CHECK(values[162] == 0.0198437516F);
  CHECK(values[203] == 0.275781274F);
  CHECK(values[220] == 0.514843702F);
  CHECK(values[234] == 0.711718798F);
  CHECK(values[255 - 203 - 1] == -0.275781274F);
}

TEST_CASE("scales near the middle of two codes take bitsandbytes'", "[packed][cpu]") {
  // A block each; their mean is 2 and the largest less it 1. For all but the first two the nearest
  // codes would be 206, 48, 192, 62, 192, 62, 134, 120, 127.
  const at::Tensor scales = at::tensor({3.0F, 1.0F, 2.3249979F, 1.6750022F, 2.1281223F, 1.8718776F,
                                        2.1140659F, 1.8859342F, 2.0000875F, 1.9999125F, 2.0F});
  const Nf4Blocks blocks = QuantizeNf4(scales.unsqueeze(1).repeat({1, kNf4Block}));
  CHECK(blocks.offset == 2);
  CHECK(blocks.absmax2.item<float>() == 1);
  CHECK(blocks.absmax_codes.equal(
      at::tensor({255, 0, 207, 47, 193, 61, 191, 63, 133, 121, 131}, at::kByte)));
}

TEST_CASE("equal scales take bitsandbytes' code 0", "[packed][cpu]") {
  const Nf4Blocks blocks = QuantizeNf4(at::full({2, kNf4Block}, 1.5));
  CHECK(blocks.absmax_codes.eq(0).all().item<bool>());
  CHECK(ScalesOf(blocks).eq(1.5).all().item<bool>());
}

TEST_CASE("NF4 is bitsandbytes' to the bit", "[packed][cpu]") {
  const char* fixtures = std::getenv("EQUIPOISE_FIXTURES");
  if (fixtures == nullptr) return testing::SkipCase("no fixtures");
  const std::string root = fixtures;
  const SafetensorsReader tables(root + "/quant/tables.safetensors");
  CHECK(tables.Read("nf4").equal(at::tensor(Nf4Values())));
  CHECK(tables.Read("dynamic_signed").equal(at::tensor(DynamicMap(/*is_signed=*/true))));
  const SafetensorsReader matrices(root + "/quant/four_bit.safetensors");
  for (const std::string name : {"gauss", "outliers", "wide_range", "ragged", "edge"}) {
    INFO(name);
    const auto read = [&](const std::string& what) {
      return matrices.Read(name + "|nf4|64|nested." + what);
    };
    const at::Tensor matrix = matrices.Read(name + ".input");
    const Nf4Blocks blocks = QuantizeNf4(matrix);
    // Ours are whole blocks; behind an odd number of elements one nibble is nobody's.
    CHECK(blocks.codes.narrow(0, 0, matrix.numel() / 2)
              .equal(read("packed").flatten().narrow(0, 0, matrix.numel() / 2)));
    CHECK(blocks.absmax_codes.equal(read("absmax_codes").flatten()));
    CHECK(blocks.absmax2.equal(read("absmax2")));
    CHECK(blocks.offset == read("absmax_offset").item<float>());
    CHECK(Whole(matrix, Packing::kNf4).equal(read("dequant")));
  }
  const std::string parity = root + "/parity/";
  const SafetensorsReader base(parity + "llama-mha-untied/model.safetensors");
  const SafetensorsReader packed(parity + "lora-qlora-llama-mha-untied/base_nf4.safetensors");
  for (const auto& [name, entry] : packed.entries()) {
    INFO(name);
    CHECK(Whole(base.Read(name), Packing::kNf4).equal(packed.Read(name)));
  }
}

TEST_CASE("a rank's part has the values of the whole", "[packed][cpu]") {
  const at::Tensor matrix = Matrix(10, 192);
  for (const Packing packing : {Packing::kNf4, Packing::kInt8}) {
    const at::Tensor whole = Whole(matrix, packing);
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const auto rows = PackedPart(matrix, packing, {0, 3, {4, 192}}, at::kCPU, "w");
      CHECK(rows->Unpacked(dtype).equal(whole.narrow(0, 3, 4).to(dtype)));
      for (const auto& [begin, width] : {std::pair{0, 64}, {64, 128}, {48, 80}, {100, 92}}) {
        const auto columns = PackedPart(matrix, packing, {1, begin, {10, width}}, at::kCPU, "w");
        CHECK(columns->Unpacked(dtype).equal(whole.narrow(1, begin, width).to(dtype)));
      }
    }
  }
}

TEST_CASE("rows that are no whole blocks are packed as one, and not split", "[packed][cpu]") {
  const at::Tensor matrix = Matrix(5, 77);
  const at::Tensor whole = Whole(matrix, Packing::kNf4);
  CHECK(whole.sizes() == matrix.sizes());
  CHECK((whole - matrix).abs().max().item<double>() < 0.2 * matrix.abs().max().item<double>());
  CHECK_THROWS_AS(PackedPart(matrix, Packing::kNf4, {0, 0, {2, 77}}, at::kCPU, "w"), ConfigError);
}

TEST_CASE("int8 rounds each row to 127 steps of its largest element", "[packed][cpu]") {
  const at::Tensor matrix = Matrix(4, 64);
  const at::Tensor step = matrix.abs().amax(1, /*keepdim=*/true) / 127;
  const at::Tensor error = (Whole(matrix, Packing::kInt8) - matrix).abs();
  CHECK((error <= 0.5001 * step).all().item<bool>());
}

TEST_CASE("packed weights take the bytes that plans count", "[packed][cpu]") {
  const at::Tensor matrix = Matrix(256, 256);
  const auto nf4 = PackedPart(matrix, Packing::kNf4, {-1, 0, {256, 256}}, at::kCPU, "w");
  CHECK(nf4->bytes() == 256 * 256 / 2 + 1024 + 4 * 4 + 4);
  const auto int8 = PackedPart(matrix, Packing::kInt8, {-1, 0, {256, 256}}, at::kCPU, "w");
  CHECK(int8->bytes() == 256 * 256 + 4 * 256);
  // On two tensor ranks, by outputs and by inputs: then each has the scales of all rows.
  TensorSpec spec;
  spec.shape = {256, 256};
  spec.split = Split::Width(256, "columns");
  spec.packing = Packing::kInt8;
  for (const int dim : {0, 1}) {
    spec.dim = dim;
    const std::vector<int64_t> part =
        dim == 0 ? std::vector<int64_t>{128, 256} : std::vector<int64_t>{256, 128};
    const auto half = PackedPart(matrix, Packing::kInt8, {dim, 0, part}, at::kCPU, "w");
    CHECK(half->bytes() == spec.LargestBytes(2, 2));
  }
}

}  // namespace
}  // namespace equipoise
