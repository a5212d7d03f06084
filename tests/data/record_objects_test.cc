// ms-swift's grounding. Expected texts are those that its templates write (swift/template/base.py,
// templates/internvl.py, templates/qwen.py), worked out by hand; the first two records
// and their texts for Qwen2-VL are those of its documentation.
#include "data/records/record_objects.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "data/loading/loader.h"
#include "data/records/record.h"
#include "data/records/refusal.h"
#include "tests/data/data_fixture.h"

namespace equipoise {
namespace {

using Grounding = ImageSpec::Grounding;

// Of Qwen2.5-VL where it writes pixels: sides are multiples of 28.
ImageProcessor ProcessorFor(Grounding grounding) {
  ImageSpec images;
  images.kind = ImageSpec::Kind::kNative;
  images.patch_size = 14;
  images.merge = 2;
  images.rows_per_tile = 4;
  images.tokens_per_tile = 1;
  images.min_pixels = 56 * 56;
  images.max_pixels = 28 * 28 * 1280;
  images.grounding = grounding;
  return {images, TilesConfig()};
}

// The texts of the record's turns, with `|` between them, or its defect.
std::string Written(Grounding grounding, const std::string& line,
                    const std::vector<ImageSize>& sizes) {
  ParsedRecord parsed = ParseRecord(line);
  if (parsed.defect == Defect::kNone) {
    const ParsedRecord written = Guarded([&](Record& record) {
      record = parsed.record;
      WriteObjects(ProcessorFor(grounding), sizes, record);
    });
    parsed = written;
  }
  if (parsed.defect != Defect::kNone)
    return fmt::format("{}: {}", DefectName(parsed.defect), parsed.reason);
  std::string texts;
  for (const Turn& turn : parsed.record.turns) texts += (texts.empty() ? "" : "|") + turn.text;
  return texts;
}

std::string Line(const std::string& question, const std::string& answer, const std::string& objects,
                 const std::string& images = R"("a.png")") {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}},)"
                     R"({{"role":"assistant","content":"{}"}}],"images":[{}],"objects":{}}})",
                     question, answer, images, objects);
}

// With an answer alone, of a picture of 1000 x 2000 pixels.
std::string Answer(const std::string& answer, const std::string& objects,
                   Grounding grounding = Grounding::kList) {
  const std::string texts = Written(grounding, Line("<image>", answer, objects), {{1000, 2000}});
  return texts.starts_with("<image>|") ? texts.substr(8) : texts;
}

struct Family {
  Grounding grounding;
  std::string sheep, dogs, point;
};

TEST_CASE("names, boxes and points are written as each family's template does", "[data][cpu]") {
  const std::string sheep =
      Line("<image>Locate <ref-object> in the picture", "<bbox><bbox>",
           R"({"ref":["sheep"],"bbox":[[90.9,160.8,135,212.8],[360.9,480.8,495,532.8]]})");
  const std::string dogs =
      Line("<image>Describe", "<ref-object><bbox> and <ref-object><bbox> play",
           R"({"ref":["a dog","a woman"],)"
           R"("bbox":[[331.5,761.4,853.5,1594.8],[676.5,685.8,1099.5,1427.4]]})");
  const std::string point =
      Line("<image>Open", "click(start_box='<bbox>')", R"({"ref":[],"bbox":[[123,90.4]]})");
  const std::vector<Family> families = {
      {Grounding::kPoints,  // LLaVA's, and those of models that have no other
       "<image>Locate sheep in the picture|[(101,201),(150,266)][(401,601),(550,666)]",
       "a dog[(221,423),(569,886)] and a woman[(451,381),(733,793)] play", "[(246,226)]"},
      {Grounding::kInternVl,
       "<image>Locate <ref>sheep</ref> in the picture|"
       "<box>[[101, 201, 150, 266]]</box><box>[[401, 601, 550, 666]]</box>",
       "<ref>a dog</ref><box>[[221, 423, 569, 886]]</box> and "
       "<ref>a woman</ref><box>[[451, 381, 733, 793]]</box> play",
       "<box>[[246, 226]]</box>"},
      {Grounding::kQwen2Vl,
       "<image>Locate <|object_ref_start|>sheep<|object_ref_end|> in the picture|"
       "<|box_start|>(101,201),(150,266)<|box_end|><|box_start|>(401,601),(550,666)<|box_end|>",
       "<|object_ref_start|>a dog<|object_ref_end|><|box_start|>(221,423),(569,886)<|box_end|> and "
       "<|object_ref_start|>a woman<|object_ref_end|><|box_start|>(451,381),(733,793)<|box_end|> "
       "play",
       "<|box_start|>(246,226)<|box_end|>"},
      {Grounding::kList,  // Qwen3-VL's
       "<image>Locate sheep in the picture|[101, 201, 150, 266][401, 601, 550, 666]",
       "a dog[221, 423, 569, 886] and a woman[451, 381, 733, 793] play", "[246, 226]"},
      // Qwen2.5-VL's: 900 x 800 pixels become 896 x 812, 1500 x 1800 become 896 x 1092 (not above
      // 1,003,520), 500 x 400 become 504 x 392.
      {Grounding::kPixelList,
       "<image>Locate sheep in the picture|[90, 163, 134, 216][359, 488, 493, 541]",
       "a dog[198, 462, 510, 968] and a woman[404, 416, 657, 866] play", "[124, 89]"}};
  for (const Family& family : families) {
    INFO(family.sheep);
    CHECK(Written(family.grounding, sheep, {{900, 800}}) == family.sheep);
    CHECK(Written(family.grounding, dogs, {{1500, 1800}}) == "<image>Describe|" + family.dogs);
    CHECK(Written(family.grounding, point, {{500, 400}}) ==
          "<image>Open|click(start_box='" + family.point + "')");
  }
}

TEST_CASE("coordinates are pixels or shares, and rounded as in Python", "[data][cpu]") {
  const std::string real = R"({"bbox":[[100,100,200,200]],"bbox_type":)";
  for (const char* type : {R"("real"})", R"(null})", R"(""})"})
    CHECK(Answer("<bbox>", real + type) == "[100, 50, 200, 100]");
  const std::string shares = R"({"bbox":[[0.1,0.2,0.5,0.75]],"bbox_type":"norm1","image_id":[0]})";
  CHECK(Answer("<bbox>", shares) == "[100, 200, 500, 750]");
  // 1000 x 2000 pixels are resized to 700 x 1400.
  CHECK(Answer("<bbox>", shares, Grounding::kPixelList) == "[70, 280, 350, 1050]");
  // Halves go to the even number.
  const std::string halves = R"({"bbox":[[0,1],[0,3],[0,5],[0,7]]})";
  CHECK(Answer("<bbox><bbox><bbox><bbox>", halves) == "[0, 0][0, 2][0, 2][0, 4]");
  // Corners are put in order; what lies beyond the picture stays there.
  CHECK(Answer("<bbox>", R"({"bbox":[[200,2400,100,-20]]})") == "[100, -10, 200, 1200]");
  CHECK(Answer("<bbox>", R"({"bbox":[[-0.1,0]]})") == "[0, 0]");
}

TEST_CASE("a box is of the first picture, or of that of image_id", "[data][cpu]") {
  const std::string images = R"("a.png","b.png")";
  const std::string boxes = R"({"bbox":[[10,10],[10,10],[10,10]],"image_id":)";
  const std::vector<ImageSize> sizes = {{100, 200}, {50, 20}};
  const auto written = [&](const std::string& ids) {
    return Written(Grounding::kList,
                   Line("<image><image>", "<bbox><bbox><bbox>", boxes + ids + "}", images), sizes)
        .substr(15);
  };
  CHECK(written("null") == "[100, 50][100, 50][100, 50]");
  CHECK(written("[0,1,0]") == "[100, 50][200, 500][100, 50]");
  CHECK(written("[1]") == "[200, 500][100, 50][100, 50]");
}

TEST_CASE("names and boxes are taken in the order of the turns", "[data][cpu]") {
  const std::string line =
      R"({"system":"S <ref-object>","query":"<bbox>? <ref-object>",)"
      R"("response":"<ref-object> <bbox>",)"
      R"("history":[["<image><bbox>","<ref-object>"]],"image":"a.png",)"
      R"("objects":{"ref":["a","b","c <bbox> <ref-object>","d"],"bbox":[[1,1],[2,2],[3,3]]}})";
  // What a name holds is not put in place again.
  CHECK(Written(Grounding::kList, line, {{1000, 1000}}) ==
        "S a|<image>[1, 1]|b|[2, 2]? c <bbox> <ref-object>|d [3, 3]");
}

TEST_CASE("brackets beside placeholders stay, of very many, too", "[data][cpu]") {
  CHECK(Answer("<<bbox>> <bbox <", R"({"bbox":[[1,2]]})") == "<[1, 1]> <bbox <");
  // Names far behind the boxes: whoever looks for the next name at each box takes minutes.
  constexpr int kMany = 100'000;
  std::string box_marks, name_marks, names, boxes, wanted_boxes, wanted_names;
  for (int i = 0; i < kMany; ++i) {
    box_marks += "<bbox>";
    name_marks += "<ref-object< <ref-object>";
    names += fmt::format("{}\"n{}\"", i == 0 ? "" : ",", i);
    boxes += fmt::format("{}[{},0]", i == 0 ? "" : ",", i % 1000);
    wanted_boxes += fmt::format("[{}, 0]", i % 1000);
    wanted_names += fmt::format("<ref-object< n{}", i);
  }
  const std::string objects = fmt::format(R"({{"ref":[{}],"bbox":[{}]}})", names, boxes);
  const bool same = Answer(box_marks + name_marks, objects) == wanted_boxes + wanted_names;
  CHECK(same);
}

TEST_CASE("placeholders are text where a record has no objects for them", "[data][cpu]") {
  const std::string text = "<ref-object> at <bbox>";
  for (const char* objects : {"null", "[]", "{}", R"({"ref":[],"bbox":[]})",
                              R"({"ref":null,"bbox":null,"bbox_type":null,"image_id":null})"}) {
    INFO(objects);
    CHECK(Answer(text, objects) == text);
  }
  // Objects without a placeholder are not looked at, whatever they are.
  for (const char* objects : {"7", R"([{"caption":"a"}])", R"({"bbox":[[1]],"ref":["a"]})"}) {
    INFO(objects);
    CHECK(Answer("cat", objects) == "cat");
  }
  // As JSON text, too.
  CHECK(Answer("<bbox>", R"("{\"bbox\": [[1, 2]]}")") == "[1, 1]");
  // Names without a place are not used, nor are boxes.
  CHECK(Answer("<bbox>", R"({"ref":["cat"],"bbox":[[1,2]]})") == "[1, 1]");
  CHECK(Answer("<ref-object>", R"({"ref":["cat"],"bbox":[[1]]})") == "cat");
  // Without a picture, too.
  CHECK(Written(Grounding::kInternVl,
                R"({"query":"<ref-object>?","response":"A","objects":{"ref":["cat"]}})",
                {}) == "<ref>cat</ref>?|A");
}

TEST_CASE("objects that do not go with the text are one clear line", "[data][cpu]") {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"<bbox><bbox>", R"({"bbox":[[1,2,3,4]]})",
       "placeholders: 2 <bbox> in the turns for 1 boxes in 'bbox'; write one <bbox> for each"},
      {"<bbox>", R"({"bbox":[[1,2],[3,4]]})", "placeholders: 1 <bbox> in the turns for 2 boxes"},
      {"<ref-object>", R"({"bbox":[[1,2]]})",
       "placeholders: 1 <ref-object> in the turns for 0 names in 'ref'"},
      {"<bbox>", R"("[]")", "bad_field: 'objects' is no object with 'ref', a list of names"},
      {"<bbox>", R"([{"caption":"a","bbox":[1,2,3,4]}])", "bad_field: 'objects' is no object"},
      {"<bbox>", R"({"bbox":7})", "bad_field: objects: 'bbox' is no list"},
      {"<ref-object>", R"({"ref":"cat"})", "bad_field: objects: 'ref' is no list"},
      {"<ref-object>", R"({"ref":[1]})", "bad_field: objects: an item of 'ref' is no text"},
      {"<bbox>", R"({"bbox":[[1,2,3]]})",
       "bad_field: objects: item 1 of 'bbox' is neither a point of two numbers nor a box of four"},
      {"<bbox><bbox>", R"({"bbox":[[1,2],[true,2]]})", "bad_field: objects: item 2 of 'bbox'"},
      {"<bbox>", R"({"bbox":[5]})", "bad_field: objects: item 1 of 'bbox'"},
      {"<bbox>", R"({"bbox":[[1e300,2]]})", "bad_field: objects: item 1 of 'bbox'"},
      {"<bbox>", R"({"bbox":[[1,2]],"bbox_type":"norm1000"})",
       "bad_field: objects: 'bbox_type' is neither real (pixels) nor norm1 (0 to 1)"},
      {"<bbox>", R"({"bbox":[[1,2]],"image_id":0})", "bad_field: objects: 'image_id' is no list"},
      {"<bbox>", R"({"bbox":[[1,2]],"image_id":[-1]})",
       "bad_field: objects: 'image_id' is no list of whole numbers from 0"},
      {"<bbox>", R"({"bbox":[[1,2]],"image_id":[0,0]})",
       "bad_field: objects: 'image_id' has 2 numbers for 1 boxes"},
      {"<bbox>", R"({"bbox":[[1,2]],"image_id":[1]})",
       "bad_field: objects: box 1 is of picture 1 (image_id, from 0), and the record has 1 "
       "pictures"},
      {"<ref-object>", R"({"ref":["a <image>"]})",
       "placeholders: objects: a name in 'ref' makes another <image>"},
      {"<vid<ref-object>", R"({"ref":["eo>"]})",
       "placeholders: objects: a name in 'ref' makes another <video>"}};
  for (const auto& [answer, objects, want] : cases) {
    INFO(objects);
    const std::string reason = Answer(answer, objects);
    CHECK(reason.substr(0, want.size()) == want);
    CHECK(reason.find('\n') == std::string::npos);
  }
  CHECK(Written(Grounding::kList, R"({"query":"Q","response":"<bbox>","objects":{"bbox":[[1,2]]}})",
                {})
            .find("the record has 0 pictures") != std::string::npos);
  CHECK(Written(Grounding::kList,
                R"({"video":["a.png"],"query":"Q","response":"<bbox>",)"
                R"("objects":{"bbox":[[1,2]]}})",
                {}) ==
        "bad_field: 'objects' has boxes, which are in pictures, and the record videos");
}

TEST_CASE("the index, the loader and the shown sample have the text with its boxes",
          "[data][cpu]") {
  DataFixture data;
  data.folder.Write("images/wide.png", TinyPng(40, 20));
  const auto line = [](const std::string& answer, const std::string& more) {
    return R"({"image":"wide.png","query":"<image>Where?","response":")" + answer + "\"" + more +
           "}";
  };
  const std::string at_right = R"(,"objects":{"bbox":[[20,5,30,20]],"image_id":[)";
  data.WriteRecords({line("at <bbox>", at_right + "0]}"), line("at [(500,250),(750,1000)]", ""),
                     line("at <bbox>", at_right + "1]}"), line("at <bbox>", ""),
                     R"({"query":"no picture","response":"here"})"});
  data.config.max_bad_share = 0.5;
  const CostIndex index = data.Open();
  CHECK(index.DescribeDefects() == "1 bad_field");
  CHECK(index[0].tokens == index[1].tokens);
  CHECK(index[0].trained == index[1].trained);
  CHECK(index[3].tokens < index[0].tokens);
  const Dataset dataset(data.config.train, data.sample_options(), &index, &data.chat_template);
  const ScannedSample sample = dataset.Scan(0);
  CHECK(sample.record.turns[1].text == "at [(500,250),(750,1000)]");
  CHECK(sample.encoded.ids == dataset.Scan(1).encoded.ids);
  CHECK(dataset.Check(0).defect == Defect::kNone);

  // Another way of writing boxes is another index.
  CostIndexOptions other = data.options();
  other.images.grounding = Grounding::kInternVl;
  CHECK(data.Open(other).path() != index.path());
}

}  // namespace
}  // namespace equipoise
