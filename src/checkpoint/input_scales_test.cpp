// The file of input scales: what is written is read again, what is wrong with one is said, and the
// hash that tells models apart.
#include "checkpoint/input_scales.h"

#include <filesystem>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/fingerprint.h"
#include "checkpoint/testing/fixture.h"
#include "checkpoint/testing/opened.h"

namespace sextant {
namespace {

using testing::CheckpointFixture;
using ::testing::HasSubstr;
using testing::opened;

// Written out, so that the format is held to its description and not to the writer.
constexpr const char* kFile = R"({
 "format": "sextant-input-scales", "format_version": 1, "version": "0.1.0",
 "model": {"name": "tiny", "hash": "abc123"},
 "text": {"source": "builtin", "sha256": "ff", "tokens": 48, "sequences": 2},
 "policy": ["a16"], "isa": "ref", "headroom": 8,
 "modules": {
  "a": {"g": 0.25, "source": "measured", "stored": {"g": 0.125, "amax": 336},
        "measured": {"rows": 48, "amax": 84, "rms": 1.5,
                     "percentiles": {"99": 40, "99.9": 80.5, "99.99": 84}}},
  "b": {"g": 0.5, "source": "stored", "measured": null, "stored": {"g": 0.5, "amax": 1344}},
  "c": {"g": 0.5, "source": "peer-max", "measured": null, "stored": null},
  "d": {"g": null, "source": "none", "measured": null, "stored": null}},
 "experts": [{"layer": 3, "tokens": [48, 0]}],
 "unreached": [{"layer": 3, "expert": 1, "source": "peer-max"}]})";

class InputScalesFile : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) {
    fixture_.write_file("scales.json", text);
    return fixture_.dir() / "scales.json";
  }
  // kFile with one thing changed.
  Error refused(const std::string& from, const std::string& to) {
    std::string text = kFile;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto read = read_input_scales(write(text));
    EXPECT_FALSE(read.has_value()) << to;
    return read ? Error() : read.error();
  }

  CheckpointFixture fixture_;
};

void expect_as_described(const InputScales& scales) {
  EXPECT_EQ(scales.version, "0.1.0");
  EXPECT_EQ(scales.model, "tiny");
  EXPECT_EQ(scales.model_hash, "abc123");
  EXPECT_EQ(scales.text.source, "builtin");
  EXPECT_EQ(scales.text.sha256, "ff");
  EXPECT_EQ(scales.text.n_tokens, 48);
  EXPECT_EQ(scales.text.n_sequences, 2);
  EXPECT_EQ(scales.policies, std::vector<std::string>{"a16"});
  EXPECT_EQ(scales.isa, "ref");
  EXPECT_EQ(scales.headroom, 8);
  ASSERT_EQ(scales.modules.size(), 4U);
  const InputScaleEntry& a = scales.modules.at("a");
  EXPECT_EQ(a.g, 0.25F);
  EXPECT_EQ(a.source, ScaleSource::kMeasured);
  EXPECT_EQ(a.measured->n_rows, 48);
  EXPECT_EQ(a.measured->amax, 84);
  EXPECT_EQ(a.measured->rms, 1.5);
  EXPECT_EQ(a.measured->p99, 40);
  EXPECT_EQ(a.measured->p99_9, 80.5);
  EXPECT_EQ(a.measured->p99_99, 84);
  EXPECT_EQ(a.stored->g, 0.125F);
  EXPECT_EQ(a.stored->amax, 336);
  EXPECT_EQ(scales.modules.at("b").source, ScaleSource::kStored);
  EXPECT_FALSE(scales.modules.at("b").measured);
  EXPECT_EQ(scales.modules.at("c").source, ScaleSource::kPeerMax);
  EXPECT_EQ(scales.modules.at("d").source, ScaleSource::kNone);
  EXPECT_FALSE(scales.modules.at("d").g);
  EXPECT_EQ(scales.expert_tokens.at(3), (std::vector<int64_t>{48, 0}));
  ASSERT_EQ(scales.unreached.size(), 1U);
  EXPECT_EQ(scales.unreached[0].layer, 3);
  EXPECT_EQ(scales.unreached[0].expert, 1);
  EXPECT_EQ(scales.unreached[0].source, ScaleSource::kPeerMax);
}

TEST_F(InputScalesFile, IsReadAsDescribedAndWrittenSo) {
  const auto read = read_input_scales(write(kFile));
  ASSERT_TRUE(read.has_value()) << read.error().text;
  expect_as_described(*read);
  const std::filesystem::path again = fixture_.dir() / "again.json";
  ASSERT_TRUE(write_input_scales(again, *read).has_value());
  const auto twice = read_input_scales(again);
  ASSERT_TRUE(twice.has_value()) << twice.error().text;
  expect_as_described(*twice);
  EXPECT_FALSE(std::filesystem::exists(again.string() + ".tmp"));
}

// Every bit of a multiplier comes back: 0.1 has no short decimal form as a float32.
TEST_F(InputScalesFile, KeepsEveryBitOfAMultiplier) {
  InputScales scales = *read_input_scales(write(kFile));
  for (const float g :
       {0.1F, 0x1.000002p-126F, std::numeric_limits<float>::max(), 2.5141e-4F, 0x1p-126F}) {
    scales.modules.at("b").g = g;
    const std::filesystem::path path = fixture_.dir() / "bits.json";
    ASSERT_TRUE(write_input_scales(path, scales).has_value());
    const auto read = read_input_scales(path);
    ASSERT_TRUE(read.has_value()) << read.error().text;
    EXPECT_EQ(read->modules.at("b").g, g);
  }
}

TEST_F(InputScalesFile, SaysWhatIsWrong) {
  struct Case {
    const char* from;
    const char* to;
    const char* says;
  };
  const Case cases[] = {
      {"sextant-input-scales", "something", "is no file of input scales"},
      {R"("format_version": 1)", R"("format_version": 2)", "has format version 2; this version"},
      {R"("format_version": 1)", R"("format_version": "1")", "format_version: found a string"},
      {R"("hash": "abc123")", R"("hash": "")", "model.hash: it is empty"},
      {R"(, "hash": "abc123")", "", "model.hash: it is missing"},
      {R"("headroom": 8)", R"("headroom": 0.5)", "headroom: 0.5 is no number from 1 on"},
      {R"("tokens": 48, "s)", R"("tokens": 0, "s)", "text.tokens: 0 is below 1"},
      {R"("g": 0.25)", R"("g": 0)", "modules.a.g: 0 is no multiplier"},
      {R"("g": 0.25)", R"("g": -0.25)", "modules.a.g: -0.25 is no multiplier"},
      {R"("g": 0.25)", R"("g": 1e-40)", "modules.a.g: 1e-40 is no multiplier"},
      {R"("g": 0.25)", R"("g": 1e39)", "modules.a.g: 1e+39 is no multiplier"},
      {R"("g": 0.25)", R"("g": "nan")", "modules.a.g: found a string"},
      {R"("g": 0.25)", R"("g": null)", "modules.a.g: found null"},
      {R"("g": 0.125)", R"("g": 0)", "modules.a.stored.g: 0 is no multiplier"},
      {R"("amax": 84)", R"("amax": "inf")", "modules.a.measured.amax: found a string"},
      {R"("amax": 84)", R"("amax": -1)", "modules.a.measured.amax: -1 is no number from 0 on"},
      {R"("rows": 48)", R"("rows": 0)", "modules.a.measured.rows: 0 is below 1"},
      {R"("99.9": 80.5, )", "", "modules.a.measured.percentiles.99.9: it is missing"},
      {R"("source": "stored")", R"("source": "guessed")", "modules.b.source: 'guessed' is none of"},
      {R"("source": "peer-max", "m)", R"("source": "measured", "m)", "modules.c.source: the numb"},
      {R"("g": null)", R"("g": 1)", "modules.d.g: expected null without a source"},
      {R"([48, 0])", R"([48, -1])", "experts of layer 3: expected counts"},
      {R"("unreached")", R"("reached")", "unreached: it is missing"},
  };
  for (const Case& c : cases) {
    const Error error = refused(c.from, c.to);
    EXPECT_EQ(error.code, Code::kInput);
    EXPECT_THAT(error.text, HasSubstr(c.says)) << c.to;
    EXPECT_THAT(error.text, HasSubstr("scales.json"));
  }
  const auto empty = read_input_scales(write(R"({"format": "sextant-input-scales"})"));
  EXPECT_THAT(empty.error().text, HasSubstr("format_version: it is missing"));
  EXPECT_EQ(read_input_scales(fixture_.dir() / "absent.json").error().code, Code::kInput);
}

TEST_F(InputScalesFile, IsOfOneModel) {
  const InputScales scales = *read_input_scales(write(kFile));
  const auto check = [&](const std::string& hash, const std::vector<std::string>& modules) {
    return check_input_scales(scales, "scales.json", hash, modules);
  };
  EXPECT_TRUE(check("abc123", {"a", "b", "c", "d"}).has_value());
  const Status other = check("def456", {"a"});
  EXPECT_EQ(other.error().code, Code::kInput);
  EXPECT_THAT(other.error().text, HasSubstr("was measured on another model ('tiny', hash "
                                            "'abc123'), this one has the hash def456"));
  const Status missing = check("abc123", {"a", "e", "b", "f"});
  EXPECT_EQ(missing.error().code, Code::kInput);
  EXPECT_THAT(missing.error().text,
              HasSubstr("no entry for 2 of the model's 4 linears, 'e' first"));
}

TEST_F(InputScalesFile, CannotBeWrittenWhereNothingCan) {
  const InputScales scales = *read_input_scales(write(kFile));
  const Status written = write_input_scales(fixture_.dir() / "absent" / "scales.json", scales);
  EXPECT_EQ(written.error().code, Code::kInput);
  EXPECT_THAT(written.error().text, HasSubstr("cannot be written: No such file or directory"));
}

TEST(ModelHash, IsOfTheBytesAndNotOfNames) {
  const auto write = [](CheckpointFixture& f, const std::string& shard, const char* config,
                        float value) {
    f.add_bf16("model.layers.0.mlp.down_proj.weight", {4, 32}, value);
    f.write_file("config.json", config);
    f.write(shard);
    return *model_hash(*opened(f.dir()));
  };
  CheckpointFixture a, b, c, d;
  const std::string hash = write(a, "a.safetensors", "{}", 1.0F);
  EXPECT_EQ(hash.size(), 64U);
  EXPECT_EQ(write(b, "b.safetensors", "{}", 1.0F), hash);
  EXPECT_NE(write(c, "a.safetensors", "{}", 2.0F), hash);
  EXPECT_NE(write(d, "a.safetensors", R"({"n": 1})", 1.0F), hash);
}

}  // namespace
}  // namespace sextant
