// Opening by kind, mapping, giving pages back, and files that shrink while they are mapped.
#include "io/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <numeric>

#include "io/file_kind.h"
#include "io/quote.h"
#include "io/sha256.h"
#include "io/test_files.h"

namespace sextant {
namespace {

using testing::HasSubstr;

int64_t page() { return ::sysconf(_SC_PAGESIZE); }

// Pages of the mapping that are in this process's page tables, by /proc/self/pagemap's sibling:
// mincore tells about the page cache, so resident memory is asked from smaps.
int64_t resident_kb(const void* address) {
  std::ifstream smaps("/proc/self/smaps");
  const std::string start = fmt::format("{:x}-", reinterpret_cast<uintptr_t>(address));
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.starts_with(start)) inside = true;
    if (inside && line.starts_with("Rss:")) return std::stoll(line.substr(4));
  }
  return -1;
}

TEST(MappedFile, MapsWhatTheFileHolds) {
  const TempDir dir;
  const auto file = MappedFile::open(dir.file("a", "hello"));
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->bytes().size(), 5U);
  EXPECT_EQ(static_cast<char>(file->bytes()[4]), 'o');
  const auto empty = MappedFile::open(dir.file("b", ""));
  ASSERT_TRUE(empty.has_value());
  EXPECT_TRUE(empty->bytes().empty());
  empty->release(0, 0);
}

TEST(MappedFile, Row37OtherKindsAreRefusedWithoutBlocking) {
  const TempDir dir;
  const auto fifo = dir.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto link = dir.path() / "loop";
  std::filesystem::create_symlink(link, link);
  const auto dangling = dir.path() / "dangling";
  std::filesystem::create_symlink(dir.path() / "none", dangling);
  const auto socket_path = dir.path() / "socket";
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path.c_str());
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  struct Row {
    std::filesystem::path path;
    std::string_view says;
  };
  for (const Row& row :
       {Row{fifo, "expected a regular file, found a FIFO"},
        Row{dir.path(), "expected a regular file, found a directory"},
        Row{"/dev/null", "expected a regular file, found a character device"},
        Row{socket_path, "expected a regular file, found a socket"},
        Row{link, "cannot be opened: Too many levels of symbolic links (ELOOP)"},
        Row{dangling, "found a link to something that does not exist"},
        Row{dir.path() / "none", "no such file"}, Row{std::string("a\0b", 3), "NUL"}}) {
    const Error e = error_of(MappedFile::open(row.path));
    EXPECT_EQ(e.code, Code::kInput);
    EXPECT_THAT(e.text, HasSubstr(row.says)) << row.path;
  }
  ::close(fd);
}

TEST(MappedFile, ReleaseGivesBackWholePagesInsideOnly) {
  const TempDir dir;
  const int64_t n_pages = 64;
  std::string bytes(static_cast<size_t>(n_pages * page() - 100), '\0');
  std::iota(bytes.begin(), bytes.end(), '\0');
  const auto file = MappedFile::open(dir.file("a", bytes));
  ASSERT_TRUE(file.has_value());
  const auto touch = [&] {
    int sum = 0;
    for (const std::byte b : file->bytes()) sum += static_cast<int>(b);
    return sum;
  };
  const int before = touch();
  ASSERT_EQ(resident_kb(file->bytes().data()), n_pages * page() / 1024);
  file->release(1, 2 * page() - 1);  // no whole page inside
  EXPECT_EQ(resident_kb(file->bytes().data()), n_pages * page() / 1024);
  file->release(page() - 1, 3 * page());  // two
  EXPECT_EQ(resident_kb(file->bytes().data()), (n_pages - 2) * page() / 1024);
  file->release(0, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(resident_kb(file->bytes().data()), 0);
  file->will_need(0, static_cast<int64_t>(bytes.size()) + 5);
  EXPECT_EQ(touch(), before);  // what was released can be read again
}

TEST(MappedFile, NoticesThatAFileChanged) {
  const TempDir dir;
  const auto path = dir.file("a", "hello");
  const auto file = InputFile::open(path);
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->check_unchanged().has_value());
  dir.file("b", "hello");
  std::filesystem::rename(dir.path() / "b", path);
  EXPECT_THAT(error_of(file->check_unchanged()).text, HasSubstr("was replaced or written to"));
  dir.file("a", "hello, world");
  EXPECT_THAT(error_of(file->check_unchanged()).text,
              HasSubstr("changed while it was used: expected 5 bytes, found 12"));
  std::filesystem::remove(path);
  EXPECT_THAT(error_of(file->check_unchanged()).text, HasSubstr("ENOENT"));
}

TEST(MappedFileDeathTest, Row27ShrinkingWhileMappedIsANamedErrorWithStatus3) {
  const TempDir dir;
  EXPECT_EXIT(
      {
        const auto path = dir.file("model.safetensors", std::string(10 * 4096, 'x'));
        install_sigbus_guard();
        const auto file = MappedFile::open(path);
        std::filesystem::resize_file(path, 4096);
        volatile auto byte = file->bytes()[20'000];
        (void)byte;
      },
      testing::ExitedWithCode(3),
      "sextant: error: .*model.safetensors: expected 40960 bytes, found none behind byte offset "
      "20000: the file shrank or its storage failed");
}

TEST(MappedFileDeathTest, Row27OtherBusErrorsGoTheirUsualWay) {
  const TempDir dir;
  EXPECT_EXIT(
      {
        ::signal(SIGBUS, SIG_DFL);  // a sanitizer has a handler of its own
        const auto path = dir.file("a", std::string(8192, 'x'));
        install_sigbus_guard();
        { const auto file = MappedFile::open(path); }  // registered once, no longer
        const auto input = InputFile::open(path);
        const void* p = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, input->fd(), 0);
        std::filesystem::resize_file(path, 0);
        volatile char byte = *static_cast<const char*>(p);
        (void)byte;
      },
      testing::KilledBySignal(SIGBUS), "");
}

TEST(Quote, NamesCannotForgeAMessage) {
  EXPECT_EQ(quote_name("model.norm.weight"), "'model.norm.weight'");
  EXPECT_EQ(quote_name("a'b\\c"), "'a\\'b\\\\c'");
  EXPECT_EQ(quote_name(std::string("\0\n\t\x7f\x1b[0m", 8)), "'\\x00\\n\\t\\x7f\\x1b[0m'");
  EXPECT_EQ(quote_name("é\xC2\x9B\xE2\x80\xAE\xFF"), "'é\\u{9b}\\u{202e}\\xff'");
  EXPECT_EQ(quote_name("\xD8\x9C\xE2\x80\x8F\xE2\x81\xA9"), "'\\u{61c}\\u{200f}\\u{2069}'");
  EXPECT_EQ(quote_name("abcdef", 3), "'abc...' (6 bytes)");
  EXPECT_EQ(quote_name("aééé", 4), "'aé...' (7 bytes)");  // no character is cut
}

TEST(FileKind, ToldFromTheFirstBytes) {
  EXPECT_EQ(recognize_file("hello"), std::nullopt);
  EXPECT_EQ(recognize_file(""), std::nullopt);
  EXPECT_THAT(std::string(*recognize_file("  <HTML>")), HasSubstr("HTML"));
  std::string tar(512, '\0');
  tar.replace(257, 5, "ustar");
  EXPECT_THAT(std::string(*recognize_file(tar)), HasSubstr("tar archive"));
}

// FIPS 180-4 examples.
TEST(Sha256, TheStandardsExamples) {
  const auto of = [](std::string_view text) {
    return sha256(std::as_bytes(std::span<const char>(text)));
  };
  EXPECT_EQ(of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string million(1'000'000, 'a');
  const std::string_view expected =
      "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
  EXPECT_EQ(of(million), expected);
  Sha256 pieces;
  for (size_t at = 0; at < million.size(); at += 777)
    pieces.update(std::as_bytes(std::span<const char>(std::string_view(million).substr(at, 777))));
  EXPECT_EQ(pieces.finish(), expected);
  const TempDir dir;
  EXPECT_EQ(sha256_file(dir.file("a", million + million)),
            of(million + million));  // more than one piece
  EXPECT_THAT(error_of(sha256_file(dir.path())).text, HasSubstr("a directory"));
}

}  // namespace
}  // namespace sextant
