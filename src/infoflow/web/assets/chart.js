// Small charts: lines, bands, dots on linear or logarithmic axes. Series: {name, points: [[x, y]], kind, colour, band}.
import { el, short, svg } from "./dom.js";

const log = { to: Math.log10, from: (v) => 10 ** v }, linear = { to: (v) => v, from: (v) => v };

function ticks(low, high, isLog, most) {
  if (isLog) {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9), step = Math.max(1, Math.ceil((last - first + 1) / most));
    const found = [];
    for (let power = first; power <= last; power += step) found.push(10 ** power);
    return found.length > 1 ? found : [low, high];
  }
  const raw = (high - low) / most || 1, base = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map((n) => n * base).find((n) => n >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

export const isNarrow = () => innerWidth < 640;

export function chart({ series, x, y, label, width = 520, height = 280, here = null, xTicks = null }) {
  if (isNarrow()) { width = 320; height = Math.min(height, 240); xTicks &&= xTicks.filter((_, n) => xTicks.length < 7 || n % 2 === 0); }
  const left = 58, right = 14, top = 14, bottom = 44;
  const points = series.flatMap((one) => one.points.filter(([, value]) => value !== null).concat((one.band ?? []).flatMap(([at, low, high]) => [[at, low], [at, high]])));
  const xs = points.map(([at]) => at).concat(here === null ? [] : [here]), ys = points.map(([, value]) => value).filter((value) => !y.log || value > 0);
  const sx = x.log ? log : linear, sy = y.log ? log : linear;
  let [x0, x1] = [Math.min(...xs), Math.max(...xs)].map(sx.to), [y0, y1] = [Math.min(...ys, ...(y.zero ? [0] : [])), Math.max(...ys)].map(sy.to);
  if (x0 === x1) { x0 -= 0.5; x1 += 0.5; }
  if (y0 === y1) { y0 -= y.zero ? 0 : 0.5; y1 += 1; }
  const room = (y1 - y0) * 0.06;
  if (!y.zero) y0 -= room;
  y1 += room;
  const px = (value) => left + ((sx.to(value) - x0) / (x1 - x0)) * (width - left - right), py = (value) => top + (1 - (sy.to(value) - y0) / (y1 - y0)) * (height - top - bottom);
  const root = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, width, role: "img", "aria-label": label });
  for (const value of ticks(sy.from(y0), sy.from(y1), y.log, 5)) root.append(
    svg("path", { class: "grid", d: `M${left} ${py(value)}H${width - right}` }),
    svg("text", { class: "tick", x: left - 8, y: py(value) + 4, "text-anchor": "end" }, y.spell ? y.spell(value) : short(value)));
  for (const value of xTicks ?? ticks(sx.from(x0), sx.from(x1), x.log, isNarrow() ? 4 : 7)) root.append(
    svg("text", { class: "tick", x: px(value), y: height - bottom + 18, "text-anchor": "middle" }, x.spell ? x.spell(value) : short(value)));
  root.append(svg("text", { class: "title", x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, x.name), svg("text", { class: "title", transform: `translate(13 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.name));
  if (here !== null) root.append(svg("path", { class: "here", d: `M${px(here)} ${top}V${height - bottom}` }));
  series.forEach((one, number) => {
    const colour = `c${one.colour ?? number}`;
    if (one.band?.length) root.append(svg("path", { class: "area", d: `M${one.band.map(([at, low]) => `${px(at)} ${py(low)}`).join("L")}L${[...one.band].reverse().map(([at, , high]) => `${px(at)} ${py(high)}`).join("L")}Z` }));
    const seen = one.points.filter(([, value]) => value !== null && (!y.log || value > 0));
    if (one.kind !== "dots" && seen.length > 1) root.append(svg("path", { class: `line ${colour} ${one.dash ? "dash" : ""}`, d: `M${seen.map(([at, value]) => `${px(at)} ${py(value)}`).join("L")}` }));
    if (one.kind !== "line") for (const [at, value, words] of seen) root.append(mark(px(at), py(value), number, `mark ${colour} ${one.solid ? "solid" : ""}`, words ?? `${one.name}: ${short(value)}`, one.small ? 2.6 : 4));
  });
  return root;
}

// Shapes as well as colours tell series apart.
function mark(x, y, number, classes, words, size) {
  const shapes = [() => svg("circle", { cx: x, cy: y, r: size }), () => svg("rect", { x: x - size, y: y - size, width: 2 * size, height: 2 * size }), () => svg("path", { d: `M${x} ${y - size * 1.3}L${x + size * 1.2} ${y + size}H${x - size * 1.2}Z` }), () => svg("path", { d: `M${x} ${y - size * 1.4}L${x + size * 1.4} ${y}L${x} ${y + size * 1.4}L${x - size * 1.4} ${y}Z` })];
  const shape = shapes[number % shapes.length]();
  shape.setAttribute("class", classes);
  shape.append(svg("title", {}, words));
  return shape;
}

export function key(series) {
  return el("ul", { class: "legend" }, series.map((one, number) => {
    const colour = `c${one.colour ?? number}`, box = svg("svg", { class: "chart", viewBox: "0 0 28 14", "aria-hidden": "true" });
    if (one.kind !== "dots") box.append(svg("path", { class: `line ${colour} ${one.dash ? "dash" : ""}`, d: "M1 7H27" }));
    if (one.kind !== "line") box.append(mark(14, 7, number, `mark ${colour} ${one.solid ? "solid" : ""}`, one.name, 4));
    return el("li", {}, box, one.name);
  }));
}

// A heat map on a canvas: bytes (rows x columns) through a colour ramp; sizes of hundreds stay smooth.
export function ramp(name) {
  const style = getComputedStyle(document.documentElement), read = (v) => { const c = style.getPropertyValue(v).trim(); return [1, 3, 5].map((at) => parseInt(c.slice(at, at + 2), 16)); };
  const paper = read("--card"), blue = read("--blue"), orange = read("--orange"), mix = (a, b, t) => a.map((v, i) => Math.round(v + (b[i] - v) * t));
  const table = new Uint8ClampedArray(256 * 4);
  for (let v = 0; v < 256; v++) {
    const colour = name === "signed" ? (v < 128 ? mix(paper, orange, Math.sqrt((128 - v) / 128)) : mix(paper, blue, Math.sqrt((v - 128) / 127))) : mix(paper, blue, Math.sqrt(v / 255));
    table.set([...colour, 255], 4 * v);
  }
  return table;
}

export const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

export function heatMap(values, rows, columns, { colours = "plain", least = 320, label }) {
  const canvas = el("canvas", { width: columns, height: rows, role: "img", "aria-label": label });
  const table = ramp(colours), image = new ImageData(columns, rows);
  for (let at = 0; at < rows * columns; at++) image.data.set(table.subarray(4 * values[at], 4 * values[at] + 4), 4 * at);
  const scale = Math.max(1, Math.floor(least / Math.max(columns, rows)));
  canvas.width = columns * scale;
  canvas.height = rows * scale;
  const small = new OffscreenCanvas(columns, rows);
  small.getContext("2d").putImageData(image, 0, 0);
  const draw = canvas.getContext("2d");
  draw.imageSmoothingEnabled = false;
  draw.drawImage(small, 0, 0, canvas.width, canvas.height);
  return canvas;
}
