#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "data/index/cost_index_open.h"
#include "tests/data/data_fixture.h"
#include "tests/trainer/run_python.h"

namespace equipoise {
namespace {

TEST_CASE("shards that may be cut between two members are named at each opening", "[data][cpu]") {
  DataFixture data;
  RunPython("import io, tarfile\nfor shard in '01':\n    with tarfile.open('" + (data.folder / "") +
            "' + shard + '.tar', 'w') as tar:\n"
            "        for i in range(3):\n"
            "            info = tarfile.TarInfo(f'{i}.json')\n"
            "            text = b'{\\\"query\\\": \\\"Q\\\", \\\"response\\\": \\\"A\\\"}'\n"
            "            info.size = len(text)\n"
            "            tar.addfile(info, io.BytesIO(text))\n");
  const std::string whole = ReadWholeFile(data.folder / "1.tar");
  data.folder.Write("1.tar", whole.substr(0, 2 * 1024));
  data.config.train = {{data.folder / "0.tar"}, {data.folder / "1.tar"}};
  auto options = data.options();
  std::vector<std::string> notices;
  options.notice = [&](const std::string& text) { notices.push_back(text); };
  for (size_t opening = 1; opening <= 2; ++opening) {
    CHECK(data.Open(options).size() == 3 + 2);
    REQUIRE(notices.size() == opening);
    CHECK(notices.back().starts_with((data.folder / "1.tar") + ": 1 of 2 shards without"));
  }
  data.folder.Write("1.tar", whole);
  CHECK(data.Open(options).size() == 3 + 3);
  CHECK(notices.size() == 2);
}

}  // namespace
}  // namespace equipoise
