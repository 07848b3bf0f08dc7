// Predicted sets beside measured ones: does a real network keep what the framework says it keeps?
import { ask, asker } from "./api.js";
import { failure } from "./controls.js";
import { el, svg } from "./dom.js";
import { tools } from "./save.js";

export function measureCard(question) {
  const card = el("figure", { class: "card" }), shown = el("div", { "aria-live": "polite" }), once = asker();
  const run = (weights) => async () => {
    shown.replaceChildren(el("p", { class: "busy", role: "status" }, weights === "built" ? "Building a network and measuring it…" : "Training a network for some seconds and measuring it…"));
    stop.hidden = false;
    try {
      const found = await once((signal) => ask("measure", { ...question, weights }, signal));
      shown.replaceChildren(...(found ? compared(found, card) : [el("p", { class: "small" }, "Stopped.")]));
    } catch (error) { shown.replaceChildren(failure(error)); }
    stop.hidden = true;
  };
  const stop = el("button", { type: "button", hidden: true, onclick: () => once(async () => null) }, "Stop");
  card.append(el("h2", {}, "Does a real network do this?"), el("p", { class: "small" }, "Each token is drawn again, many times, and the change in every state is measured: a state knows a token if it changes with it."),
    el("div", { class: "row" }, el("button", { type: "button", onclick: run("built") }, "Measure a built network"), el("button", { type: "button", onclick: run("trained") }, "Measure a trained one"), stop), shown);
  return card;
}

function compared(found, card) {
  const T = found.measured[0].length - 1, layers = found.measured.length - 1, cell = T > 8 ? 14 : 20, gap = 76;
  const blocks = [];
  for (let l = 1; l <= layers; l++) blocks.push({ name: l === layers ? "the CLS in the end" : `tokens after layer ${l}`, rows: l === layers ? [T] : [...Array(T).keys()], layer: l });
  let same = 0, all = 0;
  const width = Math.max(330, blocks.length * (T * cell + gap) + 20), height = T * cell + 60;
  const root = svg("svg", { class: "chart sets picture", viewBox: `0 0 ${width} ${height}`, width, role: "img", "aria-label": found.text });
  blocks.forEach(({ name, rows, layer }, number) => {
    const left = 44 + number * (T * cell + gap);
    root.append(svg("text", { class: "note", x: left, y: 16 }, name));
    for (let s = 0; s < T; s++) root.append(svg("text", { class: "tick", x: left + (s + 0.5) * cell, y: 34, "text-anchor": "middle" }, `${s + 1}`));
    rows.forEach((row, line) => {
      const predicted = found.predicted[layer][row], measured = found.measured[layer][layer === layers ? 0 : row], y = 42 + line * cell;
      root.append(svg("text", { class: "tick", x: left - 8, y: y + cell * 0.7, "text-anchor": "end" }, row === T ? "CLS" : `${row + 1}`));
      for (let s = 0; s < T; s++) {
        const says = predicted.includes(s + 1), does = measured.includes(s + 1);
        all += 1; same += says === does;
        root.append(svg("rect", { class: `cell ${says ? "says" : ""} ${does ? "does" : ""}`, x: left + s * cell + 2, y: y + 2, width: cell - 4, height: cell - 4, rx: 3 }));
      }
    });
  });
  const sign = (kind, words) => el("li", {}, svg("svg", { class: "chart sets", viewBox: "0 0 28 14", "aria-hidden": "true" }, svg("rect", { class: `cell ${kind}`, x: 8, y: 1, width: 12, height: 12, rx: 3 })), words);
  return [el("p", { class: "measured" }, same === all ? `All ${all} entries agree: the network knows exactly what the framework predicts.` : `${same} of ${all} entries agree.`, ` ${found.network}; ${found.error}.`),
    el("div", { class: "scroll" }, root), el("ul", { class: "legend" }, sign("says does", "predicted and measured"), sign("says", "predicted only"), sign("does", "measured only")),
    el("figcaption", {}, `A row knows its columns. Threshold ${found.threshold}.`), tools(card, "measured", null)];
}
