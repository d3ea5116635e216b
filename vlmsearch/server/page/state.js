// What is shown, as the address says it: the back button works and a link can be shared.

const LISTS = ["like", "not"];
const TEXTS = ["index", "view", "q", "sort", "open", "image"];

/** Return the state that an address holds. */
export function parse(search) {
  const given = new URLSearchParams(search);
  const state = { all: given.get("all") === "1", rerank: given.get("rerank") === "1", where: {} };
  for (const name of TEXTS) state[name] = given.get(name) ?? "";
  for (const name of LISTS) state[name] = given.getAll(name);
  try {
    const where = JSON.parse(given.get("where") || "{}");
    if (where && typeof where === "object" && !Array.isArray(where)) state.where = where;
  } catch {
    // a link that was cut off: without its filter
  }
  return state;
}

/** Return the address of a state: what is empty is left out. */
export function address(state) {
  const made = new URLSearchParams();
  for (const name of TEXTS) if (state[name]) made.set(name, state[name]);
  for (const name of LISTS) for (const each of state[name]) made.append(name, each);
  if (Object.keys(state.where).length) made.set("where", JSON.stringify(state.where));
  for (const name of ["all", "rerank"]) if (state[name]) made.set(name, "1");
  return `?${made}`;
}

const listeners = [];
export const onChange = (listener) => listeners.push(listener);

export let current = parse(location.search);

/** Show another state: `changes` to the current one. `replace` leaves no step for the back button. */
export function go(changes, { replace = false } = {}) {
  const next = { ...current, ...changes };
  const to = address(next);
  if (to !== (location.search || "?")) {
    if (replace) history.replaceState(history.state, "", to);
    else history.pushState({ isOver: Boolean(next.open && !current.open) }, "", to);
  }
  current = next;
  for (const listener of listeners) listener(current);
}

/** Close the document that is open: one step back where that was without it, so that "back" does not open it again. */
export function closeOpen() {
  if (history.state?.isOver) history.back();
  else go({ open: "" }, { replace: true });
}

/** The address of the current state with changes, for a link. */
export const linkTo = (changes) => address({ ...current, ...changes });

/** Begin again with the index that is in use. */
export const EMPTY = { view: "", q: "", like: [], not: [], where: {}, sort: "", image: "", open: "", all: false };

addEventListener("popstate", () => {
  current = parse(location.search);
  for (const listener of listeners) listener(current);
});

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='?']");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  go(parse(link.getAttribute("href")));
});
