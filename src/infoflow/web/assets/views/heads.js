// Heads: what each head of a probed model does, and what forcing it costs.
import { ask } from "../api.js";
import { bytes, heatMap } from "../chart.js";
import { choice } from "../controls.js";
import { el, short, svg } from "../dom.js";
import { tools } from "../save.js";
import { params, remember } from "../state.js";

const LETTER = { max: "M", top: "T", global: "G", position: "P", self: "S", previous: "<", next: ">", sink: "0", mixed: "·" };
const FORCED = { hardmax: "one key by content", top2: "two keys by content", position: "a fixed pattern", uniform: "all keys alike", mean: "its mean output", deleted: "nothing" };

export async function view(main) {
  let { model = null, layer = null, head = null } = params();
  const content = el("div", { class: "stack" }), side = el("aside", { class: "side", "aria-label": "Models" });
  main.append(el("h1", {}, "What the heads of a real model do"), el("p", { class: "lead" }, "One cell a head. Its colour and letter say how it chooses what to look at, measured over many texts. Point at a head to see its scores, what it looks at, and what forcing it into a simple mode would cost."), el("div", { class: "split" }, content, side));

  async function load() {
    const found = await ask("heads", model ? { model } : {});
    model = found.id;
    let picked = found.heads.find((one) => `${one.layer}` === layer && `${one.head}` === head) ?? found.heads.find((one) => one.label !== "mixed") ?? found.heads[0];
    const figure = el("figure", { class: "card" }), detail = el("div", { class: "card", "aria-live": "polite" });
    const said = () => ({ command: `infoflow probe PATH_OF_${found.model.replace(/[^A-Za-z0-9]+/g, "_")} --intervene --singles`, python: `import infoflow as iflow\n\n# model: your loaded ${found.model}; inputs: token batches\nprint(iflow.probe(model, inputs))` });
    const pick = (one) => { picked = one; layer = `${one.layer}`; head = `${one.head}`; remember("heads", { model, layer, head }); figure.querySelector(".on")?.classList.remove("on"); figure.querySelector(`[data-head="${one.layer}-${one.head}"]`)?.classList.add("on"); detail.replaceChildren(...explained(found, picked)); };
    const used = Object.keys(found.meaning).filter((label) => found.heads.some((one) => one.label === label));
    figure.append(el("div", { class: "scroll" }, map(found, pick)), el("ul", { class: "legend" }, used.map((label) => el("li", {}, el("span", { class: `swatch m-${label}` }), `${LETTER[label]} ${label}: ${found.meaning[label]} (${found.heads.filter((one) => one.label === label).length})`))), tools(figure, "heads", said));
    content.replaceChildren(figure, el("div", { class: "pair" }, detail, everywhere(found)), asText(found));
    side.replaceChildren(el("div", { class: "card stack" }, choice("Model", model, found.models.map((one) => [one.id, one.name]), (next) => { model = next; layer = head = null; load(); }), el("p", { class: "small" }, "Your own: run "), el("code", {}, "infoflow probe PATH --out out/probe"), el("p", { class: "small" }, "and serve the folder that holds it: every probe.json in it appears here.")));
    remember("heads", { model, layer, head });
    pick(picked);
    main.dataset.ready = "heads";
  }
  await load();
}

function map(found, pick) {
  const layers = Math.max(...found.heads.map((one) => one.layer)), heads = Math.max(...found.heads.map((one) => one.head)), size = 44, left = 64, top = 34;
  const root = svg("svg", { class: "heads picture", viewBox: `0 0 ${left + heads * size + 8} ${top + layers * size + 8}`, width: left + heads * size + 8, role: "group", "aria-label": `${layers} layers of ${heads} heads` });
  for (let h = 1; h <= heads; h++) root.append(svg("text", { class: "tick", x: left + (h - 0.5) * size, y: 22, "text-anchor": "middle" }, `${h}`));
  for (let l = 1; l <= layers; l++) root.append(svg("text", { class: "tick", x: 4, y: top + (l - 0.5) * size + 4 }, `layer ${l}`));
  root.append(...found.heads.map((one) => {
    const x = left + (one.head - 1) * size, y = top + (one.layer - 1) * size, score = one.scores[one.label] ?? Math.max(...Object.values(one.scores));
    return svg("g", { class: `head m-${one.label}`, tabindex: 0, role: "button", "data-head": `${one.layer}-${one.head}`, "aria-label": `layer ${one.layer} head ${one.head}: ${one.label}, ${short(score, 2)}`, onmouseenter: () => pick(one), onclick: () => pick(one), onfocus: () => pick(one) },
      svg("rect", { x: x + 2, y: y + 2, width: size - 4, height: size - 4, rx: 6 }), svg("text", { class: "letter", x: x + size / 2, y: y + size / 2 - 4 }, LETTER[one.label]), svg("text", { class: "score", x: x + size / 2, y: y + size / 2 + 12 }, `${short(score, 2)}${one.stability < 0.9 ? "?" : ""}`));
  }));
  return root;
}

function explained(found, one) {
  const costs = found.costs.filter((cost) => cost.scope === "head" && cost.layer === one.layer && cost.head === one.head);
  const pattern = found.patterns?.heads.find((seen) => seen.layer === one.layer && seen.head === one.head);
  const rows = Object.entries(one.scores).map(([name, value]) => { const inner = el("i", {}); inner.style.width = `${Math.max(0, 100 * value)}%`; return el("tr", {}, el("td", {}, name), el("td", { class: "number" }, short(value, 2)), el("td", { class: "grow" }, el("div", { class: "bar" }, inner))); });
  return [el("h2", {}, `Layer ${one.layer}, head ${one.head}: ${one.label}`), el("p", {}, `${found.meaning[one.label] ?? ""}${one.stability < 0.9 ? ". Another sample of texts may change the label" : ""}.`),
    pattern ? el("figure", {}, heatMap(bytes(pattern.picture), found.patterns.size, found.patterns.size, { least: 320, label: "what it looks at, row by row" }), el("figcaption", {}, `What it looks at in a text the model wrote itself: “${found.patterns.tokens.slice(1).join("").trim()}…” A row asks, its columns are the tokens up to it.`)) : null,
    el("table", {}, el("tbody", {}, rows)),
    costs.length ? el("div", {}, el("h3", {}, `Forced alone, it costs (${found.unit})`), el("table", {}, el("tbody", {}, costs.map((cost) => el("tr", {}, el("td", {}, FORCED[cost.mode] ?? cost.mode), el("td", { class: "number" }, short(cost.cost, 2)), el("td", { class: "small" }, `${short(cost.interval[0], 2)} to ${short(cost.interval[1], 2)}`)))))) : el("p", { class: "small" }, "What forcing this head alone costs was not measured (infoflow probe --intervene --singles).")];
}

function everywhere(found) {
  const costs = found.costs.filter((cost) => cost.scope === "all");
  if (!costs.length) return null;
  const most = Math.max(...costs.map((cost) => cost.cost));
  return el("div", { class: "card" }, el("h2", {}, "Every head forced into one mode"), el("p", { class: "small" }, `The model as it is: ${short(found.loss)} ${found.unit}${found.setting ? `, on ${found.setting}` : ""}. What it costs more:`),
    el("table", {}, el("tbody", {}, costs.map((cost) => { const inner = el("i", {}); inner.style.width = `${Math.max(0.5, (100 * Math.max(0, cost.cost)) / most)}%`; return el("tr", {}, el("td", {}, FORCED[cost.mode] ?? cost.mode), el("td", { class: "number" }, short(cost.cost, 2)), el("td", { class: "grow" }, el("div", { class: "bar" }, inner))); }))));
}

function asText(found) {
  return el("details", {}, el("summary", {}, "The same as a table"), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ["layer", "head", "label", ...Object.keys(found.heads[0].scores)].map((name) => el("th", {}, name)))), el("tbody", {}, found.heads.map((one) => el("tr", {}, el("td", {}, one.layer), el("td", {}, one.head), el("td", {}, one.label), Object.values(one.scores).map((value) => el("td", {}, short(value, 2)))))))));
}
