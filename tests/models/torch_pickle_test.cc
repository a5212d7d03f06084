#include "models/weights/torch_pickle.h"

#include <catch2/catch.hpp>
#include <string>

#include "configs/base/error.h"
#include "tests/models/torch_pickles.h"

namespace equipoise {
namespace {

using Catch::Contains;
using Sizes = std::vector<int64_t>;

// A text of fewer than 128 bytes in a pickle.
std::string Text(const std::string& text) {
  return "X" + std::string(1, static_cast<char>(text.size())) + std::string(3, '\0') + text;
}

TEST_CASE("a state_dict's tensors are found, its metadata is not", "[weights][cpu]") {
  const auto tensors = ReadTensorPickle(kStateDict, "a.bin");
  REQUIRE(tensors.size() == 2);
  const PickledTensor& weight = tensors.at("weight");
  CHECK(weight.storage == "0");
  CHECK(weight.dtype == "BF16");
  CHECK(weight.offset == 0);
  CHECK(weight.shape == Sizes{2, 3});
  CHECK(weight.stride == Sizes{3, 1});
  CHECK(tensors.at("bias").storage == "1");
  CHECK(tensors.at("bias").shape == Sizes{2});
}

TEST_CASE("views, parameters and dtypes are told, other values left out", "[weights][cpu]") {
  const auto tensors = ReadTensorPickle(kDictionary, "a.bin");
  REQUIRE(tensors.size() == 4);
  CHECK(tensors.at("x").offset == 4);
  CHECK(tensors.at("x").shape == Sizes{2, 4});
  CHECK(tensors.at("x").storage == tensors.at("p").storage);
  CHECK(tensors.at("p").shape == Sizes{3, 4});
  CHECK(tensors.at("i").dtype == "I64");
  CHECK(tensors.at("h").dtype == "F16");
}

TEST_CASE("a pickle that is cut anywhere is refused", "[weights][cpu]") {
  for (const std::string& whole : {kStateDict, kDictionary}) {
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      INFO(bytes);
      CHECK_THROWS_WITH(ReadTensorPickle(whole.substr(0, bytes), "a.bin"), Contains("a.bin: "));
    }
  }
}

TEST_CASE("other pickles are refused, and call nothing", "[weights][cpu]") {
  const auto refused = [](const std::string& pickle, const char* message) {
    INFO(pickle);
    CHECK_THROWS_WITH(ReadTensorPickle(pickle, "a.bin"), Contains(message));
  };
  refused("cos\nsystem\n(X\4", "damaged");
  // A call of os.system("ls") gives no dictionary; the call is not made.
  refused("cos\nsystem\n(" + Text("ls") + "tR.", "holds no dictionary of tensors");
  refused("(.", "damaged");
  refused(")).", "holds no dictionary of tensors");
  refused("h\1.", "damaged");
  refused("u.", "damaged");
  refused("}(K\1u.", "damaged");
  refused("I1\n.", "its pickle has the operation 0x49");
  // Sizes that are no numbers, or below 0, and other numbers of sizes and strides.
  const std::string tensor = "ctorch._utils\n_rebuild_tensor_v2\n((" + Text("storage") +
                             "ctorch\nFloatStorage\n" + Text("0") + "tQ";
  for (const char* arguments : {"K\1NN", "K\1)K\1\x85", "K\1J\xff\xff\xff\xff\x85)", "N))"})
    refused(tensor + arguments + "tR.", "damaged");
  refused(tensor + "K\1))tR.", "holds no dictionary of tensors");
}

}  // namespace
}  // namespace equipoise
