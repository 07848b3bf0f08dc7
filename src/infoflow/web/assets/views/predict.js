// Predict: what an architecture can do with a target, before training.
import { ask, asker, isStatic } from "../api.js";
import { chart, key } from "../chart.js";
import { archOf, embedFor, errorSlider, exampleControl, examples, failure, headsControl, slider, staticNote, targetControl } from "../controls.js";
import { el, fraction, short } from "../dom.js";
import { tools } from "../save.js";
import { params, remember } from "../state.js";

const WORDS = {
  constructed: ["ok", "✓", "Yes. Weights that do it are known: Build writes them, with a proof."],
  "proved hard": ["bad", "✗", "No. A theorem excludes every network of this size."],
  open: ["open", "?", "Open. No construction fits and no theorem forbids it; below is the framework's estimate."],
};

export async function view(main) {
  const list = await examples("predict");
  const { target, arch, T, eps, epochs } = params();
  let question = target && arch ? { target, arch, T: Number(T ?? 64), eps: Number(eps ?? 0.01) } : list[0].question;
  let training = Number(epochs ?? 60);
  const once = asker(), planner = asker(), forecaster = asker();
  const content = el("div", { class: "stack" }), side = el("aside", { class: "side", "aria-label": "Settings" });
  main.append(el("h1", {}, "Is this architecture enough?"),
    el("p", { class: "lead" }, "Choose what is to be computed and a Transformer. The answer comes from theorems and constructions, in milliseconds and without training: yes with weights, no with a proof, or open."),
    el("div", { class: "split" }, content, side));

  async function update(next, fresh = true) {
    question = next;
    remember("predict", { ...question, epochs: training });
    content.classList.add("waiting");
    try {
      const found = await once(async (signal) => [await ask("predict", question, signal), await ask("plan", { target: question.target, T: question.T }, signal).catch((error) => ({ error }))]);
      if (found) draw(...found);
    } catch (error) { content.replaceChildren(failure(error)); }
    content.classList.remove("waiting");
    if (fresh) await settings();
    main.dataset.ready = "predict";
  }

  async function settings() {
    const shape = archOf(question.arch), embed = shape.embed ? Math.max(...shape.embed.split(",").map(Number)) : 0;
    const example = list.find((one) => JSON.stringify(one.question) === JSON.stringify(question));
    const spelled = (heads, wanted) => `heads=${heads.join(",")}${wanted ? ` embed=${embedFor(heads, wanted)}` : ""}`;
    const parts = [el("div", { class: "card stack" }, exampleControl(list, question, (one) => update(one.question)), example ? el("p", { class: "small" }, example.about) : null)];
    parts.push(isStatic ? staticNote() : el("div", { class: "card stack" },
      await targetControl(question.target, (next) => update({ ...question, target: next })),
      headsControl(shape.heads, (heads) => update({ ...question, arch: spelled(heads, embed) }), 6, 16),
      slider("Embedding E", embed, 0, 96, (wanted) => update({ ...question, arch: spelled(shape.heads, wanted) }, false), (v) => v || "any"),
      slider("Tokens T", Math.round(4 * Math.log2(question.T)), 4, 48, (step) => update({ ...question, T: Math.round(2 ** (step / 4)) }, false), (step) => Math.round(2 ** (step / 4))),
      errorSlider(question.eps, (eps) => update({ ...question, eps }, false)),
      slider("Epochs (for the forecast)", training, 5, 240, (epochs) => { training = epochs; remember("predict", { ...question, epochs }); })));
    side.replaceChildren(...parts);
  }

  function draw(found, plan) {
    const [kind, sign, words] = WORDS[found.verdict];
    content.replaceChildren(
      el("div", {}, el("p", { class: `verdict ${kind}`, id: "verdict" }, el("span", { class: "sign", "aria-hidden": "true" }, sign), el("span", {}, words)),
        found.fewer.map((one) => el("p", { class: "fewer" }, one.sentence)), tools(null, "predict", () => found.said)),
      el("div", { class: "card" }, el("h2", {}, "Why"), el("ul", { class: "reasons" }, found.reasons.map((reason) => el("li", {}, `${reason[0].toUpperCase()}${reason.slice(1)}.`))), facts(found)),
      el("div", { class: "pair" }, exponents(found), front(plan, found)), forecastCard());
  }

  function forecastCard() {
    const card = el("figure", { class: "card" }), shown = el("div", {});
    const asked = () => ({ target: question.target, arch: question.arch, T: question.T, epochs: training });
    async function run() {
      button.disabled = true;
      shown.replaceChildren(el("p", { class: "busy", role: "status" }, "A reduced problem is solved from several starts; this takes ten to thirty seconds."));
      stop.hidden = isStatic;
      try {
        const found = await forecaster((signal) => ask("forecast", asked(), signal));
        if (found) shown.replaceChildren(...forecastPicture(found, card)); else shown.replaceChildren(el("p", { class: "small" }, "Stopped."));
      } catch (error) { shown.replaceChildren(failure(error)); }
      button.disabled = false;
      stop.hidden = true;
    }
    const button = el("button", { type: "button", class: "main", onclick: run }, "Forecast training");
    const stop = el("button", { type: "button", hidden: true, onclick: () => forecaster(async () => null) }, "Stop");
    const worked = list.find((one) => JSON.stringify(one.question) === JSON.stringify(question))?.forecast;
    if (question.T > 64 || (isStatic && !worked)) return null;
    card.append(el("h2", {}, "What error will training end at?"), el("p", { class: "small" }, "A forecast, not a proof: calibrated on hundreds of trained networks. No step of this one is trained."), el("div", { class: "row" }, button, stop), shown);
    return card;
  }

  await update(question);
}

function facts(found) {
  const made = found.constructed, proved = found.proved;
  const rows = [["exponent by counting", found.counting.exponent ?? "infeasible"], ["exponent by flow", found.flow.exponent]];
  if (made) rows.push(["built with heads", made.heads.join(",")], ["embed", made.embed.join(",")], ["widths", made.widths.join(",")], ["certified error", short(made.bound)]);
  if (proved) rows.push(["width is at least", short(proved.width_at_eps)]);
  return el("div", { class: "facts" }, rows.map(([name, value]) => el("div", { class: "fact" }, el("span", { class: "small" }, name), el("b", {}, `${value}`))));
}

function exponents(found) {
  const figure = el("figure", { class: "card" }, el("h2", {}, "How the cost grows with the length"));
  if (!found.scale) return el("div", { class: "card" }, el("h2", {}, "How the cost grows with the length"), el("p", { class: "small" }, "This target has no count of comparisons."));
  const rows = found.scale.rows, read = (value) => (value === null ? null : fraction(value));
  const series = [{ name: "by counting comparisons", points: rows.map((row) => [row.T, read(row.counting)]) }, { name: "by the cheapest flow", points: rows.map((row) => [row.T, read(row.flow)]), dash: true }];
  figure.append(chart({ series, x: { name: "sequence length T", log: true, spell: (v) => v }, y: { name: "exponent", zero: true }, xTicks: rows.map((row) => row.T).filter((_, n) => n % 2 === 0),
    label: `exponents at T = ${rows.map((row) => `${row.T}: ${row.counting ?? "infeasible"}, ${row.flow}`).join("; ")}`, here: found.T >= rows[0].T && found.T <= rows.at(-1).T ? found.T : null }), key(series),
    el("figcaption", {}, `Parameters grow like (1/ε)^exponent. Embedding ${found.embed.join(",")}.`), tools(figure, "exponents", () => ({ command: `infoflow scale ${found.target} ${found.arch.split(" ")[0]} embed=${found.embed.join(",")} --T 8..4096`, python: `import infoflow as iflow\n\nprint(iflow.scale(${JSON.stringify(found.target)}, "${found.arch.split(" ")[0]} embed=${found.embed.join(",")}", [${rows.map((row) => row.T).join(", ")}]))` })));
  return figure;
}

function front(plan, found) {
  if (plan.error) return el("div", { class: "card" }, el("h2", {}, "The cheapest architectures"), failure(plan.error));
  const figure = el("figure", { class: "card" }, el("h2", {}, "The cheapest architectures"));
  const total = (option) => option.heads.reduce((a, b) => a + b, 0);
  const series = [{ name: "not beaten in layers, heads, embedding and parameters together", kind: "dots", solid: true, points: plan.options.map((option) => [total(option), option.parameters, `heads ${option.heads.join(",")} embed ${option.embed.join(",")}: ${option.parameters} parameters`]) }];
  figure.append(chart({ series, x: { name: "heads in all layers" }, xTicks: [...new Set(plan.options.map(total))].slice(0, 12), y: { name: "parameters", zero: true }, label: plan.options.map((option) => `heads ${option.heads.join(",")}: ${option.parameters} parameters`).join("; "), height: 220 }),
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ["heads", "embed", "parameters", "best in"].map((name) => el("th", {}, name)))),
      el("tbody", {}, plan.options.slice(0, 8).map((option) => el("tr", {}, el("td", {}, option.heads.join(",")), el("td", {}, option.embed.join(",")), el("td", { class: "number" }, option.parameters.toLocaleString("en")), el("td", {}, option.reason.split(";")[0])))))),
    el("figcaption", {}, plan.kind === "layout" ? "Explicit weights exist for each of these." : "An estimate: only counting speaks of this target."), tools(figure, "plan", () => plan.said));
  return figure;
}

function forecastPicture(found, card) {
  const series = [{ name: "forecast, with the band that holds eight in ten", kind: "line", points: found.curve.map(([steps, middle]) => [steps, middle]), band: found.curve.map(([steps, , low, high]) => [steps, low, high]) },
    { name: "this recipe", kind: "dots", solid: true, points: [[found.steps, found.nmse]] }];
  if (found.has_floor) series.push({ name: "floor of these reads", kind: "line", dash: true, points: found.curve.map(([steps]) => [steps, found.parts.floor]) });
  return [el("p", { class: "verdict" }, `Training is expected to end at an error (NMSE) of ${short(found.nmse, 2)}; eight runs in ten between ${short(found.low, 2)} and ${short(found.high, 2)}.`),
    chart({ series, x: { name: "training steps", log: true, spell: short }, y: { name: "NMSE", log: true }, label: found.text, width: 640 }), key(series), tools(card, "forecast", () => found.said)];
}
