// Running a plan: for each group of linears the largest magnitude, then codes and scales, in pieces
// over the pool's threads; everything else is copied. Two readings of a group's weights, the second
// usually from memory.
#include "forge/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "base/checked.h"
#include "base/clock.h"
#include "forge/quantize_config.h"
#include "forge/quantize_files.h"
#include "forge/quantize_plan.h"
#include "io/atomic_dir.h"
#include "io/ordered_json.h"
#include "io/quote.h"
#include "io/safetensors_writer.h"
#include "quant/convert.h"
#include "quant/nvfp4.h"

namespace sextant {
namespace {

// --force replaces a checkpoint, or an empty directory, and nothing else that a slip of the hand
// names.
Status check_replaceable(const std::filesystem::path& destination) {
  std::error_code error;
  bool is_empty = true;
  for (std::filesystem::directory_iterator it(destination, error), end; !error && it != end;
       it.increment(error)) {
    const std::filesystem::path name = it->path().filename();
    if (name == "config.json" || name.extension() == ".safetensors") return {};
    is_empty = false;
  }
  if (error || is_empty) return {};  // AtomicDir has its own words for what is no directory
  return fail_at(Where{destination.string(), {}, {}, {}}, Code::kUsage,
                 "{}: expected a checkpoint to replace, found a directory with other things in it; "
                 "choose another destination, or remove it yourself",
                 destination.string());
}

constexpr int64_t kPiece = 16384;  // elements converted at once: 64 KiB of float32
constexpr int64_t kMaxChunk = int64_t{2} << 20;
constexpr int64_t kCopyBytes = int64_t{4} << 20;

// What one worker needs for a chunk.
struct WorkBuffers {
  std::vector<float> x;
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
};

// The first error of a parallel section, in the order of its tasks.
class FirstError {
 public:
  void set(int64_t task, Error error) {
    const std::lock_guard lock(mutex_);
    if (task >= task_) return;
    task_ = task;
    error_ = std::move(error);
  }
  Status take() {
    if (!error_) return {};
    return tl::unexpected<Error>(std::move(*error_));
  }

 private:
  std::mutex mutex_;
  int64_t task_ = std::numeric_limits<int64_t>::max();
  std::optional<Error> error_;
};

// n elements, a multiple of 16, of one tensor.
void quantize_piece(const float* x, int64_t n, QuantizeDialect dialect, float amax, uint8_t* codes,
                    uint8_t* scales) {
  const Mat<const float> in(x, 1, n);
  nvfp4_quantize(Nvfp4Profile::kD, in, nvfp4_multiplier(amax), {codes, 1, n / 2},
                 {scales, 1, n / kNvfp4Block});
  if (dialect == QuantizeDialect::kModelOpt) return;
  // Profile C's zero rule. A block of zeros: codes 0 under scale 1, which no other block has.
  // A block whose scale underflows: D's codes mean nothing without their zero scale.
  for (int64_t b = 0; b < n / kNvfp4Block; ++b) {
    uint8_t* block = codes + b * (kNvfp4Block / 2);
    if (scales[b] == 0)
      nvfp4_quantize_block(Nvfp4Profile::kC, x + b * kNvfp4Block, nvfp4_divisor(amax), block,
                           &scales[b]);
    else if (scales[b] == 0x38 &&
             std::all_of(block, block + kNvfp4Block / 2, [](uint8_t byte) { return byte == 0; }))
      scales[b] = 0x20;
  }
}

class Quantizer {
 public:
  Quantizer(const Checkpoint& source, const QuantizeOptions& options, ThreadPool& pool)
      : source_(source), options_(options), pool_(pool), start_us_(now_us()) {
    const int64_t budget = options.max_memory_bytes / (4 * pool.n_threads());
    chunk_ = std::clamp(budget / kPiece * kPiece, kPiece, kMaxChunk);
    buffers_.resize(static_cast<size_t>(pool.n_threads()));
  }

  Result<QuantizeReport> run(const std::filesystem::path& destination) {
    SX_TRY(check_destination(source_.root(), destination));
    SX_ASSIGN(plan_, plan_quantization(source_, options_));
    SX_TRY(open(destination));
    for (size_t shard = 0, group = 0, copy = 0; shard < plan_.shards.size(); ++shard) {
      for (; copy < copies_.size() && copies_[copy].shard == shard; ++copy)
        SX_TRY(copy_tensor(copies_[copy]));
      for (; group < plan_.groups.size() && plan_.groups[group].front().shard == shard; ++group)
        SX_TRY(quantize_group(plan_.groups[group]));
    }
    SX_TRY(write_rest());
    SX_TRY(dir_->commit());
    report_.kept = std::move(plan_.kept);
    report_.notes = std::move(plan_.notes);
    report_.n_files = static_cast<int64_t>(plan_.shards.size());
    report_.seconds = static_cast<double>(now_us() - start_us_) * 1e-6;
    return std::move(report_);
  }

 private:
  Status open(const std::filesystem::path& destination) {
    int64_t needed = 0;
    for (const PlannedShard& shard : plan_.shards) {
      SX_ASSIGN(SafetensorsLayout layout,
                SafetensorsLayout::make(shard.tensors, {{"format", "pt"}}));
      needed += layout.file_bytes();
      for (size_t i = 0; i < shard.tensors.size(); ++i)
        report_.output_bytes += layout.n_bytes(static_cast<int64_t>(i));
      layouts_.push_back(std::move(layout));
      writers_.emplace_back();
      n_left_.push_back(static_cast<int64_t>(shard.tensors.size()));
    }
    for (const auto& [name, tensor] : source_.tensors())
      report_.source_bytes += tensor.info->n_bytes();
    if (options_.force) SX_TRY(check_replaceable(destination));
    SX_ASSIGN(AtomicDir dir, AtomicDir::create(destination, {.force = options_.force,
                                                             .needed_bytes = needed,
                                                             .cancel = options_.cancel}));
    dir_.emplace(std::move(dir));
    copies_ = plan_.copies;
    std::sort(copies_.begin(), copies_.end(), [](const PlannedCopy& a, const PlannedCopy& b) {
      return std::pair(a.shard, a.tensor.info->begin) < std::pair(b.shard, b.tensor.info->begin);
    });
    return {};
  }

  // A shard's file exists from its first tensor to its last: a group may reach into the next one.
  Result<SafetensorsWriter*> writer(size_t shard) {
    if (!writers_[shard]) {
      SX_ASSIGN(SafetensorsWriter made,
                SafetensorsWriter::create(*dir_, plan_.shards[shard].file_name,
                                          std::move(layouts_[shard])));
      writers_[shard].emplace(std::move(made));
    }
    return &*writers_[shard];
  }
  Status written(size_t shard, int64_t n_tensors) {
    n_left_[shard] -= n_tensors;
    if (n_left_[shard] != 0) return {};
    SX_TRY(writers_[shard]->finish());
    writers_[shard].reset();
    return {};
  }

  Status check_cancel() const {
    if (options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed))
      return fail(Code::kCancelled, "interrupted; nothing was written");
    return {};
  }
  void tell(int64_t n_bytes, std::string_view module) {
    done_bytes_ += n_bytes;
    if (options_.progress) options_.progress({done_bytes_, report_.source_bytes, module});
  }

  Status copy_tensor(const PlannedCopy& copy) {
    SX_TRY(check_cancel());
    SX_ASSIGN(SafetensorsWriter * out, writer(copy.shard));
    const auto bytes = copy.tensor.bytes();
    const auto n = static_cast<int64_t>(bytes.size());
    FirstError error;
    pool_.run(ceil_div(n, kCopyBytes), [&](int64_t task, int) {
      const int64_t begin = task * kCopyBytes;
      const int64_t size = std::min(kCopyBytes, n - begin);
      const Status status = out->write(
          copy.idx, begin, bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(size)));
      if (!status) error.set(task, status.error());
      release(copy.tensor, begin, begin + size);
    });
    SX_TRY(error.take());
    tell(n, copy.tensor.info->name);
    return written(copy.shard, 1);
  }

  // Pages of the source that are not needed again are given back.
  static void release(const TensorRef& tensor, int64_t begin, int64_t end) {
    if (tensor.converted == nullptr)
      tensor.file->file().release(tensor.info->begin + begin, tensor.info->begin + end);
  }

  // f(first element, elements, buffers) for every chunk of a weight, on all threads.
  template <class F>
  Status each_chunk(const LinearRecord& record, bool give_back, F f) {
    const int64_t n = record.n * record.k;
    const int64_t bytes_each = record.weight.info->n_bytes() / n;
    FirstError error;
    pool_.run(ceil_div(n, chunk_), [&](int64_t task, int worker) {
      const int64_t begin = task * chunk_;
      const int64_t size = std::min(chunk_, n - begin);
      WorkBuffers& buffers = buffers_[static_cast<size_t>(worker)];
      buffers.x.resize(static_cast<size_t>(kPiece));
      Status status = check_cancel();
      if (status) status = f(begin, size, buffers);
      if (!status) error.set(task, std::move(status).error());
      if (give_back) release(record.weight, begin * bytes_each, (begin + size) * bytes_each);
    });
    return error.take();
  }

  static void convert(const LinearRecord& record, int64_t begin, int64_t n, float* out) {
    const int64_t bytes_each = dtype_bits(record.weight.info->dtype) / 8;
    const bool known = stored_to_f32(record.weight.info->dtype,
                                     record.weight.bytes().data() + begin * bytes_each, n, out);
    SX_CHECK(known, "dtype of {}", record.module);
  }

  Result<float> amax(const LinearRecord& record) {
    std::mutex mutex;
    float largest = 0.0F;
    const bool large = record.weight.info->n_bytes() > options_.max_memory_bytes / 4;
    Status status =
        each_chunk(record, large, [&](int64_t begin, int64_t n, WorkBuffers& w) -> Status {
          float chunk_max = 0.0F;
          for (int64_t i = 0; i < n; i += kPiece) {
            const int64_t size = std::min(kPiece, n - i);
            convert(record, begin + i, size, w.x.data());
            const float found = amax_of(w.x.data(), size);
            if (!std::isfinite(found)) return not_finite(record, begin + i, w.x.data());
            chunk_max = std::max(chunk_max, found);
          }
          const std::lock_guard lock(mutex);
          largest = std::max(largest, chunk_max);
          return {};
        });
    SX_TRY(std::move(status));
    return largest;
  }

  // x has a value that is not finite.
  static Status not_finite(const LinearRecord& record, int64_t begin, const float* x) {
    int64_t i = 0;
    while (std::isfinite(x[i])) ++i;
    const int64_t at = begin + i;
    const std::string& name = record.weight.info->name;
    Where where;
    where.file = record.weight.file->path().string();
    where.tensor = name;
    return fail_at(std::move(where), Code::kModel,
                   "expected finite weights, found {} at [{}, {}] of {} in {}: the model is "
                   "damaged, get the file again or keep this linear out with --keep",
                   x[i], at / record.k, at % record.k, quote_name(name),
                   record.weight.file->path().string());
  }

  Status quantize_group(const std::vector<PlannedLinear>& group) {
    float largest = 0.0F;
    for (const PlannedLinear& linear : group) {
      SX_ASSIGN(const float own, amax(*linear.record));
      if (own == 0.0F) {
        ++report_.n_zero_tensors;
        plan_.notes.push_back(fmt::format("{} is all zeros", quote_name(linear.record->module)));
      }
      largest = std::max(largest, own);
    }
    for (const PlannedLinear& linear : group) SX_TRY(quantize_linear(linear, largest));
    return {};
  }

  Status quantize_linear(const PlannedLinear& linear, float amax_of_group) {
    const LinearRecord& record = *linear.record;
    SX_ASSIGN(SafetensorsWriter * out, writer(linear.shard));
    Status status =
        each_chunk(record, true, [&](int64_t begin, int64_t n, WorkBuffers& w) -> Status {
          w.codes.resize(static_cast<size_t>(n / 2));
          w.scales.resize(static_cast<size_t>(n / kNvfp4Block));
          for (int64_t i = 0; i < n; i += kPiece) {
            const int64_t size = std::min(kPiece, n - i);
            convert(record, begin + i, size, w.x.data());
            quantize_piece(w.x.data(), size, options_.dialect, amax_of_group,
                           w.codes.data() + i / 2, w.scales.data() + i / kNvfp4Block);
          }
          SX_TRY(out->write(linear.codes_idx, begin / 2, std::as_bytes(std::span(w.codes))));
          return out->write(linear.scales_idx, begin / kNvfp4Block,
                            std::as_bytes(std::span(w.scales)));
        });
    SX_TRY(std::move(status));
    const float global = options_.dialect == QuantizeDialect::kModelOpt
                             ? nvfp4_multiplier(amax_of_group)
                             : nvfp4_divisor(amax_of_group);
    SX_TRY(out->write(linear.global_idx, std::as_bytes(std::span(&global, 1))));
    ++report_.n_quantized;
    report_.n_weights += record.n * record.k;
    tell(record.weight.info->n_bytes(), record.module);
    return written(linear.shard, 3);
  }

  Status write_rest() {
    const Json config = source_.config()->to_json();
    const auto text = [](const Json& json) { return dump_json(json, 1) + "\n"; };
    SX_TRY(dir_->write_file("config.json", text(quantized_config(config, options_, plan_.ignore))));
    if (options_.dialect == QuantizeDialect::kModelOpt)
      SX_TRY(
          dir_->write_file("hf_quant_config.json", text(hf_quant_config(options_, plan_.ignore))));
    if (plan_.shards.size() > 1)
      SX_TRY(dir_->write_file("model.safetensors.index.json",
                              text(safetensors_index(plan_.shards, report_.output_bytes))));
    return copy_other_files(source_.root(), *dir_, plan_.notes);
  }

  const Checkpoint& source_;
  const QuantizeOptions& options_;
  ThreadPool& pool_;
  const int64_t start_us_;
  int64_t chunk_ = 0;
  std::vector<WorkBuffers> buffers_;
  QuantizePlan plan_;
  std::vector<PlannedCopy> copies_;  // in file order
  std::optional<AtomicDir> dir_;
  std::vector<SafetensorsLayout> layouts_;
  std::vector<std::optional<SafetensorsWriter>> writers_;
  std::vector<int64_t> n_left_;  // tensors of each shard not written yet
  QuantizeReport report_;
  int64_t done_bytes_ = 0;
};

}  // namespace

Result<QuantizeReport> quantize(const Checkpoint& source, const std::filesystem::path& destination,
                                const QuantizeOptions& options, ThreadPool& pool) {
  return Quantizer(source, options, pool).run(destination);
}

}  // namespace sextant
