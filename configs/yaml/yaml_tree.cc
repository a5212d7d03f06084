// yaml-cpp parses into events, and this file builds its own tree of them, because yaml-cpp's keeps
// the first of two equal keys, follows aliases in cycles and has no limits. Every node knows its
// place. The bounds hold for hostile text: at most 1 MiB, kMaxDepth levels and kMaxNodes nodes,
// where an alias counts as all nodes that it expands to; an alias can refer to a closed node only,
// so there are no cycles.

#include "configs/yaml/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <unordered_map>

#include "configs/base/regular_file.h"
#include "configs/base/shown_text.h"

namespace equipoise {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxNodes = 100'000;  // aliases counted each time that they are used

size_t CountNodes(const YamlNode& node) {
  size_t count = 1 + node.keys.size();
  for (const YamlNode& item : node.items) count += CountNodes(item);
  return count;
}

size_t DepthOf(const YamlNode& node) {
  size_t deepest = 0;
  for (const YamlNode& item : node.items) deepest = std::max(deepest, DepthOf(item));
  return node.items.empty() && node.kind != YamlNode::Kind::kList ? 0 : deepest + 1;
}

// Builds the tree from yaml-cpp's events.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::shared_ptr<const std::string> source, bool lines)
      : source_(std::move(source)), lines_(lines) {}

  YamlNode Take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    YamlNode node = NodeAt(mark);
    Keep(anchor, node);
    Put(std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      Fail(mark, "this alias refers to the list or map that it stands in; write the value out");
    }
    if (open_.size() + DepthOf(found->second) > kMaxDepth) FailDepth(mark);
    nodes_ += CountNodes(found->second);
    CheckNodes(mark);
    Put(found->second);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node = NodeAt(mark);
    node.kind = YamlNode::Kind::kScalar;
    node.text = value;
    node.quoted = tag == "!";
    if (tag != "!" && tag != "?") FailTag(mark, tag);
    Keep(anchor, node);
    Put(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { Close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct OpenNode {
    YamlNode node;
    YAML::anchor_t anchor;
    std::unordered_map<std::string, int> lines;  // of the keys
  };

  YamlNode NodeAt(const YAML::Mark& mark) {
    YamlNode node;
    node.source = source_;
    if (lines_) {
      node.line = mark.line + 1;
      node.column = mark.column + 1;
    }
    ++nodes_;
    CheckNodes(mark);
    return node;
  }

  [[noreturn]] void Fail(const YAML::Mark& mark, const std::string& what) const {
    YamlNode node;
    node.source = source_;
    if (lines_) {
      node.line = mark.line + 1;
      node.column = mark.column + 1;
    }
    throw ConfigError(fmt::format("{}: {}", node.Where(), what));
  }

  [[noreturn]] void FailDepth(const YAML::Mark& mark) const {
    Fail(mark, fmt::format("nested deeper than {} levels; no key lies so deep", kMaxDepth));
  }

  [[noreturn]] void FailTag(const YAML::Mark& mark, const std::string& tag) const {
    Fail(mark, fmt::format("the tag '{}' is not supported; remove it", tag));
  }

  void CheckNodes(const YAML::Mark& mark) const {
    if (nodes_ <= kMaxNodes) return;
    Fail(mark, fmt::format("more than {} values, aliases counted each time; write a smaller file",
                           kMaxNodes));
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YamlNode::Kind kind) {
    if (!tag.empty() && tag != "?") FailTag(mark, tag);
    if (open_.size() >= kMaxDepth) FailDepth(mark);
    YamlNode node = NodeAt(mark);
    node.kind = kind;
    open_.push_back({std::move(node), anchor, {}});
  }

  void Close() {
    OpenNode done = std::move(open_.back());
    open_.pop_back();
    Keep(done.anchor, done.node);
    Put(std::move(done.node));
  }

  static bool ExpectsKey(const YamlNode& node) {
    return node.kind == YamlNode::Kind::kMap && node.keys.size() == node.items.size();
  }

  void Keep(YAML::anchor_t anchor, const YamlNode& node) {
    if (anchor != 0) anchors_[anchor] = node;
  }

  void Put(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (ExpectsKey(open_.back().node)) {
      PutKey(std::move(node));
    } else {
      open_.back().node.items.push_back(std::move(node));
    }
  }

  void PutKey(YamlNode key) {
    if (key.kind != YamlNode::Kind::kScalar) {
      throw ConfigError(
          fmt::format("{}: a key is no plain name; write a name before the ':'", key.Where()));
    }
    if (key.text == "<<" && !key.quoted) {
      throw ConfigError(
          fmt::format("{}: '<<' merges are not supported; write the keys out", key.Where()));
    }
    const auto [first, added] = open_.back().lines.try_emplace(key.text, key.line);
    if (!added) {
      throw ConfigError(
          fmt::format("{}: {}: given twice{}; remove one", key.Where(), Path(key.text),
                      lines_ ? fmt::format(", first on line {}", first->second) : ""));
    }
    open_.back().node.keys.push_back(std::move(key));
  }

  // The dotted path of a key in the innermost open map.
  std::string Path(const std::string& key) const {
    std::string path;
    for (size_t i = 0; i + 1 < open_.size(); ++i) {
      const YamlNode& node = open_[i].node;
      if (ExpectsKey(node)) return key;  // inside a list or map that stands as a key
      const bool map = node.kind == YamlNode::Kind::kMap;
      path += map ? node.keys.back().text : fmt::to_string(node.items.size());
      path += '.';
    }
    return path + key;
  }

  std::shared_ptr<const std::string> source_;
  bool lines_;
  YamlNode root_;
  std::vector<OpenNode> open_;
  std::map<YAML::anchor_t, YamlNode> anchors_;  // closed nodes alone: a cycle finds none
  size_t nodes_ = 0;
};

void CheckText(std::string_view text, const YamlNode& origin, bool lines) {
  if (text.size() > kMaxBytes) {
    throw ConfigError(
        fmt::format("{}: larger than 1 MiB; is this a configuration file?", *origin.source));
  }
  YamlNode place = origin;
  place.line = lines ? 1 : 0;
  place.column = 1;
  for (size_t at = 0; at < text.size();) {
    const size_t length = SequenceLength(text.substr(at));
    if (length == 0) {
      throw ConfigError(
          fmt::format("{}: not text in UTF-8; save the file as UTF-8", place.Where()));
    }
    if (text[at] == '\n' && lines) {
      ++place.line;
      place.column = 0;
    }
    ++place.column;
    at += length;
  }
}

// Finds a tab in the indentation, of which yaml-cpp says "illegal map value" and the like.
bool FindTabIndent(std::string_view text, int last_line, YamlNode& place) {
  size_t start = 0;
  for (int line = 0; line <= last_line && start <= text.size(); ++line) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view row = text.substr(start, end - start);
    const size_t first = row.find_first_not_of(" \t\r");
    const size_t tab = row.find('\t');
    if (first != std::string_view::npos && row[first] != '#' && tab < first) {
      place.line = line + 1;
      place.column = static_cast<int>(tab) + 1;
      return true;
    }
    start = end + 1;
  }
  return false;
}

// A text with brackets that lacks quotes, as of model.unfreeze: a slice of blocks. Empty: there is
// none.
std::string_view UnquotedSlice(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (size_t open = text.find('['); open != text.npos; open = text.find('[', open + 1)) {
    const size_t close = text.find_first_not_of("-:0123456789", open + 1);
    if (close == text.npos || text[close] != ']' || close == open + 1) continue;
    size_t begin = open;
    while (begin > 0 && is_letter(text[begin - 1])) --begin;
    const bool quoted = begin > 0 && (text[begin - 1] == '"' || text[begin - 1] == '\'');
    if (begin < open && !quoted) return text.substr(begin, close + 1 - begin);
  }
  return {};
}

[[noreturn]] void FailSyntax(std::string_view text, const YAML::Exception& error, YamlNode place,
                             bool lines) {
  if (lines && FindTabIndent(text, error.mark.line, place)) {
    throw ConfigError(
        fmt::format("{}: a tab in the indentation; indent with spaces", place.Where()));
  }
  if (lines && !error.mark.is_null()) {
    place.line = error.mark.line + 1;
    place.column = error.mark.column + 1;
  }
  if (lines && error.mark.line <= 0 && error.mark.column <= 0 && error.msg.starts_with("end of")) {
    // yaml-cpp gives no mark where the text ends too early: show its last line.
    const size_t last = text.find_last_not_of(" \t\r\n");
    const std::string_view before = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
    const size_t newline = before.rfind('\n');
    place.line = 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
    place.column = static_cast<int>(before.size() - (newline + 1)) + 1;  // npos + 1 = 0
  }
  if (text.find("${") != std::string_view::npos) {
    throw ConfigError(fmt::format(
        "{}: not YAML ({}); variables such as ${{HOME}} are not replaced, write the value itself",
        place.Where(), error.msg));
  }
  const std::string what = error.msg == YAML::ErrorMsg::BAD_FILE ? "nested too deep" : error.msg;
  const std::string_view slice = UnquotedSlice(text);
  const std::string way =
      slice.empty() ? "correct the line" : fmt::format("write \"{}\" in quotes", slice);
  throw ConfigError(fmt::format("{}: not YAML ({}); {}", place.Where(), what, way));
}

}  // namespace

std::string YamlNode::Where() const {
  if (line == 0) return *source;
  return fmt::format("{}:{}:{}", *source, line, column);
}

const YamlNode* YamlNode::Find(std::string_view key) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].text == key) return &items[i];
  }
  return nullptr;
}

YamlNode ParseYaml(std::string_view text, const std::string& source, bool lines) {
  YamlNode origin;
  origin.source = std::make_shared<const std::string>(source);
  origin.line = lines ? 1 : 0;
  origin.column = 1;
  CheckText(text, origin, lines);
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    TreeBuilder first(origin.source, lines);
    if (!parser.HandleNextDocument(first)) return origin;
    TreeBuilder second(origin.source, lines);
    if (parser.HandleNextDocument(second)) {
      const YamlNode other = second.Take();
      throw ConfigError(
          fmt::format("{}: a second document; a configuration is one document", other.Where()));
    }
    return first.Take();
  } catch (const YAML::Exception& error) {
    FailSyntax(text, error, origin, lines);
  }
}

std::string ReadYamlFile(const std::string& path) {
  FileText file = ReadRegularFile(path, kMaxBytes);
  if (file.problem.empty()) return std::move(file.text);
  const bool has_advice = file.problem.find(';') != std::string::npos;
  throw ConfigError(
      fmt::format("{}: {}{}", path, file.problem, has_advice ? "" : "; check the path"));
}

void FailAt(const YamlNode& node, const std::string& key, const std::string& what) {
  throw ConfigError(fmt::format("{}: {}: {}", node.Where(), key, what));
}

}  // namespace equipoise
