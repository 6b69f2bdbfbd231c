// Implements dump_writer.h.
#include "forge/dump_writer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/ordered_json.h"

namespace sextant {
namespace {

constexpr std::string_view kDumpName = "dump";

// What another order of float32 sums may change, and what it may change where inputs are rounded to
// BF16 (a last bit of a sum moves a rounding, by 2^-8): shares of a tensor's rms and of its amax,
// since a few channels of a residual stream are far larger than the others. docs/dumps.md.
struct Tolerance {
  double of_rms;
  double of_amax;
};
constexpr Tolerance kFloat32{1e-4, 2e-5};
constexpr Tolerance kBf16{5e-2, 1e-2};

// Tensor 0 is the ids, hidden.i is 1 + i, the logits are last.
std::vector<TensorSpec> specs_of(const ModelConfig& config, int64_t n) {
  std::vector<TensorSpec> specs = {{"input_ids", DType::kI64, {1, n}}};
  for (int64_t i = 0; i <= config.n_layers; ++i)
    specs.push_back({fmt::format("hidden.{}", i), DType::kF32, {1, n, config.d_model}});
  specs.push_back({"logits", DType::kF32, {1, n, config.n_vocab}});
  return specs;
}

}  // namespace

DumpWriter::DumpWriter(AtomicDir dir, SafetensorsWriter file, std::string policy, int64_t n_layers)
    : dir_(std::move(dir)),
      file_(std::move(file)),
      policy_(std::move(policy)),
      n_layers_(n_layers),
      statistics_(static_cast<size_t>(n_layers + 2)) {}

Result<std::unique_ptr<DumpWriter>> DumpWriter::create(const std::filesystem::path& directory,
                                                       const Model& model,
                                                       std::span<const std::string> policies,
                                                       std::span<const int32_t> ids) {
  const auto n = static_cast<int64_t>(ids.size());
  SX_ASSIGN(SafetensorsLayout layout, SafetensorsLayout::make(specs_of(model.config(), n)));
  std::error_code error;
  if (std::filesystem::exists(directory, error))
    return fail_at({directory.string(), {}, {}, {}}, Code::kUsage,
                   "{} exists: a dump is written to a directory of its own; give another name",
                   directory.string());
  SX_ASSIGN(AtomicDir dir, AtomicDir::create(directory, {.force = false,
                                                         .needed_bytes = layout.file_bytes(),
                                                         .cancel = nullptr,
                                                         .ops = nullptr}));
  SX_ASSIGN(
      SafetensorsWriter file,
      SafetensorsWriter::create(dir, fmt::format("{}.safetensors", kDumpName), std::move(layout)));
  const std::vector<int64_t> wide(ids.begin(), ids.end());
  SX_TRY(file.write(0, std::as_bytes(std::span(wide))));
  std::string policy = policies.empty() ? "a16" : fmt::format("{}", fmt::join(policies, " "));
  return std::unique_ptr<DumpWriter>(
      new DumpWriter(std::move(dir), std::move(file), std::move(policy), model.config().n_layers));
}

void DumpWriter::visit(const Tap& tap, Mat<const float> values) {
  if (tap.name == "embed")
    write_rows(1, values);
  else if (tap.name == "hidden")
    write_rows(2 + tap.layer, values);
  else if (tap.name == "logits")
    write_rows(2 + n_layers_, values);
}

void DumpWriter::write_rows(int64_t tensor_idx, Mat<const float> values) {
  if (!status_) return;
  for (int64_t row = 0; row < values.rows && status_; ++row) {
    const std::span<const float> x = values.row(row);
    statistics_[static_cast<size_t>(tensor_idx - 1)].add(measure_row(x), values.cols);
    status_ = file_.write(tensor_idx, (pos_begin_ + row) * values.cols * int64_t{sizeof(float)},
                          std::as_bytes(x));
  }
}

Status DumpWriter::commit(const std::string& made_by) {
  SX_TRY(std::move(status_));
  SX_TRY(file_.finish());
  const Tolerance tolerance = policy_ == "f32" ? kFloat32 : kBf16;
  Json bounds = Json::object();
  for (size_t i = 0; i < statistics_.size(); ++i) {
    const TapStatistics& s = statistics_[i];
    const std::string& name = file_.layout().tensors()[i + 1].name;
    // The embedding is a copy.
    bounds[name] =
        i == 0 ? 0.0 : tolerance.of_rms * s.rms() + tolerance.of_amax * static_cast<double>(s.amax);
  }
  const Json json = {{"policy", policy_},
                     {"bounds", std::move(bounds)},
                     {"source", "one forward pass, from position 0"},
                     {"made_by", made_by}};
  SX_TRY(dir_.write_file(fmt::format("{}.json", kDumpName), dump_json(json, 1) + "\n"));
  return dir_.commit();
}

}  // namespace sextant
