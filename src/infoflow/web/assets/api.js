// Questions to the server, or, in a static copy, to the answers that were worked out beforehand.
const meta = document.querySelector('meta[name="infoflow-static"]');
export const isStatic = meta !== null;

export class Refused extends Error {}

function plain(question) {
  const names = Object.keys(question).filter((name) => question[name] !== null && question[name] !== undefined).sort();
  return Object.fromEntries(names.map((name) => [name, question[name]]));
}

let index = null;
async function recorded(verb, question) {
  index ??= fetch("data/index.json").then((found) => found.json());
  const file = (await index)[`${verb} ${JSON.stringify(question)}`];
  if (!file) throw new Refused("This copy holds worked examples only; for other questions run: infoflow serve --open");
  return fetch(`data/${file}`);
}

function post(verb, question, signal) {
  const headers = { "content-type": "application/json" };
  return fetch(`api/${verb}`, { method: "POST", headers, body: JSON.stringify(question), signal });
}

async function checked(response) {
  if (response.ok) return response;
  let words = `The explorer answered ${response.status}.`;
  try { words = (await response.json()).error ?? words; } catch { /* not JSON: the status has to do */ }
  throw new Refused(words);
}

const kept = new Map();
export async function ask(verb, question = {}, signal) {
  const asked = plain(question), key = `${verb} ${JSON.stringify(asked)}`;
  if (kept.has(key)) return kept.get(key);
  const found = await (await checked(isStatic ? await recorded(verb, asked) : await post(verb, asked, signal))).json();
  if (kept.size > 200) kept.delete(kept.keys().next().value);
  kept.set(key, found);
  return found;
}

export async function download(verb, question) {
  const response = await checked(isStatic ? await recorded(verb, plain(question)) : await post(verb, plain(question)));
  return response.blob();
}

// Server-sent events of a long job; aborting the signal ends the job on the server.
export async function listen(verb, question, hear, signal) {
  if (isStatic) {
    const { events, answer } = await (await recorded(verb, plain(question))).json();
    for (const event of events) {
      if (signal.aborted) throw new DOMException("stopped", "AbortError");
      hear(event);
      await new Promise((wake) => setTimeout(wake, 60));
    }
    return answer;
  }
  const response = await checked(await post(verb, plain(question), signal));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ;) {
    const { value, done } = await reader.read();
    text += value ?? "";
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const [kind, data] = text.slice(0, end).split("\n").map((line) => line.slice(line.indexOf(": ") + 2));
      if (kind === "answer") return JSON.parse(data);
      if (kind === "error") throw new Refused(JSON.parse(data).error);
      hear(JSON.parse(data));
    }
    if (done) throw new Refused("The connection ended before the answer came.");
  }
}

// One question at a time from one place: a new one makes the old one stale, and stops it.
export function asker() {
  let current = null;
  return async (work) => {
    current?.abort();
    const mine = (current = new AbortController());
    try {
      const found = await work(mine.signal);
      return mine.signal.aborted ? null : found;
    } catch (error) {
      if (mine.signal.aborted || error.name === "AbortError") return null;
      throw error;
    }
  };
}
