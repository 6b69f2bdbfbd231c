// Implements compare_linears.h.
#include "forge/compare_linears.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>

#include "base/checked.h"
#include "forge/tensor_comparison.h"
#include "model/weights.h"
#include "quant/bf16.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"

namespace sextant {
namespace {

constexpr double kMostCodesApart = 0.002;  // of a tensor's elements, by one code
constexpr std::array<std::string_view, 4> kKinds = {"x.", "y.", "codes.", "scales."};

// Where a code stands among the values it can have: 0 is both zeros'.
int e2m1_place(uint8_t code) { return (code & 8U) != 0 ? -(code & 7) : code & 7; }
int e4m3_place(uint8_t code) { return (code & 0x80U) != 0 ? -(code & 0x7F) : code & 0x7F; }

// Codes or scales, ours against the dump's.
class CodeComparison {
 public:
  CodeComparison(const TensorInfo& info, double most_apart) {
    row_.tensor = info.name;
    row_.bound = most_apart;
  }
  void add(int64_t row, int64_t column, bool same, int steps) {
    ++row_.n_elements;
    if (same) return;
    ++n_apart_;
    too_far_ = too_far_ || steps > 1 || row_.bound == 0;
    if (row_.first_over.empty()) row_.first_over = {row, column};
  }
  // max_abs_diff is the share of elements that differ.
  DumpRow take() {
    const auto n = static_cast<double>(std::max<int64_t>(row_.n_elements, 1));
    row_.max_abs_diff = static_cast<double>(n_apart_) / n;
    row_.ok = !too_far_ && row_.max_abs_diff <= row_.bound;
    if (row_.ok) row_.first_over.clear();
    return std::move(row_);
  }

 private:
  DumpRow row_;
  int64_t n_apart_ = 0;
  bool too_far_ = false;
};

class LinearComparison {
 public:
  LinearComparison(const Dump& dump, const Model& model, const Linear& linear, ThreadPool& pool)
      : dump_(dump), model_(model), linear_(linear), pool_(pool) {}

  Status run(std::vector<DumpRow>& rows) {
    const TensorInfo* x = dump_.find("x." + linear_.module);
    rows_ = x->shape.size() == 2 ? x->shape[0] : 0;
    k_ = linear_.packed.k;
    SX_ASSIGN(const TensorInfo* floats, dump_.floats(x->name, {rows_, k_}));
    x_ = matrix(*floats);
    if (linear_.input.from_bf16)
      for (float& value : x_) value = round_to_bf16(value);
    values_.resize(x_.size());
    multipliers_.assign(static_cast<size_t>(rows_), 1.0F);
    const InputQuantizer& quantizer = linear_.input;
    if (quantizer.quantizes())
      quantize_input(quantizer, {x_.data(), rows_, k_}, {values_.data(), rows_, k_}, multipliers_);
    else
      values_ = x_;
    if (quantizer.form == InputForm::kNvfp4) SX_TRY(compare_nvfp4(rows));
    if (quantizer.form == InputForm::kFp8) SX_TRY(compare_fp8(rows));
    return compare_y(rows);
  }

 private:
  std::vector<float> matrix(const TensorInfo& info) const {
    std::vector<float> values(static_cast<size_t>(info.n_elements()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = dump_.value(info, static_cast<int64_t>(i));
    return values;
  }

  // A tensor of bytes of this shape; nullptr where the dump has none.
  Result<const TensorInfo*> bytes(std::string_view kind, DType dtype, int64_t cols) const {
    const TensorInfo* info = dump_.find(std::string(kind) + linear_.module);
    if (info == nullptr) return nullptr;
    const bool fits = info->dtype == dtype && info->shape == std::vector<int64_t>{rows_, cols};
    if (fits) return info;
    return fail_at({dump_.file().path().string(), info->name, {}, {}}, Code::kInput,
                   "{}: {} is {}, expected {} [{}, {}] as this linear takes its input",
                   dump_.file().path().string(), info->name, dtype_name(info->dtype),
                   dtype_name(dtype), rows_, cols);
  }
  const uint8_t* data(const TensorInfo& info) const {
    return reinterpret_cast<const uint8_t*>(dump_.file().bytes(info).data());
  }

  // Only static scales have bytes to compare: those of the call or of a row are not the dump's.
  Status compare_nvfp4(std::vector<DumpRow>& rows) {
    const int64_t n_blocks = ceil_div(k_, kNvfp4Block);
    SX_ASSIGN(const TensorInfo* codes, bytes("codes.", DType::kU8, k_ / 2));
    SX_ASSIGN(const TensorInfo* scales, bytes("scales.", DType::kF8E4M3, n_blocks));
    if (codes == nullptr || scales == nullptr || linear_.input.scale != InputScale::kStatic)
      return {};
    if (k_ % kNvfp4Block != 0)
      return fail(Code::kUnsupported, "{}: {} columns are no whole blocks of 16", linear_.module,
                  k_);
    std::vector<uint8_t> our_codes(static_cast<size_t>(rows_ * k_ / 2));
    std::vector<uint8_t> our_scales(static_cast<size_t>(rows_ * n_blocks));
    nvfp4_quantize(linear_.input.profile, {x_.data(), rows_, k_}, linear_.input.divisor,
                   {our_codes.data(), rows_, k_ / 2}, {our_scales.data(), rows_, n_blocks});
    CodeComparison same_scales(*scales, 0.0);
    CodeComparison same_codes(*codes, kMostCodesApart);
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t b = 0; b < n_blocks; ++b) {
        const int64_t at = r * n_blocks + b;
        same_scales.add(r, b, data(*scales)[at] == our_scales[static_cast<size_t>(at)], 1);
      }
      for (int64_t c = 0; c < k_; ++c) {
        const uint8_t theirs = nibble(data(*codes) + r * k_ / 2, c);
        const uint8_t ours = nibble(our_codes.data() + r * k_ / 2, c);
        same_codes.add(r, c, theirs == ours, std::abs(e2m1_place(theirs) - e2m1_place(ours)));
        const uint8_t scale = data(*scales)[r * n_blocks + c / kNvfp4Block];
        values_[static_cast<size_t>(r * k_ + c)] = e2m1_decode(theirs) * e4m3_decode(scale);
      }
    }
    rows.push_back(same_scales.take());
    rows.push_back(same_codes.take());
    return {};
  }

  Status compare_fp8(std::vector<DumpRow>& rows) {
    SX_ASSIGN(const TensorInfo* codes, bytes("codes.", DType::kF8E4M3, k_));
    if (codes == nullptr || linear_.input.scale != InputScale::kStatic) return {};
    CodeComparison same(*codes, kMostCodesApart);
    for (int64_t i = 0; i < rows_ * k_; ++i) {
      const uint8_t theirs = data(*codes)[i];
      const uint8_t ours = e4m3_encode(values_[static_cast<size_t>(i)]);
      same.add(i / k_, i % k_, theirs == ours, std::abs(e4m3_place(theirs) - e4m3_place(ours)));
      values_[static_cast<size_t>(i)] = e4m3_decode(theirs);
    }
    rows.push_back(same.take());
    return {};
  }

  Status compare_y(std::vector<DumpRow>& rows) {
    const int64_t n = linear_.packed.n;
    const std::string name = "y." + linear_.module;
    SX_ASSIGN(const TensorInfo* y, dump_.floats(name, {rows_, n}));
    if (y == nullptr) return {};
    SX_ASSIGN(const double bound, dump_.bound(name));
    std::vector<float> ours(static_cast<size_t>(rows_ * n));
    const PackedLinear* weights = &linear_.packed;
    const Mat<float> out(ours.data(), rows_, n);
    model_.ops().linear({&weights, 1}, {values_.data(), rows_, k_}, linear_.act, {&out, 1}, pool_);
    TensorComparison comparison(dump_, *y, bound);
    for (int64_t r = 0; r < rows_; ++r) {
      for (float& value : out.row(r)) value *= multipliers_[static_cast<size_t>(r)];
      comparison.add(r, out.row(r));
    }
    rows.push_back(comparison.take());
    return {};
  }

  const Dump& dump_;
  const Model& model_;
  const Linear& linear_;
  ThreadPool& pool_;
  int64_t rows_ = 0;
  int64_t k_ = 0;
  std::vector<float> x_;
  std::vector<float> values_;  // what the linear gets: the dump's own codes where it has them
  std::vector<float> multipliers_;
};

// The module of "codes.MODULE" and the like.
std::string_view module_of(std::string_view tensor) { return tensor.substr(tensor.find('.') + 1); }

}  // namespace

bool is_of_linear(std::string_view tensor) {
  return std::any_of(kKinds.begin(), kKinds.end(),
                     [&](std::string_view kind) { return tensor.starts_with(kind); });
}

Result<std::vector<std::string>> compare_linears(const Dump& dump, const Model& model,
                                                 ThreadPool& pool, std::vector<DumpRow>& rows,
                                                 std::vector<std::string>& skipped) {
  std::vector<std::string> unknown;
  std::set<std::string, std::less<>> compared;
  for (const TensorInfo& info : dump.file().tensors()) {
    if (!info.name.starts_with("x.")) continue;
    const Linear* linear = model.linear(module_of(info.name));
    if (linear == nullptr) continue;
    compared.insert(info.name);
    const size_t first_row = rows.size();
    SX_TRY(LinearComparison(dump, model, *linear, pool).run(rows));
    for (size_t i = first_row; i < rows.size(); ++i) compared.insert(rows[i].tensor);
  }
  for (const TensorInfo& info : dump.file().tensors()) {
    if (!is_of_linear(info.name) || compared.contains(info.name)) continue;
    if (model.linear(module_of(info.name)) == nullptr || info.name.starts_with("x."))
      unknown.push_back(info.name);
    else
      skipped.push_back(info.name +
                        ": needs x. of the same module, its partner (codes or scales), "
                        "and a linear with such inputs under this policy");
  }
  return unknown;
}

}  // namespace sextant
