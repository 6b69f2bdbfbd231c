// `sextant explain NAME=NUMBER`: the arithmetic behind one global scale, as text or as one
// document.
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "cli/cmd_explain_model.h"
#include "cli/commands.h"
#include "cli/table.h"
#include "cli/warm_up.h"
#include "doctor/explain.h"

namespace sextant {
namespace {

constexpr const char* kSnrSource =
    "docs/nvfp4.md section 4.1, computed by tools/golden/nvfp4_snr.py table";

struct ExplainOptions {
  std::string question;
  std::string layer;
  int64_t k = 0;
  std::optional<double> norm_max;
};

// "0x1.07a3p-12", as C and Python print a float with every bit.
bool is_hexadecimal(const std::string& text) {
  const size_t begin = text.find_first_not_of("+-");
  return begin <= 1 && (text.compare(begin, 2, "0x") == 0 || text.compare(begin, 2, "0X") == 0);
}

// All of the text as a number; 1e-400 is 0 and 1e400 infinite, as in a file of float32.
std::optional<double> whole_number(const std::string& text) {
  const bool is_signed = text.starts_with('+') || text.starts_with('-');
  const std::string digits = text.substr(is_signed ? 1 : 0);
  const bool hex = is_hexadecimal(text);
  const size_t begin = hex ? 2 : 0;
  // from_chars takes a sign itself, and "nan" as hexadecimal too.
  if (digits.size() == begin || digits[begin] == '-' ||
      (hex && digits.find_first_of("nN") != std::string::npos))
    return {};
  double value = 0;
  const char* last = digits.data() + digits.size();
  const auto [end, error] =
      std::from_chars(digits.data() + begin, last, value,
                      hex ? std::chars_format::hex : std::chars_format::general);
  if (end != last) return {};
  if (error == std::errc::result_out_of_range)
    value = std::strtod(digits.c_str(), nullptr);
  else if (error != std::errc{})
    return {};
  return text.starts_with('-') ? -value : value;
}

// Half a unit of the last digit: of "0.00025141" 5e-9, of "2.5e-4" 5e-6, of "3977" 0.5.
double half_unit_of(const std::string& text) {
  const size_t e = text.find_first_of("eE");
  const std::string mantissa = text.substr(0, e);
  const size_t point = mantissa.find('.');
  const double decimals =
      point == std::string::npos ? 0 : static_cast<double>(mantissa.size() - point - 1);
  const double exponent = e == std::string::npos ? 0 : std::strtod(text.c_str() + e + 1, nullptr);
  return 0.5 * std::pow(10.0, exponent - decimals);
}

// "model.layers.0.self_attn.q_a_proj.input_scale": the module is the layer, the end the name.
Result<ExplainQuestion> read_question(const ExplainOptions& options) {
  const std::string& text = options.question;
  ExplainQuestion question;
  question.layer = options.layer;
  const size_t equals = text.find('=');
  question.typed = text.substr(equals == std::string::npos ? 0 : equals + 1);
  const std::optional<double> value = whole_number(question.typed);
  if (equals == std::string::npos) {
    if (find_scale_name(text.substr(text.rfind('.') + 1)) != nullptr)
      return fail_at(at_field(text), Code::kUsage,
                     "expected a number for {0}, as {0}=0.00025141, found the name alone",
                     one_line(text));
    if (!value)
      return fail_at(
          at_field(text), Code::kUsage,
          "expected NAME=NUMBER or a number, as input_scale=0.00025141, or a model, found "
          "\"{}\"",
          one_line(text));
  } else {
    std::string name = text.substr(0, equals);
    if (const size_t dot = name.rfind('.'); dot != std::string::npos) {
      if (question.layer.empty()) question.layer = name.substr(0, dot);
      name.erase(0, dot + 1);
    }
    if (find_scale_name(name) == nullptr) {
      std::vector<std::string> names;
      for (const ScaleName& known : scale_names()) names.emplace_back(known.name);
      return fail_at(at_field(text), Code::kUsage,
                     "expected the name of a global scale before \"=\", found \"{}\"; there are {}",
                     one_line(name), join(names, ", "));
    }
    if (!value)
      return fail_at(at_field(text), Code::kUsage,
                     "expected a number after \"{}=\", as {}=0.00025141, found \"{}\"", name, name,
                     one_line(question.typed));
    question.name = name;
  }
  question.value = *value;
  const bool is_exact = !std::isfinite(*value) || is_hexadecimal(question.typed);
  question.half_unit = is_exact ? 0 : half_unit_of(question.typed);
  return question;
}

Status add_norm(const ExplainOptions& options, ExplainQuestion& question) {
  if (options.k == 0 && !options.norm_max) return {};
  const ScaleName* name = find_scale_name(question.name);
  if (name != nullptr && name->kind != ScaleKind::kInput)
    return fail_at(at_field("--k"), Code::kUsage,
                   "--k and --norm-max bound activations: leave them away for {}", name->name);
  if (options.k == 0)
    return fail_at(at_field("--norm-max"), Code::kUsage,
                   "--norm-max needs --k too: the bound is sqrt(K) * W");
  question.k = options.k;
  if (!options.norm_max) return {};
  if (!std::isfinite(*options.norm_max) || *options.norm_max <= 0)
    return fail_at(at_field("--norm-max"), Code::kUsage,
                   "--norm-max: expected a number above 0, found {}", *options.norm_max);
  question.norm_max = options.norm_max;
  return {};
}

std::string_view scale_kind_name(ScaleKind kind) {
  return kind == ScaleKind::kInput ? "input" : kind == ScaleKind::kWeight ? "weight" : "cache";
}

Json hypothesis_json(const Hypothesis& reading) {
  const GridTest& grid = reading.grid;
  const ScaleLimits& limits = reading.limits;
  return Json{{"name", reading.name},
              {"convention", reading.divisor ? "divisor" : "multiplier"},
              {"unit", reading.unit},
              {"amax", reading.amax},
              {"G", reading.G},
              {"bf16",
               {{"nearest", grid.nearest},
                {"stored_as", grid.stored},
                {"by_bits", grid.by_bits},
                {"to_digits", grid.to_digits},
                {"few_digits", grid.few_digits},
                {"passed", grid.passed},
                {"chance", grid.chance}}},
              {"needs_norm_max", or_null(reading.needs_norm_max)},
              {"usual", reading.usual},
              {"rejected", reading.rejected},
              {"reason", text_or_null(reading.reason)},
              {"limits",
               {{"saturates_above", limits.saturates_above},
                {"nan_above", limits.nan_above},
                {"subnormal_below", limits.subnormal_below},
                {"smallest_code_below", limits.smallest_code_below},
                {"zero_up_to", limits.zero_up_to}}}};
}

Json explanation_json(const Explanation& all) {
  const ExplainQuestion& question = all.question;
  Json readings = Json::array();
  for (const Hypothesis& reading : all.readings) readings.push_back(hypothesis_json(reading));
  Json engines = Json::array();
  for (const EnginePath& path : all.engines)
    engines.push_back({{"path", path.path}, {"effect", path.effect}});
  Json rows = Json::array();
  for (const SnrRow& row : snr_table())
    rows.push_back({{"log2_ratio", row.log2_ratio},
                    {"down_to", json_number(row.down_to)},
                    {"gauss", row.gauss_db},
                    {"laplace", row.laplace_db},
                    {"t4", row.t4_db},
                    {"outlier_channels", row.outlier_channels_db},
                    {"swiglu", row.swiglu_db},
                    {"gauss_clipped_percent", row.gauss_clipped_percent},
                    {"outlier_zero_blocks_percent", row.outlier_zero_blocks_percent}});
  const bool sound = all.fault == ScaleFault::kNone;
  return Json{
      {"question",
       {{"name", text_or_null(question.name)},
        {"kind", scale_kind_name(all.kind)},
        {"typed", question.typed},
        {"value", json_number(question.value)},
        {"layer", text_or_null(question.layer)},
        {"k", or_null(question.k)},
        {"norm_max", or_null(question.norm_max)}}},
      {"verdict", all.verdict},
      {"fault", sound ? Json(nullptr) : Json(fault_name(all.fault))},
      {"check", sound ? Json(nullptr)
                      : Json{{"id", "C3"}, {"slug", "bad-scalar-scale"}, {"severity", "error"}}},
      {"accepted", all.accepted
                       ? Json(all.readings[*all.accepted].divisor ? "divisor" : "multiplier")
                       : Json(nullptr)},
      {"against_name", all.against_name},
      {"norm_bound", or_null(all.norm_bound)},
      {"readings", readings},
      {"engines", engines},
      {"notes", all.notes},
      {"snr", {{"unit", "dB"}, {"source", kSnrSource}, {"rows", rows}}}};
}

std::string grid_answer(bool yes) { return yes ? "yes" : "no"; }
std::string by_chance(double chance) {
  return fmt::format(" (by chance {} %)", scale_figure(100 * chance, chance < 0.1 ? 1 : 3));
}

// One line a quantity, one column a reading.
void print_readings(const Explanation& all, Output& out) {
  Table table({{""}, {all.readings[0].name}, {all.readings[1].name}});
  const auto row = [&](const std::string& title, auto cell) {
    table.add({title, cell(all.readings[0]), cell(all.readings[1])});
  };
  using R = const Hypothesis&;
  const std::string b = all.question.typed;
  row("calibrated amax", [&](R r) {
    return fmt::format("{} {} {} = {}", r.unit, r.divisor ? "/" : "*", b, scale_figure(r.amax, 5));
  });
  row("G", [](R r) { return scale_figure(r.G, 5); });
  row("nearest bfloat16 amax", [](R r) {
    return r.grid.nearest > 0 ? bf16_figure(r.grid.nearest) : std::string("beyond float32");
  });
  row("  stored as",
      [](R r) { return r.grid.nearest > 0 ? scale_figure(r.grid.stored, 7) : std::string("-"); });
  row("  gives the digits typed", [](R r) {
    if (!r.grid.few_digits) return std::string("all are known: by the bits");
    return grid_answer(r.grid.to_digits) + by_chance(r.grid.chance);
  });
  row("  by the bits of float32", [](R r) {
    return grid_answer(r.grid.by_bits) +
           (r.grid.few_digits ? ", if no digit is missing" : by_chance(r.grid.chance));
  });
  if (all.question.k)
    row("needs a norm of max|w|",
        [](R r) { return ">= " + scale_figure(*r.needs_norm_max, *r.needs_norm_max < 1 ? 2 : 3); });
  if (all.kind != ScaleKind::kCache)
    row("judged", [](R r) { return std::string(r.rejected ? "rejected" : "possible"); });
  row("saturates above", [](R r) { return scale_figure(r.limits.saturates_above, 5); });
  row("NaN, cast not saturating",
      [](R r) { return "above " + scale_figure(r.limits.nan_above, 5); });
  row("subnormal scale below", [](R r) { return scale_figure(r.limits.subnormal_below, 3); });
  row("smallest scale below", [](R r) { return scale_figure(r.limits.smallest_code_below, 3); });
  row("zero up to", [](R r) { return scale_figure(r.limits.zero_up_to, 4); });
  out.print("\n{}", table.text());
  out.print(
      "the last five: the amax of {}, as parts of the calibrated one\n"
      "(1, 464/448 = 1.0357, 2^-14.81, 3 * 2^-18.81, 2^-18.81)\n\n",
      all.kind == ScaleKind::kCache ? "a block (NVFP4) or one element (FP8)" : "a block");
  for (const Hypothesis& reading : all.readings)
    if (!reading.reason.empty()) out.print("{}: {}\n", reading.name, reading.reason);
}

std::string ratio_text(const SnrRow& row) {
  if (std::isinf(row.down_to)) return fmt::format("<= {}", row.log2_ratio);
  if (row.down_to < row.log2_ratio) return fmt::format("{} to {}", row.log2_ratio, row.down_to);
  return fmt::format("{}", row.log2_ratio);
}

void print_snr(const Explanation& all, Output& out) {
  const auto right = Table::Align::kRight;
  Table table({{"log2 ratio", right},
               {"actual amax", right},
               {"gauss", right},
               {"laplace", right},
               {"t4", right},
               {"outlier ch.", right},
               {"swiglu", right},
               {"clipped %", right},
               {"zero blocks %", right}});
  const double amax = all.accepted ? all.readings[*all.accepted].amax : NAN;
  for (const SnrRow& row : snr_table())
    table.add({ratio_text(row),
               all.accepted ? scale_figure(std::exp2(row.log2_ratio) * amax, 3) : "",
               fmt::format("{:.2f}", row.gauss_db), fmt::format("{:.2f}", row.laplace_db),
               fmt::format("{:.2f}", row.t4_db), fmt::format("{:.2f}", row.outlier_channels_db),
               fmt::format("{:.2f}", row.swiglu_db), fmt::format("{}", row.gauss_clipped_percent),
               fmt::format("{}", row.outlier_zero_blocks_percent)});
  out.write("\nsignal to noise in dB, by actual amax / calibrated amax\n");
  out.write(table.text());
  out.print("clipped: of gauss; zero blocks: of outlier channels; from {}\n", kSnrSource);
}

void print_explanation(const Explanation& all, Output& out) {
  const ExplainQuestion& question = all.question;
  out.print("{}{}{}", question.name, question.name.empty() ? "" : " = ", question.typed);
  if (!question.layer.empty()) out.print(" of {}", one_line(question.layer));
  if (question.k) out.print(", K = {}", *question.k);
  out.print("\n\n{}\n", all.verdict);
  if (!all.readings.empty()) print_readings(all, out);
  if (!all.engines.empty()) out.write("\nwhat engines make of it\n");
  for (const EnginePath& path : all.engines) out.print("  {}: {}\n", path.path, path.effect);
  if (all.fault == ScaleFault::kNone && all.kind != ScaleKind::kCache) print_snr(all, out);
  if (!all.notes.empty()) out.write("\n");
  for (const std::string& text : all.notes) out.print("note: {}\n", text);
}

// Neither a number nor the name of a scale, with or without one: then a model is meant.
bool means_model(const std::string& text) {
  std::error_code error;
  if (std::filesystem::exists(text, error)) return !whole_number(text);
  const bool like_number = text.find_first_of("0123456789+-. ") == 0;
  const bool is_question = text.find('=') != std::string::npos || like_number ||
                           whole_number(text) ||
                           find_scale_name(text.substr(text.rfind('.') + 1)) != nullptr;
  return !is_question;
}

Result<int> run_explain(Context& context, const ExplainOptions& options) {
  if (means_model(options.question)) {
    if (options.k != 0 || options.norm_max || !options.layer.empty())
      return fail_at(at_field(options.question), Code::kUsage,
                     "--layer, --k and --norm-max are about one scale, but {} is taken for a model",
                     one_line(options.question));
    return explain_model(context, options.question);
  }
  SX_ASSIGN(ExplainQuestion question, read_question(options));
  SX_TRY(add_norm(options, question));
  const Explanation all = explain_scale(question);
  if (context.common.json)
    context.out.document(explanation_json(all));
  else
    print_explanation(all, context.out);
  return 0;
}

}  // namespace

void add_explain(Program& program, Context& context) {
  auto options = std::make_shared<ExplainOptions>();
  Command command = add_command(
      program, context, "explain", "the arithmetic behind one scale, or the plan of a model",
      "  sextant explain input_scale=0.00025141\n"
      "  sextant explain input_scale=0.00025141 --layer q_a_proj --k 7168 --norm-max 0.5\n"
      "  sextant explain 3977.6                   both conventions tried on a bare number\n"
      "  sextant explain k_scale=1 --json\n"
      "  sextant explain MODEL --policy auto      what is done with each linear, and why\n\n"
      "Names: input_scale, input_global_scale, weight_scale_2, weight_global_scale, k_scale,\n"
      "v_scale, alone or at the end of a tensor's name. What is no scale (0, nan) is explained\n"
      "too; no model is read for that.");
  command.option("QUESTION", &options->question,
                 "NAME=NUMBER, a global scale as stored, or only NUMBER; or a model",
                 {.required = true});
  command.option("--layer", &options->layer, "the layer it is of, for the text", {.value = "NAME"});
  command.option("--k", &options->k, "input channels of the layer, whose input is a norm's output",
                 {.value = "K", .range = IntRange{1, int64_t{1} << 31}});
  command.option("--norm-max", &options->norm_max, "largest |w| of that norm, as applied",
                 {.value = "W"});
  add_allow_option(command, context.common);
  add_warmup_options(command, context.common, false);
  command.run([&context, options] { return run_explain(context, *options); });
}

}  // namespace sextant
