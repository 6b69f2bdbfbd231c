// The pieces of an HTML report and its charts: the page around it, escaped text, numbers as people
// read them, SVG in user units of a 640 wide canvas, which the page scales and colors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sextant {

inline constexpr double kChartWidth = 640;
inline constexpr double kChartRight = 628;  // where the drawing ends

// Text for HTML: &, <, > and quotes as entities, control and direction characters as quote.h shows
// them.
std::string html_escape(std::string_view text);
std::string html_term(std::string_view name,
                      std::string_view value);                 // of a <dl>; empty without value
std::string html_list(const std::vector<std::string>& items);  // <ul>; empty without items
std::string plural_text(int64_t n, std::string_view one);      // "1 file", "2,000 files"
std::string percent_text(double share);                        // "0", "0.3 ppm", "0.012 %", "12 %"
std::string scale_text(double g);                              // "2.51e-4"
std::string count_text(int64_t n);                             // "1,234,567"
std::string bytes_text(double n_bytes);                        // "512 B", "1.29 GB"

// A page that needs no network and no script, up to <main>; title is escaped here.
std::string page_begin(std::string_view title);
inline constexpr std::string_view kPageEnd = "</main>\n</body>\n</html>\n";

// Opens an <svg> with a title and a description for those who cannot see it; the text is escaped
// here. What follows ends with "</svg></div>".
std::string svg_begin(std::string_view id, double height, std::string_view title,
                      std::string_view description);
std::string svg_text(double x, double y, std::string_view anchor, std::string_view text);
std::string svg_line(double x1, double y1, double x2, double y2, std::string_view style);
// caption is HTML.
std::string chart_figure(std::string_view title, const std::string& svg,
                         const std::string& caption);

}  // namespace sextant
