#include "trainer/settings/source_lists.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <utility>

#include "configs/base/error.h"
#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

std::vector<SourceConfig> Expanded(const SourceConfig& source) {
  std::vector<SourceConfig> sources = {source};
  ExpandSources(sources);
  return sources;
}

TEST_CASE("a range of numbers stands for its files", "[settings][cpu]") {
  const auto shards = Expanded({"a/{008..011}.tar", "x", 0.5});
  REQUIRE(shards.size() == 4);
  CHECK(shards[0].annotations == "a/008.tar");
  CHECK(shards[3].annotations == "a/011.tar");
  CHECK(shards[3].images == "x");
  CHECK(shards[3].repeat == 0.5);
  CHECK(shards[0].files == 4);
  CHECK(shards[3].files == 0);
  const auto given = WithRanges(shards);
  REQUIRE(given.size() == 1);
  CHECK(given[0].annotations == "a/{008..011}.tar");
  CHECK(WithRanges(Expanded({"a/b.jsonl", "x", 1}))[0].annotations == "a/b.jsonl");
  CHECK(Expanded({"a/b.jsonl", "x", 1})[0].annotations == "a/b.jsonl");
  CHECK(Expanded({"{9..10}.jsonl", "x", 1})[1].annotations == "10.jsonl");
  for (const char* bad : {"{5..2}.tar", "{a..c}.tar", "{0..99999}.tar", "{..}.tar"}) {
    INFO(bad);
    CHECK_THROWS_WITH(Expanded({bad, ".", 1}), Catch::Contains("is no range of files"));
  }
}

TEST_CASE("a source without a file of records is the configuration's fault", "[settings][cpu]") {
  const ScratchFolder scratch;
  const std::string path = scratch.Path("bad.yaml");
  for (const auto& [section, list] :
       {std::pair("data", "train"), std::pair("data", "eval"), std::pair("eval", "answers")}) {
    WriteText(path, fmt::format("{}: {{{}: [{{annotations: a.jsonl}}, {{images: x}}]}}\n", section,
                                list));
    CHECK_THROWS_AS(ReadRunConfig(path, {}), ConfigError);
    CHECK_THROWS_WITH(
        ReadRunConfig(path, {}),
        fmt::format("{}.{}.1.annotations: is missing; give a file of records", section, list));
  }
}

TEST_CASE("held-out records are used once each", "[settings][cpu]") {
  const ScratchFolder scratch;
  const std::string path = scratch.Path("a.yaml"), meta = scratch.Path("meta.json");
  const auto read = [&](const char* section, const char* list, const std::string& source) {
    WriteText(path, fmt::format("{}: {{{}: [{{annotations: {}}}]}}\n", section, list, source));
    return ReadRunConfig(path, {});
  };
  CHECK_THROWS_WITH(read("data", "eval", "a.jsonl, repeat: 0.5"),
                    "data.eval.0.repeat: only sources to train on are repeated; leave it out, and "
                    "set eval.samples to use fewer");
  CHECK_THROWS_WITH(read("eval", "answers", "a.jsonl, repeat: 2"),
                    Catch::Contains("eval.answers.0.repeat") &&
                        Catch::Contains("eval.answer_samples to use fewer"));
  WriteText(meta, R"({"a": {"annotation": "a.jsonl", "repeat_time": 3}})");
  CHECK(read("data", "eval", meta).data.eval[0].repeat == 1);
  CHECK(read("data", "train", meta).data.train[0].repeat == 3);
}

TEST_CASE("a meta file of InternVL is the list of its data sets", "[settings][cpu]") {
  const ScratchFolder scratch;
  const std::string path = scratch.Path("meta.json");
  WriteText(path, R"({"b": {"root": "coco/", "annotation": "b.jsonl", "data_augment": false,
    "max_dynamic_patch": 12, "repeat_time": 2, "length": 100},
    "a": {"root": "", "annotation": "a.json", "repeat_time": 0.5, "weight": 3}})");
  const auto sets = Expanded({path, ".", 2});
  REQUIRE(sets.size() == 2);
  CHECK(sets[0].annotations == "a.json");
  CHECK(sets[0].listed_in == path + ": a");
  CHECK(sets[0].images == ".");
  CHECK(sets[0].repeat == 3);
  CHECK(sets[1].annotations == "b.jsonl");
  CHECK(sets[1].images == "coco/");
  CHECK(sets[1].repeat == 4);
  CHECK(sets[0].max_tiles == 0);  // data.tiles.max
  CHECK(sets[1].max_tiles == 12);
  const std::pair<const char*, const char*> bad[] = {
      {R"({"c": {"annotation": "c", "sampling": 1}})", "meta.json: c: 'sampling' is not known"},
      {R"({"b": {"annotation": "b"}, "c": {"annotations": "c"}})",
       "meta.json: c: 'annotations' is not known here; did you mean 'annotation'?"},
      {R"({"c": {"root": "x", "annotatoin": "c"}})", "c: 'annotatoin' is not known here; did you"},
      {R"({"b": {"annotation": "b"}, "c": {"root": "x"}})", "c: annotation"},
      {R"({"c": {"annotation": "c", "repeat": 2}})",
       "'repeat' is not known here; did you mean "
       "'repeat_time'?"},
      {R"({"c": {"annotation": "c", "images": "x"}})", "did you mean 'root'?"},
      {R"({"mllm": {"file_name": "a.json", "columns": {"messages": "messages"}}})",
       "meta.json: is LLaMA-Factory's list of data sets; give the files that it names"},
      {R"({"c": {"annotation": "c", "data_augment": true}})", "data_augment is not supported"},
      {R"({"c": {"annotation": 5}})", "annotation"},
      {R"({"c": {"annotation": "c", "max_dynamic_patch": 0}})", "c: max_dynamic_patch is 0"},
      {R"({"c": {"annotation": "c", "repeat_time": -1}})", "-1 times in an epoch"}};
  for (const auto& [text, words] : bad) {
    INFO(text);
    WriteText(path, text);
    CHECK_THROWS_WITH(Expanded({path, ".", 1}), Catch::Contains(words));
  }
  // Records are no meta file.
  for (const char* text : {R"({"id": 1, "conversations": []})", "[{}]", "{}", ""}) {
    WriteText(path, text);
    CHECK(Expanded({path, ".", 1})[0].annotations == path);
  }
}

}  // namespace
}  // namespace equipoise
