// Which files are read (cases C068 to C074 and C076; broken directories of every kind).
#include "checkpoint/directory.h"

#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/testing/fixture.h"
#include "checkpoint/testing/opened.h"

namespace sextant {
namespace {

namespace fs = std::filesystem;
using testing::add_f_lin;
using testing::CheckpointFixture;
using testing::find;
using ::testing::HasSubstr;
using testing::opened;
using testing::refused;
using testing::with_severity;

// Two plain tensors, to be put into shards.
void add_two(CheckpointFixture& f) {
  f.add_bf16("a.weight", {2, 2}, 1.0F);
  f.add_bf16("b.weight", {2, 2}, 2.0F);
}

constexpr char kIndex[] = "model.safetensors.index.json";

std::string index_of(std::string_view map, std::string_view metadata = "{}") {
  return R"({"metadata": )" + std::string(metadata) + R"(, "weight_map": )" + std::string(map) +
         "}";
}

TEST(Directory, OneFileADirectoryAndABareFile) {
  CheckpointFixture f;
  add_two(f);
  f.write();
  const auto directory = opened(f.dir());
  EXPECT_EQ(directory->tensors().size(), 2U);
  EXPECT_EQ(directory->config(), nullptr);
  EXPECT_EQ(directory->root(), f.dir());
  const auto bare = opened(f.dir() / "model.safetensors");
  EXPECT_EQ(bare->tensors().size(), 2U);
  EXPECT_EQ(bare->root(), f.dir());
  EXPECT_FALSE(bare->tensor("c.weight"));
}

TEST(Directory, ShardsByIndexWithConfigs) {
  CheckpointFixture f;
  add_two(f);
  f.write_shard("model-00001-of-00002.safetensors", {"a.weight"});
  f.write_shard("model-00002-of-00002.safetensors", {"b.weight"});
  f.write_file(kIndex, index_of(R"({"a.weight": "model-00001-of-00002.safetensors",
                                    "b.weight": "model-00002-of-00002.safetensors"})",
                                R"({"total_size": 16})"));
  f.write_file("config.json", R"({"hidden_size": 2})");
  f.write_file("generation_config.json", R"({"eos_token_id": 2})");
  const auto checkpoint = opened(f.dir());
  EXPECT_EQ(checkpoint->files().size(), 2U);
  EXPECT_EQ(checkpoint->tensors().size(), 2U);
  ASSERT_NE(checkpoint->config(), nullptr);
  ASSERT_NE(checkpoint->generation_config(), nullptr);
  EXPECT_TRUE(checkpoint->findings().empty());
}

TEST(Directory, C068MissingShardIsNamedWithTheNumberOfTensors) {
  CheckpointFixture f;
  add_two(f);
  f.write_shard("one.safetensors", {"a.weight"});
  f.write_file(kIndex, index_of(R"({"a.weight": "one.safetensors", "b.weight": "two.safetensors",
                                    "c.weight": "two.safetensors"})"));
  const Error error = refused(f.dir());
  EXPECT_EQ(error.code, Code::kInput);
  EXPECT_THAT(error.text, HasSubstr("'two.safetensors'"));
  EXPECT_THAT(error.text, HasSubstr("2 of the index's tensors"));
  f.write_file("two.safetensors.incomplete", "x");
  EXPECT_THAT(refused(f.dir()).text, HasSubstr(".incomplete"));
}

TEST(Directory, C070OnlyIndexedFilesAreRead) {
  CheckpointFixture f;
  add_two(f);
  f.write_shard("model-00001-of-00001.safetensors", {"a.weight"});
  f.write_shard("consolidated.safetensors", {"b.weight"});
  f.write_file(kIndex, index_of(R"({"a.weight": "model-00001-of-00001.safetensors"})"));
  const auto checkpoint = opened(f.dir());
  EXPECT_EQ(checkpoint->tensors().size(), 1U);
  const Finding* finding = find(*checkpoint, "unread-file");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kNote);
  EXPECT_EQ(finding->file, "consolidated.safetensors");
}

TEST(Directory, C071ConsolidatedIndexAlone) {
  CheckpointFixture f;
  add_two(f);
  f.write_shard("consolidated-00001-of-00002.safetensors", {"a.weight"});
  f.write_shard("consolidated-00002-of-00002.safetensors", {"b.weight"});
  f.write_file("consolidated.safetensors.index.json",
               index_of(R"({"a.weight": "consolidated-00001-of-00002.safetensors",
                            "b.weight": "consolidated-00002-of-00002.safetensors"})"));
  EXPECT_EQ(opened(f.dir())->tensors().size(), 2U);
}

TEST(Directory, WithoutIndexACompleteSetIsReadAndAnIncompleteOneRefused) {
  CheckpointFixture f;
  add_two(f);
  f.write_shard("model-00001-of-00002.safetensors", {"a.weight"});
  const Error error = refused(f.dir());
  EXPECT_EQ(error.code, Code::kInput);
  EXPECT_THAT(error.text, HasSubstr("model-00002-of-00002.safetensors"));
  f.write_shard("model-00002-of-00002.safetensors", {"b.weight"});
  EXPECT_EQ(opened(f.dir())->tensors().size(), 2U);
  f.write_shard("other.safetensors", {"a.weight"});
  EXPECT_EQ(opened(f.dir())->tensors().size(), 2U);  // not part of the set
  f.write_shard("model.safetensors", {"a.weight"});
  EXPECT_EQ(opened(f.dir())->tensors().size(), 1U);
}

TEST(Directory, HeadersWinOverTheIndex) {
  CheckpointFixture f;
  add_f_lin(f);
  f.write("one.safetensors");
  f.write_file(kIndex, index_of(R"({"model.layers.0.mlp.down_proj.weight": "one.safetensors"})"));
  const auto checkpoint = opened(f.dir());
  EXPECT_EQ(checkpoint->tensors().size(), 4U);
  EXPECT_EQ(checkpoint->linears().size(), 1U);
  const Finding* finding = find(*checkpoint, "index-lacks-tensor");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->id, "C18");
  EXPECT_EQ(finding->severity, Severity::kWarning);
  EXPECT_EQ(finding->count, 3);
  EXPECT_TRUE(with_severity(*checkpoint, Severity::kError).empty());
}

TEST(Directory, Row38SwappedShardsDuplicatesAndAbsentTensors) {
  CheckpointFixture f;
  add_two(f);
  f.write_shard("one.safetensors", {"b.weight"});
  f.write_shard("two.safetensors", {"a.weight"});
  f.write_file(kIndex, index_of(R"({"a.weight": "one.safetensors", "b.weight": "two.safetensors",
                                    "c.weight": "two.safetensors"})"));
  const auto swapped = opened(f.dir());
  const Finding* finding = find(*swapped, "index-wrong-shard");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::kError);
  EXPECT_EQ(finding->count, 2);
  EXPECT_THAT(finding->message, HasSubstr("a.weight"));
  EXPECT_THAT(finding->message, HasSubstr("two.safetensors"));
  const Finding* absent = find(*swapped, "index-absent-tensor");
  ASSERT_NE(absent, nullptr);
  EXPECT_EQ(absent->severity, Severity::kError);
  EXPECT_EQ(absent->tensor, "c.weight");

  f.write_shard("two.safetensors", {"a.weight", "b.weight"});
  const auto doubled = opened(f.dir());
  const Finding* duplicate = find(*doubled, "duplicate-tensor");
  ASSERT_NE(duplicate, nullptr);
  EXPECT_EQ(duplicate->severity, Severity::kError);
  EXPECT_EQ(duplicate->tensor, "b.weight");
  EXPECT_THAT(duplicate->message, HasSubstr("one.safetensors"));
}

TEST(Directory, Row40WrongTotalSizeOnlyWarns) {
  CheckpointFixture f;
  add_two(f);
  f.write("one.safetensors");
  f.write_file(kIndex, index_of(R"({"a.weight": "one.safetensors", "b.weight": "one.safetensors"})",
                                R"({"total_size": 17})"));
  const auto checkpoint = opened(f.dir());
  ASSERT_EQ(checkpoint->findings().size(), 1U);
  EXPECT_EQ(checkpoint->findings()[0].slug, "total-size");
  EXPECT_EQ(checkpoint->findings()[0].severity, Severity::kWarning);
}

TEST(Directory, Row36ShardNamesThatLeadElsewhere) {
  CheckpointFixture outside;
  outside.add_bf16("a.weight", {2, 2}, 1.0F);
  outside.write("outside.safetensors");
  const std::string absolute = (outside.dir() / "outside.safetensors").string();
  const std::string relative = "../" + outside.dir().filename().string() + "/outside.safetensors";
  for (const std::string& name :
       {absolute, relative, std::string("sub/../../x.safetensors"),
        std::string("a\\\\b.safetensors"), std::string("a\\u0000.safetensors"), std::string(""),
        std::string("weights.bin"), std::string(2000, 'a') + ".safetensors"}) {
    CheckpointFixture f;
    f.write_file(kIndex, index_of(R"({"a.weight": ")" + name + R"("})"));
    const Error error = refused(f.dir());
    EXPECT_EQ(error.code, Code::kInput) << name;
    EXPECT_THAT(error.text, HasSubstr("shard name")) << name;
    EXPECT_THAT(error.text, HasSubstr("nothing was opened")) << name;
  }
}

TEST(Directory, Row37LinksFifosAndDirectories) {
  CheckpointFixture outside;
  outside.add_bf16("a.weight", {2, 2}, 1.0F);
  outside.write("outside.safetensors");
  const auto message = [](auto&& make) {
    CheckpointFixture f;
    f.write_file(kIndex, index_of(R"({"a.weight": "one.safetensors"})"));
    make(f.dir() / "one.safetensors");
    const Error error = refused(f.dir());
    EXPECT_EQ(error.code, Code::kInput);
    return error.text;
  };
  EXPECT_THAT(message([&](const fs::path& path) {
                fs::create_symlink(outside.dir() / "outside.safetensors", path);
              }),
              HasSubstr("link out of the checkpoint"));
  EXPECT_THAT(message([](const fs::path& path) { fs::create_symlink("one.safetensors", path); }),
              HasSubstr("back to itself"));
  EXPECT_THAT(message([](const fs::path& path) { fs::create_symlink("nowhere", path); }),
              HasSubstr("not there"));
  EXPECT_THAT(message([](const fs::path& path) { ::mkfifo(path.c_str(), 0600); }),
              HasSubstr("FIFO"));
  EXPECT_THAT(message([](const fs::path& path) { fs::create_directory(path); }),
              HasSubstr("a directory"));
}

TEST(Directory, HubCacheSnapshotAndItsRepositoryFolder) {
  CheckpointFixture f;
  f.add_bf16("a.weight", {2, 2}, 1.0F);
  const std::string repository = "models--org--name";
  f.write(repository + "/blobs/0123");
  f.write_file(repository + "/refs/main", "abcdef\n");
  const fs::path snapshot = f.dir() / repository / "snapshots" / "abcdef";
  fs::create_directories(snapshot);
  fs::create_symlink("../../blobs/0123", snapshot / "model.safetensors");
  EXPECT_EQ(opened(snapshot)->tensors().size(), 1U);
  EXPECT_EQ(opened(f.dir() / repository)->tensors().size(), 1U);
  EXPECT_EQ(opened(f.dir() / repository)->root(), snapshot);

  fs::create_directories(f.dir() / repository / "snapshots" / "other");
  f.write_file(repository + "/refs/main", "../../..");
  EXPECT_THAT(refused(f.dir() / repository).text, HasSubstr("snapshots"));
  f.write_file("secret.safetensors", "x");
  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink(f.dir() / "secret.safetensors", snapshot / "model.safetensors");
  EXPECT_THAT(refused(snapshot).text, HasSubstr("link out of the checkpoint"));
}

TEST(Directory, Row41AndC073FilesThatAreSomethingElse) {
  const struct {
    std::string_view content;
    const char* named;
  } kCases[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"},
      {"<!DOCTYPE html><html><body>404</body></html>", "HTML page"},
      {std::string_view("PK\x03\x04\x14\0\0\0\0\0\0\0", 12), "zip"},
      {std::string_view("\x80\x02}q\0X\x05\0\0\0weight", 16), "pickle"},
      {std::string_view("GGUF\x03\0\0\0\0\0\0\0", 12), "GGUF"},
  };
  for (const auto& c : kCases) {
    CheckpointFixture f;
    f.write_file("model.safetensors", c.content);
    const Error error = refused(f.dir());
    EXPECT_THAT(error.text, HasSubstr(c.named));
    EXPECT_EQ(exit_status(error.code), 3);
  }
}

TEST(Directory, Row59ForeignModelsAreRefusedByKind) {
  const struct {
    const char* name;
    std::string_view content;
    const char* kind;
  } kCases[] = {
      {"model.gguf", std::string_view("GGUF\x03\0\0\0", 8), "GGUF"},
      {"pytorch_model.bin", std::string_view("PK\x03\x04", 4), "pickle"},
      {"model.onnx", std::string_view("\x08\x07\x12\x07pytorch", 11), "ONNX"},
      {"model.zip", std::string_view("PK\x03\x04", 4), "zip"},
  };
  for (const auto& c : kCases) {
    CheckpointFixture f;
    f.write_file(c.name, c.content);
    const Error directory = refused(f.dir());
    EXPECT_EQ(directory.code, Code::kUnsupported);
    EXPECT_THAT(directory.text, HasSubstr(c.kind));
    const Error file = refused(f.dir() / c.name);
    EXPECT_EQ(file.code, Code::kUnsupported);
  }
  CheckpointFixture f;
  EXPECT_EQ(refused(f.dir()).code, Code::kInput);              // empty
  EXPECT_EQ(refused(f.dir() / "nothing").code, Code::kInput);  // absent
  f.write_file("notes.txt", "hello");
  EXPECT_EQ(refused(f.dir() / "notes.txt").code, Code::kInput);  // no model at all
}

TEST(Directory, BrokenConfigAndIndexAreNamed) {
  CheckpointFixture f;
  add_two(f);
  f.write();
  for (const char* text : {"", "{", "[1]", "{\"a\": NaN}", "{\"a\": 1,}", "\xEF\xBB\xBF{}"}) {
    f.write_file("config.json", text);
    const Error error = refused(f.dir());
    EXPECT_EQ(error.code, Code::kInput);
    EXPECT_THAT(error.text + error.where.file, HasSubstr("config.json"));
  }
  f.write_file("config.json", "{}");
  for (const char* text :
       {"{}", R"({"weight_map": []})", R"({"weight_map": {"a": 1}})", R"({"weight_map": {}})"}) {
    f.write_file(kIndex, text);
    EXPECT_EQ(refused(f.dir()).code, Code::kInput) << text;
  }
}

TEST(Directory, C074TensorLimitIsAdjustableAndNamed) {
  CheckpointFixture f;
  add_two(f);
  f.write();
  CheckpointOptions options;
  options.limits.max_tensors = 1;
  const auto checkpoint = Checkpoint::open(f.dir(), options);
  ASSERT_FALSE(checkpoint);
  EXPECT_THAT(checkpoint.error().text, HasSubstr("1"));
}

TEST(Directory, NamePositions) {
  EXPECT_EQ(name_position("model.layers.3.mlp.experts.5.up_proj").layer, 3);
  EXPECT_EQ(name_position("model.layers.3.mlp.experts.5.up_proj").expert, 5);
  EXPECT_EQ(name_position("layers.12.ffn.experts.7.w1.weight").layer, 12);
  EXPECT_FALSE(name_position("model.embed_tokens.weight").layer.has_value());
  EXPECT_FALSE(name_position("model.layers.x.y").layer.has_value());
  EXPECT_FALSE(name_position("layers.99999999999999999999.w").layer.has_value());
}

}  // namespace
}  // namespace sextant
