// The page is read here as a browser would: tags, attributes, text.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/report.h"
#include "doctor/report_charts.h"
#include "doctor/report_svg.h"

namespace sextant {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Tag {
  std::string name;
  std::string attributes;
  bool closing = false;
  bool empty = false;
};

// Every tag of the page, and its text outside of tags; <style> is one element.
struct Page {
  std::vector<Tag> tags;
  std::string text;
};

Page parsed(const std::string& html) {
  Page page;
  for (size_t i = 0; i < html.size();) {
    if (html[i] != '<') {
      page.text += html[i++];
      continue;
    }
    const size_t end = html.find('>', i);
    if (end == std::string::npos) {
      ADD_FAILURE() << "a tag without end";
      return page;
    }
    Tag tag;
    std::string inside = html.substr(i + 1, end - i - 1);
    i = end + 1;
    if (inside.starts_with("!DOCTYPE")) continue;
    tag.closing = inside.starts_with("/");
    tag.empty = inside.ends_with("/");
    if (tag.closing) inside = inside.substr(1);
    if (tag.empty) inside.pop_back();
    tag.name = inside.substr(0, inside.find_first_of(" \n"));
    tag.attributes = inside.substr(tag.name.size());
    if (tag.name == "style" && !tag.closing) i = html.find("</style>", i);
    page.tags.push_back(tag);
  }
  return page;
}

void expect_well_formed(const std::string& html) {
  const std::set<std::string> voids = {"meta", "br"};
  std::vector<std::string> open;
  std::set<std::string> ids;
  for (const Tag& tag : parsed(html).tags) {
    EXPECT_EQ(std::count(tag.attributes.begin(), tag.attributes.end(), '"') % 2, 0) << tag.name;
    if (const size_t id = tag.attributes.find(" id=\""); id != std::string::npos) {
      const size_t begin = id + 5;
      const std::string value =
          tag.attributes.substr(begin, tag.attributes.find('"', begin) - begin);
      EXPECT_TRUE(ids.insert(value).second) << value << " is there twice";
    }
    if (tag.empty || voids.contains(tag.name)) continue;
    if (!tag.closing) {
      open.push_back(tag.name);
    } else {
      ASSERT_FALSE(open.empty()) << "</" << tag.name << ">";
      ASSERT_EQ(open.back(), tag.name);
      open.pop_back();
    }
  }
  EXPECT_THAT(open, IsEmpty());
}

void expect_self_contained(const std::string& html) {
  for (const Tag& tag : parsed(html).tags) {
    for (const char* name : {"script", "link", "img", "iframe", "image", "use", "object", "a"})
      EXPECT_NE(tag.name, name);
    for (const char* attribute : {"src=", "href=", "http://", "https://", "onclick", "onload"})
      EXPECT_THAT(tag.attributes, Not(HasSubstr(attribute))) << tag.name;
  }
  EXPECT_THAT(html, Not(HasSubstr("url(")));
  EXPECT_THAT(html, Not(HasSubstr("@import")));
}

int count_of(const std::string& html, const std::string& what) {
  int n = 0;
  for (size_t at = html.find(what); at != std::string::npos; at = html.find(what, at + 1)) ++n;
  return n;
}

// 4096 blocks with the codes of a Gaussian, in a few parts per thousand.
CodeStatistics gaussian_statistics() {
  CodeStatistics s;
  s.n_blocks = 4096;
  s.n_codes = 16 * s.n_blocks;
  s.n_full_blocks = 4090;
  constexpr std::array<int64_t, 8> kShares = {69, 134, 128, 117, 151, 153, 137, 112};
  for (size_t i = 0; i < 16; ++i) s.low[i] = s.high[i] = kShares[i % 8] * 16;
  s.scale_bytes[0x70] = 4095;
  s.scale_bytes[0x7E] = 1;
  return s;
}

LinearSummary four_bit(int64_t layer, const std::string& projection, float g) {
  LinearSummary l;
  l.module = "model.layers." + std::to_string(layer) + "." + projection;
  l.projection = projection;
  l.layer = layer;
  l.scheme = Scheme::kNvfp4;
  l.n = l.k = 256;
  l.g = g;
  l.statistics = gaussian_statistics();
  return l;
}

Finding finding(std::string id, std::string slug, Severity severity, std::string message) {
  Finding f;
  f.id = std::move(id);
  f.slug = std::move(slug);
  f.severity = severity;
  f.message = std::move(message);
  return f;
}

// 28 layers of 7 projections; layer 20's down_proj has lost its range.
Diagnosis sample() {
  Diagnosis d;
  d.model = "/models/Example-8B-NVFP4";
  d.verdict = Verdict::kErrors;
  d.dialect = "modelopt";
  d.dialect_evidence = {"197 linears have weight_scale_2", "quant_method is modelopt"};
  d.convention = {"multiplier",
                  "multiplier",
                  {"196 of 196 weight scalars are below 0.05",
                   "181 of 196 input scalars are amax / 2688 of a BF16 amax"}};
  d.summary = {4,    1021,  5'120'000'000, {{"nvfp4", 196}, {"bf16", 2}},
               4.51, 0.987, 5'100'000'000, 0.84};
  const char* projections[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                               "gate_proj", "up_proj", "down_proj"};
  for (int64_t layer = 0; layer < 28; ++layer)
    for (size_t p = 0; p < 7; ++p) {
      const float wave =
          1.0F + 0.25F * static_cast<float>((layer * 5 + static_cast<int64_t>(p) * 3) % 7);
      d.linears.push_back(
          four_bit(layer, projections[p], 3e-5F * wave * (1.0F + 0.4F * static_cast<float>(p))));
      CodeStatistics s = gaussian_statistics();
      s.scale_bytes[0x7E] = 1 + (layer * 7 + static_cast<int64_t>(p)) % 5;
      if (p < 2) s.scale_bytes[0x03] = layer % 4;
      if (layer == 20 && p == 6) {
        s.scale_bytes[0x7E] = 700;
        s.n_zero_blocks = 300;
      }
      d.linears.back().statistics = s;
    }
  Finding error =
      finding("C1", "nan-block-scale", Severity::kError,
              "'model.layers.3.down_proj.weight_scale' has 2 block scales that are NaN");
  error.remedy = "take the tensor from its source again";
  error.tensor = "model.layers.3.down_proj.weight_scale";
  error.layer = 3;
  error.index = {17, 4};
  error.file = "model-00001-of-00004.safetensors";
  error.offset = 1234567;
  error.expected = "no byte 0x7F or 0xFF";
  error.count = 2;
  error.instances = {error.tensor, "model.layers.9.q_proj.weight_scale"};
  d.findings = {
      error,
      finding("C6", "saturated-scales", Severity::kWarning,
              "17 % of the blocks of 'model.layers.20.down_proj' are at 448"),
      finding("C14", "fused-scale-ratio", Severity::kNote, "gate and up differ by 1.2545")};
  d.skipped = {"C5 to C10 of 2 small tensors: fewer than 100000 codes"};
  return d;
}

TEST(HtmlReport, AWholePage) {
  const std::string html = html_report(sample());
  if (const char* path = std::getenv("SX_HTML_OUT")) std::ofstream(path) << html;  // to look at
  expect_well_formed(html);
  expect_self_contained(html);
  EXPECT_THAT(html, HasSubstr("<html lang=\"en\">"));
  EXPECT_THAT(html, HasSubstr("name=\"viewport\" content=\"width=device-width"));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(html, HasSubstr("@media print"));
  const std::string text = parsed(html).text;
  EXPECT_THAT(text, HasSubstr("1 error, 1 warning, 1 note"));
  EXPECT_THAT(text, HasSubstr("NaN block scale"));
  EXPECT_THAT(text, HasSubstr("What to do: take the tensor from its source again"));
  EXPECT_THAT(text, HasSubstr("196 of 196 weight scalars"));
  EXPECT_THAT(text, HasSubstr("fewer than 100000 codes"));
  EXPECT_THAT(text, HasSubstr("model-00001-of-00004.safetensors, byte 1234567"));
  // Verdict, reading, findings, charts, worst tensors: in this order.
  size_t at = 0;
  for (const char* part :
       {"class=\"verdict errors\"", "How it was read", ">Findings<", ">Errors ", ">Warnings ",
        ">Notes ", "id=\"scales-title\"", "id=\"saturated-title\"", "id=\"subnormal-title\"",
        "id=\"zero-title\"", "id=\"codes-title\"", "Tensors to look at first", "Not judged"}) {
    const size_t next = html.find(part, at);
    ASSERT_NE(next, std::string::npos) << part;
    at = next;
  }
  EXPECT_EQ(count_of(html, "<svg viewBox=\"0 0 640"), 5);
  EXPECT_EQ(count_of(html, "role=\"img\""), 5);
  EXPECT_EQ(count_of(html, "<desc "), 5);
  EXPECT_EQ(count_of(html, "cell over"), 2);  // layer 20: 17 % at 448, 7 % zeros
}

TEST(HtmlReport, EverythingFromTheCheckpointIsEscaped) {
  const std::string evil = "</title><script>alert('x\")&\n\xE2\x80\xAE\xFF";
  Diagnosis d = sample();
  d.model = evil;
  d.dialect = evil;
  d.dialect_evidence = {evil};
  d.convention = {evil, evil, {evil}};
  d.summary.linears = {{evil, 3}};
  d.skipped = {evil};
  Finding f = finding(evil, evil, Severity::kError, evil);
  f.remedy = f.tensor = f.file = f.expected = evil;
  f.instances = {evil, evil};
  d.findings = {f};
  LinearSummary l = four_bit(1, evil, 1e-4F);
  l.module = evil;
  CodeStatistics zeros = gaussian_statistics();
  zeros.n_zero_blocks = 4096;
  l.statistics = zeros;
  d.linears.push_back(l);
  l.layer.reset();
  d.linears.push_back(l);
  const std::string html = html_report(d);
  expect_well_formed(html);
  expect_self_contained(html);
  EXPECT_THAT(html, Not(HasSubstr("alert('")));
  EXPECT_THAT(html, Not(HasSubstr("\xE2\x80\xAE")));
  EXPECT_THAT(html, Not(HasSubstr("\xFF")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(&#39;x&quot;)&amp;\\n\\u{202e}\\xff"));
}

EnginePrediction prediction(std::string effect, std::string symptom, std::string message) {
  EnginePrediction p;
  p.engine = "vllm";
  p.effect = std::move(effect);
  p.symptom = std::move(symptom);
  p.message = std::move(message);
  p.source = "vllm/model.py:12";
  return p;
}

TEST(HtmlReport, WhatAnEngineWouldDoIsThereInOrderOfHarm) {
  std::vector<EnginePrediction> predictions = {
      prediction("not loaded", "NaN", "the scale is never read"),
      prediction("merged by max", "gain x 1.2545", "gate and up share one scale"),
      prediction("flushed", "partly zeros", "small scales become zero"),
      prediction("not known", "not known", "the name map does not have these tensors")};
  predictions[0].tensor = "model.layers.3.down_proj.input_scale";
  predictions[0].first_layer = 3;
  predictions[1].count = 1200;
  const std::string html =
      html_report(sample(), {.engine = "vllm", .predictions = predictions, .against = nullptr});
  expect_well_formed(html);
  expect_self_contained(html);
  const std::string text = parsed(html).text;
  for (const char* part :
       {"What vllm would do", "not loaded", "NaN", "First layer3", "merged by max", "gain x 1.2545",
        "1,200 times", "not known", "vllm/model.py:12"})
    EXPECT_THAT(text, HasSubstr(part));
  size_t at = html.find("What vllm would do");
  for (const char* part : {"group error", "not loaded", "group error", "merged by max",
                           "group warning", "flushed", "group note", "not known"}) {
    at = html.find(part, at);
    ASSERT_NE(at, std::string::npos) << part;
  }
  EXPECT_THAT(html_report(sample(), {.engine = "vllm", .predictions = {}, .against = nullptr}),
              HasSubstr("Nothing that is known keeps vllm from reading this file"));
  EXPECT_THAT(html_report(sample()), Not(HasSubstr("would do")));
}

AgainstReport differences(size_t n) {
  AgainstReport report;
  for (size_t i = 0; i < n; ++i) {
    WeightDifference d;
    d.module = "model.layers." + std::to_string(i) + ".down_proj";
    d.scheme = Scheme::kNvfp4;
    d.cosine = 0.5 + 0.001 * static_cast<double>(i);
    report.tensors.push_back(d);
  }
  return report;
}

TEST(HtmlReport, TheReferenceIsThereWithItsWorstTensors) {
  AgainstReport report = differences(103);
  WeightDifference& worst = report.tensors[0];
  worst.relative_l2 = 0.26;
  worst.rms_ratio = 1.25;
  worst.ratio_name = "5/4";
  worst.worst_row = 17;
  worst.worst_block = 4;
  worst.worst_block_error = 0.875;
  worst.reference_module = "model.layers.0.fused";
  report.n_plain = 60;
  report.n_plain_equal = 59;
  report.only_here = {"here.alone"};
  report.only_reference = {"there.alone"};
  report.not_compared = {"packed.table"};
  const std::string html =
      html_report(sample(), {.engine = {}, .predictions = {}, .against = &report});
  if (const char* path = std::getenv("SX_AGAINST_OUT")) std::ofstream(path) << html;
  expect_well_formed(html);
  expect_self_contained(html);
  for (const char* part :
       {"<td>nvfp4 of bf16</td><td>0.50000</td><td>0.2600</td><td>1.25000</td><td>5/4</td>"
        "<td>row 17, group 4: 0.875</td>",
        "model.layers.0.down_proj (there model.layers.0.fused)", "model.layers.99.down_proj",
        "And 3 more, better than these.", "59 of 60 norms", "here.alone", "there.alone",
        "packed.table"})
    EXPECT_THAT(html, HasSubstr(part));
  EXPECT_THAT(html, Not(HasSubstr("model.layers.100.down_proj")));
  const AgainstReport nothing;
  EXPECT_THAT(html_report(sample(), {.engine = {}, .predictions = {}, .against = &nothing}),
              HasSubstr("No linear is in both."));
}

TEST(HtmlReport, EnginesAndReferencesAreEscaped) {
  const std::string evil = "</title><script>alert('x\")&\n\xE2\x80\xAE\xFF";
  std::vector<EnginePrediction> predictions = {prediction(evil, evil, evil)};
  predictions[0].tensor = predictions[0].source = evil;
  AgainstReport report = differences(1);
  report.tensors[0].module = report.tensors[0].reference_module = evil;
  report.tensors[0].ratio_name = evil;
  report.only_here = report.only_reference = report.not_compared = {evil};
  const std::string html =
      html_report(sample(), {.engine = evil, .predictions = predictions, .against = &report});
  expect_well_formed(html);
  expect_self_contained(html);
  EXPECT_THAT(html, Not(HasSubstr("alert('")));
  EXPECT_THAT(html, Not(HasSubstr("\xE2\x80\xAE")));
  EXPECT_THAT(html, Not(HasSubstr("\xFF")));
}

TEST(HtmlReport, AModelWithoutFourBitLinearsHasNoCharts) {
  Diagnosis d;
  d.model = "plain";
  d.dialect = "plain";
  LinearSummary l = four_bit(0, "q_proj", 1e-4F);
  l.scheme = Scheme::kBf16;
  l.g.reset();
  l.statistics = {};
  d.linears = {l};
  const std::string html = html_report(d);
  expect_well_formed(html);
  EXPECT_THAT(html, Not(HasSubstr("<svg")));
  EXPECT_THAT(html, HasSubstr("No linear has 4-bit weights"));
  EXPECT_THAT(html, HasSubstr("nothing was found"));
  EXPECT_THAT(html, Not(HasSubstr("Tensors to look at first")));
}

TEST(HtmlReport, QuickHasGlobalScalesAlone) {
  Diagnosis d = sample();
  for (LinearSummary& l : d.linears) l.statistics = {};
  const std::string html = html_report(d);
  expect_well_formed(html);
  EXPECT_THAT(html, HasSubstr("id=\"scales-title\""));
  EXPECT_THAT(html, Not(HasSubstr("id=\"codes-title\"")));
  EXPECT_THAT(html, Not(HasSubstr("id=\"zero-title\"")));
  EXPECT_THAT(html, HasSubstr("only global scales are shown"));
}

TEST(HtmlReport, SharesOfNothingAreASentence) {
  Diagnosis d;
  d.linears = {four_bit(0, "q_proj", 1e-4F)};
  const std::string html = html_report(d);
  expect_well_formed(html);
  EXPECT_THAT(html, HasSubstr("<p>No block of zeros among 4,096.</p>"));
  EXPECT_THAT(html, Not(HasSubstr("id=\"zero-title\"")));
  EXPECT_THAT(html, HasSubstr("id=\"saturated-title\""));
}

TEST(HtmlReport, AnUnreadableCheckpointIsAPageToo) {
  Diagnosis d;
  d.model = "nothing";
  d.verdict = Verdict::kUnreadable;
  d.findings = {finding("F3", "unreadable", Severity::kError, "no such file")};
  const std::string html = html_report(d);
  expect_well_formed(html);
  EXPECT_THAT(html, HasSubstr("class=\"verdict unreadable\""));
  EXPECT_THAT(html, HasSubstr("no such file"));
  EXPECT_THAT(html, Not(HasSubstr("4-bit")));
}

TEST(HtmlReport, ExpertsOfALayerAreOneCell) {
  Diagnosis d;
  for (int64_t expert = 0; expert < 3; ++expert) {
    d.linears.push_back(four_bit(2, "up_proj", 1e-4F * static_cast<float>(1 + expert)));
    d.linears.back().expert = expert;
  }
  d.linears.push_back(four_bit(2, "up_proj", 5e-5F));
  d.linears.back().module = "model.layers.2.mlp.shared_experts.up_proj";
  d.linears.push_back(four_bit(2, "q_proj", 0.0F));  // cannot be on a logarithmic axis
  const LayerGrid grid = layer_grid(d);
  EXPECT_THAT(grid.rows, ::testing::ElementsAre("q_proj", "shared up_proj", "expert up_proj"));
  const LayerCell& cell = grid.cells.at({2, 0});
  EXPECT_EQ(cell.n_linears, 3);
  EXPECT_FLOAT_EQ(static_cast<float>(cell.g_min), 1e-4F);
  EXPECT_FLOAT_EQ(static_cast<float>(cell.g_max), 3e-4F);
  EXPECT_EQ(cell.n_saturated, 3);
  EXPECT_EQ(cell.n_blocks, 3 * 4096);
  EXPECT_EQ(grid.n_bad_scales, 1);
}

TEST(HtmlReport, MxfpScalesAreNotReadAsE4m3) {
  Diagnosis d;
  d.linears = {four_bit(0, "q_proj", 1.0F)};
  d.linears[0].scheme = Scheme::kMxfp4;
  d.linears[0].g.reset();
  const std::string html = html_report(d);
  expect_well_formed(html);
  EXPECT_THAT(html, Not(HasSubstr("id=\"saturated-title\"")));
  EXPECT_THAT(html, Not(HasSubstr("id=\"scales-title\"")));
  EXPECT_THAT(html, HasSubstr("id=\"codes-title\""));
  EXPECT_THAT(html, Not(HasSubstr("class=\"expected\"")));
}

TEST(HtmlReport, WhatIsBeyondTheLimitsIsCounted) {
  Diagnosis d;
  for (int64_t layer = 0; layer < 600; ++layer)
    d.linears.push_back(four_bit(layer, "q_proj", 1e-4F));
  for (int i = 0; i < 20; ++i) d.linears.push_back(four_bit(0, "p" + std::to_string(i), 1e-4F));
  const LayerGrid grid = layer_grid(d);
  EXPECT_EQ(grid.layers.size(), kMaxChartLayers);
  EXPECT_EQ(grid.n_layers_left_out, 88);
  EXPECT_EQ(grid.rows.size(), kMaxChartRows);
  EXPECT_EQ(grid.n_rows_left_out, 5);
  EXPECT_THAT(html_report(d), HasSubstr("5 more projections are not drawn. 88 more layers"));
}

TEST(HtmlReport, NumbersAsPeopleReadThem) {
  EXPECT_EQ(percent_text(0), "0");
  EXPECT_EQ(percent_text(2.5e-6), "2.5 ppm");
  EXPECT_EQ(percent_text(0.0123), "1.23 %");
  EXPECT_EQ(scale_text(2.5141e-4), "2.51e-4");
  EXPECT_EQ(scale_text(9.9999e-5), "1e-4");
  EXPECT_EQ(scale_text(1024), "1.02e3");
  EXPECT_EQ(scale_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1234567), "1,234,567");
}

}  // namespace
}  // namespace sextant
