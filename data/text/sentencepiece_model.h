#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace equipoise {

// A SentencePiece model (tokenizer.model), run by the library. Thread-safe once built. Ids and
// texts equal those of the library, except for the character NUL, which the library cannot look up
// in some models: it is encoded as its byte where the model has that byte.
class SentencePieceModel {
 public:
  // `file`: the bytes of a tokenizer.model. Throws DataError that begins with `source:`.
  SentencePieceModel(const std::string& file, const std::string& source);
  // The file of the same model that puts no space before a text.
  static std::string WithoutPrefix(const std::string& file);
  ~SentencePieceModel();
  SentencePieceModel(const SentencePieceModel&) = delete;
  SentencePieceModel& operator=(const SentencePieceModel&) = delete;

  // Appends the ids of text. Control tokens are not parsed. REQUIRES: valid UTF-8.
  void Encode(std::string_view text, std::vector<int32_t>& ids) const;
  // The text of ids; that of control tokens, and of ids outside the model, is empty.
  std::string Decode(const std::vector<int32_t>& ids) const;
  int32_t size() const;
  std::optional<int32_t> Find(std::string_view piece) const;
  const std::string& Piece(int32_t id) const;
  bool IsControl(int32_t id) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace equipoise
