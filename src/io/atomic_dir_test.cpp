// The promise of atomic_dir.h, by failing every system call in turn and by killing the process at
// every system call in turn: the destination is the old content or the new content in full.
#include "io/atomic_dir.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <thread>

#include "io/safetensors.h"
#include "io/safetensors_writer.h"
#include "io/test_files.h"

namespace sextant {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Content = std::map<std::string, std::string>;

Content content_of(const fs::path& dir) {
  Content content;
  for (const auto& item : fs::directory_iterator(dir))
    content[item.path().filename()] = slurp(item.path());
  return content;
}

std::vector<std::string> names_in(const fs::path& dir) {
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(dir)) names.push_back(item.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span<const char>(text));
}

// Counts the system calls; the n-th fails with an errno or ends the process.
class FaultyOps : public FileOps {
 public:
  FaultyOps(int fail_at, int error, bool die) : fail_at_(fail_at), error_(error), die_(die) {}
  int n_calls() const { return n_calls_; }
  const std::string& failed() const { return failed_; }

  int open(const char* path, int flags, unsigned mode) override {
    return fault("open") ? -1 : FileOps::open(path, flags, mode);
  }
  int64_t pwrite(int fd, const void* data, size_t n, int64_t offset) override {
    return fault("pwrite") ? -1 : FileOps::pwrite(fd, data, n, offset);
  }
  int reserve(int fd, int64_t n) override {
    return fault("reserve") ? -1 : FileOps::reserve(fd, n);
  }
  int fsync(int fd) override { return fault("fsync") ? -1 : FileOps::fsync(fd); }
  int close(int fd) override {
    const bool failed = fault("close");
    const int result = FileOps::close(fd);  // the descriptor is gone even when close reports EIO
    return failed ? (errno = error_, -1) : result;
  }
  int lock(int fd) override { return fault("lock") ? -1 : FileOps::lock(fd); }
  int mkdir(const char* path, unsigned mode) override {
    return fault("mkdir") ? -1 : FileOps::mkdir(path, mode);
  }
  int rename(const char* from, const char* to, unsigned flags) override {
    return fault("rename") ? -1 : FileOps::rename(from, to, flags);
  }
  int unlink(const char* path) override { return fault("unlink") ? -1 : FileOps::unlink(path); }
  int rmdir(const char* path) override { return fault("rmdir") ? -1 : FileOps::rmdir(path); }
  int64_t available_bytes(const char* dir) override {
    return fault("statvfs") ? -1 : FileOps::available_bytes(dir);
  }

 private:
  bool fault(const char* name) {
    if (++n_calls_ != fail_at_) return false;
    if (die_) ::kill(::getpid(), SIGKILL);
    failed_ = name;
    errno = error_;
    return true;
  }
  int fail_at_;
  int error_;
  bool die_;
  int n_calls_ = 0;
  std::string failed_;
};

// Thousands of syncs: in memory where the system has such a place.
fs::path fast_parent() {
  return ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
}

const Content kOld = {{"config.json", "old config"}, {"old.bin", std::string(5000, 'o')}};

SafetensorsLayout small_layout() {
  auto layout = SafetensorsLayout::make({{"a", DType::kU8, {3}}, {"b", DType::kF32, {2}}});
  EXPECT_TRUE(layout.has_value());
  return std::move(*layout);
}

// One conversion in small: a safetensors file in pieces, a config, a copied file.
Status write_checkpoint(const fs::path& dst, const fs::path& side_file, bool force, FileOps* ops) {
  SX_ASSIGN(AtomicDir dir,
            AtomicDir::create(dst, {.force = force, .needed_bytes = 1000, .ops = ops}));
  SX_ASSIGN(SafetensorsWriter writer,
            SafetensorsWriter::create(dir, "model.safetensors", small_layout()));
  SX_TRY(writer.write(1, 4, bytes_of("5678")));
  SX_TRY(writer.write(0, bytes_of("abc")));
  SX_TRY(writer.write(1, 0, bytes_of("1234")));
  SX_TRY(writer.finish());
  SX_TRY(dir.write_file("config.json", "new config"));
  SX_TRY(dir.copy_file(side_file, "tokenizer.json"));
  return dir.commit();
}

Content new_content() {
  return {{"model.safetensors", small_layout().header() + "12345678abc"},
          {"config.json", "new config"},
          {"tokenizer.json", "side"}};
}

class AtomicDirTest : public testing::Test {
 protected:
  AtomicDirTest() : side_(dir_.file("side.json", "side")), dst_(dir_.path() / "dst") {}
  void make_old() const {
    fs::remove_all(dst_);
    fs::create_directory(dst_);
    for (const auto& [name, text] : kOld) dir_.file("dst/" + name, text);
  }
  std::vector<std::string> leftovers() const {
    std::vector<std::string> names;
    for (const std::string& name : names_in(dir_.path()))
      if (name != "dst" && name != "side.json") names.push_back(name);
    return names;
  }
  TempDir dir_{fast_parent()};
  fs::path side_;
  fs::path dst_;
};

TEST_F(AtomicDirTest, WritesANewDirectory) {
  ASSERT_TRUE(write_checkpoint(dst_, side_, false, nullptr).has_value());
  EXPECT_EQ(content_of(dst_), new_content());
  EXPECT_TRUE(leftovers().empty());
  const auto file = SafetensorsFile::open(dst_ / "model.safetensors");
  ASSERT_TRUE(file.has_value()) << file.error().text;
  EXPECT_EQ(static_cast<char>(file->bytes(*file->find("a"))[2]), 'c');
}

TEST_F(AtomicDirTest, Row140ExistingDestinationIsRefusedWithoutForce) {
  make_old();
  const Error e = error_of(write_checkpoint(dst_, side_, false, nullptr));
  EXPECT_EQ(e.code, Code::kUsage);
  EXPECT_THAT(e.text, HasSubstr("the destination exists"));
  EXPECT_EQ(content_of(dst_), kOld);
  ASSERT_TRUE(write_checkpoint(dst_.string() + "/", side_, true, nullptr).has_value());
  EXPECT_EQ(content_of(dst_), new_content());
  EXPECT_TRUE(leftovers().empty());
}

TEST_F(AtomicDirTest, Row140TheSourceAndWhatHoldsItAreNoDestinations) {
  make_old();
  const auto link = dir_.path() / "link";
  fs::create_symlink(dst_, link);
  for (const fs::path& to : {dst_, link, dst_ / ".", dst_ / "../dst", dir_.path()})
    EXPECT_EQ(error_of(check_destination(dst_, to)).code, Code::kUsage) << to;
  EXPECT_TRUE(check_destination(dst_, dir_.path() / "dst2").has_value());
  EXPECT_TRUE(check_destination(dst_, dir_.path() / "ds").has_value());
  // What cannot be meant even with force.
  for (const fs::path& to : {fs::path("/"), fs::path("."), fs::path(".."), side_}) {
    const Error e = error_of(AtomicDir::create(to, {.force = true}));
    EXPECT_EQ(e.code, Code::kUsage) << to << e.text;
  }
  EXPECT_THAT(error_of(AtomicDir::create(dir_.path() / "none/dst")).text,
              HasSubstr("expected an existing directory to create it in"));
}

TEST_F(AtomicDirTest, TheDestinationAppearsWhileItIsWritten) {
  auto dir = AtomicDir::create(dst_);
  ASSERT_TRUE(dir.has_value());
  make_old();
  EXPECT_EQ(error_of(dir->commit()).code, Code::kUsage);
  EXPECT_EQ(content_of(dst_), kOld);
}

TEST_F(AtomicDirTest, WithoutCommitNothingStays) {
  {
    auto dir = AtomicDir::create(dst_);
    ASSERT_TRUE(dir.has_value());
    ASSERT_TRUE(dir->write_file("a", "b").has_value());
    auto unfinished = dir->create_file("c");
    ASSERT_TRUE(unfinished.has_value());
    EXPECT_FALSE(leftovers().empty());
  }
  EXPECT_TRUE(leftovers().empty());
  EXPECT_FALSE(fs::exists(dst_));
}

TEST_F(AtomicDirTest, CancelStopsTheNextWrite) {
  std::atomic<bool> cancel = false;
  {
    auto dir = AtomicDir::create(dst_, {.cancel = &cancel});
    ASSERT_TRUE(dir->write_file("a", "b").has_value());
    cancel = true;
    EXPECT_EQ(error_of(dir->write_file("c", "d")).code, Code::kCancelled);
    EXPECT_EQ(error_of([&]() -> Status {
                auto other = AtomicDir::create(dir_.path() / "dst2", {.cancel = &cancel});
                return other->commit();
              }())
                  .code,
              Code::kCancelled);
  }
  EXPECT_TRUE(leftovers().empty());
}

TEST_F(AtomicDirTest, Row135SpaceIsEstimatedBeforeTheStart) {
  const Error e = error_of(AtomicDir::create(dst_, {.needed_bytes = int64_t{1} << 60}));
  EXPECT_EQ(e.code, Code::kResources);
  EXPECT_THAT(e.text, HasSubstr("not enough disk space: 1152921504606846976 bytes are needed, "));
  EXPECT_TRUE(leftovers().empty());
}

// Every call fails once, with every kind of error that a full or broken disk gives.
TEST_F(AtomicDirTest, Row135EveryFailingCallLeavesTheOldOrTheNewInFull) {
  for (const bool force : {false, true}) {
    for (const int error : {ENOSPC, EIO, EDQUOT}) {
      int n = 1;
      for (;; ++n) {
        fs::remove_all(dst_);
        if (force) make_old();
        FaultyOps ops(n, error, false);
        const Status status = write_checkpoint(dst_, side_, force, &ops);
        const std::string what = fmt::format("call {} ({}) errno {}", n, ops.failed(), error);
        if (ops.failed().empty()) {
          ASSERT_TRUE(status.has_value());
          break;  // more calls than a whole run has
        }
        const bool is_new = fs::exists(dst_) && content_of(dst_) == new_content();
        const bool is_old = force ? content_of(dst_) == kOld : !fs::exists(dst_);
        EXPECT_TRUE(is_new || is_old) << what;
        if (status.has_value()) {
          EXPECT_TRUE(is_new) << what;
        } else {
          EXPECT_EQ(status.error().code, Code::kResources) << what << status.error().text;
          EXPECT_TRUE(is_old ||
                      status.error().text.find("new directory is in place") != std::string::npos)
              << what << status.error().text;
          EXPECT_THAT(status.error().text, HasSubstr("/dst")) << what;
          EXPECT_THAT(status.error().text, HasSubstr("failed: ")) << what;
        }
        // Only a failing removal leaves something; the next run recognizes and removes it.
        if (ops.failed() != "unlink" && ops.failed() != "rmdir") {
          EXPECT_THAT(leftovers(), testing::IsEmpty()) << what;
        }
        ASSERT_TRUE(write_checkpoint(dst_, side_, true, nullptr).has_value()) << what;
        EXPECT_EQ(content_of(dst_), new_content()) << what;
        EXPECT_TRUE(leftovers().empty()) << what;
      }
      EXPECT_GT(n, 20);
    }
  }
}

// Every call is the last thing the process does.
TEST_F(AtomicDirTest, Row137KilledAtEveryCallLeavesTheOldOrTheNewInFull) {
  for (const bool force : {false, true}) {
    int n = 1;
    for (;; ++n) {
      fs::remove_all(dst_);
      if (force) make_old();
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        FaultyOps ops(n, 0, true);
        ::_exit(write_checkpoint(dst_, side_, force, &ops).has_value() ? 0 : 1);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      const bool is_new = fs::exists(dst_) && content_of(dst_) == new_content();
      const bool is_old = force ? content_of(dst_) == kOld : !fs::exists(dst_);
      EXPECT_TRUE(is_new || is_old) << "killed at call " << n;
      if (WIFEXITED(status)) {
        EXPECT_EQ(WEXITSTATUS(status), 0);
        EXPECT_TRUE(is_new);
        EXPECT_TRUE(leftovers().empty());
        break;
      }
      ASSERT_TRUE(write_checkpoint(dst_, side_, true, nullptr).has_value()) << n;
      EXPECT_EQ(content_of(dst_), new_content()) << n;
      EXPECT_TRUE(leftovers().empty()) << "killed at call " << n;
    }
    EXPECT_GT(n, 20);
  }
}

TEST_F(AtomicDirTest, TemporaryDirectoriesOfLiveRunsAndOthersAreLeftAlone) {
  auto live = AtomicDir::create(dst_);
  ASSERT_TRUE(live.has_value());
  const auto other = dir_.path() / ".other.sextant-tmp-1-0";
  fs::create_directory(other);
  const auto stale = dir_.path() / ".dst.sextant-tmp-1-0";
  fs::create_directories(stale / "nested/deep");
  fs::create_symlink(side_, stale / "link");
  fs::create_directory_symlink(other, stale / "directory-link");
  dir_.file(".other.sextant-tmp-1-0/keep", "kept");
  auto second = AtomicDir::create(dst_);
  ASSERT_TRUE(second.has_value());
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(fs::exists(live->temporary()));
  EXPECT_EQ(slurp(other / "keep"), "kept");
  EXPECT_EQ(slurp(side_), "side");
  EXPECT_NE(live->temporary(), second->temporary());
}

// Row 139: writes that do less than asked, that are interrupted, that hit the limit on file sizes.
TEST_F(AtomicDirTest, Row139ShortAndInterruptedWrites) {
  class ShortOps : public FileOps {
   public:
    int64_t pwrite(int fd, const void* data, size_t n, int64_t offset) override {
      if (++n_calls_ % 2 == 0) return errno = EINTR, -1;
      return FileOps::pwrite(fd, data, std::min<size_t>(n, 3), offset);
    }
    int fsync(int fd) override {
      return ++n_syncs_ % 2 == 1 ? (errno = EINTR, -1) : FileOps::fsync(fd);
    }

   private:
    int n_calls_ = 0;
    int n_syncs_ = 0;
  } ops;
  ASSERT_TRUE(write_checkpoint(dst_, side_, false, &ops).has_value());
  EXPECT_EQ(content_of(dst_), new_content());
}

TEST_F(AtomicDirTest, Row139FileSizeLimitIsAnErrorNotASignal) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{100, 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Status status = write_checkpoint(dst_, side_, false, nullptr);
    ::_exit(!status && status.error().code == Code::kResources &&
                    status.error().text.find("EFBIG") != std::string::npos
                ? 0
                : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(leftovers().empty());
  EXPECT_FALSE(fs::exists(dst_));
}

TEST_F(AtomicDirTest, Row138And141SourceProblemsStopACopy) {
  auto dir = AtomicDir::create(dst_);
  ASSERT_TRUE(dir.has_value());
  EXPECT_EQ(error_of(dir->copy_file(dir_.path() / "none", "a")).code, Code::kInput);
  ASSERT_TRUE(dir->write_file("b", "x").has_value());
  EXPECT_THAT(error_of(dir->write_file("b", "y")).text, HasSubstr("EEXIST"));
}

TEST(SafetensorsWriterTest, WideTypesFirstHeaderPaddedMetadataKept) {
  const auto layout = SafetensorsLayout::make({{"codes", DType::kF4, {2, 6}},
                                               {"scale", DType::kF32, {}},
                                               {"half", DType::kBF16, {3}},
                                               {"none", DType::kF32, {0, 7}}},
                                              {{"format", "pt"}});
  ASSERT_TRUE(layout.has_value());
  const std::string json = R"({"__metadata__":{"format":"pt"},)"
                           R"("scale":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                           R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]},)"
                           R"("half":{"dtype":"BF16","shape":[3],"data_offsets":[4,10]},)"
                           R"("codes":{"dtype":"F4","shape":[2,6],"data_offsets":[10,16]}})";
  const size_t n = layout->header().size();
  EXPECT_EQ(n % 64, 0U);
  EXPECT_EQ(layout->header().substr(0, 8), length_field(n - 8));
  EXPECT_EQ(layout->header().substr(8, json.size()), json);
  EXPECT_EQ(layout->header().find_first_not_of(' ', 8 + json.size()), std::string::npos);
  EXPECT_EQ(layout->begin(0), static_cast<int64_t>(n) + 10);
  EXPECT_EQ(layout->n_bytes(0), 6);
  EXPECT_EQ(layout->file_bytes(), static_cast<int64_t>(n) + 16);
}

TEST(SafetensorsWriterTest, RefusesWhatReadersWould) {
  const auto fault = [](std::vector<TensorSpec> tensors) {
    const auto layout = SafetensorsLayout::make(std::move(tensors));
    return layout ? std::string("accepted") : layout.error().text;
  };
  EXPECT_THAT(fault({{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}), HasSubstr("'a' twice"));
  EXPECT_THAT(fault({{"__metadata__", DType::kU8, {1}}}), HasSubstr("'__metadata__'"));
  EXPECT_THAT(fault({{"a\xFF", DType::kU8, {1}}}), HasSubstr("'a\\xff'"));
  EXPECT_THAT(fault({{"a", DType::kF4, {3}}}), HasSubstr("not a whole number of bytes"));
  EXPECT_THAT(fault({{"a", DType::kF32, {1 << 30, 1 << 30, 1 << 10}}}), HasSubstr("overflow"));
  EXPECT_EQ(fault({}), "accepted");
}

TEST(SafetensorsWriterTest, ThreadsWriteAtTheirOwnPlaces) {
  const TempDir temp;
  auto dir = AtomicDir::create(temp.path() / "dst");
  ASSERT_TRUE(dir.has_value());
  constexpr int64_t kRows = 64;
  constexpr int64_t kRowBytes = 1000;
  auto layout = SafetensorsLayout::make(
      {{"a\n\"\\\x01", DType::kU8, {kRows, kRowBytes}}, {"b", DType::kI8, {kRows * kRowBytes}}});
  auto writer = SafetensorsWriter::create(*dir, "m.safetensors", std::move(*layout));
  ASSERT_TRUE(writer.has_value());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int64_t row = t; row < kRows; row += 4)
        for (int64_t tensor = 0; tensor < 2; ++tensor) {
          const std::string text(kRowBytes, static_cast<char>(row + 100 * tensor));
          EXPECT_TRUE(writer->write(tensor, row * kRowBytes, bytes_of(text)).has_value());
        }
    });
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(writer->finish().has_value());
  ASSERT_TRUE(dir->commit().has_value());
  const auto file = SafetensorsFile::open(temp.path() / "dst/m.safetensors");
  ASSERT_TRUE(file.has_value()) << file.error().text;
  for (int64_t i = 0; i < kRows * kRowBytes; ++i) {
    ASSERT_EQ(static_cast<int64_t>(file->bytes(*file->find("a\n\"\\\x01"))[i]), i / kRowBytes);
    ASSERT_EQ(static_cast<int64_t>(file->bytes(*file->find("b"))[i]), i / kRowBytes + 100);
  }
}

}  // namespace
}  // namespace sextant
