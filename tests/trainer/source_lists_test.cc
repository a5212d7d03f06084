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

TEST_CASE("a folder stands for its files of records", "[settings][cpu]") {
  const ScratchFolder scratch;
  for (const char* name : {"b.jsonl", "a.parquet", "README.md", "c.tar", "0.png"})
    WriteText(scratch.Path(name), "x");
  const std::string folder = scratch.Path(".");
  const auto files = Expanded({folder, "x", 0.5});
  REQUIRE(files.size() == 3);
  CHECK(files[0].annotations.ends_with("/a.parquet"));
  CHECK(files[1].annotations.ends_with("/b.jsonl"));
  CHECK(files[2].annotations.ends_with("/c.tar"));
  CHECK(files[0].files == 3);
  const auto given = WithRanges(files);
  REQUIRE(given.size() == 1);
  CHECK(given[0].annotations == folder);
}

TEST_CASE("a folder with files of several splits is refused", "[settings][cpu]") {
  using Names = std::vector<std::string>;
  for (const Names& names :
       {Names{"train.jsonl", "test.jsonl"}, Names{"train_0.json", "eval_0.json"},
        Names{"train-00000-of-00001.parquet", "validation-00000-of-00001.parquet"}}) {
    const ScratchFolder scratch;
    for (const std::string& name : names) WriteText(scratch.Path(name), "x");
    CHECK_THROWS_WITH(Expanded({scratch.path(), "x", 1}), Catch::Contains("several splits"));
  }
  const ScratchFolder scratch;
  for (const char* name : {"train_a.jsonl", "train_b.jsonl", "testimony.jsonl"})
    WriteText(scratch.Path(name), "x");
  CHECK(Expanded({scratch.path(), "x", 1}).size() == 3);
}

TEST_CASE("LLaVA-NeXT's YAML file stands for its data sets", "[settings][cpu]") {
  const ScratchFolder scratch;
  const std::string path = scratch.Path("list.yaml");
  WriteText(path, R"(datasets:
  - json_path: a.json
  - {json_path: b/c.jsonl, sampling_strategy: "first:10%"}
  - {json_path: "{0..1}.json", sampling_strategy: "random:500"}
  - {json_path: d.json, sampling_strategy: "end:20%"}
)");
  const auto sources = Expanded({path, "x", 2});
  REQUIRE(sources.size() == 5);
  CHECK(sources[4].repeat == Approx(0.4));
  CHECK(sources[4].take == TakenPart::kLast);
  CHECK(sources[0].annotations == "a.json");
  CHECK(sources[0].images == "x");
  CHECK(sources[0].repeat == 2);
  CHECK(sources[0].samples == 0);
  CHECK(sources[1].annotations == "b/c.jsonl");
  CHECK(sources[1].repeat == Approx(0.2));
  CHECK(sources[2].annotations == "0.json");
  CHECK(sources[2].samples == 0);
  CHECK(sources[2].max_samples == 500);
  CHECK(sources[2].take == TakenPart::kRandom);
  CHECK(sources[2].files == 2);
  CHECK(sources[3].files == 0);

  const std::pair<const char*, const char*> bad[] = {
      {"datasets:\n  - {json_path: a.json, sampling_strategy: middle:10}\n",
       "list.yaml: datasets.0: sampling_strategy: 'middle:10' is neither all nor first:, end: or"},
      {"datasets:\n  - {json_path: a.json, sampling_strategy: \"end:9999999999\"}\n",
       "'end:9999999999'"},
      {"datasets:\n  - {json_path: a.json, sampling_strategy: \"first:200%\"}\n", "'first:200%'"},
      {"datasets:\n  - {sampling_strategy: all}\n", "datasets.0: json_path is missing"},
      {"datasets:\n  - {path: a.json}\n", "list.yaml:2:6: datasets.0.path: unknown key"},
      {"datasets: []\n", "list.yaml: has no `datasets`"},
      {"- {text: Q}\n", "records in YAML are not read"}};
  for (const auto& [text, words] : bad) {
    INFO(text);
    WriteText(path, text);
    CHECK_THROWS_AS(Expanded({path, ".", 1}), DataError);
    CHECK_THROWS_WITH(Expanded({path, ".", 1}), Catch::Contains(words));
  }
  WriteText(path, "datasets: [{json_path: a.json, sampling_strategy: \"end:500\"}]\n");
  SourceConfig fewer{path};
  for (const auto& [most, used] : {std::pair(400, 400), std::pair(600, 500)}) {
    fewer.max_samples = most;
    CHECK(Expanded(fewer)[0].max_samples == used);
  }
  SourceConfig some{path};
  some.samples = 3;
  CHECK_THROWS_WITH(Expanded(some), Catch::Contains("is a list of data sets; leave out samples"));
}

TEST_CASE("columns and tags of a source that make no record are refused", "[settings][cpu]") {
  const ScratchFolder scratch;
  const std::string path = scratch.Path("a.yaml");
  const std::pair<const char*, const char*> bad[] = {
      {"columns: {prompt: q}", "data.train.0.columns: says neither where answers are"},
      {"columns: {messages: m, response: r}", "data.train.0.columns: messages are whole"},
      {"columns: {response: r}, tags: {user_tag: Q}", "data.train.0.tags: are of turns"},
      {"columns: {respons: r}", "did you mean"},
      {"datasets: [x]", "a.jsonl: is no list of named data sets; leave out `datasets`"}};
  for (const auto& [setting, words] : bad) {
    INFO(setting);
    WriteText(path, fmt::format("data: {{train: [{{annotations: a.jsonl, {}}}]}}\n", setting));
    CHECK_THROWS_WITH(ReadRunConfig(path, {}), Catch::Contains(words));
  }
  WriteText(path, "data: {train: [{annotations: a.jsonl, columns: {prompt: q, response: r}}]}\n");
  const SourceConfig read = ReadRunConfig(path, {}).data.train[0];
  REQUIRE(read.keys.columns);
  CHECK(read.keys.columns->response == "r");
  CHECK_FALSE(read.keys.tags);
}

TEST_CASE("a dataset_info.json of LLaMA-Factory gives the data sets that are named",
          "[settings][cpu]") {
  const ScratchFolder scratch;
  const std::string path = scratch.Path("dataset_info.json"), folder = scratch.Path("");
  WriteText(path, R"({
    "identity": {"file_name": "identity.json", "file_sha1": "ffe3ecb58ab642da33fbb514d5e6188f"},
    "mllm_demo": {"file_name": "mllm_demo.json", "formatting": "sharegpt",
      "columns": {"messages": "messages", "images": "images"},
      "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user",
               "assistant_tag": "assistant"}},
    "calls": {"file_name": "calls.json", "formatting": "sharegpt"},
    "qa": {"file_name": "qa.parquet", "split": "train",
      "columns": {"prompt": "question", "response": "answer", "system": "who"}},
    "hub": {"hf_hub_url": "llamafactory/alpaca_en", "ms_hub_url": "llamafactory/alpaca_en"},
    "script": {"script_url": "belle"},
    "dpo": {"file_name": "a.json", "ranking": true},
    "kto": {"file_name": "a.json", "columns": {"response": "r", "kto_tag": "label"}},
    "pt": {"file_name": "c4.jsonl", "columns": {"prompt": "text"}},
    "wiki": {"file_name": "wiki_demo.txt", "columns": {"prompt": "text"}},
    "some": {"file_name": "a.json", "num_samples": 0},
    "most": {"file_name": "a.json", "num_samples": 100},
    "odd": {"file_name": "a.json", "formatting": "llava"},
    "typo": {"file_name": "a.json", "formating": "sharegpt"},
    "typo2": {"file_name": "a.json", "columns": {"promt": "x"}},
    "sound": {"file_name": "a.json", "formatting": "sharegpt", "columns": {"audios": "x"}},
    "none": {"columns": {"prompt": "x"}}})");
  SourceConfig list{path, ".", 0.5};
  list.datasets = {"qa", "mllm_demo", "identity", "calls"};
  const auto sets = Expanded(list);
  REQUIRE(sets.size() == 4);
  CHECK(sets[0].annotations == scratch.Path("qa.parquet"));
  CHECK(sets[0].repeat == 0.5);
  CHECK(sets[0].datasets.empty());
  CHECK(sets[0].listed_in == path + ": qa");
  CHECK(sets[0].images + "/" == folder);
  const auto& qa = *sets[0].keys.columns;
  CHECK(std::vector{qa.prompt, qa.query, qa.response, qa.system, qa.images} ==
        std::vector<std::string>{"question", "", "answer", "who", ""});
  CHECK_FALSE(sets[0].keys.tags);
  CHECK(sets[1].keys.columns->messages == "messages");
  CHECK(sets[1].keys.columns->images == "images");
  CHECK(sets[1].keys.tags->assistant_tag == "assistant");
  const auto& alpaca = *sets[2].keys.columns;
  CHECK(std::vector{alpaca.prompt, alpaca.query, alpaca.response, alpaca.history} ==
        std::vector<std::string>{"instruction", "input", "output", ""});
  CHECK(sets[3].keys.columns->messages == "conversations");
  SourceConfig most = list;
  most.datasets = {"most"};
  CHECK(Expanded(most)[0].samples == 100);
  CHECK(Expanded(most)[0].take == TakenPart::kRandom);
  list.images = "media";
  CHECK(Expanded(list)[0].images == "media");

  list.datasets.clear();
  CHECK_THROWS_WITH(Expanded(list), Catch::Contains("is a list of 17 data sets; name those"));
  const std::pair<const char*, const char*> bad[] = {
      {"mlm_demo", "has no data set 'mlm_demo'; did you mean 'mllm_demo'?"},
      {"hub", "dataset_info.json: hub: hf_hub_url: 'llamafactory/alpaca_en' is not in the Hub's"},
      {"script", "dataset_info.json: script: script_url: nothing is downloaded or run"},
      {"dpo", "dpo: ranking: preference data is not trained on"},
      {"kto", "kto: columns: kto_tag: preference data"},
      {"pt", "pt: columns: no response: text without answers is not trained on"},
      {"some", "some: num_samples is 0; it is from 1 to 1000000000"},
      {"odd", "odd: formatting: 'llava' is none of alpaca, sharegpt, openai"},
      {"typo", "typo: 'formating' is not known here; did you mean 'formatting'?"},
      {"typo2", "typo2: columns: 'promt' is not known here; did you mean 'prompt'?"},
      {"sound", "sound: columns: audios: sound is not supported"},
      {"none", "none: file_name"}};
  for (const auto& [name, words] : bad) {
    INFO(name);
    list.datasets = {name};
    CHECK_THROWS_WITH(Expanded(list), Catch::Contains(words));
  }
  list.datasets = {"wiki"};
  CHECK_THROWS_WITH(Expanded(list), Catch::Contains("wiki: file_name: .txt files are not read"));
  list.datasets = {"qa"};
  list.keys.columns.emplace();
  CHECK_THROWS_WITH(Expanded(list), Catch::Contains("leave out columns and tags"));
}

TEST_CASE("data sets of the Hub are read where its cache has them", "[settings][cpu]") {
  const ScratchFolder scratch;
  ::setenv("HF_HUB_CACHE", scratch.path().c_str(), 1);
  const std::string path = scratch.Path("dataset_info.json");
  WriteText(path, R"({
    "one": {"hf_hub_url": "Org/one", "ms_hub_url": "Org/other"},
    "held": {"hf_hub_url": "Org/one", "split": "test"},
    "en": {"hf_hub_url": "Org/many", "subset": "en", "formatting": "sharegpt"},
    "fr": {"hf_hub_url": "Org/many", "subset": "fr"},
    "many": {"hf_hub_url": "Org/many"},
    "zh": {"hf_hub_url": "Org/many", "folder": "zh"},
    "gaps": {"hf_hub_url": "Org/many", "folder": "gaps"}})");
  const auto snapshot = [&](const char* name) {
    return scratch.Path(fmt::format("datasets--Org--{}/snapshots/a/", name));
  };
  const auto touch = [&](const std::string& file) {
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    WriteText(file, "");
  };
  for (const char* file : {"README.md", "dataset_infos.json", "train.json", "test.json"})
    touch(snapshot("one") + file);
  for (const char* file :
       {"en/train-00000-of-00002.parquet", "en/train-00001-of-00002.parquet",
        "en/test-00000-of-00001.parquet", "zh/zh.jsonl", "data/a.json", "data/b.json",
        "gaps/train-00000-of-00003.parquet", "gaps/train-00002-of-00003.parquet"})
    touch(snapshot("many") + file);
  SourceConfig list{path, ".", 1};
  list.datasets = {"one", "held", "en", "zh"};
  const auto sets = Expanded(list);
  REQUIRE(sets.size() == 5);
  CHECK(sets[0].annotations == snapshot("one") + "train.json");
  CHECK(sets[0].images + "/" == snapshot("one"));
  CHECK(sets[0].keys.columns->response == "output");
  CHECK(sets[1].annotations == snapshot("one") + "test.json");
  CHECK(sets[2].annotations == snapshot("many") + "en/train-00000-of-00002.parquet");
  CHECK(sets[3].annotations == snapshot("many") + "en/train-00001-of-00002.parquet");
  CHECK(sets[2].keys.columns->messages == "conversations");
  CHECK(sets[4].annotations == snapshot("many") + "zh/zh.jsonl");
  for (const auto& [name, words] :
       {std::pair("fr", "fr: subset: no folder 'fr' in "),
        std::pair("many", "/data are its train split is not told by their names"),
        std::pair("gaps", "gaps are its train split is not told by their names")}) {
    list.datasets = {name};
    CHECK_THROWS_WITH(Expanded(list), Catch::Contains(words));
  }
  ::unsetenv("HF_HUB_CACHE");
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

TEST_CASE("steps of the command line come before epochs of the file", "[settings][cpu]") {
  const ScratchFolder scratch;
  const std::string path = scratch.Path("a.yaml");
  WriteText(path, "train: {epochs: 3}\n");
  CHECK(ReadRunConfig(path, {}).train.epochs == 3);
  CHECK(ReadRunConfig(path, {{"train.steps", "5"}}).train.epochs == 0);
  CHECK_THROWS_WITH(ReadRunConfig(path, {{"train.steps", "5"}, {"train.epochs", "2"}}),
                    Catch::Contains("both say how long the run is; give one"));
  CHECK(ReadRunConfig(path, {{"train.steps", "5"}, {"train.epochs", "0"}}).train.epochs == 0);
}

TEST_CASE("held-out records are used once at most", "[settings][cpu]") {
  const ScratchFolder scratch;
  const std::string path = scratch.Path("a.yaml"), meta = scratch.Path("meta.json");
  const auto read = [&](const char* section, const char* list, const std::string& source) {
    WriteText(path, fmt::format("{}: {{{}: [{{annotations: {}}}]}}\n", section, list, source));
    return ReadRunConfig(path, {});
  };
  CHECK_THROWS_WITH(read("data", "eval", "a.jsonl, repeat: 2"),
                    "data.eval.0.repeat: only sources to train on are repeated; leave it out");
  const SourceConfig part =
      read("data", "eval", "a.jsonl, repeat: 0.5, samples: 7, take: last").data.eval[0];
  CHECK(part.repeat == 0.5);
  CHECK(part.samples == 0);
  CHECK(part.max_samples == 7);  // never twice
  CHECK(part.take == TakenPart::kLast);
  for (const char* key : {"repeat: 0.5", "samples: 2", "max_samples: 2", "take: last"}) {
    INFO(key);
    CHECK_THROWS_WITH(read("eval", "answers", std::string("a.jsonl, ") + key),
                      Catch::Contains("eval.answers.0.") &&
                          Catch::Contains("set eval.answer_samples to use fewer"));
  }
  CHECK(read("data", "train", "a.jsonl, max_samples: 3").data.train[0].max_samples == 3);
  WriteText(meta, R"({"a": {"annotation": "a.jsonl", "repeat_time": 3}})");
  CHECK(read("data", "eval", meta).data.eval[0].repeat == 1);
  CHECK(read("data", "train", meta).data.train[0].repeat == 3);
  CHECK(read("data", "train", meta + ", max_samples: 4").data.train[0].max_samples == 4);
  CHECK(read("data", "eval", meta + ", max_samples: 4").data.eval[0].max_samples == 4);
  // A part of each data set of a list, held out.
  const SourceConfig held = read("data", "eval", meta + ", repeat: 0.1, take: last").data.eval[0];
  CHECK(held.repeat == 0.1);
  CHECK(held.take == TakenPart::kLast);
  // What a list's entry says of training is not asked where it is held out: all of its records.
  const std::string list = scratch.Path("list.yaml");
  WriteText(list, "datasets: [{json_path: a.json, sampling_strategy: \"end:500\"}]\n");
  CHECK(read("data", "train", list).data.train[0].max_samples == 500);
  CHECK(read("data", "eval", list).data.eval[0].max_samples == 0);
  WriteText(meta, R"({"a": {"annotation": "a.jsonl"}})");
  CHECK(read("data", "train", meta + ", repeat: 0.9").data.train[0].repeat == 0.9);
  CHECK(read("data", "train", meta + ", take: last").data.train[0].take == TakenPart::kLast);
  CHECK_THROWS_WITH(read("data", "train", meta + ", samples: 3"),
                    Catch::Contains("leave out samples, which its entries say"));
  const std::string info = scratch.Path("dataset_info.json");
  WriteText(info, R"({"a": {"file_name": "a.jsonl", "num_samples": 5}})");
  CHECK_THROWS_WITH(read("data", "train", info + ", take: last"),
                    Catch::Contains("leave out take, which its entries say"));
  const SourceConfig held_out =
      read("data", "eval", info + ", take: last, repeat: 0.1").data.eval[0];
  CHECK(held_out.take == TakenPart::kLast);
  CHECK(held_out.repeat == 0.1);
  CHECK(held_out.samples == 0);
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
      {R"({"c": {"annotation": "c", "data_augment": true}})", "data_augment is not supported"},
      {R"({"c": {"annotation": 5}})", "annotation"},
      {R"({"c": {"annotation": "c", "max_dynamic_patch": 0}})", "c: max_dynamic_patch is 0"},
      {R"({"c": {"annotation": "c", "repeat_time": -1}})", "-1 times in an epoch"}};
  for (const auto& [text, words] : bad) {
    INFO(text);
    WriteText(path, text);
    CHECK_THROWS_WITH(Expanded({path, ".", 1}), Catch::Contains(words));
  }
  SourceConfig one{path, ".", 2};
  WriteText(path, R"({"b": {"annotation": "b.jsonl"}, "a": {"annotation": "a.json"}})");
  one.datasets = {"b"};
  REQUIRE(Expanded(one).size() == 1);
  CHECK(Expanded(one)[0].annotations == "b.jsonl");
  one.datasets = {"c"};
  CHECK_THROWS_WITH(Expanded(one), Catch::Contains("meta.json: has no data set 'c'"));
  // Records are no meta file.
  for (const char* text : {R"({"id": 1, "conversations": []})", "[{}]", "{}", ""}) {
    WriteText(path, text);
    CHECK(Expanded({path, ".", 1})[0].annotations == path);
  }
}

}  // namespace
}  // namespace equipoise
