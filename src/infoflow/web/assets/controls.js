// Controls shared by the views: a target with its keys, heads per layer, sliders, worked examples.
import { ask, isStatic } from "./api.js";
import { el } from "./dom.js";

let counter = 0;
const unique = () => `c${++counter}`;

export function slider(name, value, least, most, change, spell = (v) => v) {
  const id = unique(), shown = el("output", { for: id }, `${spell(value)}`);
  const input = el("input", { type: "range", id, min: least, max: most, value, oninput: () => { shown.textContent = spell(Number(input.value)); change(Number(input.value)); } });
  return el("div", { class: "control" }, el("label", { for: id }, name, shown), input);
}

const ERRORS = [1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 5e-4, 2e-4, 1e-4, 1e-5, 1e-6];

export function errorSlider(eps, change) {
  const at = Math.max(0, ERRORS.findIndex((one) => one <= eps * 1.0001));
  return slider("Error asked for", at, 0, ERRORS.length - 1, (place) => change(ERRORS[place]), (place) => ERRORS[place]);
}

export function number(name, value, change, more = {}) {
  const id = unique();
  const input = el("input", { type: "number", id, value, ...more, onchange: () => input.value !== "" && change(Number(input.value)) });
  return el("div", {}, el("label", { for: id }, name), input);
}

export function choice(name, value, options, change) {
  const id = unique();
  const input = el("select", { id, onchange: () => change(input.value) }, options.map(([key, words]) => el("option", { value: key, selected: key === value }, words)));
  return el("div", {}, el("label", { for: id }, name), input);
}

// pairwise_max:D=4,d=4,seed=0  <->  {name, keys}
export function parseTarget(spelling) {
  const [name, rest = ""] = spelling.split(":");
  return { name, keys: Object.fromEntries(rest.split(",").filter(Boolean).map((pair) => pair.split("="))) };
}

export const spellTarget = ({ name, keys }) => {
  const pairs = Object.entries(keys).filter(([, value]) => value !== null && value !== "");
  return pairs.length ? `${name}:${pairs.map((pair) => pair.join("=")).join(",")}` : name;
};

export async function targetControl(spelling, change) {
  const { targets } = await ask("targets");
  const found = parseTarget(spelling);
  const known = targets.find((target) => target.name === found.name) ?? targets[0];
  const keys = { ...known.keys, ...found.keys };
  const again = () => change(spellTarget({ name: known.name, keys }));
  const fields = Object.entries(keys).filter(([, value]) => value !== null).map(([key, value]) => {
    const id = unique();
    const input = el("input", { type: "text", id, value, inputmode: "numeric", onchange: () => { keys[key] = input.value.trim(); again(); } });
    return el("div", {}, el("label", { for: id }, key), input);
  });
  return el("div", { class: "stack" },
    choice("Target: what is to be computed", known.name, targets.map((target) => [target.name, target.name.replaceAll("_", " ")]), (name) => {
      const chosen = targets.find((target) => target.name === name);
      change(chosen.spelling, chosen);
    }),
    el("p", { class: "mono small", style: null }, known.formula),
    fields.length ? el("div", { class: "keys" }, fields) : null);
}

export function headsControl(heads, change, mostLayers = 4, mostHeads = 12) {
  const put = (layer, value) => change(heads.map((old, number) => (number === layer ? value : old)));
  return el("div", {},
    el("span", { class: "label" }, "Heads per layer"),
    el("div", { class: "layers" }, heads.map((count, layer) => el("div", { class: "row" },
      el("span", { class: "small" }, `layer ${layer + 1}`),
      el("span", { class: "stepper" },
        el("button", { type: "button", "aria-label": `one head fewer in layer ${layer + 1}`, disabled: count <= 1, onclick: () => put(layer, count - 1) }, "−"),
        el("span", { "aria-label": `${count} heads` }, `${count}`),
        el("button", { type: "button", "aria-label": `one head more in layer ${layer + 1}`, disabled: count >= mostHeads, onclick: () => put(layer, count + 1) }, "+"))))),
    el("div", { class: "row" },
      el("button", { type: "button", class: "quiet", disabled: heads.length >= mostLayers, onclick: () => change([...heads, heads.at(-1)]) }, "add a layer"),
      el("button", { type: "button", class: "quiet", disabled: heads.length <= 1, onclick: () => change(heads.slice(0, -1)) }, "remove one")));
}

export function archOf(spelling) {
  const fields = Object.fromEntries(spelling.split(" ").map((word) => word.split("=")));
  return { ...fields, heads: fields.heads.split(",").map(Number) };
}

// An embedding that its heads divide, near the one asked for.
export const embedFor = (heads, wanted) => heads.map((count) => Math.ceil(wanted / count) * count).join(",");

let loaded = null;
export const examples = async (view) => (await (loaded ??= fetch("assets/examples.json").then((found) => found.json())))[view];

export function exampleControl(list, current, take) {
  const options = list.map((example, number) => [`${number}`, example.name]);
  const known = list.findIndex((example) => JSON.stringify(example.question) === JSON.stringify(current));
  return choice("Example", `${known}`, known < 0 && !isStatic ? [["-1", "your own"], ...options] : options, (number) => Number(number) >= 0 && take(list[Number(number)]));
}

export const staticNote = () => el("p", { class: "small" }, "This is a static copy with worked examples. For your own questions: ", el("code", {}, "infoflow serve --open"));

export function failure(error) {
  return el("p", { class: "error", role: "alert" }, error.message);
}
