// The state of a view is its address: /?view=flow&target=...; sharing the page is sharing the address.
export const params = () => Object.fromEntries(new URLSearchParams(location.search));

export function remember(view, fields) {
  const query = new URLSearchParams({ view });
  for (const [name, value] of Object.entries(fields)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const words = query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%3B", ";").replaceAll("%3D", "=");
  history.replaceState(null, "", `${location.pathname}?${words}`);
}

// Tokens in an address: 0,-1;0.7,0.7
export const spellTokens = (tokens) => tokens.map((row) => row.join(",")).join(";");
export const readTokens = (text) => text.trim().split(/[;\n]+/).filter((row) => row.trim()).map((row) => row.split(/[\s,]+/).filter(Boolean).map(Number));
