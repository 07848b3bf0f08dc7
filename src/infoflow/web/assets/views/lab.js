// Lab: the papers' tables and figures again, the paper's number beside ours, every seed a dot.
import { ask } from "../api.js";
import { isNarrow } from "../chart.js";
import { choice } from "../controls.js";
import { el, short, svg } from "../dom.js";
import { tools } from "../save.js";
import { params, remember } from "../state.js";

export async function view(main) {
  const { items } = await ask("lab");
  let { item = items[0].name, run = "0" } = params();
  const content = el("div", { class: "stack" }), side = el("aside", { class: "side", "aria-label": "Items" });
  main.append(el("h1", {}, "The papers' tables, again"), el("p", { class: "lead" }, "Each table and figure was run again from a frozen recipe. The paper's number stands beside ours, and what the paper concludes is held against what came out."), el("div", { class: "split" }, content, side));

  function draw() {
    const chosen = items.find((one) => one.name === item) ?? items[0];
    const result = chosen.runs[Number(run)] ?? chosen.runs[0];
    remember("lab", { item: chosen.name, run: chosen.runs.length > 1 ? run : "" });
    const figure = el("figure", { class: "card" });
    content.replaceChildren(el("h2", {}, chosen.title),
      el("div", { class: "card" }, el("ul", { class: "plain stack tight" }, chosen.verdicts.map((one) => el("li", {}, el("span", { class: `chip ${one.verdict === "holds" ? "ok" : one.verdict.startsWith("holds") ? "open" : one.verdict === "not run" ? "" : "bad"}` }, one.verdict), ` ${one.what}: the paper concludes that ${one.conclusion}.`, Object.entries(one.numbers).map(([preset, numbers]) => numbers.map((number) => el("p", { class: "small" }, `${preset}: ${number}`))))))),
      result ? figure : el("p", {}, `Not run yet${chosen.data ? `; it needs ${chosen.data}` : ""}. `, el("code", {}, `infoflow reproduce ${chosen.name}`)),
      result ? table(result) : null,
      el("details", {}, el("summary", {}, "Protocols"), el("ul", { class: "reasons" }, Object.entries(chosen.protocols).map(([name, words]) => el("li", {}, el("b", {}, `${name}: `), words)), chosen.unsaid.map((words) => el("li", {}, `Unsaid in the paper: ${words}`)))));
    if (result) {
      const drawn = dots(result);
      const said = () => ({ command: result.command, python: `from infoflow.lab.reproduce import reproduce\n\nprint(reproduce(${JSON.stringify(chosen.name)}, ${JSON.stringify(result.preset)})["rows"])` });
      figure.append(...(drawn ? [drawn] : [el("p", { class: "small" }, "A table alone: there is nothing to draw.")]), el("figcaption", {}, `${result.preset}${result.source ? `, ${result.source}` : ""}: ${result.models} models, scored on ${result.scored}. Commit ${result.commit}.`), tools(drawn ? figure : null, "lab", said));
    }
    side.replaceChildren(el("div", { class: "card stack" }, chosen.runs.length > 1 ? choice("Recorded run", run, chosen.runs.map((one, n) => [`${n}`, `${one.preset}${one.source ? `: ${one.source}` : ""}`]), (next) => { run = next; draw(); }) : null,
      el("nav", { class: "list", "aria-label": "Tables and figures" }, items.map((one) => el("button", { type: "button", "aria-pressed": String(one.name === chosen.name), onclick: () => { item = one.name; run = "0"; draw(); } }, one.name, one.runs.length ? "" : " (not run)")))));
    main.dataset.ready = "lab";
  }
  draw();
}

const isNumber = (value) => typeof value === "number" && value > 0;

// One row of the table a line: the paper's number as a square, ours as a disc, every seed as a dot.
function dots(result) {
  const rows = result.rows.filter((row) => isNumber(row[result.value]) || isNumber(row[result.printed]));
  if (!rows.length) return null;
  const all = result.rows.flatMap((row, n) => [row[result.value], row[result.printed], ...(result.seeds?.[n] ?? [])]).filter(isNumber);
  const low = Math.log10(Math.min(...all)), high = Math.log10(Math.max(...all)), wide = high - low > 0.8;
  const names = rows.map((row) => result.keys.map((key) => (row[key] === null || row[key] === undefined ? null : typeof row[key] === "string" ? row[key] : `${key}=${short(row[key])}`)).filter(Boolean).join("  "));
  const left = Math.min(250, 24 + 6.4 * Math.max(...names.map((name) => name.length))), width = isNarrow() ? left + 240 : 760, step = rows.length > 20 ? 18 : 24, top = 8, height = top + rows.length * step + 36;
  const scale = wide ? (value) => (Math.log10(value) - low) / (high - low || 1) : (value) => value / (Math.max(...all) || 1);
  const x = (value) => left + 12 + scale(value) * (width - left - 36);
  const root = svg("svg", { class: "chart lab picture", viewBox: `0 0 ${width} ${height}`, width, role: "img", "aria-label": `${result.value} by row; the table below has the numbers` });
  const marks = wide ? [...Array(Math.ceil(high) - Math.floor(low) + 1).keys()].map((n) => 10 ** (Math.floor(low) + n)).filter((v) => Math.log10(v) >= low - 0.01 && Math.log10(v) <= high + 0.01) : [0, 0.25, 0.5, 0.75, 1].map((share) => share * Math.max(...all));
  marks.forEach((value) => root.append(svg("path", { class: "grid", d: `M${x(value)} ${top}V${height - 32}` }), svg("text", { class: "tick", x: x(value), y: height - 16, "text-anchor": "middle" }, short(value))));
  root.append(svg("text", { class: "title", x: width - 24, y: height - 2, "text-anchor": "end" }, result.value));
  rows.forEach((row, n) => {
    const y = top + (n + 0.5) * step, at = result.rows.indexOf(row);
    root.append(svg("text", { class: "tick", x: left, y: y + 4, "text-anchor": "end" }, names[n].length > 38 ? `${names[n].slice(0, 37)}…` : names[n]), svg("path", { class: "grid", d: `M${left + 8} ${y}H${width - 12}` }));
    (result.seeds?.[at] ?? []).filter(isNumber).forEach((value) => root.append(svg("circle", { class: "seed", cx: x(value), cy: y, r: 2.6 }, svg("title", {}, `one seed: ${short(value)}`))));
    if (isNumber(row[result.printed])) root.append(svg("rect", { class: "mark c1 solid", x: x(row[result.printed]) - 4.5, y: y - 4.5, width: 9, height: 9 }, svg("title", {}, `paper: ${short(row[result.printed])}`)));
    if (isNumber(row[result.value])) root.append(svg("circle", { class: "mark c0", cx: x(row[result.value]), cy: y, r: 5 }, svg("title", {}, `ours: ${short(row[result.value])}`)));
  });
  const sign = (node, words) => el("li", {}, svg("svg", { class: "chart lab", viewBox: "0 0 28 14", "aria-hidden": "true" }, node), words);
  return el("div", {}, el("div", { class: "scroll" }, root), el("ul", { class: "legend" }, sign(svg("circle", { class: "mark c0", cx: 14, cy: 7, r: 5 }), `ours (${result.value})`),
    result.printed && rows.some((row) => isNumber(row[result.printed])) ? sign(svg("rect", { class: "mark c1 solid", x: 9, y: 2, width: 9, height: 9 }), "the paper's") : null, result.seeds ? sign(svg("circle", { class: "seed", cx: 14, cy: 7, r: 3 }), "one seed") : null));
}

function table(result) {
  const cell = (value) => (typeof value === "number" ? short(value) : value ?? "");
  return el("div", { class: "card" }, el("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "The table" }, el("table", {}, el("thead", {}, el("tr", {}, result.columns.map((name) => el("th", { class: typeof result.rows[0][name] === "number" ? "number" : null }, name)))),
    el("tbody", {}, result.rows.map((row) => el("tr", {}, result.columns.map((name) => el("td", { class: typeof row[name] === "number" ? "number" : String(row[name] ?? "").length < 24 ? "nowrap" : null }, `${cell(row[name])}`))))))),
    el("ul", { class: "reasons" }, result.remarks.map((words) => el("li", { class: "small" }, words))));
}
