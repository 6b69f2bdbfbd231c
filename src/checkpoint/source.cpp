// Finding a checkpoint's files, and refusing what is no checkpoint with what it is instead.
#include "checkpoint/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/file_kind.h"
#include "io/json.h"
#include "io/quote.h"

namespace sextant {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxShardNameBytes = 1024;
constexpr int64_t kMaxShards = 100'000;
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::array kIndexNames = {"model.safetensors.index.json",
                                    "consolidated.safetensors.index.json"};

std::string shown(const fs::path& path) { return quote_name(path.string(), 400); }

bool is_within(const fs::path& path, const fs::path& folder) {
  const auto [end, unused] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

// The first bytes of a regular file; empty for anything else. Never blocks.
std::string first_bytes(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return {};
  std::string head(512, '\0');
  struct stat info = {};
  ssize_t n = 0;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
    n = ::pread(fd, head.data(), head.size(), 0);
  ::close(fd);
  head.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return head;
}

std::string_view kind_of(const fs::file_status& status) {
  switch (status.type()) {
    case fs::file_type::directory: return "a directory";
    case fs::file_type::fifo: return "a FIFO";
    case fs::file_type::socket: return "a socket";
    case fs::file_type::block:
    case fs::file_type::character: return "a device";
    default: return "no regular file";
  }
}

// A file of the checkpoint by its checked name: its path, nothing where it is missing, an error
// where it is not a regular file or a link leads out of the repository.
Result<std::optional<fs::path>> file_in(const fs::path& root, const std::string& name) {
  const fs::path path = root / name;
  std::error_code error;
  const fs::file_status link = fs::symlink_status(path, error);
  if (link.type() == fs::file_type::not_found) return std::nullopt;
  const fs::path real = fs::canonical(path, error);
  if (error == std::errc::too_many_symbolic_link_levels)
    return fail_at(Where{path.string(), {}, {}, {}}, Code::kInput,
                   "{} is a link that leads back to itself", shown(path));
  if (error && link.type() == fs::file_type::symlink)
    return fail_at(Where{path.string(), {}, {}, {}}, Code::kInput,
                   "{} is a link to a file that is not there: the download is incomplete, fetch it "
                   "again",
                   shown(path));
  if (error)
    return fail_at(Where{path.string(), {}, {}, {}}, Code::kInput, "{} cannot be read: {}",
                   shown(path), error.message());
  // snapshots/<revision>/file -> blobs/<hash> of the same repository is how the hub cache stores.
  const fs::path repository = root.parent_path().filename() == "snapshots"
                                  ? root.parent_path().parent_path() / "blobs"
                                  : fs::path();
  if (!is_within(real, root) && (repository.empty() || !is_within(real, repository)))
    return fail_at(Where{path.string(), {}, {}, {}}, Code::kInput,
                   "{} is a link out of the checkpoint, to {}: replace it by the file, or open the "
                   "directory that holds it",
                   shown(path), shown(real));
  const fs::file_status status = fs::status(real, error);
  if (status.type() != fs::file_type::regular)
    return fail_at(Where{path.string(), {}, {}, {}}, Code::kInput,
                   "expected a regular file at {}, found {}", shown(path), kind_of(status));
  return path;
}

// A shard's name comes from a file: it must stay inside the directory.
Status check_shard_name(const std::string& name, const fs::path& index) {
  const auto bad = [&](std::string_view why) {
    return fail_at(Where{index.string(), {}, "weight_map", {}}, Code::kInput,
                   "{}: the shard name {} {}; nothing was opened", shown(index), quote_name(name),
                   why);
  };
  if (name.empty()) return bad("is empty");
  if (name.size() > kMaxShardNameBytes) return bad("is too long");
  if (name.find('\0') != std::string::npos) return bad("contains a NUL");
  if (name.find('\\') != std::string::npos) return bad("contains a backslash");
  if (name[0] == '/') return bad("is an absolute path");
  const fs::path parts(name);
  if (std::find(parts.begin(), parts.end(), "..") != parts.end())
    return bad("leads out of the directory");
  if (!name.ends_with(kSuffix)) return bad("is not that of a .safetensors file");
  return {};
}

// What stands in place of safetensors files in a directory, by file names: for the refusal only.
std::string_view foreign_kind(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kKinds = {{
      {".gguf", "a GGUF file"},
      {".bin", "PyTorch pickle files (.bin), which are never read"},
      {".pt", "PyTorch pickle files (.pt), which are never read"},
      {".pth", "PyTorch pickle files (.pth), which are never read"},
      {".ckpt", "pickle checkpoints (.ckpt), which are never read"},
      {".pkl", "Python pickles (.pkl), which are never read"},
      {".onnx", "an ONNX model"},
      {".h5", "HDF5 weights (.h5)"},
      {".msgpack", "Flax weights (.msgpack)"},
      {".npz", "NumPy archives (.npz)"},
      {".tflite", "a TensorFlow Lite model"},
      {".zip", "a zip archive"},
  }};
  for (const auto& [extension, kind] : kKinds)
    if (name.ends_with(extension)) return kind;
  return {};
}

std::vector<std::string> names_in(const fs::path& root) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// "model-00002-of-00005.safetensors": prefix "model", 2, 5.
struct ShardName {
  std::string prefix;
  int64_t number = 0;
  int64_t total = 0;
};
std::optional<ShardName> parse_shard_name(std::string_view name) {
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const size_t of = name.rfind("-of-");
  if (of == std::string_view::npos || of == 0) return std::nullopt;
  const size_t dash = name.rfind('-', of - 1);
  if (dash == std::string_view::npos) return std::nullopt;
  const auto number = [](std::string_view digits) -> int64_t {
    if (digits.empty() || digits.size() > 9) return -1;
    int64_t n = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9') return -1;
      n = n * 10 + (c - '0');
    }
    return n;
  };
  ShardName shard{std::string(name.substr(0, dash)), number(name.substr(dash + 1, of - dash - 1)),
                  number(name.substr(of + 4))};
  if (shard.number < 1 || shard.total < 1 || shard.total > kMaxShards) return std::nullopt;
  return shard;
}

Error missing_shard(const fs::path& root, const std::string& name, int64_t n_tensors) {
  std::error_code error;
  const bool unfinished = fs::exists(root / (name + ".incomplete"), error);
  std::string text = fmt::format("the shard {} is missing in {}", quote_name(name), shown(root));
  if (n_tensors > 0) text += fmt::format(": {} of the index's tensors are in it", n_tensors);
  text += unfinished ? "; an unfinished download (.incomplete) is there: fetch it again"
                     : "; fetch it again";
  return Error{Code::kInput, std::move(text), Where{(root / name).string(), {}, {}, {}}};
}

Status read_index(const fs::path& path, CheckpointFiles& files) {
  SX_ASSIGN(const JsonValue index, read_json(path));
  const JsonValue* map = index.find("weight_map");
  if (map == nullptr || !map->is_object())
    return fail_at(Where{path.string(), {}, "weight_map", {}}, Code::kInput,
                   "{}: expected an object \"weight_map\", found {}", shown(path),
                   map == nullptr ? "none" : map->kind_name());
  files.index_name = path.filename().string();
  files.weight_map.reserve(map->members().size());
  for (const auto& [tensor, shard] : map->members()) {
    if (!shard.is_string())
      return fail_at(Where{path.string(), tensor, "weight_map", {}}, Code::kInput,
                     "{}: expected a shard name for {}, found {}", shown(path), quote_name(tensor),
                     shard.kind_name());
    files.weight_map.emplace_back(tensor, shard.as_string());
  }
  if (const JsonValue* metadata = index.find("metadata"))
    if (const JsonValue* size = metadata->find("total_size"); size != nullptr && size->is_int())
      files.total_size = size->as_int();
  return {};
}

Status shards_of_index(const fs::path& index, CheckpointFiles& files) {
  SX_TRY(read_index(index, files));
  std::map<std::string, int64_t> n_tensors;
  for (const auto& [tensor, shard] : files.weight_map) ++n_tensors[shard];
  if (n_tensors.empty())
    return fail_at(Where{index.string(), {}, "weight_map", {}}, Code::kInput, "{} names no tensor",
                   shown(index));
  for (const auto& [shard, n] : n_tensors) SX_TRY(check_shard_name(shard, index));
  for (const auto& [shard, n] : n_tensors) {
    SX_ASSIGN(const auto path, file_in(files.root, shard));
    if (!path) return tl::unexpected(missing_shard(files.root, shard, n));
    files.shards.push_back(*path);
  }
  return {};
}

// Without an index: model.safetensors, a complete numbered set, consolidated.safetensors, or the
// only .safetensors file there is.
Status shards_by_name(const std::vector<std::string>& names, CheckpointFiles& files) {
  std::vector<std::string> safetensors;
  std::map<std::pair<std::string, int64_t>, std::set<int64_t>> sets;
  for (const std::string& name : names) {
    if (name.ends_with(kSuffix)) safetensors.push_back(name);
    if (const auto shard = parse_shard_name(name))
      sets[{shard->prefix, shard->total}].insert(shard->number);
  }
  std::vector<std::string> chosen;
  const auto has = [&](std::string_view name) {
    return std::binary_search(names.begin(), names.end(), name);
  };
  const auto model_set = std::find_if(
      sets.begin(), sets.end(), [](const auto& entry) { return entry.first.first == "model"; });
  const auto set = model_set != sets.end() ? model_set
                   : sets.size() == 1      ? sets.begin()
                                           : sets.end();
  if (has("model.safetensors")) {
    chosen = {"model.safetensors"};
  } else if (set != sets.end()) {
    const auto& [prefix, total] = set->first;
    for (const std::string& name : safetensors) {
      const auto shard = parse_shard_name(name);
      if (shard && shard->prefix == prefix && shard->total == total) chosen.push_back(name);
    }
    for (int64_t i = 1; i <= total; ++i)
      if (set->second.count(i) == 0)
        return tl::unexpected(missing_shard(
            files.root, fmt::format("{}-{:05}-of-{:05}{}", prefix, i, total, kSuffix), 0));
  } else if (has("consolidated.safetensors")) {
    chosen = {"consolidated.safetensors"};
  } else if (safetensors.size() == 1) {
    chosen = safetensors;
  } else if (safetensors.size() > 1) {
    return fail_at(Where{files.root.string(), {}, {}, {}}, Code::kInput,
                   "{} holds {} .safetensors files and no index that says which belong together: "
                   "name one of them, or add model.safetensors.index.json",
                   shown(files.root), safetensors.size());
  }
  for (const std::string& name : chosen) {
    SX_ASSIGN(const auto path, file_in(files.root, name));
    if (path) files.shards.push_back(*path);
  }
  return {};
}

Error no_weights(const fs::path& root, const std::vector<std::string>& names) {
  std::set<std::string> kinds;
  Code code = Code::kInput;
  for (const std::string& name : names) {
    if (const auto kind = foreign_kind(name); !kind.empty()) {
      kinds.emplace(kind);
      code = Code::kUnsupported;
    }
    if (name.ends_with(".incomplete")) kinds.emplace("an unfinished download (.incomplete)");
  }
  std::string found = kinds.empty() ? "none" : fmt::format("{}", fmt::join(kinds, ", "));
  return Error{code,
               fmt::format("expected .safetensors files in {}, found {}{}", shown(root), found,
                           code == Code::kUnsupported ? ": take the model's safetensors files, or "
                                                        "convert it to them"
                                                      : ""),
               Where{root.string(), {}, {}, {}}};
}

// Safetensors files that lie there but do not belong to what is read: a second copy under other
// names must not be mixed in (case C070).
void note_unread(const std::vector<std::string>& names, const CheckpointFiles& files,
                 FindingSet& findings) {
  std::set<std::string> read;
  for (const fs::path& shard : files.shards) read.insert(shard.filename().string());
  for (const std::string& name : names) {
    if (!name.ends_with(kSuffix) || read.count(name) != 0) continue;
    Finding f;
    f.id = "F2";
    f.slug = "unread-file";
    f.severity = Severity::kNote;
    f.message = fmt::format(
        "{} is not part of the checkpoint{} and was not read", quote_name(name),
        files.index_name.empty() ? std::string() : fmt::format(" by {}", files.index_name));
    f.file = name;
    f.instances = {name};
    findings.add(std::move(f));
  }
}

// models--org--name -> its snapshot of refs/main, or the only one there is.
Result<fs::path> snapshot_of(const fs::path& repository) {
  const fs::path snapshots = repository / "snapshots";
  std::error_code error;
  std::string revision = first_bytes(repository / "refs" / "main");
  while (!revision.empty() && std::isspace(static_cast<unsigned char>(revision.back())) != 0)
    revision.pop_back();
  const bool plain_name =
      !revision.empty() && revision != "." && revision != ".." &&
      std::all_of(revision.begin(), revision.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
      });
  if (plain_name && fs::is_directory(snapshots / revision, error)) return snapshots / revision;
  const std::vector<std::string> names = names_in(snapshots);
  if (names.size() == 1) return snapshots / names[0];
  return fail_at(Where{repository.string(), {}, {}, {}}, Code::kInput,
                 "{} has {} snapshots and refs/main names none of them: name one, or download the "
                 "model again",
                 shown(repository), names.size());
}

Result<CheckpointFiles> locate_file(const fs::path& path) {
  const std::string head = first_bytes(path);
  if (path.extension() != kSuffix) {
    const auto kind = recognize_file(head);
    const std::string_view by_name = foreign_kind(path.filename().string());
    if (!kind && by_name.empty())
      return fail_at(Where{path.string(), {}, {}, {}}, Code::kInput,
                     "{} is neither a model directory nor a .safetensors file", shown(path));
    return fail_at(Where{path.string(), {}, {}, {}}, Code::kUnsupported,
                   "expected a model directory or a .safetensors file, {} is {}", shown(path),
                   kind ? *kind : by_name);
  }
  CheckpointFiles files;
  files.root = path.has_parent_path() ? path.parent_path() : fs::path(".");
  files.bare_file = true;
  files.shards = {path};
  return files;
}

}  // namespace

Result<fs::path> model_directory(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path / "config.json", error) && fs::is_directory(path / "snapshots", error))
    return snapshot_of(path);
  return path;
}

Result<CheckpointFiles> locate_checkpoint(const fs::path& path, FindingSet& findings) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    return fail_at(Where{path.string(), {}, {}, {}}, Code::kInput,
                   "there is no model at {}: expected a model directory or a .safetensors file",
                   shown(path));
  if (status.type() == fs::file_type::regular) return locate_file(path);
  if (status.type() != fs::file_type::directory)
    return fail_at(Where{path.string(), {}, {}, {}}, Code::kInput,
                   "expected a model directory or a .safetensors file at {}, found {}", shown(path),
                   error ? error.message() : std::string(kind_of(status)));

  SX_ASSIGN(const fs::path root, model_directory(path));
  CheckpointFiles files;
  files.root = fs::canonical(root, error);
  if (error)
    return fail_at(Where{root.string(), {}, {}, {}}, Code::kInput, "{} cannot be read: {}",
                   shown(root), error.message());
  SX_ASSIGN(files.config, file_in(files.root, "config.json"));
  SX_ASSIGN(files.generation_config, file_in(files.root, "generation_config.json"));
  SX_ASSIGN(files.sidecar, file_in(files.root, "hf_quant_config.json"));

  const std::vector<std::string> names = names_in(files.root);
  for (const char* index_name : kIndexNames) {
    SX_ASSIGN(const auto index, file_in(files.root, index_name));
    if (!index) continue;
    SX_TRY(shards_of_index(*index, files));
    break;
  }
  if (files.shards.empty()) SX_TRY(shards_by_name(names, files));
  if (files.shards.empty()) return tl::unexpected(no_weights(files.root, names));
  note_unread(names, files, findings);
  return files;
}

}  // namespace sextant
