#include "trainer/commands/sample_view.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <ostream>
#include <vector>

#include "configs/base/error.h"
#include "data/images/image.h"
#include "data/images/image_grid.h"
#include "data/videos/record_images.h"
#include "models/families/families.h"
#include "trainer/outputs/html_text.h"
#include "trainer/outputs/report_picture.h"
#include "trainer/outputs/report_style.h"

namespace equipoise {
namespace {

// A picture of a sample: its tiles, row by row, each [side, side, 3] uint8, the thumbnail last; of
// an encoder that does not cut pictures one tile of the picture's own shape.
struct Tiles {
  std::string name, problem;
  TileGrid grid;
  std::vector<at::Tensor> tiles;
};

// Cuts a picture as InternVL's processor does, into tiles of `side` pixels.
void Cut(const at::Tensor& image, int64_t pictures, int64_t side, const ImageProcessor& processor,
         Tiles& out) {
  const ImageSpec& spec = processor.spec();
  const ImageSize size{image.size(1), image.size(0)};
  if (spec.kind != ImageSpec::Kind::kTiles) {
    const int64_t longest = std::max(size.width, size.height);
    const auto scaled = [&](int64_t length) {
      return std::max<int64_t>(1, std::min(longest, 2 * side) * length / longest);
    };
    out.tiles = {ResizeBicubic(image, scaled(size.width), scaled(size.height))};
    return;
  }
  out.grid = ChooseGrid(size, processor.tiles(), pictures, spec.tile_size);
  const at::Tensor whole = ResizeBicubic(image, out.grid.columns * side, out.grid.rows * side);
  for (int64_t row = 0; row < out.grid.rows; ++row) {
    for (int64_t column = 0; column < out.grid.columns; ++column) {
      out.tiles.push_back(
          whole.narrow(0, row * side, side).narrow(1, column * side, side).contiguous());
    }
  }
  if (CountTiles(size, processor.tiles(), pictures, spec.tile_size) > std::ssize(out.tiles))
    out.tiles.push_back(ResizeBicubic(image, side, side));
}

std::vector<Tiles> TilesOf(const OpenedData& data, int64_t sample, int64_t side) {
  std::vector<std::string> files;
  const ScannedSample scanned = data.dataset.Scan(sample, &files);
  RecordImages images(scanned.record, {files.begin(), files.end()}, ImageLimits());
  std::vector<Tiles> all;
  for (size_t i = 0; i < files.size(); ++i) {
    Tiles picture{scanned.record.images[i], "", {}, {}};
    try {
      Cut(images.Decode(i), scanned.record.SharingTiles(i), side,
          data.dataset.processor(scanned.source), picture);
    } catch (const ImageError& error) {
      picture.problem = error.what();
    }
    all.push_back(std::move(picture));
  }
  return all;
}

// Draws tiles side by side; two rows of pixels are one row of text.
void DrawRow(const std::vector<at::Tensor>& tiles, std::ostream& out) {
  const int64_t height = tiles[0].size(0);
  for (int64_t y = 0; y < height; y += 2) {
    for (const at::Tensor& tile : tiles) {
      const uint8_t* upper = tile.const_data_ptr<uint8_t>() + 3 * y * tile.size(1);
      const uint8_t* lower = y + 1 < height ? upper + 3 * tile.size(1) : upper;
      for (int64_t x = 0; x < tile.size(1); ++x, upper += 3, lower += 3) {
        out << fmt::format("\x1b[38;2;{};{};{};48;2;{};{};{}m\u2580", upper[0], upper[1], upper[2],
                           lower[0], lower[1], lower[2]);
      }
      out << "\x1b[0m ";
    }
    out << "\n";
  }
  out << "\n";
}

// The texts of single tokens; those that are no whole character by themselves come with the last
// one that completes it.
std::vector<std::string> TokenTexts(const OpenedData& data, const std::vector<int32_t>& ids) {
  constexpr size_t kMostTogether = 8;
  const std::string unreadable = "\xEF\xBF\xBD";
  std::vector<std::string> texts(ids.size());
  for (size_t begin = 0; begin < ids.size();) {
    size_t end = begin + 1;
    std::string text;
    for (; end <= std::min(ids.size(), begin + kMostTogether); ++end) {
      text = data.tokenizer.Decode({ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                    ids.begin() + static_cast<std::ptrdiff_t>(end)},
                                   /*skip_special=*/false);
      if (!text.ends_with(unreadable)) break;
    }
    if (end > std::min(ids.size(), begin + kMostTogether)) end = begin + 1;
    texts[end - 1] = text;
    begin = end;
  }
  return texts;
}

constexpr std::string_view kStyle = R"(
.grid-tiles{display:inline-grid;gap:4px;margin:6px 16px 6px 0;vertical-align:top}
.grid-tiles img{display:block}
.tokens{white-space:pre-wrap;overflow-wrap:anywhere;line-height:2}
.tokens span{border-radius:3px;box-shadow:inset 0 0 0 1px var(--line);padding:1px 0}
.tokens .trained{background:color-mix(in srgb,var(--good) 28%,transparent)}
.tokens .image{background:color-mix(in srgb,var(--c0) 22%,transparent);color:var(--soft)}
)";

void WritePictures(const std::vector<Tiles>& pictures, std::ostream& out) {
  for (const Tiles& picture : pictures) {
    out << "<h3>" << EscapeHtml(picture.name) << "</h3>\n";
    if (!picture.problem.empty()) out << "<p>" << EscapeHtml(picture.problem) << "</p>\n";
    const size_t cut = static_cast<size_t>(picture.grid.columns * picture.grid.rows);
    for (size_t i = 0; i < picture.tiles.size(); ++i) {
      if (i == 0) {
        out << "<div class=\"grid-tiles\" style=\"grid-template-columns:repeat("
            << picture.grid.columns << ",auto)\">";
      }
      if (i == cut) out << "<div class=\"grid-tiles\">";  // the thumbnail
      out << "<img alt=\"tile " << i << "\" src=\"" << PictureDataUri(picture.tiles[i]) << "\">";
      if (i + 1 == cut || i + 1 == picture.tiles.size()) out << "</div>\n";
    }
  }
}

void WriteTokens(const OpenedData& data, const Json& description, std::ostream& out) {
  const auto ids = description["ids"].get<std::vector<int32_t>>();
  const auto mask = description["mask"].get<std::vector<int>>();
  const std::vector<std::string> texts = TokenTexts(data, ids);
  out << "<div class=\"card tokens\">";
  for (size_t i = 0; i < ids.size(); ++i) {
    size_t end = i + 1;
    const bool picture = mask[i] == 0 && (ids[i] == data.chat_template.image_token() ||
                                          ids[i] == data.chat_template.video_token());
    while (picture && end < ids.size() && ids[end] == ids[i]) ++end;
    const char* kind = mask[i] != 0 ? "trained" : picture ? "image" : "context";
    out << "<span class=\"" << kind << "\" title=\"token " << i << ", id " << ids[i] << ", " << kind
        << "\">";
    if (picture) {
      out << EscapeHtml(texts[i]) << " &times; " << end - i;
    } else {
      out << EscapeHtml(texts[i]);
    }
    out << "</span>";
    i = end - 1;
  }
  out << "</div>\n";
}

}  // namespace

void DrawPictures(const OpenedData& data, int64_t sample, std::ostream& out) {
  constexpr int64_t kSide = 16;  // pixels of a tile: 16 columns and 8 rows of text
  for (const Tiles& picture : TilesOf(data, sample, kSide)) {
    if (!picture.problem.empty()) continue;  // PrintSample's facts or `check` name it
    const auto columns = static_cast<size_t>(picture.grid.columns);
    for (size_t i = 0; i < picture.tiles.size(); i += columns) {
      const auto first = picture.tiles.begin() + static_cast<std::ptrdiff_t>(i);
      const size_t count = std::min(columns, picture.tiles.size() - i);
      DrawRow({first, first + static_cast<std::ptrdiff_t>(count)}, out);
    }
  }
}

void WriteSamplePage(const OpenedData& data, const Json& description, const std::string& path) {
  const int64_t sample = description["sample"].get<int64_t>();
  constexpr int64_t kSide = 224;
  std::ofstream out(path);
  const std::string place = fmt::format("{}:{}", description["file"].get<std::string>(),
                                        description["line"].get<int64_t>());
  out << "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>"
      << EscapeHtml(place) << "</title>\n<style>" << ReportStyle() << kStyle
      << "</style></head>\n<body><main>\n<h1>" << EscapeHtml(place) << "</h1>\n";
  if (description.contains("defect")) {
    out << "<p>cannot be used: " << EscapeHtml(description["reason"].get<std::string>())
        << "</p>\n";
  } else {
    out << "<p class=\"soft\">sample " << sample << ", id "
        << EscapeHtml(description["id"].get<std::string>()) << ": " << description["tokens"]
        << " tokens, " << description["trained"] << " of them trained (green)";
    if (description["truncated"].get<bool>())
      out << ", cut from " << description["full_tokens"] << " to data.max_tokens";
    out << "</p>\n";
    WritePictures(TilesOf(data, sample, kSide), out);
    out << "<h2>Tokens</h2>\n";
    WriteTokens(data, description, out);
  }
  out << "</main></body></html>\n";
  out.close();
  if (!out) throw RunError(path + ": cannot be written; give another place for --html");
}

}  // namespace equipoise
