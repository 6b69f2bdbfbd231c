// diagnose: what opening found, the scan of the block scales, one pass over every byte for the
// statistics, then the families of checks.
#include "doctor/diagnosis.h"

#include <algorithm>
#include <atomic>
#include <set>

#include <fmt/format.h>

#include "base/clock.h"
#include "checkpoint/scan.h"
#include "checkpoint/summary.h"
#include "doctor/checks/checks.h"
#include "doctor/checks/values.h"
#include "io/mapped_file.h"
#include "io/quote.h"

namespace sextant {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;

LinearSummary summarize_linear(const LinearRecord& record) {
  LinearSummary out;
  out.module = record.module;
  const size_t dot = record.module.rfind('.');
  out.projection = dot == std::string::npos ? record.module : record.module.substr(dot + 1);
  const NamePosition position = name_position(record.module);
  out.layer = position.layer;
  out.expert = position.expert;
  out.scheme = record.scheme;
  out.n = record.n;
  out.k = record.k;
  for (const ScaleRange& range : record.ranges) out.g = std::max(out.g.value_or(0), range.g);
  out.input_scale = record.input_scale;
  return out;
}

DiagnosisSummary summarize_checkpoint(const Checkpoint& checkpoint) {
  const CheckpointSummary sums = summarize(checkpoint);
  DiagnosisSummary out;
  out.n_files = static_cast<int64_t>(checkpoint.files().size());
  out.n_tensors = static_cast<int64_t>(checkpoint.tensors().size());
  out.n_bytes = sums.n_bytes;
  for (const auto& [scheme, sum] : sums.schemes) out.linears[scheme] = sum.n_linears;
  out.bits_per_weight = sums.bits_per_weight();
  out.quantized_share = sums.quantized_share;
  return out;
}

// A piece of the pass over every byte: rows of a 4-bit linear, or elements of a plain tensor.
struct PassPiece {
  int64_t linear = -1;  // index into linears, with its record, or
  const LinearRecord* record = nullptr;
  TensorRef tensor;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t n_bytes = 0;
};

// What a batch of pieces gives, before it is added up in order.
struct PieceResult {
  CodeStatistics statistics;
  NonFinite non_finite;
};

constexpr size_t kBatch = 1024;  // pieces whose results are held at once
// Pieces below this lie so close that what one gives back another maps again: they wait for the end
// of the batch.
constexpr int64_t kSmallPiece = 256 << 10;

// Tensors whose numbers the scans of scales or of scalars judge.
std::vector<std::string_view> judged_elsewhere(const Checkpoint& checkpoint) {
  std::vector<std::string_view> names;
  for (const auto& [module, record] : checkpoint.linears()) {
    const bool coded = has_codes(record.scheme);
    if (coded) names.emplace_back(record.weight.info->name);
    if (record.scales) names.emplace_back(record.scales.info->name);
    for (const std::string_view name : checkpoint.tensors_of(record)) {
      const bool is_weight = name == record.weight.info->name;
      const bool is_vector = record.pre_quant_scale && name == record.pre_quant_scale.info->name;
      if (!is_weight && !is_vector) names.push_back(name);
    }
  }
  for (const auto& [name, reason] : checkpoint.harmless_tensors()) names.emplace_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<PassPiece> plan_pass(const Checkpoint& checkpoint, std::vector<std::string>& skipped) {
  std::vector<PassPiece> pieces;
  const auto add_numbers = [&](const TensorRef& ref) {
    const int64_t size = dtype_bits(ref.info->dtype) / 8;
    const int64_t n = ref.info->n_elements();
    for (int64_t at = 0; at < n; at += kPieceBytes / size) {
      const int64_t end = std::min(n, at + kPieceBytes / size);
      pieces.push_back({-1, nullptr, ref, at, end, (end - at) * size});
    }
  };
  std::set<std::string_view> stacks;  // of plain or FP8 weights, judged an expert at a time
  int64_t i = -1;                     // summaries stand in the order of the records
  for (const auto& [module, record] : checkpoint.linears()) {
    ++i;
    if (!has_codes(record.scheme)) {
      if (record.weight.expert < 0) continue;
      stacks.insert(record.weight.info->name);
      add_numbers(record.weight);
      continue;
    }
    const int64_t row_bytes = std::max<int64_t>(1, record.k / 2 + (record.k + 15) / 16);
    const int64_t rows = std::max<int64_t>(1, kPieceBytes / row_bytes);
    for (int64_t row = 0; row < record.n; row += rows) {
      const int64_t end = std::min(record.n, row + rows);
      pieces.push_back({i, &record, {}, row, end, (end - row) * row_bytes});
    }
  }
  const auto judged = judged_elsewhere(checkpoint);
  int64_t n_unjudged = 0;
  int64_t unjudged_bytes = 0;
  std::string example;
  for (const auto& [name, ref] : checkpoint.tensors()) {
    if (std::binary_search(judged.begin(), judged.end(), name) || stacks.contains(name)) continue;
    if (!holds_floats(ref.info->dtype)) {
      if (n_unjudged++ == 0) example = name;
      unjudged_bytes += ref.info->n_bytes();
      continue;
    }
    add_numbers(ref);
  }
  if (n_unjudged > 0)
    skipped.push_back(fmt::format(
        "{} tensors ({} bytes) that are no linear and hold no floating-point numbers; the first is "
        "{}",
        n_unjudged, unjudged_bytes, quote_name(example)));
  return pieces;
}

class BytePass {
 public:
  BytePass(CheckContext& context, std::vector<LinearSummary>& linears)
      : context_(context), linears_(linears) {}

  int64_t run(const DiagnoseOptions& options, ThreadPool& pool) {
    const std::vector<PassPiece> pieces = plan_pass(context_.checkpoint, context_.skipped);
    int64_t all = 0;
    for (const PassPiece& piece : pieces) all += piece.n_bytes;
    std::atomic<int64_t> done{0};
    std::vector<PieceResult> results(std::min(kBatch, pieces.size()));
    for (size_t begin = 0; begin < pieces.size(); begin += kBatch) {
      const size_t n = std::min(kBatch, pieces.size() - begin);
      pool.run(static_cast<int64_t>(n), [&](int64_t i, int worker) {
        const PassPiece& piece = pieces[begin + static_cast<size_t>(i)];
        PieceResult& result = results[static_cast<size_t>(i)];
        result = {};
        read(piece, result);
        const int64_t so_far = done += piece.n_bytes;
        if (worker == 0 && options.progress) options.progress(so_far, all);
      });
      for (size_t i = 0; i < n; ++i) {
        const PassPiece& piece = pieces[begin + i];
        if (piece.n_bytes < kSmallPiece) give_back(piece);
        take(piece, results[i]);
      }
    }
    finish_linear();
    finish_tensor();
    return all;
  }

 private:
  void read(const PassPiece& piece, PieceResult& result) {
    if (piece.linear < 0)
      result.non_finite = count_non_finite(piece.tensor, piece.begin, piece.end);
    else
      result.statistics = code_statistics(*piece.record, piece.begin, piece.end);
    if (piece.n_bytes >= kSmallPiece) give_back(piece);
  }
  // So that what is resident does not grow with the model.
  static void give_back(const PassPiece& piece) {
    if (piece.linear < 0) {
      const int64_t size = dtype_bits(piece.tensor.info->dtype) / 8;
      release_pages(piece.tensor, piece.begin * size, piece.end * size);
      return;
    }
    const LinearRecord& record = *piece.record;
    for (const TensorRef* part : {&record.weight, &record.scales}) {
      if (record.column_major) {
        release_pages(*part);
        continue;
      }
      const int64_t row_bytes = part->info->n_bytes() / std::max<int64_t>(1, record.n);
      release_pages(*part, piece.begin * row_bytes, piece.end * row_bytes);
    }
  }
  void take(const PassPiece& piece, const PieceResult& result) {
    if (piece.linear >= 0) {
      if (linear_ != piece.linear) finish_linear();
      linear_ = piece.linear;
      add(statistics_, result.statistics);
      return;
    }
    if (tensor_.info != piece.tensor.info) finish_tensor();
    tensor_ = piece.tensor;
    if (found_.count == 0) found_.first = result.non_finite.first;
    found_.count += result.non_finite.count;
  }
  void finish_linear() {
    if (linear_ >= 0) linears_[static_cast<size_t>(linear_)].statistics = statistics_;
    linear_ = -1;
    statistics_ = {};
  }
  void finish_tensor() {
    if (tensor_) report_non_finite(context_, tensor_, found_);
    tensor_ = {};
    found_ = {};
  }

  CheckContext& context_;
  std::vector<LinearSummary>& linears_;
  int64_t linear_ = -1;  // whose pieces are being added up
  CodeStatistics statistics_;
  TensorRef tensor_;  // likewise
  NonFinite found_;
};

// Linears whose histogram of scale bytes has no byte that scan_scales looks for: E4M3 0x7F and the
// negative ones, UE8M0 0xFF.
class KnownClean {
 public:
  explicit KnownClean(const std::vector<LinearSummary>& linears) : linears_(linears) {}
  bool operator()(const LinearRecord& record) const {
    const auto it = std::lower_bound(
        linears_.begin(), linears_.end(), record.module,
        [](const LinearSummary& a, const std::string& module) { return a.module < module; });
    if (it == linears_.end() || it->module != record.module || !it->statistics) return false;
    const auto bytes = it->statistics.unpack().scale_bytes;
    const auto none = [](int64_t n) { return n == 0; };
    return std::all_of(bytes.begin() + (record.scheme == Scheme::kNvfp4 ? 0x7F : 0xFF), bytes.end(),
                       none);
  }

 private:
  const std::vector<LinearSummary>& linears_;  // by module
};

std::vector<std::string> dialect_evidence(const Diagnosis& diagnosis) {
  std::vector<std::string> out;
  for (const auto& [scheme, n] : diagnosis.summary.linears)
    out.push_back(fmt::format("{} linear{} stored as {}", n, n == 1 ? "" : "s", scheme));
  return out;
}

Verdict judge(const std::vector<Finding>& findings) {
  Verdict verdict = Verdict::kHealthy;
  for (const Finding& finding : findings) {
    if (finding.severity == Severity::kError) return Verdict::kErrors;
    if (finding.severity == Severity::kWarning) verdict = Verdict::kWarnings;
  }
  return verdict;
}

bool comes_before(const Finding& a, const Finding& b) {
  const auto number = [](const std::string& id) {
    return id.size() > 1 ? std::atoi(id.c_str() + 1) : 0;
  };
  return std::tuple(-static_cast<int>(a.severity), a.id[0], number(a.id), a.slug) <
         std::tuple(-static_cast<int>(b.severity), b.id[0], number(b.id), b.slug);
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kHealthy: return "healthy";
    case Verdict::kWarnings: return "warnings";
    case Verdict::kErrors: return "errors";
    case Verdict::kUnreadable: return "unreadable";
  }
  return "";
}

std::string_view severity_name(Severity severity) {
  return severity == Severity::kError     ? "error"
         : severity == Severity::kWarning ? "warning"
                                          : "note";
}

void add_findings(Diagnosis& diagnosis, std::vector<Finding> findings) {
  for (Finding& finding : findings) diagnosis.findings.push_back(std::move(finding));
  std::stable_sort(diagnosis.findings.begin(), diagnosis.findings.end(), comes_before);
  if (diagnosis.verdict != Verdict::kUnreadable) diagnosis.verdict = judge(diagnosis.findings);
}

Diagnosis diagnose(const Checkpoint& checkpoint, const DiagnoseOptions& options, ThreadPool& pool) {
  const int64_t start_us = now_us();
  Diagnosis out;
  out.model = checkpoint.root().string();
  out.dialect = checkpoint.dialect();
  out.linears.reserve(checkpoint.linears().size());
  for (const auto& [module, record] : checkpoint.linears())
    out.linears.push_back(summarize_linear(record));
  out.summary = summarize_checkpoint(checkpoint);
  out.dialect_evidence = dialect_evidence(out);
  FindingSet findings(checkpoint.allowed());
  CheckContext context{checkpoint, out.linears, findings, out.skipped, out.distrusted_inputs};
  std::vector<Finding> scanned;
  if (options.quick) {
    out.skipped.push_back(
        "the bytes of weights and block scales: --quick reads headers, configs "
        "and scalars only");
  } else {
    out.summary.checked_bytes = BytePass(context, out.linears).run(options, pool);
    scanned = scan_scales(checkpoint, pool, KnownClean(out.linears));
  }
  check_codes(context);
  check_activation_scales(context);
  out.convention = check_convention(context);
  check_structure(context);
  if (checkpoint.tensors().empty()) {
    Finding f;
    f.id = "F6";
    f.slug = "no-tensors";
    f.message = "the checkpoint holds no tensor at all";
    f.remedy = "fetch or export the checkpoint again";
    findings.add(std::move(f));
  }
  std::vector<Finding> all = checkpoint.findings();
  for (std::vector<Finding> more : {std::move(scanned), findings.take()})
    std::move(more.begin(), more.end(), std::back_inserter(all));
  add_findings(out, std::move(all));
  out.summary.seconds = seconds_since(start_us);
  return out;
}

Diagnosis unreadable(const std::string& model, const Error& error) {
  Diagnosis out;
  out.model = model;
  out.verdict = Verdict::kUnreadable;
  out.dialect = "unknown";
  Finding f;
  f.id = "F3";
  f.slug = "unreadable";
  f.severity = Severity::kError;
  f.message = error.text;
  f.tensor = error.where.tensor;
  f.file = error.where.file;
  f.offset = error.where.offset;
  f.remedy = "fetch or export the checkpoint again";
  out.findings.push_back(std::move(f));
  return out;
}

}  // namespace sextant
