// Build: a target becomes weights with a certificate.
import { ask, asker, download, isStatic } from "../api.js";
import { bytes, heatMap } from "../chart.js";
import { errorSlider, exampleControl, examples, failure, number, slider, staticNote, targetControl } from "../controls.js";
import { el, short, toast } from "../dom.js";
import { tools } from "../save.js";
import { params, remember } from "../state.js";

export async function view(main) {
  const list = await examples("build");
  const { target, T, eps } = params();
  let question = target ? { target, T: Number(T ?? 8), eps: Number(eps ?? 0.01) } : list[0].question;
  let look = { layer: 1, head: 1, seed: 0 };
  const once = asker(), looker = asker();
  const content = el("div", { class: "stack" }), side = el("aside", { class: "side", "aria-label": "Settings" });
  main.append(el("h1", {}, "Weights, written down"),
    el("p", { class: "lead" }, "No training: the target is compiled into a Transformer whose error is bounded for every input of the box. The bound is a certificate that anyone can recompute from the file."),
    el("div", { class: "split" }, content, side));

  async function update(next, fresh = true) {
    question = next;
    look = { layer: 1, head: 1, seed: 0 };
    remember("build", question);
    if (!content.childElementCount) content.append(el("p", { class: "busy", role: "status" }, "Building…"));
    content.classList.add("waiting");
    try {
      const found = await once((signal) => ask("build", question, signal));
      if (found) await draw(found);
    } catch (error) { content.replaceChildren(failure(error)); }
    content.classList.remove("waiting");
    if (fresh) await settings();
    main.dataset.ready = "build";
  }

  async function settings() {
    const example = list.find((one) => JSON.stringify(one.question) === JSON.stringify(question));
    const steps = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];
    const parts = [el("div", { class: "card stack" }, exampleControl(list, question, (one) => update(one.question)), example ? el("p", { class: "small" }, example.about) : null)];
    parts.push(isStatic ? staticNote() : el("div", { class: "card stack" },
      await targetControl(question.target, (next) => update({ ...question, target: next })),
      slider("Tokens T", Math.max(0, steps.findIndex((n) => n >= question.T)), 0, steps.length - 1, (at) => update({ ...question, T: steps[at] }, false), (at) => steps[at]),
      errorSlider(question.eps, (eps) => update({ ...question, eps }, false))));
    side.replaceChildren(...parts);
  }

  async function draw(found) {
    const c = found.certificate, attacked = el("div", {});
    const attack = el("button", { type: "button", onclick: async () => {
      attack.disabled = true;
      try {
        const result = await ask("certify", { ...question, seconds: 2 });
        attacked.replaceChildren(el("p", {}, `Two seconds of attack found an error of ${short(result.attacked)}; the bound is ${short(result.bound)}, ${short(result.ratio)} times that. The certificate ${result.verdict}.`));
      } catch (error) { attacked.replaceChildren(failure(error)); }
      attack.disabled = false;
    } }, "Attack it for two seconds");
    const save = el("button", { type: "button", class: "main", onclick: async () => {
      try {
        const link = el("a", { href: URL.createObjectURL(await download("network", question)), download: `${question.target.replace(/[^A-Za-z0-9]+/g, "_")}_T${question.T}.safetensors` });
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 1000);
      } catch (error) { toast(error.message); }
    } }, "Download safetensors");
    const look = el("div", { class: "pair" });
    content.replaceChildren(
      el("p", { class: `verdict ${c.holds ? "ok" : "bad"}`, id: "verdict" }, el("span", { class: "sign", "aria-hidden": "true" }, c.holds ? "✓" : "✗"), el("span", {}, `The error is at most ${short(c.bound)} for ${c.claim.inputs}.`)),
      el("div", { class: "card" }, el("h2", {}, "The network"), el("div", { class: "facts" }, [["parameters", found.parameters?.toLocaleString("en") ?? "–"], ...["heads", "embed", "width"].map((name) => [name, found.layers.map((layer) => layer[name]).join(", ")]), ["inverse temperature", found.layers.map((layer) => short(layer.beta)).join(", ")]].filter(([, value]) => value !== "").map(([name, value]) => el("div", { class: "fact" }, el("span", { class: "small" }, name), el("b", {}, value)))),
        found.jobs?.length ? el("ul", { class: "reasons" }, found.jobs.map((jobs, layer) => el("li", {}, `Layer ${layer + 1}: ${jobs.join("; ")}`))) : null,
        el("div", { class: "row" }, save, tools(null, "build", () => found.said))),
      el("div", { class: "card" }, el("h2", {}, "The certificate"), parts(c), el("ul", { class: "reasons" }, [`Arithmetic: ${c.arithmetic}`, ...c.assumptions.map((one) => `Assuming ${one}`), ...c.promises.map((one) => `If ${one}`)].map((one) => el("li", {}, `${one}.`))), el("div", { class: "row" }, attack), attacked),
      look, blocks(found));
    if (found.blocks.length) {
      const map = el("figure", { class: "card" }), hill = el("figure", { class: "card" });
      look.append(map, hill);
      await Promise.all([attention(found, map), surface(hill)]);
    }
  }

  async function attention(found, figure) {
    const heads = found.layers.map((layer) => layer.heads);
    try {
      const seen = await looker((signal) => ask("attention", { ...question, ...look }, signal));
      if (!seen) return;
      const picture = heatMap(bytes(seen.picture), seen.rows, seen.columns, { least: 320, label: `attention of layer ${look.layer}, head ${look.head}: winners ${seen.winners.slice(0, 20).join(", ")}` });
      if (seen.rows === 1) picture.classList.add("strip");
      const words = seen.rows === 1 ? `The CLS looks at token ${seen.winners[0]}.` : `Rows ask, columns answer; the last row is the CLS. The least sharp token puts ${short(seen.least_sharp)} on its winner.`;
      const pick = (name, most) => el("div", { class: "row", role: "group", "aria-label": name }, el("span", { class: "small" }, name), [...Array(Math.min(most, 12)).keys()].map((n) => el("button", { type: "button", "aria-pressed": String(look[name] === n + 1), onclick: () => { look = { ...look, [name]: n + 1, ...(name === "layer" ? { head: 1 } : {}) }; attention(found, figure); } }, `${n + 1}`)));
      figure.replaceChildren(el("h2", {}, "Where it looks"), pick("layer", heads.length), pick("head", heads[look.layer - 1]), isStatic ? "" : number("seed of the input", look.seed, (seed) => { look = { ...look, seed }; attention(found, figure); }, { min: 0 }), el("div", { class: "scroll" }, picture), el("figcaption", {}, words), tools(figure, "attention", null));
    } catch (error) { figure.replaceChildren(el("h2", {}, "Where it looks"), failure(error)); }
  }

  async function surface(figure) {
    figure.replaceChildren(el("h2", {}, "Where it errs"));
    if (question.T > 64) { figure.append(el("p", { class: "small" }, "Drawn for up to 64 tokens.")); return; }
    try {
      const seen = await ask("surface", { ...question, seed: 0 });
      const most = seen.largest || 1, flat = seen.errors.toReversed().flat();
      const values = Uint8Array.from(flat, (error) => Math.round(128 + 127 * (error / most)));
      figure.append(el("div", { class: "scroll" }, heatMap(values, seen.axis.length, seen.axis.length, { colours: "signed", least: 320, label: `error surface, at most ${short(seen.largest)}` })),
        el("figcaption", {}, `Network minus target while ${seen.names.join(" (across) and ")} (up) move over the box; blue is too much, orange too little. Largest here ${short(seen.largest)}, proved bound ${short(seen.bound)}.`), tools(figure, "error", null));
    } catch (error) { figure.append(failure(error)); }
  }

  await update(question);
}

function parts(c) {
  const rows = Object.entries(c.parts), total = rows.reduce((sum, [, value]) => sum + value, 0) || 1;
  const bar = (value) => { const inner = el("i", {}); inner.style.width = `${Math.max(0.5, (100 * value) / total)}%`; return el("div", { class: "bar" }, inner); };
  return el("table", {}, el("caption", { class: "small" }, "What the bound is made of"), el("tbody", {}, rows.map(([name, value]) => el("tr", {}, el("td", {}, name), el("td", { class: "number" }, short(value)), el("td", { class: "grow" }, bar(value))))));
}

function blocks(found) {
  if (!found.blocks.length) return el("p", { class: "small" }, `This target is built as a ${found.kind}; its parts are not drawn here.`);
  return el("div", { class: "card" }, el("h2", {}, "Every tensor"), el("p", { class: "small" }, "Blue is positive, orange negative, nothing is 0. Large tensors are drawn smaller: each dot is the entry farthest from 0."),
    found.directions?.length ? el("details", {}, el("summary", {}, "What the coordinates of the residual stream are called"), found.directions.map((names, layer) => el("p", { class: "mono" }, `layer ${layer + 1}: ${names.join("  ")}`))) : null,
    el("div", { class: "tensors" }, found.blocks.map((block) => el("figure", {}, heatMap(bytes(block.picture), block.rows, block.columns, { colours: "signed", least: 120, label: `${block.name}: ${block.nonzero} entries are not 0` }), el("figcaption", {}, el("b", {}, block.name), ` ${block.shape.join("×")}`, el("br"), `${block.nonzero} not 0, largest ${short(block.largest)}`)))));
}
