#include "trainer/answer_role.h"

#include <catch2/catch.hpp>
#include <string>

namespace equipoise {
namespace {

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
    answer.question = "What is this?";
    answer.reference = answers[i];
  }
  return source;
}

TEST_CASE("the role of answered questions follows from the training data", "[report][cpu]") {
  const std::vector<SourceConfig> train = {Source("train")}, eval = {Source("held")};
  const AnsweredSource trained = Answered("train", {"cat", "dog", "cow"});
  const auto role = [&](const AnsweredSource& source) {
    return AnswerRoles({trained, source}, train, eval)[1];
  };
  CHECK(AnswerRoles({trained}, train, eval)[0] == AnswerRole::kTrained);
  CHECK(role(Answered("held", {"ant"}, 'x')) == AnswerRole::kHeldOut);
  CHECK(role(Answered("permuted", {"dog", "cow", "cat"})) == AnswerRole::kControl);
  CHECK(role(Answered("some stay", {"dog", "cat", "cow"})) == AnswerRole::kControl);
  CHECK(role(Answered("most stay", {"cat", "dog", "cat"})) == AnswerRole::kOther);
  CHECK(role(Answered("a copy", {"cat", "dog", "cow"})) == AnswerRole::kOther);
  CHECK(role(Answered("other pictures", {"cat", "dog"}, 'x')) == AnswerRole::kOther);
  CHECK(role(Answered("nothing answered", {})) == AnswerRole::kOther);
  AnsweredSource elsewhere = Answered("other folder", {"dog", "cow", "cat"});
  elsewhere.source.images = "elsewhere";
  CHECK(role(elsewhere) == AnswerRole::kOther);
  AnsweredSource asked = Answered("other questions", {"dog", "cow", "cat"});
  for (SampleAnswer& answer : asked.answers) answer.question = "What colour is it?";
  CHECK(role(asked) == AnswerRole::kOther);
}

}  // namespace
}  // namespace equipoise
