#include "trainer/answers/answer_role.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/trainer/scratch_folder.h"

namespace equipoise {
namespace {

constexpr const char* kQuestion = "<image>\nWhat is this?";

SourceConfig Source(const std::string& annotations) {
  SourceConfig source;
  source.annotations = annotations;
  source.images = "images";
  return source;
}

// Questions about pictures a.png, b.png, ..., with these answers.
AnsweredSource Answered(const std::string& annotations, const std::vector<std::string>& answers,
                        char first = 'a') {
  AnsweredSource source{Source(annotations), {}};
  for (size_t i = 0; i < answers.size(); ++i) {
    SampleAnswer& answer = source.answers.emplace_back();
    answer.images = {std::string(1, static_cast<char>(first + static_cast<char>(i))) + ".png"};
    answer.question = kQuestion;
    answer.reference = answers[i];
  }
  return source;
}

std::string Record(const std::string& image, const std::string& answer) {
  return R"({"image":")" + image +
         R"(","conversations":[{"from":"human","value":"What is this?"},{"from":"gpt","value":")" +
         answer + "\"}]}\n";
}

TEST_CASE("the role of answered questions follows from the training data", "[report][cpu]") {
  const ScratchFolder scratch;
  const std::string file = scratch.Path("train.jsonl");
  WriteText(file, Record("a.png", "cat") + "no record\n\n" + Record("b.png", "dog") +
                      Record("c.png", "cow") + Record("d.png", "hen"));
  const std::vector<SourceConfig> train = {Source(scratch.Path("absent")), Source(file)};
  const std::vector<SourceConfig> eval = {Source("held")};
  const auto role = [&](const AnsweredSource& source) {
    return AnswerRoles({Answered(file, {"cat"}), source}, train, eval)[1];
  };
  CHECK(AnswerRoles({Answered(file, {"cat"})}, train, eval)[0] == AnswerRole::kTrained);
  CHECK(role(Answered("held", {"ant"}, 'x')) == AnswerRole::kHeldOut);
  CHECK(role(Answered("permuted", {"dog", "cow", "cat"})) == AnswerRole::kControl);
  CHECK(role(Answered("not answered in training", {"cat"}, 'd')) == AnswerRole::kControl);
  CHECK(role(Answered("some stay", {"dog", "cat", "cow"})) == AnswerRole::kControl);
  CHECK(role(Answered("most stay", {"cat", "dog", "cat"})) == AnswerRole::kOther);
  CHECK(role(Answered("a copy", {"cat", "dog", "cow"})) == AnswerRole::kOther);
  CHECK(role(Answered("other pictures", {"cat", "dog"}, 'x')) == AnswerRole::kOther);
  CHECK(role(Answered("nothing answered", {})) == AnswerRole::kOther);
  AnsweredSource elsewhere = Answered("other folder", {"dog", "cow", "cat"});
  elsewhere.source.images = "elsewhere";
  CHECK(role(elsewhere) == AnswerRole::kOther);
  // A shard's pictures have names of its own.
  CHECK(role(Answered("val-0000.tar", {"dog", "cow", "cat"})) == AnswerRole::kOther);
  AnsweredSource asked = Answered("other questions", {"dog", "cow", "cat"});
  for (SampleAnswer& answer : asked.answers) answer.question = "<image>\nWhat colour is it?";
  CHECK(role(asked) == AnswerRole::kOther);
}

}  // namespace
}  // namespace equipoise
