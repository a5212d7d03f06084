#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/images/image_processor.h"
#include "data/records/path_guard.h"
#include "data/records/record.h"
#include "data/settings/data_config.h"
#include "data/text/chat_template.h"

namespace equipoise {

// Settings on which the model's input depends besides records and pictures.
struct SampleOptions {
  int64_t max_tokens = 4096;
  TilesConfig tiles;
  LimitsConfig limits;
  ImageSpec images;            // as the model takes them
  bool allow_outside = false;  // pictures outside their folder
  int64_t max_frames = 0;      // of a video (VideoLimits::frames)
  bool drop_longer = false;    // a sample of more than max_tokens is dropped, not cut
};

// Requires the files of a source that a meta file lists. Throws DataError that names that file, the
// entry and the path.
void RequireListedFiles(const SourceConfig& source);

// One record as the model will see it, or the defect that makes it unusable.
struct ScannedSample {
  size_t source = 0;
  Record record;
  Defect defect = Defect::kNone;
  std::string reason;
  // Of each picture, and of each video of a model that takes them as such, in order: its load, and
  // where images.lists_grids() its grid.
  std::vector<PictureLoad> pictures;
  std::vector<PatchGrid> grids;
  EncodedConversation encoded;  // cut to max_tokens
  int64_t full_tokens = 0;      // before the cut
  int64_t trained = 0;          // targets: trained tokens, the first token not counted

  PictureLoad all_pictures() const;
};

// Scanner of records into tokens, shared by the cost index (which reads the heads of
// pictures only) and the loader, so that both agree. Thread-safe.
class SampleScanner {
 public:
  // `chat_template` must outlive this object. Throws DataError when a source's image folder is
  // missing.
  SampleScanner(const std::vector<SourceConfig>& sources, SampleOptions options,
                const ChatTemplate* chat_template);

  // Scans a record of source `source`, given as it lies in the file. With `files`, appends each
  // picture's bytes, read whole, for RecordImages. Never throws for bad records.
  ScannedSample Scan(size_t source, std::string_view text,
                     std::vector<std::string>* files = nullptr) const;
  const SampleOptions& options() const { return options_; }
  // Of the pictures of a source.
  const ImageProcessor& processor(size_t source) const { return processors_[source]; }

 private:
  // Measures the pictures and frames; appends their sizes.
  void ReadPictures(size_t source, ScannedSample& sample, std::vector<ImageSize>& sizes,
                    std::vector<std::string>* files) const;
  // Adds the load of the picture `image` of that size, or of a video with such frames.
  void AddPicture(size_t source, ImageSize size, size_t image, ScannedSample& sample) const;
  void Encode(ScannedSample& sample) const;
  // Refuses a sample of which more than the end does not fit.
  void RefuseLong(ScannedSample& sample, const std::string& reason) const;

  // The picture `index` of a record of source `source`, wherever it lies.
  OpenedImage Open(size_t source, const Record& record, size_t index) const;

  std::vector<SourceConfig> sources_;
  std::vector<ImageFolder> folders_;  // one for each source
  SampleOptions options_;
  std::vector<ImageProcessor> processors_;  // one for each source
  const ChatTemplate* chat_template_;
};

}  // namespace equipoise
