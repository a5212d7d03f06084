// BPE over whole lines against its definition, and pieces of lines against whole ones.
#include "data/text/bpe.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "data/text/tokenizer_json.h"
#include "tests/skip_case.h"

namespace equipoise {
namespace {

using Ids = std::vector<int32_t>;
using Random = std::mt19937;

constexpr char kSpace[] = "\xE2\x96\x81";

std::string Hexadecimal(int byte) {
  char text[8];
  std::snprintf(text, sizeof text, "<0x%02X>", byte);
  return text;
}

template <class Items>
const auto& Pick(const Items& items, Random& random) {
  return items[random() % items.size()];
}

// A vocabulary of characters and bytes, and merges of its tokens.
struct Model {
  Vocabulary vocabulary;
  std::vector<std::string> tokens;  // by id
  std::vector<BpeMerge> merges;

  int32_t Add(const std::string& token) {
    const auto [found, added] = vocabulary.try_emplace(token, static_cast<int32_t>(tokens.size()));
    if (added) tokens.push_back(token);
    return found->second;
  }
  void Merge(int32_t left, int32_t right) {
    const auto text = [this](int32_t id) { return tokens[static_cast<size_t>(id)]; };
    merges.push_back({left, right, Add(text(left) + text(right))});
  }
};

Model WithCharacters(const std::vector<std::string>& characters, int first_byte = 0) {
  Model model;
  for (int byte = first_byte; byte < 256; ++byte) model.Add(Hexadecimal(byte));
  for (const std::string& character : characters) model.Add(character);
  return model;
}

// Merges of any tokens: of bytes, of spaces in the middle, of the letters of "<0x41>".
Model RandomModel(Random& random) {
  Model model = WithCharacters({"a", "b", "c", "<", "0", "x", "4", "1", ">", kSpace, "é", "日"});
  const auto many = static_cast<int32_t>(random() % 60);
  for (int32_t i = 0; i < many; ++i) {
    const auto any = [&] {
      const size_t plain = 256 + random() % (model.tokens.size() - 256);
      return static_cast<int32_t>(random() % 8 == 0 ? random() % 256 : plain);
    };
    const int32_t left = any();
    model.Merge(left, any());
  }
  std::shuffle(model.merges.begin(), model.merges.end(), random);
  return model;
}

std::string RandomText(Random& random, size_t most) {
  static const std::vector<std::string> pieces = {"a",    "b",    "c",  "<0x41>", "<",  "A",
                                                  "\n",   kSpace, " ",  "é",      "日", "😀",
                                                  "\x7f", "ab",   "bc", ">",      "0x", ""};
  std::string text;
  for (size_t count = random() % most; count > 0; --count) {
    const std::string& piece = Pick(pieces, random);
    for (size_t run = random() % 4 == 0 ? random() % 9 : 1; run > 0; --run) text += piece;
  }
  return text;
}

// The symbols of a text: its characters, or their bytes.
Ids SymbolsOf(const Model& model, const std::string& text) {
  Ids symbols;
  for (size_t at = 0; at < text.size();) {
    const std::string character = text.substr(at, ReadCodePoint(text, at).bytes);
    at += character.size();
    const auto found = model.vocabulary.find(character);
    if (found != model.vocabulary.end()) {
      symbols.push_back(found->second);
      continue;
    }
    for (const char byte : character)
      symbols.push_back(model.vocabulary.at(Hexadecimal(static_cast<uint8_t>(byte))));
  }
  return symbols;
}

// The definition: the pair of the lowest rank, of equal ones the leftmost, until there is none.
Ids MergedSlowly(const Model& model, Ids symbols) {
  std::map<std::pair<int32_t, int32_t>, size_t> ranks;
  for (size_t rank = 0; rank < model.merges.size(); ++rank)
    ranks[{model.merges[rank].left, model.merges[rank].right}] = rank;
  while (true) {
    size_t best = model.merges.size(), where = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found == ranks.end() || found->second >= best) continue;
      best = found->second;
      where = i;
    }
    if (best == model.merges.size()) return symbols;
    symbols[where] = model.merges[best].merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

Ids Whole(const BpeModel& bpe, const std::string& text) {
  Ids ids;
  bpe.Encode(text, ids);
  return ids;
}

Ids InPieces(const BpeModel& bpe, const std::string& text, size_t* pieces) {
  Ids ids;
  for (size_t begin = 0; begin < text.size(); ++*pieces) {
    const size_t end = bpe.PieceEnd(text, begin);
    REQUIRE(end > begin);
    bpe.Encode(std::string_view(text).substr(begin, end - begin), ids);
    begin = end;
  }
  return ids;
}

TEST_CASE("pieces of a line have the ids of the line", "[data][cpu]") {
  Random random(1);
  size_t pieces = 0, texts = 0;
  for (int round = 0; round < 300; ++round) {
    const Model model = RandomModel(random);
    const BpeModel bpe(&model.vocabulary, model.merges, {.byte_fallback = true});
    for (int i = 0; i < 30; ++i, ++texts) {
      const std::string text = RandomText(random, i % 3 == 0 ? 60 : 12);
      const Ids right = MergedSlowly(model, SymbolsOf(model, text));
      CAPTURE(round, text);
      REQUIRE(Whole(bpe, text) == right);
      REQUIRE(InPieces(bpe, text, &pieces) == right);
    }
  }
  CHECK(pieces > 4 * texts);
}

TEST_CASE("a line is cut where no merge joins", "[data][cpu]") {
  Model model = WithCharacters({"a", "b", kSpace, "é"});
  const int32_t a = model.Add("a"), b = model.Add("b"), space = model.Add(kSpace);
  model.Merge(a, b);
  model.Merge(space, model.Add("ab"));
  model.Merge(space, space);
  model.Merge(model.Add("é"), model.Add(Hexadecimal('\n')));
  const BpeModel bpe(&model.vocabulary, model.merges, {.byte_fallback = true});
  const auto ends = [&](const std::string& text) {
    std::vector<size_t> found;
    for (size_t at = 0; at < text.size(); found.push_back(at)) at = bpe.PieceEnd(text, at);
    return found;
  };
  using Ends = std::vector<size_t>;
  CHECK(ends(std::string("ab") + kSpace + "abab") == Ends{2, 7, 9});
  CHECK(ends(std::string("a") + kSpace + kSpace + "b") == Ends{1, 7, 8});
  CHECK(ends("é\né") == Ends{3, 5});
  CHECK(ends("日\n") == Ends{4});  // of one class with é
  CHECK(ends("日本") == Ends{3, 6});
}

TEST_CASE("a line is one piece where its parts depend on one another", "[data][cpu]") {
  Model model = WithCharacters({"a", "b"}), lacking = WithCharacters({"a", "b"}, /*first_byte=*/1);
  const std::string text = "ab";
  const BpeModel cut(&model.vocabulary, {}, {.byte_fallback = true});
  CHECK(cut.PieceEnd(text, 0) == 1);
  const BpeModel unknown(&lacking.vocabulary, {}, {.byte_fallback = true});
  CHECK(unknown.PieceEnd(text, 0) == 2);
  const BpeModel words(&model.vocabulary, {}, {.ignore_merges = true, .byte_fallback = true});
  CHECK(words.PieceEnd(text, 0) == 2);
  const BpeModel bytes(&model.vocabulary, {}, {});
  CHECK(bytes.PieceEnd(text, 0) == 2);
}

TEST_CASE("pieces of lines of published tokenizers", "[data][cpu]") {
  const char* fixtures = std::getenv("EQUIPOISE_FIXTURES");
  if (fixtures == nullptr) return testing::SkipCase("no fixtures");
  for (const std::string name : {"llama2", "mistral-v3"}) {
    CAPTURE(name);
    const std::string path = std::string(fixtures) + "/tokenizers/" + name + "/tokenizer.json";
    std::ostringstream file;
    file << std::ifstream(path).rdbuf();
    const TokenizerSpec spec = ReadTokenizerSpec(file.str(), path);
    const BpeModel bpe(&spec.vocabulary, spec.merges, spec.options);
    std::vector<std::string> tokens;
    for (const auto& [token, id] : spec.vocabulary) tokens.push_back(token);
    std::sort(tokens.begin(), tokens.end());
    Random random(2);
    size_t pieces = 0, tried = 0;
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      while (text.size() < random() % 400) {
        text += random() % 3 == 0 ? RandomText(random, 8) : Pick(tokens, random);
        if (random() % 4 == 0) text.resize(text.size() / 2);
        if (!IsValidUtf8(text)) text = ReplaceInvalidUtf8(text);
        if (random() % 4 == 0) text += kSpace;
      }
      tried += text.empty() ? 0 : 1;
      CAPTURE(text);
      REQUIRE(InPieces(bpe, text, &pieces) == Whole(bpe, text));
    }
    CHECK(pieces > 3 * tried);
    // A word of a sentence is a piece.
    const std::string sentence = std::string(kSpace) + "the" + kSpace + "fox";
    CHECK(bpe.PieceEnd(sentence, 0) == 6);
  }
}

}  // namespace
}  // namespace equipoise
