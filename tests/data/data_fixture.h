#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/index/cost_index_open.h"
#include "data/records/sample_scanner.h"
#include "data/settings/data_config.h"
#include "data/text/chat_template.h"
#include "data/text/tokenizer.h"
#include "tests/data/temporary_folder.h"

namespace equipoise {

// A grey-level picture whose pixels depend on its size and `shade`.
std::string TinyPng(int64_t width, int64_t height, uint8_t shade = 100);

// One line of JSONL. `images` is JSON text (`"a.png"`, `["a.png","b.png"]`) or empty.
std::string RecordLine(const std::string& id, const std::string& images,
                       const std::string& question, const std::string& answer);

// What the DataError says that `work` throws; empty without one.
std::string MessageOf(const std::function<void()>& work);

// A data folder with a tokenizer: pictures of 1 to 5 tiles of 14 pixels, 4 tokens a tile.
class DataFixture {
 public:
  DataFixture();

  static constexpr int64_t kTokensPerTile = 4;
  static constexpr int64_t kTileSize = 14;
  static constexpr int64_t kRowsPerTile = 5;

  // Writes `lines` as the records of the only source.
  void WriteRecords(const std::vector<std::string>& lines);
  // Records with no, one and two pictures, good ones all.
  static std::vector<std::string> MixedLines(int count);

  static ImageSpec images();
  CostIndexOptions options() const;
  SampleOptions sample_options() const;
  CostIndex Open() const { return Open(options()); }
  CostIndex Open(const CostIndexOptions& with) const;

  TemporaryFolder folder;
  Tokenizer tokenizer;
  ChatTemplate chat_template;
  DataConfig config;
};

}  // namespace equipoise
