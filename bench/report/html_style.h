// The style sheet of the HTML report, and with it all its colours.
#pragma once

namespace hs::bench::report {

inline constexpr const char* html_style = R"(
:root { color-scheme: light dark; --page: #fbfaf7; --text: #22252a; --soft: #666c76; --line: #dedbd3; --card: #fff;
  --good: #1a7f4b; --bad: #b3401e; --c0: #2f6fb3; --c1: #d9822b; --c2: #2e9375; --c3: #a64d79; --c4: #8a7d2a;
  --c5: #6a5acd; --c6: #5b8ea6; --c7: #8d8d8d; }
@media (prefers-color-scheme: dark) { :root { --page: #16181c; --text: #e6e4df; --soft: #9aa0aa; --line: #33373e;
  --card: #1d2025; --good: #63c795; --bad: #f0936f; --c0: #6ea8e6; --c1: #eda55a; --c2: #5cc3a2; --c3: #d48bb0;
  --c4: #c2b45a; --c5: #a39bf0; --c6: #8fbdd3; --c7: #a8a8a8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p { margin: .4rem 0; max-width: 46rem; }
.soft, .note { color: var(--soft); font-size: .9rem; }
.synthetic { color: var(--bad); font-weight: 600; }
figure { margin: .8rem 0 0; }
svg { display: block; overflow: visible; }
.bars { display: grid; grid-template-columns: minmax(7rem, 17rem) 1fr minmax(6rem, auto); gap: .3rem .8rem;
  align-items: center; font-size: .92rem; }
.bars svg { width: 100%; height: 1.5rem; }
.bars .value { font-variant-numeric: tabular-nums; color: var(--soft); }
.bars .legend, .bars .note { grid-column: 1 / -1; }
.gantt { grid-template-columns: minmax(5rem, auto) 1fr; }
.gantt .value { display: none; }
.plot { display: grid; grid-template-columns: 4.2rem 1fr; }
.plot .yname { grid-column: 1 / -1; color: var(--soft); font-size: .85rem; margin: 0 0 .5rem; }
.ys { position: relative; }
.ys span { position: absolute; right: .5rem; transform: translateY(-50%); }
.ys span, .xs span { font-size: .8rem; color: var(--soft); font-variant-numeric: tabular-nums; white-space: nowrap; }
.area { height: 17rem; }
.area svg { width: 100%; height: 100%; }
.xs { grid-column: 2; position: relative; height: 1.5rem; }
.xs span { position: absolute; top: .2rem; transform: translateX(-50%); }
.plot .xname { grid-column: 2; color: var(--soft); font-size: .85rem; margin: 0; text-align: center; }
.plot .legend, .plot .note { grid-column: 1 / -1; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: .6rem 0 0;
  font-size: .85rem; }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
svg .grid { stroke: var(--line); vector-effect: non-scaling-stroke; }
svg .mark { stroke: var(--bad); stroke-dasharray: 6 4; stroke-width: 1.5; vector-effect: non-scaling-stroke; }
svg .whisker { stroke: var(--text); fill: none; stroke-width: 1.4; vector-effect: non-scaling-stroke; }
svg .line { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke; }
svg .dots { fill: none; stroke-width: 7; stroke-linecap: round; vector-effect: non-scaling-stroke; }
.c0 { fill: var(--c0); background: var(--c0); stroke: var(--c0); }
.c1 { fill: var(--c1); background: var(--c1); stroke: var(--c1); }
.c2 { fill: var(--c2); background: var(--c2); stroke: var(--c2); }
.c3 { fill: var(--c3); background: var(--c3); stroke: var(--c3); }
.c4 { fill: var(--c4); background: var(--c4); stroke: var(--c4); }
.c5 { fill: var(--c5); background: var(--c5); stroke: var(--c5); }
.c6 { fill: var(--c6); background: var(--c6); stroke: var(--c6); }
.c7 { fill: var(--c7); background: var(--c7); stroke: var(--c7); }
svg rect, svg path[d$="Z"] { stroke-width: 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; width: 100%; }
th { text-align: right; font-weight: 600; color: var(--soft); white-space: nowrap; }
td { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .35rem .45rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child, .left { text-align: left; }
th:first-child, td:first-child { padding-left: 0; }
.facts td { white-space: normal; text-align: left; overflow-wrap: anywhere; vertical-align: top; }
.facts td:first-child { color: var(--soft); width: 12rem; }
.checks { list-style: none; padding: 0; margin: .4rem 0; }
.checks li { display: grid; grid-template-columns: 5.5rem 1fr; gap: 0 .8rem; padding: .45rem 0;
  border-bottom: 1px solid var(--line); }
.checks small { grid-column: 2; color: var(--soft); font-size: .88rem; }
.yes { color: var(--good); font-weight: 600; } .no { color: var(--bad); font-weight: 600; }
.unknown { color: var(--soft); font-weight: 600; }
@media (max-width: 40rem) {
  main { padding: 1.2rem 1rem 3rem; }
  .bars { grid-template-columns: 1fr auto; gap: .1rem .6rem; }
  .bars .label { grid-column: 1 / -1; margin-top: .3rem; }
  .gantt { grid-template-columns: 1fr; }
  .plot { grid-template-columns: 3.2rem 1fr; }
  .area { height: 13rem; }
  .facts td:first-child { width: 7.5rem; }
}
)";

}  // namespace hs::bench::report
