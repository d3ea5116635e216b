// What is selected, and what can be done with it: more like these, exclude, label, remove.

import { call, inIndex } from "./api.js";
import { h, icon, ICONS, many, openDialog, say } from "./dom.js";
import * as state from "./state.js";

const listeners = new Set();
const ids = new Set();
let index = null;

const changed = () => {
  draw();
  listeners.forEach((listener) => listener());
};

export const selection = {
  has: (id) => ids.has(id),
  subscribe(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
  toggle(id) {
    if (!ids.delete(id)) ids.add(id);
    changed();
  },
  add(more) {
    more.forEach((id) => ids.add(id));
    changed();
  },
  clear() {
    ids.clear();
    changed();
  },
  get size() {
    return ids.size;
  },
};

/** Say which index is shown; another one begins with nothing selected. */
export function use(shown) {
  if (index?.name !== shown.name) ids.clear();
  index = shown;
  changed();
}

const reload = () => dispatchEvent(new Event("documents-changed"));

function draw() {
  const region = document.getElementById("selection");
  region.hidden = !ids.size;
  document.body.classList.toggle("selecting", ids.size > 0);
  if (!ids.size) return region.replaceChildren();
  const chosen = [...ids];
  const search = (changes) => {
    state.go({ view: "", q: "", image: "", sort: "", open: "", ...changes });
    selection.clear();
  };
  const mayWrite = index?.can.write;
  region.replaceChildren(...[
    h("strong", {}, `${many(ids.size, "document")} selected`),
    h("button", { onclick: () => search({ like: chosen, not: [] }) }, "More like these"),
    state.current.view === "" && (state.current.q || state.current.like.length || state.current.image)
      && h("button", { onclick: () => {
        state.go({ not: [...new Set([...state.current.not, ...chosen])], open: "" });
        selection.clear();
      } }, "Less like these"),
    mayWrite && h("button", { onclick: () => label(chosen) }, "Label …"),
    mayWrite && h("button", { onclick: () => remove(chosen) }, "Remove …"),
    h("button", { class: "quiet", "aria-label": "Clear the selection", onclick: () => selection.clear() },
      icon(ICONS.close)),
  ].filter(Boolean));
}

/** Write a key of metadata into documents. */
export function label(chosen, key = "label") {
  const problem = h("p", { class: "problem", role: "alert" });
  const name = h("input", { id: "label-key", required: true, value: key, maxlength: 128, spellcheck: "false" });
  const value = h("input", { id: "label-value", maxlength: 1000, autocomplete: "off" });
  const write = async (change) => {
    try {
      const { changed: count } = await call(inIndex(index.name, "/documents/metadata"), { ids: chosen, ...change });
      dialog.close();
      say(`${many(count, "document")} changed.`);
      selection.clear();
      reload();
    } catch (error) {
      problem.textContent = error.message;
    }
  };
  const submit = (event) => {
    event.preventDefault();
    if (value.value.trim()) write({ set: { [name.value.trim()]: value.value.trim() } });
    else problem.textContent = "Say what to write, or remove the key.";
  };
  const dialog = openDialog("Label", { class: "sheet" }, h("form", { onsubmit: submit },
    h("h2", {}, `Label ${many(chosen.length, "document")}`),
    h("p", { class: "soft" }, "The label goes into their metadata, where filters find it. Files are not changed."),
    h("div", { class: "pair" },
      h("div", {}, h("label", { for: "label-key" }, "Key"), name),
      h("div", {}, h("label", { for: "label-value" }, "Label"), value)),
    problem,
    h("div", { class: "actions" },
      h("button", { class: "primary" }, "Write"),
      h("button", { type: "button", onclick: () => name.reportValidity() && write({ unset: [name.value.trim()] }) },
        "Remove the key"),
      h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"))));
  value.focus();
}

/** Take documents out of the index, after a question. */
export function remove(chosen, done = reload) {
  const problem = h("p", { class: "problem", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    try {
      const { deleted } = await call(inIndex(index.name, "/documents/delete"), { ids: chosen });
      dialog.close();
      say(`${many(deleted, "document")} removed from the index.`);
      selection.clear();
      done();
    } catch (error) {
      problem.textContent = error.message;
    }
  };
  const dialog = openDialog("Remove", { class: "sheet" }, h("form", { onsubmit: submit },
    h("h2", {}, `Remove ${many(chosen.length, "document")} from the index?`),
    h("p", { class: "soft" }, "Their files stay where they are. Indexing those again brings the documents back."),
    problem,
    h("div", { class: "actions" },
      h("button", { class: "primary" }, "Remove"),
      h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"))));
}
