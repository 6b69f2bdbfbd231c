// A checkpoint directory that appears whole or not at all. Files are written into a hidden
// temporary directory beside the destination, each synced; commit() syncs the directory and renames
// it into place. A crash, a full disk or a cancelled run leaves the old destination or the new one
// in full, never half of either.
//
//   SX_ASSIGN(AtomicDir dir, AtomicDir::create(dst, {.force = force, .needed_bytes = n}));
//   ... dir.write_file, dir.copy_file, SafetensorsWriter::create(dir, ...) ...
//   SX_TRY(dir.commit());
//
// Without commit() the destructor removes the temporary directory. One that a killed process left
// is recognized by the next create() with the same destination: its owner's lock on it is gone.
// With force an existing destination is exchanged with the new one in a single step and removed
// afterwards. The caller refuses a destination that is the source (check_destination).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "io/file_ops.h"

namespace sextant {

struct AtomicDirOptions {
  bool force = false;        // replace an existing destination directory
  int64_t needed_bytes = 0;  // what will be written in all; compared with the free space at start
  const std::atomic<bool>* cancel = nullptr;  // when true every write returns kCancelled
  FileOps* ops = nullptr;                     // nullptr: the system
};

// One new file inside an AtomicDir. write_at may be called from several threads.
class OutputFile {
 public:
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  Status write_at(int64_t offset, std::span<const std::byte> bytes);
  // Asks the file system for the space at once, where it can.
  Status reserve(int64_t n_bytes);
  // Syncs and closes. Every file must be finished before commit().
  Status finish();

 private:
  friend class AtomicDir;
  struct Target;
  OutputFile() = default;
  std::shared_ptr<Target> target_;
  int fd_ = -1;
  std::string shown_;  // the final name, for messages
};

class AtomicDir {
 public:
  // kUsage where the destination exists (without force) or cannot be replaced; kInput where its
  // parent does not exist; kResources with the bytes needed where the disk is too small.
  static Result<AtomicDir> create(const std::filesystem::path& destination,
                                  const AtomicDirOptions& options = {});
  AtomicDir(AtomicDir&& other) noexcept;
  AtomicDir& operator=(AtomicDir&& other) noexcept;
  ~AtomicDir();

  const std::filesystem::path& destination() const;
  const std::filesystem::path& temporary() const;

  // A new file; name has no slash. kInput where it exists already.
  Result<OutputFile> create_file(std::string_view name);
  Status write_file(std::string_view name, std::string_view text);
  Status copy_file(const std::filesystem::path& source, std::string_view name);

  // After this the destination is the new directory, on disk. An error means that the destination
  // is the old one, unless its text says that the new one is in place.
  Status commit();

 private:
  explicit AtomicDir(std::shared_ptr<OutputFile::Target> target);
  void abandon() noexcept;
  std::shared_ptr<OutputFile::Target> target_;
};

// Refuses a destination that is the source, a link to it, or a directory above it (kUsage).
Status check_destination(const std::filesystem::path& source,
                         const std::filesystem::path& destination);

}  // namespace sextant
