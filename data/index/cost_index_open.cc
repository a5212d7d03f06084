#include "data/index/cost_index_open.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iomanip>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include "configs/base/error.h"
#include "configs/yaml/config_json.h"
#include "data/index/cost_index_build.h"
#include "data/index/cost_index_file.h"
#include "data/records/annotation_file.h"
#include "data/records/shard.h"
#include "data/videos/video_file.h"

namespace equipoise {
namespace {

namespace fs = std::filesystem;

std::string IndexName(uint64_t key) { return fmt::format("costs-{:016x}.idx", key); }

// True when files can be made in `folder`, which is created.
bool IsWritable(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return !error && access(folder.c_str(), W_OK) == 0;
}

// Folders in which an index may lie, the preferred one first.
std::vector<std::string> CacheFolders(const std::vector<SourceConfig>& sources,
                                      const DataConfig& config, const CostIndexOptions& options) {
  if (!config.cache.empty()) return {config.cache};
  std::vector<std::string> folders{
      (fs::path(sources[0].annotations).parent_path() / ".equipoise").string()};
  if (!options.fallback_folder.empty()) folders.push_back(options.fallback_folder);
  return folders;
}

std::vector<AnnotationFile> OpenFiles(const std::vector<SourceConfig>& sources) {
  if (sources.empty())
    throw ConfigError(
        "data: no source of records is given; set data.train (data.eval for held-out data, "
        "eval.answers for questions)");
  if (sources.size() > std::numeric_limits<uint16_t>::max())
    throw DataError("data: more than 65535 sources");
  std::vector<AnnotationFile> files;
  for (const SourceConfig& source : sources) {
    RequireListedFiles(source);
    files.emplace_back(source.annotations);
  }
  return files;
}

SampleOptions SampleOptionsOf(const DataConfig& config, const CostIndexOptions& options) {
  return {config.max_tokens,        config.tiles,         config.limits,
          options.images,           config.allow_outside, config.max_frames,
          config.too_long == "drop"};
}

// The folder of a source's pictures, relative to its annotations, so that a copied data folder
// keeps its index.
std::string PicturesFrom(const SourceConfig& source) {
  std::error_code error;
  const fs::path annotations = fs::canonical(source.annotations, error);
  const fs::path images = fs::canonical(source.images, error);
  return error ? source.images : images.lexically_relative(annotations.parent_path()).string();
}

std::string KeysText(const RecordKeys& keys) {
  return ConfigToJson(keys.columns).dump() + ConfigToJson(keys.tags).dump();
}

constexpr uint32_t kOldest = 1, kNewest = CostIndexHeader().version;  // versions of the format

// The key of an index in a version of the format.
uint64_t KeyOf(const std::vector<SourceConfig>& sources, const std::vector<uint64_t>& contents,
               const SampleOptions& sample, uint64_t chat_template, uint32_t version) {
  const ImageSpec& images = sample.images;
  std::ostringstream key;
  key << version << ' ' << chat_template << ' ' << sample.max_tokens << ' ' << sample.tiles.min
      << ' ' << sample.tiles.max << ' ' << sample.tiles.thumbnail << ' '
      << sample.limits.image_pixels << ' ' << sample.limits.image_bytes << ' '
      << sample.limits.record_bytes << ' ' << images.tokens_per_tile << ' ' << images.tile_size
      << ' ' << sample.allow_outside;
  if (version > kOldest) key << ' ' << images.rows_per_tile;
  if (images.has_grids()) {  // in every version: no older program could read them
    key << ' ' << images.patch_size << ' ' << images.window << ' ' << images.min_pixels << ' '
        << images.max_pixels;
  }
  for (const PatchGrid& tiles : images.resolutions) {  // likewise
    key << " resolution " << tiles.rows << ' ' << tiles.columns;
  }
  if (images.max_tiles > 0) key << " at most " << images.max_tiles;
  if (images.lone_tiles) key << " lone";
  if (images.takes_videos()) {
    const ImageSpec::Videos& videos = images.videos;
    key << " videos " << images.frames << ' ' << videos.min_pixels << ' ' << videos.max_pixels
        << ' ' << videos.of_all_frames << ' ' << videos.timestamps;
    if (videos.capped_tokens > 0) key << " capped " << videos.capped_tokens;
  }
  // Raise the last number when a record of the same bytes is read as other turns.
  if (version > 6) key << " grounding " << static_cast<int>(images.grounding) << " records 5";
  if (sample.max_frames > 0) key << " frames " << sample.max_frames;
  if (sample.drop_longer) key << " drops longer";
  if (OpensVideos()) key << " opens videos";  // to other programs their records are defects
  for (size_t i = 0; i < sources.size(); ++i)
    key << ' ' << contents[i] << ' ' << std::quoted(PicturesFrom(sources[i]));
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].max_tiles > 0) key << " tiles " << i << ' ' << sources[i].max_tiles;
    if (sources[i].keys.given()) key << " keys " << i << ' ' << KeysText(sources[i].keys);
  }
  const std::string text = key.str();
  return XXH3_64bits(text.data(), text.size());
}

// One opening of an index by one rank.
class IndexBuilder {
 public:
  IndexBuilder(const std::vector<SourceConfig>& sources, const DataConfig& config,
               const ChatTemplate& chat_template, const CostIndexOptions& options)
      : sources_(sources),
        config_(config),
        template_(chat_template),
        options_(options),
        files_(OpenFiles(sources)),
        folders_(CacheFolders(sources, config, options)) {}

  // Finds or builds the index and maps it. Collective over the slices.
  CostIndex Run();
  // The path of a cached index; empty where there is none.
  std::string Find();
  uint64_t key() const { return key_; }
  bool built() const { return built_; }

 private:
  bool first() const { return options_.slice == 0; }
  void RequireSame(const std::string& otherwise, uint64_t mine) const {
    if (options_.require_same) options_.require_same(otherwise, mine);
  }
  bool AnyRank(bool mine) const { return options_.any_rank ? options_.any_rank(mine) : mine; }
  void ComputeKey();
  uint64_t KeyIn(uint32_t version) const;
  // Names, in a notice, indices of older versions, which are of no use any more.
  void NoticeOlder() const;
  // Runs `work`; when it throws on one rank, all ranks throw.
  void OnAllRanks(const std::function<void()>& work) const;
  // The folder for the index: the first that holds it, else the first that can be written.
  std::string FolderToUse() const;
  // Sets the path of the index: slice 0 chooses, as slices may see folders differently.
  void ChoosePath();
  bool IsThere(const std::string& path) const;
  std::vector<SampleCost> ScanMySlice(const SampleScanner& scanner) const;
  // The costs of all slices, on slice 0.
  std::vector<std::vector<SampleCost>> Collect(std::vector<SampleCost> mine) const;
  void Build();

  const std::vector<SourceConfig>& sources_;
  const DataConfig& config_;
  const ChatTemplate& template_;
  const CostIndexOptions& options_;
  std::vector<AnnotationFile> files_;
  std::vector<std::string> folders_;
  std::vector<uint64_t> contents_;  // of the files
  std::string path_;
  uint64_t key_ = 0;
  bool built_ = false;
};

bool IndexBuilder::IsThere(const std::string& path) const {
  return CostIndex::Map(path, key_).has_value();
}

std::string IndexBuilder::FolderToUse() const {
  for (const std::string& folder : folders_) {
    if (!options_.rebuild && IsThere(folder + "/" + IndexName(key_))) return folder;
  }
  for (const std::string& folder : folders_) {
    if (!IsWritable(folder)) continue;
    if (folder != folders_[0] && options_.notice) {
      options_.notice(
          fmt::format("{}: cannot be written; the cost index goes to {} (data.cache sets "
                      "another folder)",
                      folders_[0], folder));
    }
    return folder;
  }
  throw DataError(
      folders_[0] +
      ": the cost index cannot be written there; set data.cache to a folder that can be");
}

void IndexBuilder::ChoosePath() {
  std::string folder;
  OnAllRanks([&] {
    if (first()) folder = FolderToUse();
  });
  if (options_.of_first) folder = options_.of_first(folder);
  path_ = folder + "/" + IndexName(key_);
}

void IndexBuilder::OnAllRanks(const std::function<void()>& work) const {
  options_.on_all ? options_.on_all(work) : work();
}

std::vector<SampleCost> IndexBuilder::ScanMySlice(const SampleScanner& scanner) const {
  SliceScan scan(&files_, &scanner, options_.slice, options_.slices);
  const std::function<void(double)> silent;
  const auto& progress = first() ? options_.progress : silent;
  std::vector<SampleCost> costs;
  for (int64_t round = 0; round < scan.rounds(); ++round) {
    OnAllRanks([&] { scan.ScanRound(config_.LoaderThreads(1), progress, costs); });
  }
  return costs;
}

std::vector<std::vector<SampleCost>> IndexBuilder::Collect(std::vector<SampleCost> mine) const {
  if (!options_.collect) return {std::move(mine)};
  std::string bytes(mine.size() * sizeof(SampleCost), '\0');
  if (!mine.empty()) std::memcpy(bytes.data(), mine.data(), bytes.size());
  std::vector<std::vector<SampleCost>> slices;
  for (const std::string& part : options_.collect(bytes)) {
    std::vector<SampleCost>& slice = slices.emplace_back(part.size() / sizeof(SampleCost));
    if (!part.empty()) std::memcpy(slice.data(), part.data(), part.size());
  }
  return slices;
}

void IndexBuilder::Build() {
  const SampleScanner scanner(sources_, SampleOptionsOf(config_, options_), &template_);
  // Collected by messages, not by files: another job may build the same index at the same time.
  const std::vector<std::vector<SampleCost>> slices = Collect(ScanMySlice(scanner));
  OnAllRanks([&] {
    if (!first()) return;
    const std::vector<SampleCost> samples = MergeSlices(slices);
    const uint64_t content = HashOfVersion1(KeyIn(kOldest), samples, options_.images);
    WriteIndexFile(path_, key_, content, samples);
  });
  built_ = true;
}

uint64_t IndexBuilder::KeyIn(uint32_t version) const {
  return KeyOf(sources_, contents_, SampleOptionsOf(config_, options_), template_.fingerprint(),
               version);
}

void IndexBuilder::NoticeOlder() const {
  if (!first() || !options_.notice) return;
  for (const std::string& folder : folders_) {
    for (uint32_t version = kOldest; version < kNewest; ++version) {
      const std::string path = folder + "/" + IndexName(KeyIn(version));
      if (IndexVersion(path) != version) continue;
      options_.notice(
          fmt::format("{}: a cost index in version {} of its format, which is of no use any more; "
                      "training builds one in version {}, and the old file may be deleted",
                      path, version, kNewest));
    }
  }
}

void IndexBuilder::ComputeKey() {
  contents_.clear();
  contents_.reserve(files_.size());
  const std::string& stamps = IsWritable(folders_[0]) ? folders_[0] : folders_.back();
  const bool store = first() && IsWritable(stamps);
  for (const AnnotationFile& annotations : files_)
    contents_.push_back(ContentHash(annotations.file(), stamps, store));
  key_ = KeyIn(kNewest);
}

std::string IndexBuilder::Find() {
  ComputeKey();
  for (const std::string& folder : folders_) {
    std::string path = folder + "/" + IndexName(key_);
    if (IsThere(path)) return path;
  }
  NoticeOlder();
  return "";
}

CostIndex IndexBuilder::Run() {
  ComputeKey();
  RequireSame(
      "sees other records, tokenizer or program than rank 0; give all ranks the same files and the "
      "same program",
      key_);
  ChoosePath();
  // Asked once, of all: another job may finish the same index meanwhile.
  if (AnyRank(options_.rebuild || !IsThere(path_))) {
    if (!IsThere(path_)) NoticeOlder();
    Build();
  }
  std::optional<CostIndex> index = CostIndex::Map(path_, key_);
  if (AnyRank(!index)) {
    throw DataError(path_ +
                    ": the cost index cannot be read back by every rank; delete it and try again, "
                    "or set data.cache to a folder that all machines share");
  }
  RequireSame(
      fmt::format(
          "sees other pictures than rank 0, as its {} has them; give all ranks the same, and "
          "delete that file on each machine or set data.cache to a folder that all share",
          path_),
      index->hash());
  return std::move(*index);
}

bool TooManyBad(const CostIndex& index, const DataConfig& config) {
  return static_cast<double>(index.CountBad()) >
         config.max_bad_share * static_cast<double>(index.size());
}

// How many tokens records have that do not fit in data.max_tokens, where they are most of the bad
// ones; of the first of them, as each is read again. Empty where they are not.
std::string DescribeTooLong(const CostIndex& index, const std::vector<SourceConfig>& sources,
                            SampleOptions options, const ChatTemplate& chat_template) {
  constexpr int64_t kMostRead = 256;
  const int64_t max_tokens = options.max_tokens;
  options.max_tokens = 16'777'215;  // the most that a configuration takes
  const SampleScanner scanner(sources, options, &chat_template);
  std::map<size_t, AnnotationFile> files;
  int64_t looked_at = 0, longer = 0, least = options.max_tokens, most = 0;
  for (int64_t i = 0; i < index.size() && looked_at < kMostRead; ++i) {
    const SampleCost& cost = index[i];
    if (cost.defect == Defect::kNone) continue;
    ++looked_at;
    if (cost.defect != Defect::kTooManyTokens && cost.defect != Defect::kNothingTrained) continue;
    const AnnotationFile& file =
        files.try_emplace(cost.source, sources[cost.source].annotations).first->second;
    const ScannedSample sample = scanner.Scan(
        cost.source, file.Record(cost.offset, cost.bytes, options.limits.record_bytes));
    if (sample.defect != Defect::kNone || sample.full_tokens <= max_tokens) continue;
    ++longer;
    least = std::min(least, sample.full_tokens);
    most = std::max(most, sample.full_tokens);
  }
  if (2 * longer <= looked_at) return "";
  return fmt::format("; data.max_tokens is {}, and {} of them have {} to {} tokens", max_tokens,
                     longer, least, most);
}

// Why a record cannot be used, as it is read again.
std::string ReasonOf(const SampleCost& cost, const std::vector<SourceConfig>& sources,
                     const SampleOptions& options, const ChatTemplate& chat_template) {
  if (cost.defect == Defect::kLineTooLong) return "";
  const AnnotationFile file(sources[cost.source].annotations);
  const SampleScanner scanner(sources, options, &chat_template);
  return scanner
      .Scan(cost.source, file.Record(cost.offset, cost.bytes, options.limits.record_bytes))
      .reason;
}

[[noreturn]] void FailBad(const CostIndex& index, const std::vector<SourceConfig>& sources,
                          const DataConfig& config, const ChatTemplate& chat_template,
                          const CostIndexOptions& options) {
  std::string text = fmt::format(
      "{}: {} of {} records cannot be used, more than data.max_bad_share {:g} ({}), such as",
      sources.size() == 1
          ? sources[0].annotations
          : fmt::format("{} and {} more", sources[0].annotations, sources.size() - 1),
      index.CountBad(), index.size(), config.max_bad_share, index.DescribeDefects());
  int shown = 0;
  for (int64_t i = 0; i < index.size() && shown < 3; ++i) {
    const SampleCost& cost = index[i];
    if (cost.defect == Defect::kNone || cost.defect == Defect::kTooLong) continue;
    // Of the first the reason too, which the index does not hold: often it is that of all.
    const std::string reason =
        shown++ > 0 ? "" : ReasonOf(cost, sources, SampleOptionsOf(config, options), chat_template);
    text += fmt::format("{} {}:{} ({}{}{})", shown > 1 ? "," : "", sources[cost.source].annotations,
                        cost.line, DefectName(cost.defect), reason.empty() ? "" : ": ", reason);
  }
  text += DescribeTooLong(index, sources, SampleOptionsOf(config, options), chat_template);
  throw DataError(
      fmt::format("{}; see all with `equipoise data CONFIG check{}`", text, options.flag));
}

OpenedCostIndex FindOrBuild(const std::vector<SourceConfig>& sources, const DataConfig& config,
                            const ChatTemplate& chat_template, const CostIndexOptions& options) {
  IndexBuilder builder(sources, config, chat_template, options);
  CostIndex index = builder.Run();
  return {std::move(index), builder.built(), 0};
}

// Names shards that may have been cut between two members: what they have is sound. Not only of a
// build, as a cached index would hide it.
void NoticeCutShards(const std::vector<SourceConfig>& sources, const CostIndexOptions& options) {
  if (options.slice != 0 || !options.notice) return;
  std::string first;
  int64_t shards = 0, cut = 0;
  for (const SourceConfig& source : sources) {
    if (!IsShardName(source.annotations)) continue;
    ++shards;
    if (HasEndMark(TextFile(source.annotations))) continue;
    if (cut++ == 0) first = source.annotations;
  }
  if (cut == 0) return;
  options.notice(
      fmt::format("{}: {} of {} shards without the blocks of zeros that end an archive: the "
                  "samples behind may be cut off; compare the size with the original's",
                  first, cut, shards));
}

}  // namespace

OpenedCostIndex OpenCostIndex(const std::vector<SourceConfig>& sources, const DataConfig& config,
                              const ChatTemplate& chat_template, const CostIndexOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  OpenedCostIndex opened = FindOrBuild(sources, config, chat_template, options);
  if (options.enforce_bad_share && !opened.built && TooManyBad(opened.index, config)) {
    // The pictures are no part of the key, and may have been repaired since.
    CostIndexOptions rebuilding = options;
    rebuilding.rebuild = true;
    opened = FindOrBuild(sources, config, chat_template, rebuilding);
  }
  NoticeCutShards(sources, options);
  if (options.enforce_bad_share && TooManyBad(opened.index, config))
    FailBad(opened.index, sources, config, chat_template, options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  opened.seconds = took.count();
  return opened;
}

std::optional<CostIndex> FindCostIndex(const std::vector<SourceConfig>& sources,
                                       const DataConfig& config, const ChatTemplate& chat_template,
                                       const CostIndexOptions& options) {
  IndexBuilder builder(sources, config, chat_template, options);
  const std::string path = builder.Find();
  return path.empty() ? std::nullopt : CostIndex::Map(path, builder.key());
}

}  // namespace equipoise
