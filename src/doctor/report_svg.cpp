// Implements report_svg.h.
#include "doctor/report_svg.h"

#include <cmath>

#include <fmt/format.h>

#include "doctor/report_style.h"
#include "io/quote.h"

namespace sextant {

std::string html_escape(std::string_view text) {
  std::string out;
  for (const char c : escape_text(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string html_term(std::string_view name, std::string_view value) {
  if (value.empty()) return {};
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", name, html_escape(value));
}

std::string html_list(const std::vector<std::string>& items) {
  if (items.empty()) return {};
  std::string out = "<ul>\n";
  for (const std::string& item : items) out += fmt::format("<li>{}</li>\n", html_escape(item));
  return out + "</ul>\n";
}

std::string plural_text(int64_t n, std::string_view one) {
  return fmt::format("{} {}{}", count_text(n), one, n == 1 ? "" : "s");
}

std::string percent_text(double share) {
  if (share == 0) return "0";
  if (share < 1e-5) return fmt::format("{:.2g} ppm", share * 1e6);
  return fmt::format("{:.3g} %", share * 100);
}

std::string scale_text(double g) {
  if (!std::isfinite(g) || g == 0) return fmt::format("{}", g);
  int exponent = static_cast<int>(std::floor(std::log10(std::abs(g))));
  double mantissa = g / std::pow(10.0, exponent);
  if (std::abs(mantissa) >= 9.995) {
    mantissa /= 10;
    ++exponent;
  }
  return fmt::format("{:.3g}e{}", mantissa, exponent);
}

std::string count_text(int64_t n) {
  std::string out = fmt::format("{}", n);
  for (auto at = static_cast<int64_t>(out.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3)
    out.insert(static_cast<size_t>(at), ",");
  return out;
}

std::string bytes_text(double n_bytes) {
  constexpr std::string_view kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; n_bytes >= 999.5 && unit + 1 < std::size(kUnits); ++unit) n_bytes /= 1000;
  return fmt::format("{:.3g} {}", n_bytes, kUnits[unit]);
}

std::string page_begin(std::string_view title) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<title>{}</title>\n<style>\n",
      html_escape(title));
  out += kReportStyle;
  return out + "</style>\n</head>\n<body>\n<main>\n";
}

std::string svg_begin(std::string_view id, double height, std::string_view title,
                      std::string_view description) {
  return fmt::format(
      "<div class=\"scroll\"><svg viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" "
      "aria-labelledby=\"{2}-title {2}-desc\">\n<title id=\"{2}-title\">{3}</title>\n"
      "<desc id=\"{2}-desc\">{4}</desc>\n",
      kChartWidth, height, id, html_escape(title), html_escape(description));
}

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     html_escape(text));
}

std::string svg_line(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2,
      y2, style);
}

std::string chart_figure(std::string_view title, const std::string& svg,
                         const std::string& caption) {
  return fmt::format("<figure>\n<h3>{}</h3>\n{}<figcaption>{}</figcaption>\n</figure>\n",
                     html_escape(title), svg, caption);
}

}  // namespace sextant
