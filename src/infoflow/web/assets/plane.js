// Tokens as points of a line or a plane that can be dragged, or moved with the arrow keys.
import { short, svg } from "./dom.js";

const SIZE = 300, PAD = 26;

export function plane(first, moved) {
  let flow = first, tokens = first.tokens.map((token) => [...token]);
  const [low, high] = flow.domain, flat = flow.d === 1, height = flat ? 110 : SIZE;
  const at = (value) => PAD + ((value - low) / (high - low)) * (SIZE - 2 * PAD);
  const inside = (value) => Math.round(Math.min(high, Math.max(low, value)) * 1000) / 1000;
  const back = (pixel) => inside(low + ((pixel - PAD) / (SIZE - 2 * PAD)) * (high - low));
  const place = (token) => [at(token[0]), flat ? height / 2 : SIZE - at(token[1])];

  const link = svg("path", { class: "link" });
  const groups = tokens.map((token, number) => svg("g", { tabindex: 0, role: "button", "data-token": number + 1 }, svg("circle", { r: 13 }), svg("text", {}, `${number + 1}`)));
  const node = svg("svg", { class: "plane", viewBox: `0 0 ${SIZE} ${height + 12}`, role: "group", "aria-label": "The tokens; move one with the arrow keys" },
    svg("rect", { class: "box", x: PAD, y: flat ? 20 : PAD, width: SIZE - 2 * PAD, height: flat ? height - 40 : SIZE - 2 * PAD, rx: 4 }),
    svg("path", { class: "axis", d: flat ? `M${PAD} ${height / 2}H${SIZE - PAD}` : `M${SIZE / 2} ${PAD}V${SIZE - PAD}M${PAD} ${SIZE / 2}H${SIZE - PAD}` }),
    [low, (low + high) / 2, high].map((value) => svg("text", { class: "tick", x: at(value), y: height + 8, "text-anchor": "middle" }, short(value))), link, groups);

  function paint() {
    const known = flow.sets.at(-1).at(-1);
    groups.forEach((group, number) => {
      const [x, y] = place(tokens[number]);
      group.setAttribute("transform", `translate(${x} ${y})`);
      group.setAttribute("class", ["token", flow.active.includes(number + 1) && "active", known.includes(number + 1) && "read"].filter(Boolean).join(" "));
      group.setAttribute("aria-label", `token ${number + 1} at ${tokens[number].map((v) => short(v)).join(", ")}`);
    });
    const ends = known.length === 2 && !flat ? known.map((t) => place(tokens[t - 1]).join(" ")) : [];
    link.setAttribute("d", ends.length ? `M${ends[0]}L${ends[1]}` : "");
  }

  // While a finger drags, one question at a time is enough.
  let waiting = false, running = false;
  async function tell() {
    waiting = true;
    if (running) return;
    running = true;
    while (waiting) { waiting = false; await moved(tokens.map((row) => [...row])); }
    running = false;
  }
  const put = (number, token) => { tokens[number] = token.map(inside); paint(); tell(); };

  groups.forEach((group, number) => {
    let held = false;
    group.addEventListener("pointerdown", (event) => { held = true; group.setPointerCapture(event.pointerId); });
    group.addEventListener("pointerup", () => { held = false; });
    group.addEventListener("pointermove", (event) => {
      if (!held) return;
      const box = node.getBoundingClientRect(), scale = SIZE / box.width;
      const [px, py] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
      put(number, flat ? [back(px)] : [back(px), back(SIZE - py)]);
    });
    group.addEventListener("keydown", (event) => {
      const step = ((high - low) / 40) * (event.shiftKey ? 4 : 1);
      const by = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] }[event.key];
      if (!by) return;
      event.preventDefault();
      put(number, tokens[number].map((value, axis) => value + by[axis]));
    });
  });

  paint();
  return {
    node,
    fits: (next) => next.T === flow.T && next.d === flow.d && next.domain.join() === flow.domain.join(),
    refresh: (next) => { flow = next; if (!running || !waiting) tokens = next.tokens.map((token) => [...token]); paint(); },
  };
}
