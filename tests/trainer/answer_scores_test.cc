#include "trainer/answers/answer_scores.h"

#include <catch2/catch.hpp>

namespace equipoise {
namespace {

AnswerScores Score(const std::string& answer, const std::vector<std::string>& references,
                   const std::string& question = "What?") {
  return ScoreAnswer(question, references, answer);
}

TEST_CASE("what normalizing leaves nothing of is compared as it stands", "[answers][cpu]") {
  CHECK(Score("", {"A"}).normalized == 0);
  CHECK(Score("?", {"A"}).normalized == 0);
  CHECK(Score("-", {"+"}).normalized == 0);
  CHECK(Score("+", {"+"}).normalized == 1);
  CHECK(Score("a", {"A"}).normalized == 1);
}

TEST_CASE("an exact answer has the reference's bytes", "[answers][cpu]") {
  CHECK(Score("a cat", {"a cat"}).exact == 1);
  CHECK(Score("A cat", {"a cat"}).exact == 0);
  CHECK(Score("b", {"a", "b"}).exact == 1);
  CHECK(Score("", {""}).exact == 1);
  CHECK(Score("x", {}).exact == 0);
}

// As SQuAD's normalize_answer.
TEST_CASE("thoughts do not count", "[answers][cpu]") {
  CHECK(ScoreAnswer("", {"red"}, "<think>\nblue\n</think>\n\nred").exact == 1);
  CHECK(ScoreAnswer("", {"<think>\n\n</think>\n\nred"}, "red").anls == 1);
  CHECK(ScoreAnswer("", {"4"}, "<think>3</think>4").relaxed == 1);
  CHECK(ScoreAnswer("A. red\nB. blue", {"B"}, "<think>A?</think>B").choice == 1);
  CHECK(ScoreAnswer("", {"red"}, "<think>red").exact == 0);
  CHECK(ScoreAnswer("", {"red"}, "<think>red").anls == 0);
  CHECK(ScoreAnswer("A. red\nB. blue", {"B"}, "<think>\nIt seems the answer is B, bu").choice == 0);
}

TEST_CASE("a normalized answer ignores case, punctuation, articles, spaces", "[answers][cpu]") {
  CHECK(Score("The  Cat!", {"cat"}).normalized == 1);
  CHECK(Score("an apple, a pear", {"apple pear"}).normalized == 1);
  CHECK(Score("theatre", {"atre"}).normalized == 0);
  CHECK(Score("don't", {"dont"}).normalized == 1);
  CHECK(Score("\xC3\x89T\xC3\x89", {"\xC3\xA9t\xC3\xA9"}).normalized == 1);  // ETE with accents
}

// The figures are those of DocVQA's evaluation: 1 - distance / longer length, 0 below 0.5.
TEST_CASE("ANLS counts edits over the longer text", "[answers][cpu]") {
  CHECK(Score("Hello  World", {"hello world"}).anls == 1);
  CHECK(Score("helo", {"hello"}).anls == Approx(0.8));
  CHECK(Score("ab", {"ax"}).anls == Approx(0.5));
  CHECK(Score("abc", {"axy"}).anls == 0);
  CHECK(Score("abc", {"zzz", "abd"}).anls == Approx(2.0 / 3));
  CHECK(Score("", {"abc"}).anls == 0);
  // One letter of two bytes is one edit.
  CHECK(Score("\xC3\xA9t", {"et"}).anls == Approx(0.5));
  CHECK(Score("\xFF\xFE", {"\xFF\xFE"}).anls == 1);
}

TEST_CASE("relaxed accuracy takes numbers within 5 %", "[answers][cpu]") {
  CHECK(Score("105", {"100"}).relaxed == 1);
  CHECK(Score("106", {"100"}).relaxed == 0);
  CHECK(Score("-95", {"-100"}).relaxed == 1);
  CHECK(Score("50%", {"0.5"}).relaxed == 1);
  CHECK(Score("0", {"0"}).relaxed == 1);
  CHECK(Score("0.01", {"0"}).relaxed == 0);
  CHECK(Score("Blue", {"blue"}).relaxed == 1);
  CHECK(Score("100 cats", {"100"}).relaxed == 0);
}

TEST_CASE("a choice is the option that an answer names", "[answers][cpu]") {
  const std::string question = "What is it?\nA. a cat\nB. a dog\nC. two dogs";
  const auto choice = [&](const std::string& answer, const std::string& reference) {
    return Score(answer, {reference}, question).choice;
  };
  for (const char* answer :
       {"B", "b", "(B)", "B.", " B ", "B. a dog", "(B) a dog", "a dog", "The dog",
        "The answer is B.", "The answer is (B).", "answer: B", "Answer: B", "ANSWER: B."}) {
    INFO(answer);
    CHECK(choice(answer, "B") == 1.0);
    CHECK(choice(answer, "a dog") == 1.0);
    CHECK(choice(answer, "A") == 0.0);
  }
  for (const char* answer : {"", "D", "a fish", "dogs", "Both", "The answer is Bob."}) {
    INFO(answer);
    CHECK(choice(answer, "B") == 0.0);
  }
  CHECK_FALSE(choice("B", "a horse"));
  // Options of one character, texts with an initial, and texts of which nothing is left normalized.
  CHECK(Score("4", {"B"}, "How many?\nA. 3\nB. 4\nC. 5").choice == 1.0);
  CHECK(Score("4", {"4"}, "How many?\nA. 3\nB. 4\nC. 5").choice == 1.0);
  CHECK(Score("E. coli", {"B"}, "Which?\nA. yeast\nB. E. coli").choice == 1.0);
  CHECK(Score("the", {"C"}, "Which?\nA. a\nB. an\nC. the").choice == 1.0);
  CHECK(Score("", {"A"}, "Which?\nA. a\nB. an\nC. the").choice == 0.0);
  CHECK_FALSE(Score("B", {"B"}, "What is it?").choice);
  CHECK_FALSE(Score("B", {"B"}, "B. comes first\nA. a cat").choice);
  CHECK(Score("(A)", {"A"}, "Which?\n(A) red\n(B) blue").choice == 1.0);
}

TEST_CASE("means are over all answers, of a choice over those with options", "[answers][cpu]") {
  AnswerScores a, b;
  a.exact = a.anls = 1;
  a.choice = 1;
  const AnswerScores mean = MeanOf({a, b});
  CHECK(mean.exact == 0.5);
  CHECK(mean.anls == 0.5);
  CHECK(mean.normalized == 0);
  CHECK(mean.choice == 1.0);
  CHECK_FALSE(MeanOf({b}).choice);
  CHECK(MeanOf({}).exact == 0);
}

TEST_CASE("the names of the measures are those of the fields", "[answers][cpu]") {
  size_t count = 0;
  const AnswerScores scores;
  AnswerScores::VisitFields(scores, [&](const std::string& name, const auto&) {
    CHECK(name == kAnswerMeasures.at(count++));
  });
  CHECK(count == kAnswerMeasures.size());
}

}  // namespace
}  // namespace equipoise
