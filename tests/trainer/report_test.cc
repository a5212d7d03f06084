#include "trainer/outputs/report.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "tests/trainer/run_python.h"
#include "tests/trainer/scratch_folder.h"
#include "trainer/outputs/html_text.h"
#include "trainer/outputs/report_chart.h"

namespace equipoise {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

ReportInput Sample(int64_t steps) {
  ReportInput input;
  input.title = "runs/<quick & start>";
  input.facts = {{"ranks", "2"}, {"precision", "bf16"}};
  input.config = "run: {dir: a}\nmodel: {hf: \"<b>\"}\n";
  for (int64_t step = 1; step <= steps; ++step) {
    StepMetrics& m = input.steps.emplace_back();
    m.step = step;
    m.loss = 8.0 * std::exp(-static_cast<double>(step) / 200) + 0.1;
    m.lr = 1e-4;
    m.grad_norm = 1.0;
    m.tokens = 1000;
    m.step_s = 0.5;
    m.tokens_per_s = 2000;
    m.predicted_step_s = 0.4;
    m.data_wait_s = 0.05;
    m.skipped_samples = 1;
    m.rss_peak_bytes = 500 << 20;
    if (step % 100 == 0) {
      m.eval_loss = *m.loss + 0.5;
      m.answers["held"] = {{"anls", 0.5}, {"exact", 0.25}};
    }
  }
  input.lead = "2026-11-22 · <here>";
  input.answers = {
      {"train.jsonl",
       AnswerRole::kTrained,
       1700,
       10'701,
       {{"data:image/png;base64,AAAA", "<image>\nWhat is it?", "a cat", "zzz", "a cat"}}},
      {"held.jsonl", AnswerRole::kHeldOut, 0, 40, {{"", "", "a dog", "", "a <script>"}}},
      {"swapped.jsonl", AnswerRole::kControl, 0, 3, {{"", "", "a toilet", "", "a bird"}}}};
  input.answers[1].scores = {{"exact", 0}, {"anls", 0.5}};
  input.ranks = {{"node1", "AMD EPYC", 300 << 20, 290 << 20, 12'000LL << 20},
                 {"node2", "NVIDIA <H200>", 0, 280 << 20, 400 << 20}};
  input.quarantine = {{"train.jsonl", 17, "x", "truncated JPEG"}};
  return input;
}

// "fine" when every element of the page is closed in order and nothing outside of it is named.
std::string Verdict(const std::string& html) {
  const ScratchFolder scratch;
  WriteText(scratch.Path("report.html"), html);
  return RunPython(
      "from html.parser import HTMLParser\n"
      "class P(HTMLParser):\n"
      "  stack, bad = [], []\n"
      "  def handle_starttag(self, tag, attrs):\n"
      "    if tag not in ('meta', 'img'): self.stack.append(tag)\n"
      "    for k, v in attrs:\n"
      "      if k in ('src', 'href') and not v.startswith('data:'): self.bad.append(v)\n"
      "    if tag in ('script', 'link', 'iframe'): self.bad.append(tag)\n"
      "  def handle_startendtag(self, tag, attrs): pass\n"
      "  def handle_endtag(self, tag):\n"
      "    if not self.stack or self.stack.pop() != tag: self.bad.append('/' + tag)\n"
      "text = open('" +
      scratch.Path("report.html") +
      "', encoding='utf-8').read()\n"
      "p = P(); p.feed(text); p.close()\n"
      "bad = p.bad + p.stack + [w for w in ('http:', 'https:', '@import', 'url(') if w in text]\n"
      "print('fine' if not bad else bad)\n");
}

TEST_CASE("the report is one well-formed page that needs nothing else", "[report][cpu]") {
  CHECK(Verdict(RenderReport(Sample(1000))) == "fine\n");
  CHECK(Verdict(RenderReport(Sample(1))) == "fine\n");
  CHECK(Verdict(RenderReport({})) == "fine\n");
  CHECK(Verdict("<p><script src='http://x'></script>") != "fine\n");
}

TEST_CASE("the report shows figures, pictures, answers, quarantine and configuration",
          "[report][cpu]") {
  const std::string html = RenderReport(Sample(1000));
  CHECK(Has(html, "<h1>runs/&lt;quick &amp; start&gt;</h1>"));
  CHECK(Has(html, "<dt>steps</dt><dd>1000</dd>"));
  CHECK(Has(html, "<dt>tokens</dt><dd>1,000,000</dd>"));
  CHECK(Has(html, "<dt>time in steps</dt><dd>8m20s</dd>"));
  for (const char* title : {"Loss", "Learning rate", "Gradient norm", "Tokens per second",
                            "Waiting for data", "Step time", "Answers to held"}) {
    CHECK(Has(html, "<b>" + std::string(title) + "</b>"));
  }
  CHECK(Has(html, ">measured 0.5 s</span>"));
  CHECK(Has(html, "were never trained on. Means: anls 0.5.</p>"));
  CHECK(Has(html, ">predicted 0.4 s</span>"));
  CHECK(Has(html, "src=\"data:image/png;base64,AAAA\""));
  CHECK(Has(html, "<dt>question</dt><dd>What is it?</dd>"));
  CHECK(Has(html, "<dd class=\"bad\">zzz</dd>"));
  CHECK(Has(html, "<dd class=\"good\">a cat</dd>"));
  CHECK(Has(html, "<dt>reference</dt><dd>a dog</dd>"));
  CHECK(Has(html, "a &lt;script&gt;"));
  CHECK(Has(html, "<td>train.jsonl</td><td>17</td><td>x</td><td>truncated JPEG</td>"));
  CHECK(Has(html, "model: {hf: &quot;&lt;b&gt;&quot;}"));
}

TEST_CASE("an answer is judged behind its thought", "[report][cpu]") {
  ReportInput input = Sample(10);
  input.answers = {{"train.jsonl",
                    AnswerRole::kTrained,
                    1,
                    1,
                    {{"", "What is it?", "a hen", "", "<think>\n\n</think>\n\na hen"}}}};
  CHECK(Has(RenderReport(input), "<dd class=\"good\">&lt;think&gt;"));
}

// The part of the page from one text to the next.
std::string Between(const std::string& html, const std::string& from, const std::string& to) {
  const size_t begin = html.find(from);
  REQUIRE(begin != std::string::npos);
  const size_t end = html.find(to, begin);
  REQUIRE(end != std::string::npos);
  return html.substr(begin, end - begin);
}

TEST_CASE("answers are told apart by what their source is to the training data", "[report][cpu]") {
  const std::string html = RenderReport(Sample(10));
  CHECK(Has(html, "<dt>exact answers, training data</dt><dd>1700 of 10,701</dd>"));
  CHECK(Has(html, "<dt>exact answers, held out</dt><dd>0 of 40</dd>"));
  CHECK(Has(html, "<dt>exact answers, control</dt><dd>0 of 3</dd>"));
  const std::string held = Between(html, "<h3>held.jsonl: 0 of 40 exact</h3>", "<h3>swapped");
  CHECK(Has(held, "never trained on"));
  const std::string control = Between(html, "<h3>swapped.jsonl: 0 of 3 exact</h3>", "<h2>");
  CHECK(Has(control, "Control: "));
  CHECK_FALSE(Has(control, "<dt>reference"));  // it is not what the picture shows
  CHECK_FALSE(Has(control, "class=\"bad\""));
  CHECK(Has(control, "<dt>the control&#39;s answer (never trained)</dt><dd>a toilet</dd>"));
}

TEST_CASE("the first figures are explained", "[report][cpu]") {
  const std::string html = RenderReport(Sample(100));
  CHECK(Has(html, "<p class=\"soft\">2026-11-22 · &lt;here&gt;</p>"));
  CHECK(Has(html, "mean negative log-likelihood"));
  CHECK(Has(html, "cannot be known"));
  CHECK_FALSE(Has(RenderReport(Sample(10)), "cannot be known"));  // no held-out loss is shown
}

TEST_CASE("memory is shown by rank, forecast and measured", "[report][cpu]") {
  ReportInput input = Sample(10);
  const std::string html = RenderReport(input);
  CHECK(Has(html,
            "<td>0</td><td>300</td><td>290</td><td>12,000</td><td>AMD EPYC</td><td>node1</td>"));
  CHECK(Has(html, "<td>1</td><td>-</td><td>280</td><td>400</td><td>NVIDIA &lt;H200&gt;</td>"));
  input.ranks.resize(70);
  CHECK(Has(RenderReport(input), "and 6 more ranks"));
}

TEST_CASE("a long quarantine is cut and says so", "[report][cpu]") {
  ReportInput input = Sample(1);
  input.quarantine.assign(205, {"f", 1, "id", "r"});
  CHECK(Has(RenderReport(input), "and 5 more in quarantine.jsonl"));
}

TEST_CASE("a curve with gaps, of one value, or without any is drawn or left out", "[report][cpu]") {
  const double nan = std::nan("");
  CHECK(RenderChart({"t", "", {{"s", {}, false}}}).empty());
  CHECK(RenderChart({"t", "", {{"s", {{1, nan}, {2, INFINITY}}, true}}}).empty());
  const std::string gap =
      RenderChart({"t", "", {{"s", {{1, 1}, {2, nan}, {3, 2}, {4, 3}}, false}}});
  CHECK(gap.find('M') != gap.rfind('M'));
  CHECK_FALSE(Has(gap, "nan"));
  CHECK(Has(gap, "class=\"line s0 dot\""));  // the lone point is seen
  CHECK(Has(gap, "class=\"line s0\""));
  for (const double value : {0.0, 5.0, -3.0, 1e-30, 1e30}) {
    const std::string flat = RenderChart({"t", "", {{"s", {{7, value}}, false}}});
    CHECK(Has(flat, "<path"));
    CHECK_FALSE(Has(flat, "nan"));
    CHECK_FALSE(Has(flat, "inf"));
  }
}

TEST_CASE("a long curve is thinned to a few hundred points", "[report][cpu]") {
  Series series{"s", {}, true};
  for (int step = 0; step < 200'000; ++step) series.points.emplace_back(step, step % 7);
  CHECK(RenderChart({"t", "", {series}}).size() < 40'000);
}

TEST_CASE("an axis is logarithmic where that is wanted and the range is wide", "[report][cpu]") {
  const Series wide{"s", {{1, 10}, {2, 0.01}}, false}, low{"s", {{1, 10}, {2, -0.01}}, false};
  CHECK(Has(RenderChart({"t", "", {wide}, true}), ">0.03<"));
  CHECK_FALSE(Has(RenderChart({"t", "", {wide}, false}), ">0.03<"));
  CHECK_FALSE(Has(RenderChart({"t", "", {low}, true}), ">0.03<"));
}

TEST_CASE("axis ticks are round numbers", "[report][cpu]") {
  CHECK(AxisTicks(0, 10, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(AxisTicks(1, 200, 6) == std::vector<double>{50, 100, 150, 200});
  CHECK(AxisTicks(-1, 1, 4) == std::vector<double>{-1, -0.5, 0, 0.5, 1});
}

TEST_CASE("text is escaped and made valid UTF-8", "[report][cpu]") {
  CHECK(EscapeHtml("a<b>&\"'") == "a&lt;b&gt;&amp;&quot;&#39;");
  CHECK(EscapeHtml("\xc3\xa4\xe4\xbd\xa0\xf0\x9f\x98\x80") ==
        "\xc3\xa4\xe4\xbd\xa0\xf0\x9f\x98\x80");
  const std::string bad = "\xef\xbf\xbd";
  CHECK(EscapeHtml(std::string("a\0b", 3)) == "a" + bad + "b");
  CHECK(EscapeHtml("\xff") == bad);
  CHECK(EscapeHtml("\xc3") == bad);                      // cut short
  CHECK(EscapeHtml("\xc0\x80") == bad + bad);            // longer than needed
  CHECK(EscapeHtml("\xed\xa0\x80") == bad + bad + bad);  // a surrogate
}

TEST_CASE("numbers are readable", "[report][cpu]") {
  CHECK(ReadableNumber(0.123456) == "0.1235");
  CHECK(ReadableNumber(1234567) == "1,234,567");
  CHECK(ReadableNumber(-12345) == "-12,345");
  CHECK(ReadableNumber(9999) == "9999");
  CHECK(ReadableNumber(1.5e40) == "1.5e+40");
  CHECK(ReadableNumber(std::nan("")) == "not finite");
}

}  // namespace
}  // namespace equipoise
