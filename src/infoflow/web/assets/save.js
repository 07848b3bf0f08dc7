// Save a picture as SVG or PNG, copy the question behind it.
import { el, toast } from "./dom.js";

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "font-size", "font-family",
  "font-weight", "text-anchor", "dominant-baseline"];

function standalone(picture) {
  const { width, height } = picture.getBBox ? picture.viewBox.baseVal : picture;
  const copy = picture.cloneNode(true);
  const from = [picture, ...picture.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, number) => {
    const seen = getComputedStyle(node);
    for (const name of STYLES) to[number].setAttribute(name, seen.getPropertyValue(name));
    to[number].removeAttribute("class");
  });
  const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  paper.setAttribute("width", "100%"); paper.setAttribute("height", "100%");
  paper.setAttribute("fill", getComputedStyle(document.body).getPropertyValue("--card"));
  const box = picture.viewBox.baseVal;
  paper.setAttribute("x", box.x); paper.setAttribute("y", box.y);
  copy.prepend(paper);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width); copy.setAttribute("height", height);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

function give(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const picture = (figure) => figure.querySelector("canvas") ?? figure.querySelector("svg");

export async function saveSvg(figure, name) {
  const found = picture(figure);
  let text;
  if (found instanceof HTMLCanvasElement) {
    const { width, height } = found;
    text = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><image width="${width}" height="${height}" href="${found.toDataURL()}"/></svg>`;
  } else text = standalone(found).text;
  give(new Blob([text], { type: "image/svg+xml" }), `${name}.svg`);
  return text;
}

export async function pngOf(figure) {
  const found = picture(figure);
  if (found instanceof HTMLCanvasElement) return new Promise((made) => found.toBlob(made));
  const { text, width, height } = standalone(found);
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = el("canvas", { width: 2 * width, height: 2 * height });
  canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
  URL.revokeObjectURL(image.src);
  return new Promise((made) => canvas.toBlob(made));
}

async function copy(words, what) {
  try {
    await navigator.clipboard.writeText(words);
  } catch {
    const area = el("textarea", { value: words });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast(`${what} copied`);
}

// The row of small buttons under every picture. `said` gives {command, python} of what is shown.
export function tools(figure, name, said) {
  const button = (words, work) => el("button", { type: "button", class: "quiet", onclick: work }, words);
  return el("div", { class: "tools", role: "group", "aria-label": "Share and save" },
    button("Copy link", () => copy(location.href, "Link")),
    said && button("Copy as Python", () => copy(said().python, "Python")),
    said?.().command && button("Copy as command", () => copy(said().command, "Command")),
    figure && button("Save SVG", () => saveSvg(figure, name)),
    figure && button("Save PNG", async () => give(await pngOf(figure), `${name}.png`)));
}
