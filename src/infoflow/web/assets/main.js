// The frame: the tabs, the theme, and the view that the address names.
import { isStatic } from "./api.js";
import { el } from "./dom.js";
import { params } from "./state.js";

const VIEWS = { flow: "Flow", predict: "Predict", build: "Build", refute: "Refute", book: "Book", lab: "Lab", heads: "Heads" };

function tabs(current) {
  const place = document.getElementById("views");
  place.replaceChildren(...Object.entries(VIEWS).map(([name, words]) => el("a", {
    href: `?view=${name}`, "aria-current": name === current ? "page" : null,
    onclick: (event) => { if (event.ctrlKey || event.metaKey || event.shiftKey) return; event.preventDefault(); history.pushState(null, "", `${location.pathname}?view=${name}`); show(); },
  }, words)));
  place.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

let leave = null;
async function show() {
  leave?.();
  leave = null;
  const name = params().view in VIEWS ? params().view : "flow";
  tabs(name);
  document.title = `${VIEWS[name]} · InfoFlow explorer`;
  const main = document.getElementById("main");
  main.dataset.view = name;
  delete main.dataset.ready;
  const { view } = await import(`./views/${name}.js`);
  main.replaceChildren();
  leave = (await view(main)) ?? null;
}

function theme() {
  const root = document.documentElement, stored = localStorage.getItem("theme");
  if (stored) root.dataset.theme = stored;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    dispatchEvent(new Event("themechange"));
  });
}

theme();
document.getElementById("mode").textContent = isStatic ? "static copy" : "served from this machine";
addEventListener("popstate", show);
show();
