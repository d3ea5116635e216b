// The page: which index and which view are shown, and the keys that work everywhere.

import * as activity from "./activity.js";
import { call, inIndex, isSignedIn, signOut } from "./api.js";
import * as ask from "./ask.js";
import { h, icon, ICONS, say } from "./dom.js";
import * as duplicates from "./duplicates.js";
import * as images from "./images.js";
import * as keys from "./keys.js";
import * as rejects from "./rejects.js";
import * as search from "./search.js";
import { selection, use } from "./selection.js";
import * as state from "./state.js";
import * as upload from "./upload.js";

const VIEWS = {
  "": { name: "Search", open: search.open, may: () => true },
  ask: { name: "Ask", open: ask.open, may: (can) => can.ask },
  duplicates: { name: "Duplicates", open: duplicates.open, may: () => true },
  rejects: { name: "Rejects", open: rejects.open, may: () => true },
  activity: { name: "Activity", open: activity.open, may: (can) => can.jobs || can.describe },
};

const main = document.getElementById("main");
let indexes = [];
let shown = null; // the view, its index and its name

function indexOf(next) {
  return indexes.find((index) => index.name === next.index) ?? (next.index ? null : indexes[0]);
}

function drawHead(next, index, name) {
  document.getElementById("nav").replaceChildren(...Object.entries(VIEWS)
    .filter(([, view]) => view.may(index.can))
    .map(([view, { name: title }]) => h("a", { href: state.address({ ...next, ...state.EMPTY, view }),
      "aria-current": name === view ? "page" : undefined }, title)));
  document.querySelector("[data-home]").setAttribute("href", state.address({ ...next, ...state.EMPTY, rerank: false }));
  const choice = indexes.length > 1 && h("select", { "aria-label": "Index",
    onchange: (event) => state.go({ ...state.EMPTY, index: event.target.value, view: next.view }) },
  ...indexes.map(({ name }) => h("option", { value: name }, name)));
  if (choice) choice.value = index.name;
  document.getElementById("indexes").replaceChildren(...[choice,
    index.can.write && h("button", { class: "tool", onclick: () => upload.open(index) }, icon(ICONS.add),
      h("span", {}, "Add")),
    h("button", { class: "tool keys-button", title: "Keys", "aria-label": "Keys", onclick: keys.open }, icon(ICONS.help)),
    isSignedIn() && h("button", { class: "tool", onclick: signOut }, "Sign out")].filter(Boolean));
}

function problem(title, message, retry) {
  shown?.view.close();
  shown = null;
  main.replaceChildren(h("div", { class: "state problem", role: "alert" }, h("h1", {}, title), h("p", {}, message),
    retry && h("div", { class: "actions" }, h("button", { onclick: retry }, "Try again"))));
}

function show(next) {
  const index = indexOf(next);
  if (!index) return problem("There is no such index", `“${next.index}” is not here, or this token may not see it.`);
  const name = VIEWS[next.view]?.may(index.can) ? next.view : "";
  drawHead(next, index, name);
  document.title = [next.q, VIEWS[name].name, "vlmsearch"].filter(Boolean).join(" · ");
  if (shown?.index !== index || shown.name !== name) {
    shown?.view.close();
    document.body.classList.remove("filtering");
    use(index);
    scrollTo(0, 0);
    shown = { index, name, view: VIEWS[name].open(main, index) };
  } else shown.view.show(next);
}

async function start() {
  main.setAttribute("aria-busy", "true");
  main.replaceChildren(h("p", { class: "soft starting", role: "status" }, "Loading …"));
  try {
    ({ indexes } = await call("indexes"));
  } catch (error) {
    return problem("The service does not answer", error.message, start);
  } finally {
    main.setAttribute("aria-busy", "false");
  }
  if (!indexes.length) return problem("There is nothing to show", "This token may see no index.");
  show(state.current);
}

/** Search by a picture that was dropped or pasted, or ask about it where a question is asked. */
async function takeImage(file) {
  if (!shown) return;
  if (state.current.view === "ask") return state.go({ image: await images.keep(file), open: "" });
  if (!shown.index.can.images) return say("This index is not searched by pictures.");
  state.go({ ...state.EMPTY, image: await images.keep(file), q: state.current.view ? "" : state.current.q });
}

addEventListener("documents-changed", async () => {
  const { index } = shown ?? {};
  if (!index) return;
  main.setAttribute("aria-busy", "true");
  const now = await call(inIndex(index.name)).catch(() => null);
  main.setAttribute("aria-busy", "false");
  if (now) Object.assign(index, { documents: now.documents, files: now.files, passages: now.passages });
  shown?.view.reload?.();
});

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isWriting = event.target.matches("input, textarea, select");
  if (event.key === "?" && !isWriting) return keys.open();
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "/" && !isWriting) {
    const input = document.getElementById("q");
    if (!input) return;
    event.preventDefault();
    input.focus();
    input.select();
  } else if (event.key === "Escape" && document.body.classList.contains("filtering")) {
    document.getElementById("filters-button").click();
  } else if (event.key === "Escape" && !isWriting && selection.size) selection.clear();
});

state.onChange(show);
images.listen(takeImage, search.refused);
start();
