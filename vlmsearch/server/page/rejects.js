// The reject list: what could not be indexed, and why.

import { call, inIndex } from "./api.js";
import { h, many, notesOf, number, wrapped } from "./dom.js";
import * as state from "./state.js";

const PAGE = 200;

export function open(main, index) {
  const body = h("div", { class: "rejects" });
  const partly = h("div", {});
  const leaving = new AbortController();
  main.replaceChildren(h("h1", { class: "title" }, "Rejects"),
    h("p", { class: "lead" }, "Files and rows that could not be indexed. They are tried again when they change."), partly, body);
  const load = async () => {
    body.replaceChildren(h("p", { class: "soft", role: "status" }, "Loading …"));
    try {
      const { rejects } = await call(inIndex(index.name, "/rejects"), undefined, { signal: leaving.signal });
      draw(body, rejects);
      const notes = notesOf(await call(inIndex(index.name), undefined, { signal: leaving.signal }));
      partly.replaceChildren(...notes.map((note) => h("p", { class: "lead" }, note, " ",
        h("a", { href: state.linkTo({ ...state.EMPTY, where: { unread_count: { $gte: 1 } } }) }, "Show them"))));
    } catch (error) {
      if (leaving.signal.aborted) return;
      body.replaceChildren(h("div", { class: "state problem", role: "alert" }, h("p", {}, error.message),
        h("div", { class: "actions" }, h("button", { onclick: load }, "Try again"))));
    }
  };
  load();
  return { show() {}, close: () => leaving.abort() };
}

function draw(body, rejects) {
  if (!rejects.length) {
    body.replaceChildren(h("div", { class: "state" }, h("h2", {}, "Nothing was rejected"),
      h("p", {}, "Every file and row that was given to this index is in it.")));
    return;
  }
  const codes = new Map();
  for (const { code } of rejects) codes.set(code, (codes.get(code) ?? 0) + 1);
  const chosen = h("select", { "aria-label": "Reason", onchange: () => fill(PAGE) },
    h("option", { value: "" }, "All reasons"),
    ...[...codes].map(([code, count]) => h("option", { value: code }, `${code} (${number(count)})`)));
  const text = h("input", { type: "search", placeholder: "Name", "aria-label": "Name", oninput: () => fill(PAGE) });
  const count = h("p", { class: "count", role: "status" });
  const rows = h("tbody", {});
  const more = h("button", {});
  const fill = (most) => {
    const named = text.value.trim().toLowerCase();
    const found = rejects.filter(({ id, code }) =>
      (!chosen.value || code === chosen.value) && id.toLowerCase().includes(named));
    count.textContent = many(found.length, "file");
    rows.replaceChildren(...found.slice(0, most).map(({ id, code, message }) => h("tr", {},
      h("th", { scope: "row" }, wrapped(id)), h("td", {}, h("b", {}, code)), h("td", {}, message))));
    more.hidden = found.length <= most;
    more.textContent = `Show ${number(Math.min(PAGE * 5, found.length - most))} more`;
    more.onclick = () => fill(most + PAGE * 5);
  };
  body.replaceChildren(h("div", { class: "tools" }, count, text, chosen),
    h("table", {}, h("thead", {}, h("tr", {}, ...["File or row", "Reason", "What is wrong"].map((name) =>
      h("th", { scope: "col" }, name)))), rows), more);
  fill(PAGE);
}
