// Elements in one line: el("p", {class: "small"}, "text", child), and the same for SVG.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" && "value" in node && !(node instanceof SVGElement)) node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function toast(words) {
  const box = document.getElementById("toast");
  box.textContent = words;
  box.classList.add("on");
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => box.classList.remove("on"), 2200);
}

// Words for numbers and lists, the same everywhere.
export const braces = (members) => (members.length ? `{${members.join(",")}}` : "∅");

export function listed(items) {
  if (items.length === 0) return "nothing";
  if (items.length === 1) return `${items[0]}`;
  return `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;
}

export function short(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return `${value}`;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1).replace("e+", "e").replace(".0e", "e");
  return `${Number(value.toPrecision(digits))}`;
}

export const fraction = (text) => {
  const [above, below] = `${text}`.split("/").map(Number);
  return below ? above / below : above;
};
