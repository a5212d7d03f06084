#include "data/text/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <exception>
#include <iterator>

#include "configs/base/error.h"
#include "data/text/sentencepiece_check.h"

namespace equipoise {

struct SentencePieceModel::Impl {
  sentencepiece::SentencePieceProcessor processor;
  int32_t nul = -1;  // the byte's id; -1: the library encodes it
  std::string source;

  // Throws DataError where the library cannot use the model.
  template <class Status>
  void Require(const Status& status) const {
    if (!status.ok()) throw DataError(source + ": is damaged: " + status.ToString());
  }
};

namespace {

// The id of NUL's byte, where the model has a piece of the character NUL alone: the library's
// tables take that for the empty text, and find it everywhere. Such models have a byte for it too.
int32_t ByteOfNul(const sentencepiece::SentencePieceProcessor& processor) {
  const std::string nul(1, '\0');
  if (processor.IdToPiece(processor.PieceToId(nul)) != nul) return -1;
  const int id = processor.PieceToId("<0x00>");
  return processor.IsByte(id) ? id : -1;
}

}  // namespace

SentencePieceModel::SentencePieceModel(const std::string& file, const std::string& source) {
  CheckCharsmaps(file, source);
  auto impl = std::make_unique<Impl>();
  impl->source = source;
  bool read = false;
  try {
    read = impl->processor.LoadFromSerializedProto(file).ok();
  } catch (const std::exception&) {  // of the library's tries, for empty pieces and the like
  }
  if (!read || impl->processor.GetPieceSize() == 0) {
    throw DataError(source + ": is no SentencePiece model; download it again");
  }
  impl->nul = ByteOfNul(impl->processor);
  impl_ = std::move(impl);
}

std::string SentencePieceModel::WithoutPrefix(const std::string& file) {
  // Protocol buffers merge what comes twice, and the last value of a field counts:
  // normalizer_spec (3) of 2 bytes, whose add_dummy_prefix (3) is 0.
  constexpr char kMore[] = {0x1A, 2, 0x18, 0};
  return file + std::string(kMore, sizeof(kMore));
}

SentencePieceModel::~SentencePieceModel() = default;

void SentencePieceModel::Encode(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<int> found;
  while (!text.empty()) {
    const size_t end = impl_->nul < 0 ? text.npos : text.find('\0');
    const std::string_view part = text.substr(0, end);
    if (!part.empty()) {
      const auto status = impl_->processor.Encode({part.data(), part.size()}, &found);
      impl_->Require(status);
      ids.insert(ids.end(), found.begin(), found.end());
    }
    if (end == text.npos) return;
    ids.push_back(impl_->nul);
    text.remove_prefix(end + 1);
  }
}

std::string SentencePieceModel::Decode(const std::vector<int32_t>& ids) const {
  std::string text;
  std::vector<int> known;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(known),
               [this](int32_t id) { return 0 <= id && id < size(); });
  const auto status = impl_->processor.Decode(known, &text);
  impl_->Require(status);
  return text;
}

int32_t SentencePieceModel::size() const { return impl_->processor.GetPieceSize(); }

std::optional<int32_t> SentencePieceModel::Find(std::string_view piece) const {
  const int id = impl_->processor.PieceToId({piece.data(), piece.size()});
  if (Piece(id) != piece) return std::nullopt;  // the unknown token's
  return id;
}

const std::string& SentencePieceModel::Piece(int32_t id) const {
  return impl_->processor.IdToPiece(id);
}

bool SentencePieceModel::IsControl(int32_t id) const { return impl_->processor.IsControl(id); }

}  // namespace equipoise
