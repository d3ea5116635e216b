// Duplicate images side by side, found by a job.

import { call, thumbnailOf } from "./api.js";
import { h, many, number, oneLine, shortName } from "./dom.js";
import { isOver, start, watch } from "./jobs.js";
import { selection } from "./selection.js";
import * as state from "./state.js";

const FIRST = 40; // groups that are drawn at once

const last = new Map(); // the job by index: found again when the view is

export function open(main, index) {
  return new Duplicates(main, index);
}

class Duplicates {
  constructor(main, index) {
    this.index = index;
    this.leaving = new AbortController();
    this.body = h("div", { class: "duplicates" });
    main.replaceChildren(h("h1", { class: "title" }, "Duplicates"),
      h("p", { class: "lead" }, "Pictures that are one picture: scaled, cropped, turned, recoloured, written on."), this.body);
    this.unsubscribe = selection.subscribe(() => this.#mark());
    if (last.has(index.name)) this.#draw();
    else this.#recall();
  }

  /** Show the last job that looked for duplicates, of those that this caller may see. */
  async #recall() {
    this.body.setAttribute("aria-busy", "true");
    try {
      const { jobs } = await call("jobs", undefined, { signal: this.leaving.signal });
      const job = jobs.find((each) => each.kind === "duplicates" && each.index === this.index.name && each.state !== "failed");
      if (job && job.state !== "cancelled") last.set(this.index.name, await call(`jobs/${encodeURIComponent(job.id)}`));
    } catch {
      // then there is nothing to show yet
    }
    if (!this.leaving.signal.aborted) this.#draw();
  }

  /** Forget what was found: documents have changed. */
  reload() {
    last.delete(this.index.name);
    this.#draw();
  }

  close() {
    this.leaving.abort();
    this.unsubscribe();
  }

  show() {
    // nothing of the address but the view itself counts here
  }

  #draw() {
    this.body.setAttribute("aria-busy", "false");
    const job = last.get(this.index.name);
    if (job?.state === "done") return this.#drawFound(job.result);
    const problem = job?.state === "failed" && h("p", { class: "problem", role: "alert" }, job.error.message);
    if (job && !isOver(job)) {
      return this.body.replaceChildren(watch(job, (ended) => {
        last.set(this.index.name, ended);
        this.#draw();
      }, this.leaving.signal));
    }
    const button = h("button", { class: "primary", onclick: () => this.#look(button) }, job ? "Look again" : "Look for duplicates");
    this.body.replaceChildren(problem || "", h("div", { class: "state" },
      h("p", {}, `${many(this.index.documents, "document")} will be compared, pixel by pixel where vectors are alike. Nothing is changed.`),
      h("div", { class: "actions" }, button)));
  }

  async #look(button) {
    button.disabled = true;
    this.body.setAttribute("aria-busy", "true"); // the groups that are shown are those of the job before
    try {
      last.set(this.index.name, await start(this.index.name, { kind: "duplicates" }));
    } catch (error) {
      last.set(this.index.name, { state: "failed", error });
    }
    this.#draw();
  }

  #drawFound({ groups, compared, unread }) {
    const extra = groups.flatMap(({ files }) => files.slice(1).map((file) => file.id));
    const again = h("button", { class: "tool", onclick: () => this.#look(again) }, "Look again");
    this.body.replaceChildren(
      h("div", { class: "tools" },
        h("p", { class: "count", role: "status" }, groups.length
          ? `${many(extra.length, "duplicate", "duplicates")} in ${many(groups.length, "group")}, among ${many(compared, "picture")}`
          : `No duplicates among ${many(compared, "picture")}`),
        extra.length && h("button", { class: "tool", onclick: () => selection.add(extra) }, "Select all but the largest"),
        again),
      unread.length ? h("details", { class: "note" }, h("summary", {}, `${many(unread.length, "picture")} could not be compared`),
        h("ul", {}, ...unread.slice(0, 200).map(([id, message]) => h("li", {}, `${shortName(id)}: ${message}`)))) : "",
      ...groups.slice(0, FIRST).map((group, at) => this.#group(group, at)));
    if (groups.length > FIRST) {
      const more = h("button", { onclick: () => {
        more.replaceWith(...groups.slice(FIRST).map((group, at) => this.#group(group, FIRST + at)));
        this.#mark();
      } }, `Show ${groups.length - FIRST} more groups`);
      this.body.append(more);
    }
    this.#mark();
  }

  #group({ files }, at) {
    const written = (file) => file.modified || Infinity;
    const oldest = files.reduce((first, file) => (written(file) < written(first) ? file : first));
    return h("section", { class: "group", "aria-label": `Group ${at + 1}` },
      h("ul", {}, ...files.map((file) => h("li", {},
        h("label", {}, h("img", { src: thumbnailOf(this.index.name, file.id, 512), alt: "", loading: "lazy" }),
          h("span", { class: "name" }, h("input", { type: "checkbox", "data-id": file.id,
            onchange: () => selection.toggle(file.id) }), oneLine(shortName(file.id)))),
        h("span", { class: "soft" }, `${file.width} × ${file.height} · ${number(Math.ceil(file.bytes / 1024))} KiB · ${new Date(file.modified * 1000).toISOString().slice(0, 10)}`),
        h("span", { class: "badges" }, file === files[0] && h("b", {}, "largest"), file === oldest && h("b", {}, "oldest"),
          h("a", { href: state.linkTo({ ...state.EMPTY, open: file.id }) }, "open"))))));
  }

  #mark() {
    for (const box of this.body.querySelectorAll("[data-id]")) box.checked = selection.has(box.dataset.id);
  }
}
