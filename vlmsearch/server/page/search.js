// The search: what is asked, the results, and the filters beside them.

import { call, inIndex, ServiceError, withImage } from "./api.js";
import { h, icon, ICONS, many, number, say, shortName } from "./dom.js";
import * as filters from "./filters.js";
import { Gallery } from "./gallery.js";
import * as images from "./images.js";
import { Pictures } from "./picture.js";
import { selection } from "./selection.js";
import * as state from "./state.js";
import * as upload from "./upload.js";

const PAGE = 60;
const MOST_PAGE = 960; // the further one scrolls, the more comes at once
const TYPING = 160; // milliseconds without a key before the search is made
const IDLE = 200; // milliseconds after the matches before they are counted: who types on does not wait for it
const KEPT = 8; // results that the back button finds again without asking

const kept = new Map();

/** Draw the view; it is told of every new state until it is closed. */
export function open(main, index) {
  return new Search(main, index);
}

class Search {
  constructor(main, index) {
    this.index = index;
    this.isTyping = false; // whether the new state comes from the keyboard
    this.isTyped = false; // whether the one before did: it is replaced, so that a word is one step back
    this.timer = 0; // of a search that is about to be made
    this.isSearching = false;
    this.input = h("input", {
      id: "q", type: "search", autocomplete: "off", spellcheck: "false", enterkeyhint: "search",
      placeholder: "Describe what you are looking for", "aria-label": "Search by text",
      oninput: () => this.#typing(), onkeydown: (event) => this.#inputKey(event),
    });
    const file = h("input", { type: "file", accept: "image/*", hidden: true,
      onchange: () => file.files[0] && this.#byImage(file.files[0]) });
    this.chips = h("ul", { class: "chips", "aria-label": "What is asked" });
    this.count = h("p", { class: "count", role: "status" });
    this.sort = h("select", { "aria-label": "Sort", onchange: () => state.go({ sort: this.sort.value }) });
    this.rerank = h("label", { class: "switch" },
      h("input", { type: "checkbox", onchange: (event) => state.go({ rerank: event.target.checked }) }), "Re-rank");
    this.panel = h("aside", { class: "filters", id: "filters", "aria-label": "Filters" });
    this.toggle = h("button", { class: "tool", id: "filters-button", "aria-expanded": "false", "aria-controls": "filters",
      onclick: () => this.#fold() }, icon(ICONS.filter), h("span", {}, "Filters"));
    this.toggle.setAttribute("aria-label", "Filters");
    this.gallery = new Gallery({ index: index.name, selection, onNear: () => this.#more(), label: "Results" });
    this.pictures = new Pictures({
      index,
      items: () => this.gallery.items,
      total: () => this.found?.total ?? this.gallery.items.length,
      query: async () => (this.#isAsked()
        ? { request: Search.#request({ ...state.current, sort: "" },
          { limit: Math.max(PAGE, this.gallery.items.length) }), image: await images.find(state.current.image) } : null),
      more: () => this.#more(),
      focus: (at) => this.gallery.focus(at),
    });
    this.note = h("p", { class: "soft", role: "note" });
    this.message = h("div", { class: "message" });
    this.foot = h("p", { class: "foot" });
    this.body = h("div", { class: "results" }, this.note, this.message, this.gallery.element, this.foot);
    main.replaceChildren(
      h("h1", { class: "hidden" }, `Search ${index.name}`),
      h("form", { class: "query", role: "search", onsubmit: (event) => this.#submit(event) },
        h("div", { class: "field" }, icon(ICONS.search), this.input, file,
          index.can.images && h("button", { type: "button", class: "tool", title: "Search by a picture; it can be dropped or pasted, too",
            "aria-label": "Search by a picture", onclick: () => file.click() }, icon(ICONS.image))),
        this.chips),
      h("div", { class: "tools" }, this.count, this.rerank, this.sort, this.toggle),
      h("div", { class: "columns" }, this.panel, this.body),
    );
    this.rerank.hidden = !index.can.rerank;
    this.sort.hidden = this.toggle.hidden = true; // until there is something to sort and to filter
    this.show(state.current);
  }

  /** Ask again: documents have changed. */
  reload() {
    kept.clear();
    this.found = null;
    this.key = null;
    this.show(state.current);
  }

  close() {
    this.#leave();
    clearTimeout(this.timer);
    this.asking?.abort();
    this.pictures.show("");
    this.gallery.close();
  }

  /** Show a state: search where it asks for something else than before, and open or close the picture. */
  show(next) {
    const { q, like, not, where, sort, image, all, rerank } = next;
    const key = JSON.stringify([this.index.name, q, like, not, where, sort, image, all, rerank]);
    if (key !== this.key) {
      this.#leave();
      this.key = key;
      this.isTyped = false;
      if (!this.isTyping) {
        this.#forgetTyping();
        this.input.value = q;
      }
      this.#drawQuery(next);
      const before = kept.get(key);
      if (before) this.#restore(before);
      else this.#search(next);
    }
    this.pictures.show(next.open);
  }

  #leave() {
    if (this.found && this.foundKey) {
      kept.set(this.foundKey, { ...this.found, at: scrollY });
      if (kept.size > KEPT) kept.delete(kept.keys().next().value);
    }
  }

  #restore(before) {
    this.asking?.abort();
    this.#settle();
    this.panel.setAttribute("aria-busy", "false");
    this.found = before;
    this.foundKey = this.key;
    this.gallery.show(before.items, before.total);
    this.#drawFound();
    scrollTo(0, before.at);
  }

  #typing() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.timer = 0;
      const isOn = this.isTyped;
      this.isTyping = true;
      state.go({ q: this.input.value.trim(), open: "" }, { replace: isOn });
      this.isTyping = false;
      this.isTyped = true;
      this.#markBusy();
    }, TYPING);
    this.#markBusy();
  }

  #forgetTyping() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.#markBusy();
  }

  /** Say whether other results are to come, from the first key that is typed on. */
  #markBusy() {
    this.body.setAttribute("aria-busy", String(this.timer !== 0 || this.isSearching));
  }

  #submit(event) {
    event.preventDefault();
    this.#forgetTyping();
    state.go({ q: this.input.value.trim(), open: "" }, { replace: this.input.value.trim() === state.current.q });
  }

  #inputKey(event) {
    if (event.key === "ArrowDown") {
      event.preventDefault();
      this.gallery.focus(this.gallery.active);
    } else if (event.key === "Escape" && this.input.value) {
      event.preventDefault();
      this.input.value = "";
      this.#submit(event);
    }
  }

  async #byImage(file) {
    state.go({ image: await images.keep(file), open: "" });
  }

  #fold() {
    const isOpen = document.body.classList.toggle("filtering");
    this.toggle.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) this.panel.querySelector("button, input")?.focus();
    else this.toggle.focus();
  }

  #drawQuery(next) {
    const chip = (text, changes, kind = "", picture = null) => h("li", { class: `chip ${kind}` }, picture,
      h("span", { title: text }, text),
      h("button", { type: "button", "aria-label": `Remove ${text}`, onclick: () => state.go({ ...changes, open: "" }) },
        icon(ICONS.close)));
    const cut = (list, id) => list.filter((each) => each !== id);
    const chips = [
      ...next.like.map((id) => chip(`like ${shortName(id)}`, { like: cut(next.like, id) })),
      ...next.not.map((id) => chip(`not like ${shortName(id)}`, { not: cut(next.not, id) }, "not")),
      ...filters.inWords(next.where).map(([text, where]) => chip(text, { where }, "filter")),
      next.all && chip("also what hardly matches", { all: false }),
    ].filter(Boolean);
    this.chips.replaceChildren(...chips);
    if (next.image) this.chips.prepend(chip("your picture", { image: "" }, "picture", images.preview(next.image)));
    this.rerank.firstChild.checked = next.rerank;
  }

  #drawSort() {
    const { sort } = state.current;
    const keys = filters.sortKeys(this.index.name);
    const named = sort.replace(/^-/, "");
    if (named && !keys.includes(named)) keys.push(named);
    this.sort.replaceChildren(
      h("option", { value: "" }, "Most relevant"),
      ...keys.flatMap((key) => (key === "date" ? [`-${key}`, key] : [key, `-${key}`]))
        .map((order) => h("option", { value: order }, filters.orderName(order))));
    this.sort.value = sort;
    this.sort.hidden = !this.#isAsked();
  }

  #isAsked() {
    const { q, like, image } = state.current;
    return Boolean(q || like.length || image);
  }

  /** The request of a state; `more` is put on top. */
  static #request({ q, like, not, where, sort, all, rerank }, more) {
    return {
      ...(q && { text: q }),
      ...(like.length && { like }),
      ...(not.length && { without: not }),
      ...(Object.keys(where).length && { where }),
      ...(sort && { sort }),
      ...(all && { min_score: 0 }),
      ...(rerank && { rerank: true }),
      ...more,
    };
  }

  async #search(next) {
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    this.found = null;
    this.isSearching = true;
    this.#markBusy();
    this.panel.setAttribute("aria-busy", "true"); // until its counts are those of the results
    if (!this.gallery.items.length) this.#skeleton();
    try {
      const found = await this.#page(next, null, asking.signal);
      if (asking.signal.aborted) return;
      this.found = found;
      this.foundKey = this.key;
      this.#settle();
      scrollTo(0, 0);
      this.gallery.show(found.items, found.total);
      this.#drawFound();
    } catch (error) {
      if (!asking.signal.aborted) this.#failed(error);
      return;
    }
    await this.#counts(next, asking.signal).catch(() => {}); // the matches are there, and stay without counts
    if (!asking.signal.aborted) this.panel.setAttribute("aria-busy", "false");
  }

  /** One page of results, or of all documents where nothing is asked: pictures first, and the newest first. */
  async #page(next, after, signal) {
    const { name } = this.index;
    const limit = after ? Math.min(Math.max(this.found.items.length, PAGE), MOST_PAGE) : PAGE;
    let answer;
    if (this.#isAsked()) {
      const image = await images.find(next.image);
      if (next.image && !image) {
        throw new ServiceError(400, "This link searches by a picture that is in another browser. Drop the picture here to search by it.");
      }
      const more = { limit, ...(after && { cursor: after }) };
      answer = await call(inIndex(name, "/search"), withImage(Search.#request(next, more), image), { signal });
      const isWhole = !after && !answer.cursor;
      const isUnsure = !answer.matches.length && answer.closest.length > 0;
      if (isUnsure) answer.matches = answer.closest;
      answer = { items: answer.matches, isUnsure, after: answer.cursor, total: isWhole ? answer.matches.length : null, facets: {},
        uncalibrated: answer.uncalibrated, shownFor: answer.shown_for, unknownKeys: answer.unknown_keys };
    } else {
      const asked = new URLSearchParams({ limit, order: "gallery" });
      if (after) asked.set("after", after);
      if (Object.keys(next.where).length) asked.set("where", JSON.stringify(next.where));
      const { documents, after: last } = await call(inIndex(name, `/documents?${asked}`), undefined, { signal });
      const isAll = !Object.keys(next.where).length;
      const total = isAll ? this.index.documents : last ? null : documents.length;
      answer = { items: documents, after: last, total, facets: {} };
    }
    filters.learn(name, answer.items);
    return answer;
  }

  async #more() {
    const { found } = this;
    if (!found?.after || this.loading || this.failedAt === found.after) return;
    this.loading = true;
    const { after } = found;
    try {
      const { items, after: last } = await this.#page(state.current, after, this.asking?.signal);
      if (found !== this.found) return;
      found.items.push(...items);
      found.after = last;
      this.gallery.grown();
      if (!last && found.total === null) {
        found.total = found.items.length;
        this.gallery.setTotal(found.total);
        this.#drawFound();
      }
      this.#drawFoot();
    } catch (error) {
      if (error.name === "AbortError" || found !== this.found) return;
      this.failedAt = after;
      this.message.replaceChildren(this.#problem(error));
    } finally {
      this.loading = false;
    }
    this.gallery.render();
  }

  /** Count the matches and the values of keys: those of filtered keys as if they were not filtered. */
  async #counts(next, signal) {
    const { found } = this;
    const { name } = this.index;
    const image = await images.find(next.image);
    const ask = async (keys, where) => {
      if (!this.#isAsked()) {
        const asked = new URLSearchParams(keys.map((key) => ["key", key]));
        if (Object.keys(where).length) asked.set("where", JSON.stringify(where));
        const { total, facets } = await call(inIndex(name, `/facets?${asked}`), undefined, { signal });
        for (const key of keys) found.facets[key] = facets[key].map(({ value, count }) => [value, count]);
        return total;
      }
      const request = Search.#request({ ...next, where, rerank: false, sort: "" }, { limit: 1, count: true, facets: keys });
      const answer = await call(inIndex(name, "/search"), withImage(request, image), { signal });
      for (const key of keys) found.facets[key] = answer.facets?.[key] ?? [];
      return answer.total;
    };
    const keys = filters.facetKeys(name);
    const free = keys.filter((key) => !(key in next.where));
    if (found.total === null || !this.#isAsked()) {
      if (this.#isAsked()) await new Promise((resolve) => setTimeout(resolve, IDLE));
      signal.throwIfAborted();
      found.total = await ask(free, next.where) ?? found.total;
      if (found !== this.found) return;
      if (found.total !== null) this.gallery.setTotal(found.total);
    } else Object.assign(found.facets, filters.counted(found.items, free));
    this.#drawFound();
    for (const key of keys.filter((each) => each in next.where)) {
      await ask([key], Object.fromEntries(Object.entries(next.where).filter(([each]) => each !== key)));
      if (found === this.found) this.#drawFilters();
    }
  }

  #drawFilters() {
    filters.draw(this.panel, { index: this.index.name, where: state.current.where, found: this.found,
      change: (where) => state.go({ where, open: "" }) });
    this.toggle.hidden = this.panel.hidden;
  }

  #drawFound() {
    const { items, total } = this.found;
    const isAsked = this.#isAsked();
    const most = isAsked && total >= 10_000;
    const counted = total ?? items.length;
    const noun = isAsked ? ["match", "matches"] : ["document", "documents"];
    const isAll = !isAsked && total === this.index.documents;
    const { files, passages } = this.index;
    const whole = isAll && files && files !== total ? ` (${number(files)} files or rows, ${many(total - files, "part")} of files)` : "";
    this.count.textContent = items.length || total === 0
      ? `${most ? "More than " : ""}${many(counted, ...noun)}${whole}${isAll && passages ? `, ${many(passages, "passage")}` : ""}` : "";
    if (this.found.isUnsure) this.count.textContent = "No match. Closest, not sure:";
    if (total === null && this.found.after) this.count.textContent = `More than ${number(items.length)} ${noun[1]}`;
    this.#drawSort();
    this.#drawFilters();
    const reasons = Object.values(this.found.uncalibrated ?? {});
    const respelt = Object.entries(this.found.shownFor ?? {}).map(([typed, word]) => `${word} (no document has ${typed})`);
    const notes = respelt.length ? [`Shown for ${respelt.join(", ")}.`] : [];
    for (const line of Object.values(this.found.unknownKeys ?? {})) notes.push(`${line}.`);
    if (reasons.length) notes.push(`Scores are uncalibrated: ${reasons.join("; ")}.`);
    this.note.textContent = notes.join(" ");
    this.note.hidden = !notes.length;
    this.message.replaceChildren(...(items.length ? [] : [this.#nothing(isAsked)]));
    this.#drawFoot();
  }

  #drawFoot() {
    const isEnd = this.#isAsked() && this.found?.items.length && !this.found.after && !state.current.all;
    this.foot.replaceChildren(...(isEnd ? ["Everything else is less likely to be meant. ",
      h("button", { class: "link", onclick: () => state.go({ all: true }) }, "Show what comes closest, too")] : []));
  }

  #settle() {
    this.isSearching = false;
    this.#markBusy();
    this.message.replaceChildren();
    this.failedAt = null;
  }

  #skeleton() {
    this.message.replaceChildren(h("div", { class: "skeleton", "aria-hidden": "true" },
      ...Array.from({ length: 12 }, () => h("span"))));
  }

  #nothing(isAsked) {
    const { where, all, q } = state.current;
    const isFiltered = Object.keys(where).length > 0;
    if (!isAsked && !isFiltered) {
      return h("div", { class: "state" }, h("h2", {}, "This index is empty"),
        h("p", {}, "Index a folder of pictures, and they appear here:"),
        h("pre", {}, h("code", {}, "vlmsearch index ./photos --store … --encoder …")),
        this.index.can.jobs && h("p", {}, h("a", { href: state.linkTo({ ...state.EMPTY, view: "activity" }) },
          "Or index one of the server’s folders from here")),
        this.index.can.write && h("div", { class: "actions" }, h("button", { class: "primary",
          onclick: () => upload.open(this.index) }, "Add files")));
    }
    return h("div", { class: "state" }, h("h2", {}, "Nothing matches"),
      h("p", {}, q ? `No document is likely to be “${q}”${isFiltered ? " and to pass the filters" : ""}.`
        : "No document is like this and passes the filters."),
      h("div", { class: "actions" },
        isAsked && !all && h("button", { class: "primary", onclick: () => state.go({ all: true }) },
          "Show what comes closest"),
        isFiltered && h("button", { onclick: () => state.go({ where: {} }) }, "Remove the filters")));
  }

  #problem(error) {
    return h("div", { class: "state problem", role: "alert" }, h("h2", {}, "That did not work"), h("p", {}, error.message),
      h("div", { class: "actions" }, h("button", { onclick: () => this.reload() }, "Try again")));
  }

  #failed(error) {
    this.#settle();
    this.panel.setAttribute("aria-busy", "false");
    this.gallery.show([]);
    this.#drawFoot();
    this.count.textContent = "";
    this.#drawSort();
    this.message.replaceChildren(this.#problem(error));
  }
}

export const refused = () => say("That is not a picture: drop a JPEG, PNG, WebP or another image file.");
