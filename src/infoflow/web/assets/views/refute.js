// Refute: the two sequences move apart while the state stands still.
import { asker, isStatic, listen } from "../api.js";
import { archOf, choice, exampleControl, examples, failure, headsControl, number, slider, staticNote, targetControl } from "../controls.js";
import { el, short, svg } from "../dom.js";
import { tools } from "../save.js";
import { params, remember } from "../state.js";

export async function view(main) {
  const list = await examples("refute");
  const { target, arch, T, weights, seed, seconds } = params();
  let question = target && arch ? { target, arch, T: Number(T ?? 5), weights: weights ?? "random", seed: Number(seed ?? 0), seconds: Number(seconds ?? 12) } : list[0].question;
  const once = asker();
  const content = el("div", { class: "stack" }), side = el("aside", { class: "side", "aria-label": "Settings" });
  const figure = el("figure", { class: "card" }), said = el("div", { "aria-live": "polite" }), bar = el("i", {}), progress = el("div", { class: "bar", hidden: true, role: "progressbar", "aria-label": "search" }, bar);
  const start = el("button", { type: "button", class: "main", onclick: () => run() }, "Search two such inputs");
  const stop = el("button", { type: "button", hidden: true, onclick: () => { once(async () => null); finish(); said.replaceChildren(el("p", { class: "small" }, "Stopped; the job has ended on the server, too.")); } }, "Stop");
  main.append(el("h1", {}, "Two inputs it cannot tell apart"),
    el("p", { class: "lead" }, "A read-out sees only the state of the CLS. If two inputs with different answers lead to the same state, no read-out can be right on both, however wide it is. The search moves two sequences apart while their states stay equal."),
    el("div", { class: "split" }, content, side));
  content.append(el("div", { class: "row" }, start, stop), progress, said, figure);

  function finish() { start.disabled = false; stop.hidden = true; progress.hidden = true; }

  async function run() {
    start.disabled = true; stop.hidden = false; progress.hidden = false; bar.style.width = "0";
    said.replaceChildren(el("p", { class: "busy" }, "Making the model…"));
    delete figure.dataset.done;
    try {
      const found = await once((signal) => listen("refute", question, (event) => {
        if (event.gap === undefined) { said.replaceChildren(el("p", { class: "busy" }, `${event.doing[0].toUpperCase()}${event.doing.slice(1)}…`)); return; }
        bar.style.width = `${Math.min(100, 100 * event.share)}%`;
        said.replaceChildren(el("p", { class: "verdict" }, `Same state so far; the answers are ${short(event.gap)} apart.`));
        draw(event);
      }, signal));
      if (found) end(found);
    } catch (error) { said.replaceChildren(failure(error)); finish(); }
  }

  function end(found) {
    finish();
    figure.dataset.done = "yes";
    if (!found.collision) { said.replaceChildren(el("p", { class: "verdict open" }, el("span", { class: "sign", "aria-hidden": "true" }, "?"), el("span", {}, `Nothing found: ${found.reason}. That is no certificate.`))); return; }
    draw(found);
    const half = found.certified_error ?? found.gap / 2;
    said.replaceChildren(el("p", { class: "verdict bad", id: "verdict" }, el("span", { class: "sign", "aria-hidden": "true" }, "≠"), el("span", {}, `The answers are ${short(found.gap)} apart, the states ${short(found.state_distance)}. Every read-out of this state errs by at least ${short(half)} on one of the two${found.certified_error === null ? " (numerical, not proved)" : ", proved"}.`)),
      ...(found.bound === null ? [] : [el("p", {}, `The certificate agrees: its bound is ${short(found.bound)}, and ${short(half)} is below it.`)]), el("p", { class: "small" }, `${found.model}. ${found.proof}`));
  }

  function draw(seen) {
    figure.replaceChildren(el("div", { class: "scroll" }, picture(seen)), el("figcaption", {}, "Above: the two sequences, one column a token, one curve a coordinate. Below: what the read-out sees of each, and the two answers."),
      tools(figure, "refute", seen.said ? () => seen.said : null));
  }

  async function settings() {
    const shape = archOf(question.arch);
    const change = (next, fresh = true) => { question = { ...question, ...next }; remember("refute", question); if (fresh) settings(); };
    const spelled = (heads, embed) => `heads=${heads[0]} embed=${Math.ceil(embed / heads[0]) * heads[0]} width=8`;
    const example = list.find((one) => JSON.stringify(one.question) === JSON.stringify(question));
    const parts = [el("div", { class: "card stack" }, exampleControl(list, question, (one) => { question = one.question; remember("refute", question); figure.replaceChildren(); said.replaceChildren(); settings(); }), example ? el("p", { class: "small" }, example.about) : null)];
    parts.push(isStatic ? staticNote() : el("div", { class: "card stack" },
      await targetControl(question.target, (next) => change({ target: next })),
      choice("Weights", question.weights, [["random", "random"], ["trained", "trained for a few seconds"], ["built", "built, with a certificate"]], (weights) => change({ weights })),
      headsControl(shape.heads, (heads) => change({ arch: spelled(heads, Number(shape.embed)) }), 1, 6),
      slider("Embedding E", Number(shape.embed), 2, 24, (embed) => change({ arch: spelled(shape.heads, embed) }, false)),
      slider("Tokens T", question.T, 2, 16, (T) => change({ T }, false)), slider("Seconds", question.seconds, 2, 60, (seconds) => change({ seconds }, false)), number("Seed", question.seed, (seed) => change({ seed }), { min: 0 })));
    side.replaceChildren(...parts);
  }

  figure.append(el("p", { class: "small" }, "The two sequences, the state that the read-out sees of each, and the two answers appear here, step by step."));
  remember("refute", question);
  await settings();
  main.dataset.ready = "refute";
  return () => once(async () => null);
}

function picture(seen) {
  const T = seen.Y.length, d = seen.Y[0].length, width = 720, half = 330, top = 34, tall = 130;
  const all = [...seen.Y.flat(), ...seen.Z.flat(), -1, 1], low = Math.min(...all), high = Math.max(...all);
  const root = svg("svg", { class: "chart twins picture", viewBox: `0 0 ${width} 372`, width, role: "img", "aria-label": `two sequences, their states ${short(seen.state_distance ?? 0)} apart, their answers ${short(seen.gap)} apart` });
  [["Y", seen.Y, 24], ["Z", seen.Z, 378]].forEach(([name, rows, left], which) => {
    const x = (t) => left + ((t + 0.5) * (half - 20)) / T, y = (value) => top + (1 - (value - low) / (high - low)) * tall;
    root.append(svg("text", { class: "note", x: left, y: 20 }, `sequence ${name}`), svg("rect", { class: "frame", x: left, y: top, width: half - 20, height: tall, rx: 4 }), svg("path", { class: "grid", d: `M${left} ${y(0)}h${half - 20}` }));
    for (let axis = 0; axis < d; axis++) {
      root.append(svg("path", { class: `line c${axis % 4}`, d: `M${rows.map((row, t) => `${x(t)} ${y(row[axis])}`).join("L")}` }), ...rows.map((row, t) => svg("circle", { class: `mark solid c${axis % 4}`, cx: x(t), cy: y(row[axis]), r: 3.5 })));
    }
    rows.forEach((row, t) => root.append(svg("text", { class: "tick", x: x(t), y: top + tall + 16, "text-anchor": "middle" }, `${t + 1}`)));
  });
  const states = [seen.state_Y, seen.state_Z], N = states[0].length, span = Math.max(1e-9, ...states.flat().map(Math.abs)), base = 270, room = 46;
  root.append(svg("text", { class: "note", x: 24, y: 212 }, "the state the read-out sees: Y (bars) and Z (dots) are the same"), svg("path", { class: "grid", d: `M24 ${base}H440` }));
  states[0].forEach((value, n) => {
    const step = 416 / N, left = 24 + n * step, height = (Math.abs(value) / span) * room;
    root.append(svg("rect", { class: "state", x: left + step * 0.2, width: step * 0.6, y: value > 0 ? base - height : base, height: Math.max(1, height) }), svg("circle", { class: "mark c1 solid", cx: left + step / 2, cy: base - (states[1][n] / span) * room, r: 3.5 }));
  });
  root.append(svg("text", { class: "note", x: 470, y: 212 }, "the answers differ"), svg("text", { class: "big", x: 470, y: 262 }, short(seen.gap)), svg("text", { class: "tick", x: 470, y: 284 }, seen.target_Y === undefined ? "apart, and growing" : `F(Y) = ${short(seen.target_Y)}, F(Z) = ${short(seen.target_Z)}`));
  return root;
}
