// The look of the HTML report: one column, the system's fonts, light and dark as the reader has it,
// and paper. Wide tables and charts scroll in their own box, so the page itself never does.
#pragma once

#include <string_view>

namespace sextant {

inline constexpr std::string_view kReportStyle = R"css(
:root { --bg:#fdfdfc; --fg:#1c1c1a; --dim:#62625c; --rule:#dcdcd6; --panel:#f4f4f0;
  --error:#b3261e; --warning:#8f5a00; --note:#2f5d8a; --good:#1f6b3a;
  --c0:#1f6fb2; --c1:#c4530c; --c2:#0f8a63; --c3:#a8488a; --c4:#8a6d00; --c5:#3c9dd0; --c6:#5b5b9e;
  --c7:#6b6b66; }
@media screen and (prefers-color-scheme: dark) { :root { --bg:#181a1b; --fg:#e6e5e1;
  --dim:#a3a29b; --rule:#393b3c; --panel:#212425;
  --error:#ff8a80; --warning:#f0b35a; --note:#8fbbe8; --good:#7fcf9a;
  --c0:#5aa9e6; --c1:#f08a4b; --c2:#4cc79a; --c3:#d98cc0; --c4:#d6b83e; --c5:#8fd0f5; --c6:#a3a3e6;
  --c7:#b5b5af; } }
* { box-sizing:border-box; }
body { margin:0; background:var(--bg); color:var(--fg); -webkit-text-size-adjust:100%;
  font:16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width:54rem; margin:0 auto; padding:1.5rem 1rem 3rem; overflow-wrap:anywhere; }
h1 { font-size:1.5rem; line-height:1.25; margin:0 0 .6rem; }
h2 { font-size:1.15rem; margin:2.2rem 0 .6rem; padding-bottom:.25rem;
  border-bottom:1px solid var(--rule); }
h3 { font-size:1rem; margin:1.1rem 0 .3rem; }
p, ul { margin:.35rem 0; }
ul { padding-left:1.2rem; }
code { font:.88em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; color:var(--dim); }
.kicker { color:var(--dim); font-size:.85rem; margin:0; }
.verdict { margin:.4rem 0 1rem; padding:.55rem .8rem; background:var(--panel);
  border-left:4px solid var(--note); }
.verdict strong { text-transform:capitalize; margin-right:.5rem; }
.verdict.healthy { border-color:var(--good); } .verdict.healthy strong { color:var(--good); }
.verdict.warnings { border-color:var(--warning); }
.verdict.warnings strong { color:var(--warning); }
.verdict.errors, .verdict.unreadable { border-color:var(--error); }
.verdict.errors strong, .verdict.unreadable strong { color:var(--error); }
dl.facts { margin:.4rem 0; font-size:.92rem; }
dl.facts div { display:grid; grid-template-columns:minmax(6.5rem, 9rem) 1fr; gap:.6rem; }
@media (max-width:34rem) { dl.facts div { grid-template-columns:5.5rem 1fr; } }
dt { color:var(--dim); } dd { margin:0; }
details { border:1px solid var(--rule); border-radius:4px; margin:.5rem 0; padding:.45rem .75rem; }
summary { cursor:pointer; }
details[open] > summary { margin-bottom:.35rem; }
.group details { border-left:4px solid var(--note); }
.group.error details { border-left-color:var(--error); }
.group.warning details { border-left-color:var(--warning); }
.id { font-weight:600; } .count { color:var(--dim); font-size:.88rem; font-weight:400; }
.remedy { font-style:italic; }
.scroll { overflow-x:auto; }
table { border-collapse:collapse; font-size:.88rem; width:100%; overflow-wrap:normal; }
caption { text-align:left; color:var(--dim); padding-bottom:.4rem; }
th, td { text-align:right; padding:.25rem .5rem; border-bottom:1px solid var(--rule);
  white-space:nowrap; font-variant-numeric:tabular-nums; }
th { font-weight:500; } thead th { color:var(--dim); }
th:first-child { text-align:left; padding-left:0; }
td:last-child { white-space:normal; }
figure { margin:1.2rem 0 1.6rem; }
figcaption { color:var(--dim); font-size:.88rem; }
.scroll > svg { display:block; width:100%; min-width:40rem; height:auto; }
svg text { font-size:11px; fill:var(--dim); }
.grid { stroke:var(--rule); stroke-width:1; } .axis { stroke:var(--dim); stroke-width:1; }
.bar { fill:var(--c0); } .expected { stroke:var(--c1); stroke-width:2; }
.cell { fill:var(--c0); } .cell.none { fill:var(--panel); }
.cell.over { stroke:var(--c1); stroke-width:1.5; }
.series { fill:none; stroke-width:1.6; stroke:currentColor; }
.series circle { fill:currentColor; stroke:none; } .series .range { stroke-width:1; opacity:.55; }
.s0 { color:var(--c0); } .s1 { color:var(--c1); } .s2 { color:var(--c2); } .s3 { color:var(--c3); }
.s4 { color:var(--c4); } .s5 { color:var(--c5); } .s6 { color:var(--c6); } .s7 { color:var(--c7); }
.d1 path { stroke-dasharray:5 3; }
.legend { list-style:none; display:flex; flex-wrap:wrap; gap:.1rem 1rem; padding:0;
  font-size:.85rem; }
.legend svg { width:24px; height:8px; margin-right:.35rem; vertical-align:middle; }
footer { margin-top:2.5rem; color:var(--dim); font-size:.88rem; }
@media print { body { font-size:10.5pt; background:none; }
  main { max-width:none; padding:0; }
  svg, .verdict, details { print-color-adjust:exact; -webkit-print-color-adjust:exact; }
  figure, details, tr { break-inside:avoid; } h2, h3 { break-after:avoid; }
  details::details-content { content-visibility:visible; height:auto; }
  .scroll { overflow:visible; } .scroll > svg { min-width:0; }
  table { font-size:8.5pt; } th:first-child { white-space:normal; } }
)css";

}  // namespace sextant
