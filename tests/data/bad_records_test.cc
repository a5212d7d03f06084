#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

#include "data/loading/loader.h"
#include "tests/data/data_fixture.h"

namespace equipoise {
namespace {

TEST_CASE("too many bad records stop the run with counts and examples", "[data][cpu]") {
  DataFixture data;
  auto lines = DataFixture::MixedLines(10);
  lines[4] = "{}";
  lines[8] = "[1]";
  data.WriteRecords(lines);
  data.config.max_bad_share = 0.2;
  CHECK(data.Open().CountDefects()[0] == 8);
  data.config.max_bad_share = 0.19;
  const std::string message = MessageOf([&] { data.Open(); });
  CHECK(message.find("2 of 10 records") != std::string::npos);
  CHECK(message.find("1 bad_json, 1 bad_field") != std::string::npos);
  // The reason of the first.
  CHECK(message.find("train.jsonl:5 (bad_field: there is no conversation: none of") !=
        std::string::npos);
  CHECK(message.find("train.jsonl:9 (bad_json); see all") != std::string::npos);
}

TEST_CASE("records that are too long for data.max_tokens are told with theirs", "[data][cpu]") {
  DataFixture data;
  data.WriteRecords({RecordLine("a", "\"wide.png\"", "<image>\nWhat?", "A"),
                     RecordLine("b", "", std::string(300, 'q'), "B"), "{}"});
  data.config.max_bad_share = 1;
  data.config.max_tokens = 400;
  const CostIndex index = data.Open();
  data.config.max_bad_share = 0;
  data.config.max_tokens = 16;
  const auto words = fmt::format("max_tokens is 16, and 2 of them have {} to {} tokens",
                                 index[0].tokens, index[1].tokens);
  CHECK_THAT(MessageOf([&] { data.Open(); }), Catch::Contains(words));
  data.WriteRecords({RecordLine("b", "", std::string(300, 'q'), "B"), "{}", "{}"});
  CHECK(MessageOf([&] { data.Open(); }).find("data.max_tokens is") == std::string::npos);
}

TEST_CASE("a record that is too long shows that where it is read again", "[data][cpu]") {
  DataFixture data;
  data.config.limits.record_bytes = 1000;
  data.config.max_bad_share = 0.5;
  data.WriteRecords(
      {RecordLine("a", "", "Q", "A"), RecordLine("b", "", std::string(4000, 'q'), "A")});
  const CostIndex index = data.Open();
  const Dataset dataset(data.config.train, data.sample_options(), &index, &data.chat_template);
  CHECK(dataset.Check(0).defect == Defect::kNone);
  const ScannedSample checked = dataset.Check(1);
  CHECK(checked.defect == Defect::kLineTooLong);
  CHECK(checked.reason == "the record is longer than data.limits.record_bytes");
}

TEST_CASE("records are looked at again before a cached index refuses them", "[data][cpu]") {
  DataFixture data;
  auto lines = DataFixture::MixedLines(8);
  lines[2] = RecordLine("late", "\"late.png\"", "Q", "A");
  data.WriteRecords(lines);
  data.config.max_bad_share = 0.1;
  CHECK(MessageOf([&] { data.Open(); }).find("1 of 8 records") != std::string::npos);
  data.folder.Write("images/late.png", TinyPng(14, 14));
  CHECK(data.Open().CountDefects()[0] == 8);
}

}  // namespace
}  // namespace equipoise
