// Ask a question: the answer as it is made, with citations that lead to their sources.

import { events, inIndex, thumbnailOf } from "./api.js";
import { h, icon, ICONS, shortName, snippet, toOpen } from "./dom.js";
import * as images from "./images.js";
import { Pictures } from "./picture.js";
import * as state from "./state.js";

const READ = { picture: "seen", text: "text", both: "seen, text", neither: "name alone" };
const answered = new Map(); // by index and question: the back button asks nothing anew

export function open(main, index) {
  return new Ask(main, index);
}

class Ask {
  constructor(main, index) {
    this.index = index;
    this.input = h("input", { id: "q", type: "text", autocomplete: "off", enterkeyhint: "send", required: true,
      placeholder: "Ask a question about these documents", "aria-label": "Question" });
    this.chips = h("ul", { class: "chips" });
    const file = h("input", { type: "file", accept: "image/*", hidden: true,
      onchange: async () => file.files[0] && state.go({ image: await images.keep(file.files[0]), open: "" }) });
    this.answer = h("div", { class: "answer", "aria-live": "polite" });
    this.sources = h("ol", { class: "sources", "aria-label": "Sources" });
    this.matches = [];
    this.pictures = new Pictures({
      index,
      items: () => this.matches,
      total: () => this.matches.length,
      query: async () => (state.current.q ? { request: { text: state.current.q } } : null),
      more: () => {},
      focus: (at) => this.sources.children[at]?.querySelector("a")?.focus(),
    });
    main.replaceChildren(
      h("h1", { class: "hidden" }, `Ask ${index.name}`),
      h("form", { class: "query", onsubmit: (event) => {
        event.preventDefault();
        const q = this.input.value.trim();
        if (q && q === state.current.q && this.problem) this.#ask(q);
        else if (q) state.go({ q, open: "" });
      } }, h("div", { class: "field" }, icon(ICONS.search), this.input, file,
        h("button", { type: "button", class: "tool", title: "Ask about a picture; it can be dropped or pasted, too",
          "aria-label": "Ask about a picture", onclick: () => file.click() }, icon(ICONS.image)),
        h("button", { class: "primary" }, "Ask")), this.chips),
      h("div", { class: "asked" }, this.answer, this.sources));
    this.show(state.current);
  }

  close() {
    this.asking?.abort();
    this.pictures.show("");
  }

  show(next) {
    if (next.q !== this.q || next.image !== this.image) {
      this.q = next.q;
      this.image = next.image;
      this.input.value = next.q;
      this.#drawPicture(next.image);
      this.asking?.abort();
      const before = answered.get(this.#key(next.q));
      if (before) this.#whole(before);
      else if (next.q) this.#ask(next.q);
      else this.#invite();
    }
    this.pictures.show(next.open);
  }

  #key(question) {
    return `${this.index.name}\n${question}\n${this.image}`;
  }

  #drawPicture(key) {
    this.chips.replaceChildren(...(key ? [h("li", { class: "chip picture" }, images.preview(key),
      h("span", {}, "your picture"), h("button", { type: "button", "aria-label": "Remove your picture",
        onclick: () => state.go({ image: "", open: "" }) }, icon(ICONS.close)))] : []));
  }

  #invite() {
    this.sources.replaceChildren();
    this.answer.replaceChildren(h("div", { class: "state" }, h("h2", {}, "Ask about what is in this index"),
      h("p", {}, "The best matches are read, and the answer says which of them it rests on.")));
    this.input.focus();
  }

  async #ask(question) {
    this.asking = new AbortController();
    const { signal } = this.asking;
    const text = h("span", {});
    this.problem = false;
    this.answer.setAttribute("aria-busy", "true");
    this.answer.replaceChildren(h("p", { class: "said" }, text, h("span", { class: "caret", "aria-hidden": "true" })));
    this.#drawSources([]);
    let isWhole = false;
    try {
      const image = await images.asDataUrl(this.image);
      const asked = { question, stream: true, ...(image && { image }) };
      for await (const [name, data] of events(inIndex(this.index.name, "/ask"), asked, { signal })) {
        if (name === "matches") this.#drawSources(data.matches);
        else if (name === "token") text.append(data.text);
        else if (name === "answer") {
          isWhole = true;
          answered.set(this.#key(question), data);
          this.#whole(data);
        } else if (name === "error") throw new Error(data.error?.message ?? data.message);
      }
      if (!isWhole) throw new Error("The answer broke off: the service has stopped, or the connection was cut.");
    } catch (error) {
      if (signal.aborted) return;
      this.problem = true;
      this.answer.replaceChildren(h("div", { class: "state problem", role: "alert" },
        h("h2", {}, "There is no answer"), h("p", {}, error.message),
        h("div", { class: "actions" }, h("button", { onclick: () => this.#ask(question) }, "Ask again"))));
    } finally {
      if (!signal.aborted) this.answer.removeAttribute("aria-busy");
    }
  }

  #whole(answer) {
    const cited = new Map(answer.citations.map(({ number, id, passage }) => [String(number), passage ?? id]));
    const pieces = answer.text.split(/\[(\d+)\]/).map((piece, at) => {
      if (at % 2 === 0) return piece;
      const id = cited.get(piece);
      return id === undefined ? `[${piece}]`
        : h("a", { class: "cite", href: state.linkTo({ open: id }), "aria-label": `Source ${piece}: ${shortName(id)}` }, piece);
    });
    const partly = Object.entries(answer.read).filter(([, { unread }]) => unread);
    this.answer.removeAttribute("aria-busy");
    this.answer.replaceChildren(h("p", { class: "said" }, ...pieces),
      answer.is_unsure ? h("p", { class: "soft" }, "Nothing surely matches the question: these sources come closest.") : "",
      answer.removed.length ? h("p", { class: "soft" },
        `${answer.removed.map((each) => `[${each}]`).join(", ")} cited no source and was taken out.`) : "",
      answer.dropped.length ? h("p", { class: "soft" },
        `${answer.dropped.length} weaker matches did not fit into what the model reads.`) : "",
      partly.length ? h("p", { class: "soft" }, `Not all of a long text was read: ${partly.map(([id, { unread }]) =>
        `${shortName(id)} (${unread.toLocaleString("en")} characters left out)`).join(", ")}.`) : "");
    this.#drawSources(answer.matches, new Map(answer.citations.map(({ number, id }) => [id, number])), answer.read_as);
  }

  #drawSources(matches, cited = new Map(), readAs = {}) {
    this.matches = matches;
    this.sources.replaceChildren(...matches.map((match, at) => h("li", { class: cited.has(match.id) ? "cited" : "" },
      h("a", { href: state.linkTo({ open: toOpen(match) }) },
        match.image ? h("img", { src: thumbnailOf(this.index.name, match.id, 256), alt: "" }) : h("span", { class: "no-image" }),
        h("span", { class: "words" }, h("span", { class: "number" }, String(cited.get(match.id) ?? at + 1)),
          readAs[match.id] ? h("span", { class: "read" }, READ[readAs[match.id]]) : "",
          match.passage?.heading ? h("strong", {}, match.passage.heading, " ") : "",
          snippet(match, this.q) || shortName(match.id))))));
  }
}
