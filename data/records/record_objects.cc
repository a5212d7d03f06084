#include "data/records/record_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "data/records/record_pictures.h"
#include "data/records/refusal.h"

namespace equipoise {
namespace {

constexpr std::string_view kName = "<ref-object>", kBox = "<bbox>";
// Larger than any picture's side; products with it are exact enough, and fit in 64 bits.
constexpr double kLargest = 1e9;
// Boxes and points of most models count in thousandths of the picture's sides.
constexpr int64_t kThousandths = 1000;

// The texts around a name, a box, and each of its points and numbers.
struct GroundingForm {
  std::string_view before_name, after_name;
  std::string_view before_box, after_box, before_point, after_point;
  std::string_view between_points, between_numbers;
};

// Those of ms-swift's templates.
GroundingForm FormOf(ImageSpec::Grounding grounding) {
  switch (grounding) {
    case ImageSpec::Grounding::kInternVl:
      return {"<ref>", "</ref>", "<box>[[", "]]</box>", "", "", ", ", ", "};
    case ImageSpec::Grounding::kQwen2Vl:
      return {"<|object_ref_start|>",
              "<|object_ref_end|>",
              "<|box_start|>",
              "<|box_end|>",
              "(",
              ")",
              ",",
              ","};
    case ImageSpec::Grounding::kList:
    case ImageSpec::Grounding::kPixelList:
      return {"", "", "[", "]", "", "", ", ", ", "};
    case ImageSpec::Grounding::kPoints:
      break;
  }
  return {"", "", "[", "]", "(", ")", ",", ","};
}

size_t Count(std::string_view word, const std::vector<Turn>& turns) {
  size_t count = 0;
  for (const Turn& turn : turns) count += CountOf(word, turn.text);
  return count;
}

// The list of that key; an empty one where there is none.
Json ListOf(const Json& objects, const char* key) {
  const auto found = objects.find(key);
  if (found == objects.end() || IsEmpty(*found)) return Json::array();
  if (!found->is_array()) Refuse(Defect::kBadField, fmt::format("objects: '{}' is no list", key));
  return *found;
}

std::vector<std::string> ReadNames(const Json& list) {
  std::vector<std::string> names;
  for (const Json& name : list) {
    if (!name.is_string()) Refuse(Defect::kBadField, "objects: an item of 'ref' is no text");
    names.push_back(name.get<std::string>());
  }
  return names;
}

std::vector<ObjectBox> ReadBoxes(const Json& list) {
  std::vector<ObjectBox> boxes;
  for (const Json& one : list) {
    ObjectBox box;
    const bool right = one.is_array() && (one.size() == 2 || one.size() == 4) &&
                       std::all_of(one.begin(), one.end(), [](const Json& number) {
                         return number.is_number() && std::abs(number.get<double>()) <= kLargest;
                       });
    if (!right) {
      Refuse(Defect::kBadField,
             fmt::format("objects: item {} of 'bbox' is neither a point of two numbers nor a box "
                         "of four",
                         boxes.size() + 1));
    }
    for (const Json& number : one) box.numbers.push_back(number.get<double>());
    for (size_t i = 2; i < box.numbers.size(); ++i) {
      if (box.numbers[i - 2] > box.numbers[i]) std::swap(box.numbers[i - 2], box.numbers[i]);
    }
    boxes.push_back(std::move(box));
  }
  return boxes;
}

// Whether numbers are shares of a picture's sides.
bool AreShares(const Json& objects) {
  const auto found = objects.find("bbox_type");
  if (found == objects.end() || IsEmpty(*found) || *found == "real") return false;
  if (*found == "norm1") return true;
  Refuse(Defect::kBadField, "objects: 'bbox_type' is neither real (pixels) nor norm1 (0 to 1)");
}

void ReadPictureOfEach(const Json& list, std::vector<ObjectBox>& boxes) {
  if (list.size() > boxes.size()) {
    Refuse(Defect::kBadField, fmt::format("objects: 'image_id' has {} numbers for {} boxes",
                                          list.size(), boxes.size()));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_number_unsigned()) {
      Refuse(Defect::kBadField, "objects: 'image_id' is no list of whole numbers from 0");
    }
    boxes[i].image = list[i].get<size_t>();
  }
}

void RequireOneForEach(size_t placeholders, std::string_view placeholder, size_t things,
                       std::string_view word) {
  if (placeholders == things) return;
  Refuse(Defect::kPlaceholders, fmt::format("{} {} in the turns for {} {}; write one {} for each",
                                            placeholders, placeholder, things, word, placeholder));
}

// What a model with these pictures writes for a record's names and boxes, one behind the other.
class ObjectWriter {
 public:
  ObjectWriter(const ImageProcessor& processor, const std::vector<ImageSize>& sizes,
               const RecordObjects& objects)
      : processor_(processor),
        sizes_(sizes),
        objects_(objects),
        form_(FormOf(processor.spec().grounding)) {}

  // The text with the next of them in place. What is put there is not looked through again.
  std::string Written(std::string_view text) {
    std::string out;
    size_t done = 0;  // of the text
    // Each place is looked at once: a search for either would run to the text's end at each step.
    for (size_t at = text.find('<'); at != text.npos; at = text.find('<', at + 1)) {
      const std::string_view rest = text.substr(at);
      if (next_name_ < objects_.names.size() && rest.starts_with(kName)) {
        out += text.substr(done, at - done);
        out += form_.before_name;
        out += objects_.names[next_name_++];
        out += form_.after_name;
        done = at + kName.size();
      } else if (next_box_ < objects_.boxes.size() && rest.starts_with(kBox)) {
        out += text.substr(done, at - done);
        out += TextOf(next_box_++);
        done = at + kBox.size();
      }
    }
    out += text.substr(done);
    return out;
  }

 private:
  std::string TextOf(size_t number) const {
    const ObjectBox& box = objects_.boxes[number];
    if (box.image >= sizes_.size()) {
      Refuse(Defect::kBadField,
             fmt::format("objects: box {} is of picture {} (image_id, from 0), and the record has "
                         "{} pictures",
                         number + 1, box.image, sizes_.size()));
    }
    const ImageSize size = sizes_[box.image], shown = ShownSize(size);
    std::string text(form_.before_box);
    for (size_t i = 0; i < box.numbers.size(); i += 2) {
      text += i == 0 ? "" : form_.between_points;
      text += fmt::format("{}{}{}{}{}", form_.before_point,
                          Scaled(box.numbers[i], size.width, shown.width), form_.between_numbers,
                          Scaled(box.numbers[i + 1], size.height, shown.height), form_.after_point);
    }
    return text += form_.after_box;
  }

  // What the sides of a picture count in the text.
  ImageSize ShownSize(ImageSize size) const {
    const ImageSpec& spec = processor_.spec();
    if (spec.grounding != ImageSpec::Grounding::kPixelList) return {kThousandths, kThousandths};
    const PatchGrid grid = processor_.GridOf(size);
    return {grid.columns * spec.patch_size, grid.rows * spec.patch_size};
  }

  // Halves go to the even number, as in Python.
  int64_t Scaled(double number, int64_t side, int64_t shown) const {
    const double share = number / (objects_.shares ? 1.0 : static_cast<double>(side));
    return static_cast<int64_t>(std::nearbyint(share * static_cast<double>(shown)));
  }

  const ImageProcessor& processor_;
  const std::vector<ImageSize>& sizes_;
  const RecordObjects& objects_;
  const GroundingForm form_;
  size_t next_name_ = 0, next_box_ = 0;
};

}  // namespace

void ReadObjects(const Json& object, Record& record) {
  const auto given = object.find("objects");
  if (given == object.end() || IsEmpty(*given)) return;
  const size_t names = Count(kName, record.turns), boxes = Count(kBox, record.turns);
  if (names + boxes == 0) return;
  const Json given_objects =
      given->is_string() ? ParseJson(given->get_ref<const std::string&>(), "'objects'") : *given;
  if (!given_objects.is_object()) {
    Refuse(Defect::kBadField,
           "'objects' is no object with 'ref', a list of names, and 'bbox', one of boxes");
  }
  const Json name_list = ListOf(given_objects, "ref"), box_list = ListOf(given_objects, "bbox");
  if (name_list.empty() && box_list.empty()) return;
  // A list without a placeholder is not used.
  RequireOneForEach(names, kName, names == 0 ? 0 : name_list.size(), "names in 'ref'");
  RequireOneForEach(boxes, kBox, boxes == 0 ? 0 : box_list.size(), "boxes in 'bbox'");
  RecordObjects& objects = record.objects;
  if (names > 0) objects.names = ReadNames(name_list);
  if (boxes == 0) return;
  if (!record.videos.empty()) {
    Refuse(Defect::kBadField, "'objects' has boxes, which are in pictures, and the record videos");
  }
  objects.boxes = ReadBoxes(box_list);
  objects.shares = AreShares(given_objects);
  ReadPictureOfEach(ListOf(given_objects, "image_id"), objects.boxes);
}

void WriteObjects(const ImageProcessor& processor, const std::vector<ImageSize>& sizes,
                  Record& record) {
  if (record.objects.empty()) return;
  ObjectWriter writer(processor, sizes, record.objects);
  for (Turn& turn : record.turns) {
    std::string text = writer.Written(turn.text);
    for (const std::string_view placeholder : {"<image>", "<video>"}) {
      if (CountOf(placeholder, text) == CountOf(placeholder, turn.text)) continue;
      Refuse(Defect::kPlaceholders,
             fmt::format("objects: a name in 'ref' makes another {}", placeholder));
    }
    turn.text = std::move(text);
  }
  record.objects = {};
}

}  // namespace equipoise
