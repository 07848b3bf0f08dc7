// Flow: which token knows what after each layer. Columns are tokens, rows are layers.
import { ask, asker, isStatic } from "../api.js";
import { archOf, embedFor, exampleControl, examples, failure, headsControl, number, slider, staticNote, targetControl } from "../controls.js";
import { braces, el, listed, short, svg } from "../dom.js";
import { measureCard } from "../measured.js";
import { plane } from "../plane.js";
import { tools } from "../save.js";
import { params, readTokens, remember, spellTokens } from "../state.js";

const MODES = { max: "argmax", specific: "fixed", global: "everything" };

export async function view(main) {
  const list = await examples("flow");
  let question = fromAddress() ?? list[0].question;
  let shown = null; // layers that are drawn; null: all
  let picked = null; // {position, layer}
  const once = asker();
  let field = null; // the tokens as points: kept while one is dragged
  const slots = Object.fromEntries(["verdict", "figure", "detail", "drag", "measured", "text"].map((name) => [name, el("div", {})]));
  const content = el("div", { class: "stack" }, slots.verdict, slots.figure, el("div", { class: "pair" }, slots.detail, slots.drag), slots.measured, slots.text);
  const side = el("aside", { class: "side", "aria-label": "Settings" });
  main.append(
    el("h1", {}, "Which token knows what?"),
    el("p", { class: "lead" }, "A Transformer computes by moving information. In every layer a head lets each token fetch what another token knows. At the end only the CLS is read, so it must know every token that the answer depends on."),
    el("div", { class: "split" }, content, side));

  async function update(next, fresh = true) {
    question = next;
    remember("flow", toAddress(question));
    if (fresh) { shown = null; picked = null; }
    content.classList.add("waiting");
    try {
      const flow = await once((signal) => ask("trace", question, signal));
      if (flow) draw(flow);
    } catch (error) {
      Object.values(slots).forEach((slot) => slot.replaceChildren());
      slots.verdict.replaceChildren(failure(error));
      field = null;
    }
    content.classList.remove("waiting");
    if (fresh) settings();
    main.dataset.ready = "flow";
  }

  async function settings() {
    const arch = archOf(question.arch);
    const about = list.find((example) => JSON.stringify(example.question) === JSON.stringify(question))?.about;
    const parts = [el("div", { class: "card stack" }, exampleControl(list, question, (example) => update(example.question)), about ? el("p", { class: "small" }, about) : null)];
    if (isStatic) parts.push(staticNote());
    else parts.push(el("div", { class: "card stack" },
      await targetControl(question.target, (target) => update(drawn({ ...question, target }))),
      headsControl(arch.heads, (heads) => update({ ...question, arch: respelled(question.arch, heads) })),
      slider("Tokens T", question.T ?? question.tokens.length, 2, 64, (T) => update(drawn({ ...question, T }), false)),
      number("Seed of the input", question.seed ?? 0, (seed) => update(drawn({ ...question, seed })), { min: 0 }),
      typed()));
    side.replaceChildren(...parts);
  }

  function typed() {
    const text = question.tokens ? spellTokens(question.tokens).replaceAll(";", "\n") : "";
    const area = el("textarea", { rows: 4, "aria-label": "Tokens, one per line", placeholder: "0, -1\n0.7, 0.7", value: text });
    return el("details", { open: Boolean(question.tokens) }, el("summary", {}, "Type the tokens in"), area,
      el("button", { type: "button", onclick: () => update(withTokens(question, readTokens(area.value))) }, "Use these"));
  }

  function draw(flow) {
    const figure = el("figure", { class: "card" });
    const detail = el("div", { class: "card", "aria-live": "polite" });
    let stepped = false; // motion only where it explains: when a layer has just been added
    const isPicked = (position, layer) => picked?.position === position && picked?.layer === layer;
    const look = (position, layer) => { if (!isPicked(position, layer)) { picked = { position, layer }; paint(); } };
    const pick = (position, layer) => { picked = isPicked(position, layer) ? null : { position, layer }; paint(); };
    function paint() {
      const level = shown ?? flow.sets.length - 1;
      figure.replaceChildren(
        el("div", { class: "scroll" }, picture(flow, level, stepped, picked, look, pick)),
        legend(flow),
        el("div", { class: "row between" }, stepper(flow, level), tools(figure, "flow", () => flow.said)));
      detail.replaceChildren(...explained(flow, picked, level));
      stepped = false;
    }
    function stepper(flow, level) {
      const last = flow.sets.length - 1;
      const go = (to) => { stepped = to > level; shown = to; paint(); };
      return el("div", { class: "row", role: "group", "aria-label": "Step through the layers" },
        el("button", { type: "button", disabled: level === 0, onclick: () => go(level - 1), "aria-label": "one layer back" }, "←"),
        el("span", { class: "small" }, level === last ? `all ${last} layer${last > 1 ? "s" : ""}` : level === 0 ? "before layer 1" : `after layer ${level} of ${last}`),
        el("button", { type: "button", disabled: level === last, onclick: () => go(level + 1), "aria-label": "one layer on" }, "→"),
        level === last ? el("button", { type: "button", class: "quiet", onclick: () => go(0) }, "from the start") : null);
    }
    paint();
    slots.verdict.replaceChildren(verdict(flow));
    slots.figure.replaceChildren(figure);
    slots.detail.replaceChildren(detail);
    slots.text.replaceChildren(asText(flow));
    const worked = list.find((example) => JSON.stringify(example.question) === JSON.stringify(question))?.measure;
    if (flow.T > 16 || (isStatic && !worked)) slots.measured.replaceChildren();
    else if (slots.measured.dataset.asked !== JSON.stringify(question)) slots.measured.replaceChildren(measureCard(question));
    slots.measured.dataset.asked = JSON.stringify(question);
    if (flow.d > 2 || flow.T > 24 || isStatic) { field = null; slots.drag.replaceChildren(); return; }
    if (field?.fits(flow)) { field.refresh(flow); return; }
    field = plane(flow, (tokens) => update(withTokens(question, tokens), false));
    slots.drag.replaceChildren(el("figure", { class: "card" }, el("h2", {}, "Move a token"),
      el("p", { class: "small" }, flow.d === 2 ? "Each token is a point. Drag one, or focus it and use the arrow keys: the lines go to what the CLS ends up knowing." : "Each token is a number. Drag one, or focus it and use the arrow keys."),
      field.node));
  }

  await update(question);
  const keys = (event) => {
    if (event.target.closest("input, select, textarea, .token, .node")) return;
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") content.querySelector(`[aria-label="one layer ${event.key === "ArrowRight" ? "on" : "back"}"]`)?.click();
  };
  addEventListener("keydown", keys);
  return () => removeEventListener("keydown", keys);
}

const withTokens = ({ target, arch, ties }, tokens) => ({ target, arch, tokens, ...(ties ? { ties } : {}) });
const drawn = ({ target, arch, T, seed, tokens }) => ({ target, arch, T: T ?? tokens.length, seed: seed ?? 0 });

function respelled(spelling, heads) {
  const { embed, heads: old, width, ...rest } = archOf(spelling);
  const most = embed ? Math.max(...embed.split(",").map(Number)) : 24;
  return [`heads=${heads.join(",")}`, `embed=${embedFor(heads, most)}`, ...Object.entries(rest).map((pair) => pair.join("="))].join(" ");
}

function fromAddress() {
  const { target, arch, T, seed, tokens, ties } = params();
  if (!target || !arch) return null;
  const more = ties ? { ties } : {};
  return tokens ? { target, arch, tokens: readTokens(tokens), ...more } : { target, arch, T: Number(T ?? 8), seed: Number(seed ?? 0), ...more };
}

const toAddress = ({ target, arch, T, seed, tokens, ties }) => ({ target, arch, ...(tokens ? { tokens: spellTokens(tokens) } : { T, seed }), ties });

const nameOf = (flow, position) => (position > flow.T ? "the CLS" : `token ${position}`);

function verdict(flow) {
  const last = flow.sets.at(-1).at(-1), needed = flow.active, missing = needed.filter((t) => !last.includes(t));
  const layers = flow.sets.length - 1, all = last.length === flow.T && flow.T > needed.length;
  const knows = all ? `all ${flow.T} tokens` : last.length > 8 ? `${last.length} tokens` : last.length === 1 ? `token ${last[0]}` : `tokens ${listed(last)}`;
  const needs = needed.length === 1 ? `token ${needed[0]}` : needed.length > 8 ? `${needed.length} tokens` : `tokens ${listed(needed)}`;
  const price = `the framework expects a number of parameters that grows like (1/ε)^(${flow.exponent}) with the error ε asked for`;
  const end = missing.length ? `It misses ${missing.length > 1 ? "tokens" : "token"} ${listed(missing)}.`
    : flow.exponent === "0" ? "So all that the answer needs arrives."
    : flow.note ? `Taking in everything is dear: ${price}.` : `It can be computed, but the embedding is small for so many tokens: ${price}.`;
  const kind = missing.length ? "bad" : flow.exponent === "0" ? "ok" : "open";
  return el("div", {},
    el("p", { class: `verdict ${kind}`, id: "verdict" }, el("span", { class: "sign", "aria-hidden": "true" }, { ok: "✓", open: "!", bad: "✗" }[kind]),
      el("span", {}, `After ${layers === 1 ? "one layer" : `${layers} layers`} the CLS knows ${knows}. The answer depends on ${needs}. ${end}`)),
    flow.note ? el("p", { class: "small" }, `Why everything: ${flow.note.split(": ").slice(1).join(": ")}.`) : null);
}

// Where a node's information came from: [{from, kind}] among the nodes of the layer before.
function sources(flow, position, layer) {
  const found = [];
  flow.heads[layer - 1].forEach((head, number) => {
    const job = position > flow.T ? head.cls : head.tokens;
    if (!job) return;
    if (job.mode === "max") {
      const winner = flow.argmax[layer - 1][position - 1][number];
      if (winner) found.push({ from: winner, kind: "argmax", head: number + 1 });
    } else if (job.mode === "specific") job.positions.forEach((from) => found.push({ from, kind: "fixed", head: number + 1 }));
    else for (let from = 1; from <= flow.T; from++) found.push({ from, kind: "everything", head: number + 1 });
  });
  return found;
}

// Nodes whose state reaches a node: one set of positions per layer.
function reaching(flow, position, layer) {
  const reached = flow.sets.map(() => new Set());
  reached[layer].add(position);
  for (let l = layer; l > 0; l--) for (const p of reached[l]) {
    if (flow.sets[l - 1][p - 1].length) reached[l - 1].add(p);
    sources(flow, p, l).forEach(({ from }) => reached[l - 1].add(from));
  }
  return reached;
}

function picture(flow, level, stepped, picked, look, pick) {
  const layers = flow.sets.length - 1, T = flow.T, small = T <= 16;
  const narrow = innerWidth < 640, left = narrow ? 4 : 76, room = narrow ? 0 : 850 - left - 90;
  const step = small ? Math.max(narrow ? 52 : 48, Math.min(108, room / (T + 1))) : Math.max(11, room / (T + 1));
  const gap = small ? 112 : 128, top = narrow ? 60 : 46, radius = small ? 17 : Math.min(9, step * 0.4);
  const x = (position) => left + (position - 0.5) * step + (position > T ? (small ? 12 : 28) : 0), y = (layer) => top + layer * gap;
  const width = x(T + 1) + (small ? 34 : 48), height = y(layers) + 50;
  const way = reaching(flow, picked?.position ?? T + 1, picked?.layer ?? layers);
  const exists = (position, layer) => position > T || layer < layers;
  const summary = `${T} tokens and the CLS through ${layers} layers. The CLS ends with ${braces(flow.sets.at(-1).at(-1))}; the answer depends on ${braces(flow.active)}.`;
  const root = svg("svg", { class: "flow picture", viewBox: `0 0 ${width} ${height}`, width: Math.round(width), role: "group", "aria-label": summary });
  const tip = (kind) => svg("marker", { id: `tip-${kind}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto-start-reverse" }, svg("path", { d: "M0 0 8 4 0 8z", class: `tip-${kind}` }));
  root.append(svg("defs", {}, ["argmax", "fixed", "everything", "idle"].map(tip)));
  flow.active.forEach((t) => root.append(svg("rect", { class: "band", x: x(t) - step * 0.42, y: 6, width: step * 0.84, height: height - 16, rx: 8 })));
  for (let l = 0; l <= layers; l++) root.append(
    svg("text", { class: "layer", x: narrow ? 2 : 8, y: narrow ? y(l) - radius - 12 : y(l) + 4 }, l ? `layer ${l}` : "input"));
  const faint = [], strong = [];
  for (let l = 1; l <= layers; l++) for (let p = 1; p <= T + 1; p++) {
    if (!exists(p, l)) continue;
    const used = way[l]?.has(p) ?? false, later = l > level ? "later" : "";
    const from = sources(flow, p, l);
    for (const { from: q, kind } of from) {
      const [x0, y0, x1, y1] = [x(q), y(l - 1) + radius + (small ? 22 : 2), x(p), y(l) - radius - 3], bend = (y1 - y0) * 0.45;
      const fresh = stepped && l === level ? "grow" : "";
      (used ? strong : faint).push(svg("path", { class: `${used ? kind : "idle"} ${later} ${used ? fresh : ""}`, d: `M${x0} ${y0}C${x0} ${y0 + bend} ${x1} ${y1 - bend} ${x1} ${y1}`, "marker-end": `url(#tip-${used ? kind : "idle"})` }));
    }
    if (used && flow.sets[l - 1][p - 1].length && l <= layers) strong.push(svg("path", { class: `residual ${later}`, d: `M${x(p)} ${y(l - 1) + radius + (small ? 22 : 2)}V${y(l) - radius - 3}` }));
  }
  root.append(...faint, ...strong);
  for (let l = 0; l <= layers; l++) for (let p = 1; p <= T + 1; p++) if (exists(p, l)) root.append(node(p, l));

  function node(p, l) {
    const members = flow.sets[l][p - 1], isCls = p > T;
    const classes = ["node", isCls && "cls", way[l]?.has(p) && (members.length || isCls) && "used", l === 0 && flow.active.includes(p) && "active",
      picked && picked.position === p && picked.layer === l && "picked", picked && l === 0 && flow.sets[picked.layer][picked.position - 1].includes(p) && "source", l > level && "later"];
    const words = `${nameOf(flow, p)} ${l ? `after layer ${l}` : "at the input"} knows ${members.length ? listed(members) : "nothing"}`;
    const body = isCls ? svg("rect", { class: "body", x: x(p) - radius * 1.35, y: y(l) - radius, width: radius * 2.7, height: radius * 2, rx: 7 }) : svg("circle", { class: "body", cx: x(p), cy: y(l), r: radius });
    const full = braces(members), fits = full.length * 6.6 < (isCls ? step + 24 : step);
    const text = fits || members.length < 3 ? full : isCls ? `${members.length} tokens` : `${members.length} known`;
    const label = small || isCls ? [svg("rect", { class: "plate", x: x(p) - text.length * 3.3, y: y(l) + radius + 3, width: text.length * 6.6, height: 16 }), svg("text", { class: "set", x: x(p), y: y(l) + radius + 12 }, text)] : null;
    const name = small || isCls ? svg("text", { class: "name", x: x(p), y: y(l) }, isCls ? "CLS" : `${p}`) : null;
    return svg("g", { class: classes.filter(Boolean).join(" "), tabindex: l === 0 || isCls || small ? 0 : -1, role: "button", "aria-label": words, "data-node": `${p}-${l}`,
      onmouseenter: () => pickSoon(() => look(p, l)), onclick: () => pick(p, l),
      onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(p, l); document.querySelector(`[data-node="${p}-${l}"]`)?.focus(); } } },
      svg("title", {}, `${words}${!isCls ? `\nvalue ${flow.tokens[p - 1].map((v) => short(v)).join(", ")}` : ""}`), body, name, label);
  }
  return root;
}

let timer = null;
function pickSoon(work) { clearTimeout(timer); timer = setTimeout(work, 90); }

function explained(flow, picked, level) {
  if (!picked) return [el("h2", {}, "One node"), el("p", { class: "small" }, "Point at a node, or move to it with Tab and press Enter: its set, the scores its heads compared and its cost appear here."), jobs(flow)];
  const { position: p, layer: l } = picked, members = flow.sets[l][p - 1], name = nameOf(flow, p);
  const head = el("h2", {}, `${name[0].toUpperCase()}${name.slice(1)}, ${l ? `after layer ${l}` : "at the input"}`);
  const value = p <= flow.T ? el("p", { class: "mono" }, `x(${p}) = (${flow.tokens[p - 1].map((v) => short(v, 4)).join(", ")})`) : null;
  if (!l) return [head, value, el("p", {}, p > flow.T ? "It starts with nothing." : "It knows itself.")];
  const rows = flow.heads[l - 1].map((job, number) => {
    const does = p > flow.T ? job.cls : job.tokens, scores = flow.scores[l - 1][p - 1][number], winner = flow.argmax[l - 1][p - 1][number];
    if (!does) return null;
    if (!scores) return el("p", { class: "small" }, `Head ${number + 1} reads ${does.mode === "global" ? "every token" : `positions ${listed(does.positions)}`}.`);
    return el("div", {}, el("p", { class: "small" }, `Head ${number + 1} compared one score per token; token ${winner} has the largest${flow.T <= 24 ? `, ${short(scores[winner - 1])}` : ""}.`), bars(scores, winner));
  }).filter(Boolean);
  return [head, value, el("p", {}, "It knows ", el("b", {}, braces(members)), `. Cost exponent ${flow.costs[l - 1][p - 1]}.`), ...(rows.length ? rows : [el("p", { class: "small" }, "It only keeps what it had.")])];
}

function jobs(flow) {
  const rows = flow.jobs.flatMap((heads, l) => heads.map((words, h) => [l + 1, h + 1, words])).slice(0, 12);
  return el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "layer"), el("th", {}, "head"), el("th", {}, "what it does"))),
    el("tbody", {}, rows.map(([layer, head, words]) => el("tr", {}, el("td", {}, layer), el("td", {}, head), el("td", {}, words)))));
}

function bars(scores, winner) {
  const known = scores.filter((score) => score !== null), low = Math.min(0, ...known), high = Math.max(0, ...known), span = high - low || 1;
  const width = 320, height = 64, step = width / scores.length;
  const level = (score) => 4 + (height - 8) * (1 - (score - low) / span);
  return svg("svg", { class: "scores", viewBox: `0 0 ${width} ${height + 16}`, role: "img", "aria-label": `scores ${scores.map((score) => short(score)).join(", ")}` },
    scores.map((score, number) => [
      score === null ? null : svg("rect", { class: number + 1 === winner ? "won" : "", x: number * step + step * 0.15, width: step * 0.7, y: Math.min(level(score), level(0)), height: Math.max(1.5, Math.abs(level(score) - level(0))) }),
      scores.length <= 16 ? svg("text", { x: (number + 0.5) * step, y: height + 13, "text-anchor": "middle" }, `${number + 1}`) : null]));
}

function legend(flow) {
  const line = (kind) => svg("svg", { class: "flow", viewBox: "0 0 28 14", "aria-hidden": "true" }, svg("path", { class: kind, d: "M1 7H27" }));
  const modes = new Set(flow.heads.flat().flatMap(({ tokens, cls }) => [tokens, cls]).filter(Boolean).map(({ mode }) => MODES[mode]));
  const words = { argmax: "fetched from the token with the largest score", fixed: "read from a fixed position", everything: "taken in from every token" };
  return el("ul", { class: "legend" },
    Object.entries(words).filter(([kind]) => modes.has(kind)).map(([kind, text]) => el("li", {}, line(kind), text)),
    el("li", {}, line("residual"), "kept by the token itself"),
    el("li", {}, line("idle"), "fetched, but not used by the node in view"),
    el("li", {}, svg("svg", { viewBox: "0 0 28 14", class: "flow", "aria-hidden": "true" }, svg("rect", { class: "band", width: 28, height: 14, rx: 3 })), "the answer depends on this token"));
}

function asText(flow) {
  const names = [...Array(flow.T).keys()].map((t) => `${t + 1}`).concat("CLS");
  return el("details", {}, el("summary", {}, "The same as a table"), el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", {}, ""), names.map((name) => el("th", {}, name)))),
    el("tbody", {}, flow.sets.map((row, l) => el("tr", {}, el("th", {}, l ? `layer ${l}` : "input"), row.map((set) => el("td", {}, set.length > 12 ? `${set.length} tokens` : braces(set)))))))));
}
