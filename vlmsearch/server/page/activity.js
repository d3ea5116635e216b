// What the server is working on: index jobs and others, with their progress; and how to start one.

import { call } from "./api.js";
import { h, many, notesOf, number, say } from "./dom.js";
import { isOver, start, watch } from "./jobs.js";
import * as state from "./state.js";

const KINDS = { index: "Index", label: "Label", describe: "Describe pictures", duplicates: "Look for duplicates", eval: "Measure", check: "Check" };

/** What an index job takes beside images, texts and tables, by the field of its request. */
const KINDS_OF_FILES = {
  pdf: "pages of PDF files", video: "scenes of films", office: "office documents, web pages and mails", ocr: "text in pictures",
};

export function open(main, index) {
  const leaving = new AbortController();
  const list = h("ol", { class: "jobs", "aria-label": "Jobs" });
  const add = (job) => list.prepend(item(job, index, leaving.signal));
  main.replaceChildren(h("h1", { class: "title" }, "Activity"), index.can.jobs ? form(index, add) : "",
    index.can.describe ? describing(index, add) : "", list);
  call("jobs", undefined, { signal: leaving.signal }).then(({ jobs }) => {
    list.replaceChildren(...jobs.map((job) => item(job, index, leaving.signal)));
    if (!jobs.length) list.append(h("li", { class: "state" }, h("h2", {}, "Nothing is going on"),
      h("p", {}, "Jobs appear here with their progress.")));
  }, (error) => leaving.signal.aborted
    || list.replaceChildren(h("li", { class: "state problem", role: "alert" }, error.message)));
  return { show() {}, close: () => leaving.abort() };
}

function describing(index, add) {
  const problem = h("p", { class: "problem", role: "alert" });
  return h("form", { class: "card-form", onsubmit: async (event) => {
    event.preventDefault();
    problem.textContent = "";
    try {
      add(await start(index.name, { kind: "describe" }));
      document.querySelector(".jobs > .state")?.remove();
    } catch (error) {
      problem.textContent = error.message;
    }
  } }, h("p", {}, "Pictures without a text are described by the model, so that words find them."),
  h("div", { class: "actions" }, h("button", { class: "primary" }, "Describe pictures")), problem);
}

function form(index, add) {
  const path = h("input", { id: "path", required: true, autocomplete: "off", spellcheck: "false",
    placeholder: "/srv/photos" });
  const prune = h("input", { type: "checkbox" });
  const retry = h("input", { type: "checkbox" });
  const kinds = Object.entries(KINDS_OF_FILES).map(([option, name]) => ({ option, name, box: h("input", { type: "checkbox" }) }));
  const problem = h("p", { class: "problem", role: "alert" });
  return h("form", { class: "card-form", onsubmit: async (event) => {
    event.preventDefault();
    problem.textContent = "";
    try {
      add(await start(index.name, { kind: "index", paths: [path.value.trim()], prune: prune.checked,
        retry_rejects: retry.checked, ...Object.fromEntries(kinds.map(({ option, box }) => [option, box.checked])) }));
      document.querySelector(".jobs > .state")?.remove();
      path.value = "";
    } catch (error) {
      problem.textContent = error.message;
    }
  } },
  h("label", { for: "path" }, "Index a folder, a file or a table of the server"),
  h("div", { class: "field" }, path, h("button", { class: "primary" }, "Index")),
  h("fieldset", { class: "choices" }, h("legend", {}, "Images and texts are taken, and"),
    ...kinds.map(({ name, box }) => h("label", { class: "switch" }, box, name))),
  h("div", { class: "choices" },
    h("label", { class: "switch" }, prune, "Remove what is gone from the folder"),
    h("label", { class: "switch" }, retry, "Try rejects again")),
  problem);
}

function item(job, index, signal) {
  const what = job.kind === "index" && job.paths ? `Index ${job.paths.join(", ")}` : KINDS[job.kind] ?? job.kind;
  const body = h("div", {});
  const element = h("li", {}, h("div", { class: "what" }, h("strong", {}, what),
    h("span", { class: "soft" }, [job.index, time(job.created ?? job.started)].filter(Boolean).join(" · "))), body);
  const end = (ended) => {
    body.replaceChildren(...result(ended));
    if (["index", "describe"].includes(ended.kind) && ended.state === "done" && ended.index === index.name) {
      dispatchEvent(new Event("documents-changed"));
    }
  };
  if (job.state === "done" && !job.result) {
    call(`jobs/${encodeURIComponent(job.id)}`, undefined, { signal })
      .then((whole) => body.replaceChildren(...result(whole)), () => body.replaceChildren(...result(job)));
  } else if (isOver(job)) body.replaceChildren(...result(job));
  else body.append(watch(job, (ended) => {
    end(ended);
    say(`${what}: ${ended.state}.`);
  }, signal));
  return element;
}

function time(given) {
  const date = given ? new Date(typeof given === "number" ? given * 1000 : given) : null;
  return date && !Number.isNaN(date.getTime())
    ? date.toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) : "";
}

function result(job) {
  if (job.state === "cancelled") return [h("p", { class: "soft" }, "Stopped. What was done before stays.")];
  if (job.state === "failed") return [h("p", { class: "problem" }, job.error?.message ?? "It failed.")];
  const { result: got } = job;
  if (job.kind === "index" && got) {
    const rejected = got.rejects.length;
    const parts = got.added + got.updated + got.unchanged - got.files;
    const said = [[got.added, "added"], [got.updated, "updated"], [got.unchanged, "unchanged"], [got.pruned, "removed"],
      [parts && got.files, "files or rows"], [got.files && parts, "parts of files"]]
      .filter(([count]) => count).map(([count, name]) => `${number(count)} ${name}`);
    return [h("p", {}, said.join(" · ") || "Nothing to do", rejected ? " · " : "",
      rejected ? h("a", { href: state.linkTo({ ...state.EMPTY, view: "rejects" }) }, `${number(rejected)} left out`) : ""),
    ...notesOf(got).map((note) => h("p", { class: "soft" }, note))];
  }
  if (job.kind === "describe" && got) {
    return [h("p", {}, `${number(got.described)} described`, got.rejects.length ? ` · ${number(got.rejects.length)} left out` : "")];
  }
  if (job.kind === "duplicates" && got) {
    return [h("p", {}, h("a", { href: state.linkTo({ ...state.EMPTY, view: "duplicates" }) },
      many(got.groups.length, "group of duplicates", "groups of duplicates")))];
  }
  return [h("p", {}, "Done")];
}
