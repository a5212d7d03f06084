#include "trainer/outputs/report_style.h"

namespace equipoise {

std::string_view ReportStyle() {
  return R"css(
:root { color-scheme: light dark; --back: #f6f7f9; --card: #fff; --text: #1c2430; --soft: #66707f;
  --line: #e3e7ed; --c0: #2563eb; --c1: #d9480f;
  --c2: #0f8a5f; --c3: #9333ea; --c4: #b45309; --good: #15803d; --bad: #b91c1c; }
@media (prefers-color-scheme: dark) { :root { --back: #12161c; --card: #1a2029;
  --text: #e6eaf0; --soft: #93a0b2; --line: #2c3542; --c0: #6ea8fe; --c1: #ff9a5c;
  --c2: #4ade80; --c3: #c084fc; --c4: #fbbf24;
  --good: #4ade80; --bad: #f87171; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 40px 0 12px; }
h3 { font-size: 15px; margin: 24px 0 2px; overflow-wrap: anywhere; }
h3 + p { margin: 0 0 12px; }
.soft { color: var(--soft); max-width: 90ch; }
.numbers td { font-variant-numeric: tabular-nums; white-space: nowrap; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin-top: 20px; padding: 0; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 10px 16px; min-width: 128px; }
.tiles dt { color: var(--soft); font-size: 13px; }
.tiles dd { margin: 0; font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; }
.grid-of { display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 380px), 1fr)); }
.pictures { grid-template-columns: repeat(auto-fill, minmax(min(100%, 230px), 1fr)); }
figure, .card { margin: 0; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; padding: 14px 16px; overflow-wrap: anywhere; }
figcaption { display: flex; flex-wrap: wrap; gap: 4px 14px; font-size: 14px; margin-bottom: 6px; }
.key { color: var(--soft); font-variant-numeric: tabular-nums; }
.key::before { content: ""; display: inline-block; width: 14px; height: 3px; border-radius: 2px;
  margin-right: 6px; vertical-align: middle; background: var(--c0); }
.k1::before { background: var(--c1); } .k2::before { background: var(--c2); }
.k3::before { background: var(--c3); } .k4::before { background: var(--c4); }
svg { display: block; width: 100%; height: auto; }
.grid { stroke: var(--line); stroke-width: 1; }
.tick { fill: var(--soft); font-size: 12px; }
.line { fill: none; stroke: var(--c0); stroke-width: 2;
  stroke-linejoin: round; stroke-linecap: round; }
.s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); } .s3 { stroke: var(--c3); }
.s4 { stroke: var(--c4); }
.dot { stroke-width: 7; }
.raw { stroke-width: 1; opacity: .35; }
.card img { display: block; width: 100%; height: 180px; object-fit: contain; margin-bottom: 10px;
  border-radius: 6px;
  background: repeating-conic-gradient(var(--line) 0 25%, transparent 0 50%) 0 0 / 16px 16px; }
.card dl { margin: 0; font-size: 14px; }
.card dt { color: var(--soft); font-size: 12px; }
.card dd { margin: 0 0 6px; white-space: pre-wrap; max-height: 7.5em; overflow: hidden; }
.good { color: var(--good); } .bad { color: var(--bad); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; }
th, td { text-align: left; vertical-align: top; padding: 5px 18px 5px 0;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 500; min-width: 4em; overflow-wrap: normal; }
pre { margin: 0; overflow-x: auto; font: 13px/1.45 ui-monospace, Consolas, monospace; }
summary { cursor: pointer; color: var(--soft); }
@media print { body { background: none; } figure, .card { break-inside: avoid; } }
)css";
}

}  // namespace equipoise
