// Book: every statement of the four papers, its status, and its check to run.
import { ask, isStatic } from "../api.js";
import { choice } from "../controls.js";
import { el, short } from "../dom.js";
import { tools } from "../save.js";
import { params, remember } from "../state.js";

const KIND = { holds: "ok", "holds after repair": "open", refuted: "bad", vacuous: "bad", "stated, not executable": "" };
const SIGN = { holds: "✓", "holds after repair": "✎", refuted: "✗", vacuous: "∅", "stated, not executable": "–" };

export async function view(main) {
  const book = await ask("book");
  let { paper = "", status = "", words = "", id = "" } = params();
  const list = el("div", { class: "stack" }), count = el("p", { class: "small", role: "status" });
  const search = el("input", { type: "search", value: words, placeholder: "softmax, counting, Theorem 1 …", "aria-label": "Words to look for", oninput: () => { words = search.value; draw(); } });
  main.append(el("h1", {}, "What is true, and how we know"), el("p", { class: "lead" }, "Every statement of the four papers, in our words. Most hold, some hold once repaired, some are false as printed and a counterexample shows it. Each has a check that runs."),
    el("div", { class: "card filters" },
      choice("Paper", paper, [["", "all four"], ...Object.entries(book.papers).map(([key, one]) => [key, one.title])], (next) => { paper = next; draw(); }),
      choice("Status", status, [["", "any"], ...Object.keys(book.statuses).map((key) => [key, `${SIGN[key]} ${key}`])], (next) => { status = next; draw(); }),
      el("div", {}, el("span", { class: "label" }, "Search"), search)),
    count, list, tools(null, "book", () => book.said));

  function draw() {
    remember("book", { paper, status, words, id });
    const fits = (entry) => (!paper || entry.paper === paper) && (!status || entry.status === status) && (!words || JSON.stringify(entry).toLowerCase().includes(words.toLowerCase()));
    const shown = book.entries.filter(fits);
    count.textContent = `${shown.length} of ${book.entries.length} statements. ${Object.entries(book.statuses).map(([key, meaning]) => `${SIGN[key]} ${key}: ${meaning}`).join(" · ")}`;
    list.replaceChildren(...shown.map(card));
  }

  function card(entry) {
    const found = el("div", {}), node = el("details", { class: "card entry", open: entry.id === id, ontoggle: () => { if (node.open) { id = entry.id; remember("book", { paper, status, words, id }); } } },
      el("summary", {}, el("span", { class: `chip ${KIND[entry.status]}` }, `${SIGN[entry.status]} ${entry.status}`), el("b", {}, entry.title), el("span", { class: "mono small" }, entry.id)),
      el("p", {}, entry.statement), el("p", { class: "small" }, `${book.papers[entry.paper].title}, ${entry.where}`),
      entry.hypotheses.length ? el("ul", { class: "reasons" }, entry.hypotheses.map((one) => el("li", {}, one))) : null,
      entry.remark ? el("p", { class: "small" }, entry.remark) : null,
      entry.errata.map((one) => el("div", { class: "error" }, el("p", {}, el("b", {}, `${one.where}. `), `Printed: ${one.printed}`), el("p", {}, `Should read: ${one.repair}`), one.shown && entry.recorded.errata[one.shown] ? el("p", { class: "small" }, `Shown by: ${entry.recorded.errata[one.shown]}`) : null)),
      entry.recorded.findings.length ? el("div", {}, el("p", { class: "small" }, "Measured by its check when it was last recorded:"), el("ul", { class: "reasons" }, entry.recorded.findings.map((one) => el("li", { class: "small" }, one.text)))) : null,
      el("div", { class: "row" }, entry.executable && !isStatic ? run(entry, found) : null, el("code", {}, `infoflow book --check ${entry.id}`)), found);
    return node;
  }

  function run(entry, place) {
    const stop = el("button", { type: "button", hidden: true }, "Stop");
    const button = el("button", { type: "button", class: "main", onclick: async () => {
      const control = new AbortController();
      button.disabled = true; stop.hidden = false; stop.onclick = () => control.abort();
      place.replaceChildren(el("p", { class: "busy", role: "status" }, "Checking…"));
      try {
        const result = await ask("check", { id: entry.id }, control.signal);
        place.replaceChildren(el("p", { class: `chip ${result.passed ? "ok" : "bad"}` }, result.passed ? `✓ passed in ${short(result.seconds)} s` : `✗ failed ${result.error ?? ""}`), el("ul", { class: "reasons" }, result.findings.map((one) => el("li", { class: "small" }, `${one.passed ? "✓" : "✗"} ${one.text}`))));
      } catch (error) { place.replaceChildren(el("p", { class: "small" }, error.name === "AbortError" ? "Stopped." : error.message)); }
      button.disabled = false; stop.hidden = true;
    } }, "Run its check now");
    return [button, stop];
  }

  draw();
  list.querySelector("details[open]")?.scrollIntoView({ block: "center" });
  main.dataset.ready = "book";
}
