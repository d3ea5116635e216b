// Results as a grid of pictures. Only the rows near the window are in the page, so that 100,000 documents scroll as ten.

import { thumbnailOf } from "./api.js";
import { h, icon, ICONS, oneLine, partOf, shortName, snippet, toOpen } from "./dom.js";
import { current, linkTo } from "./state.js";

const OVERSCAN = 3; // rows above and below the window
const NEAR = 4; // rows before the end at which more are asked for

export class Gallery {
  /**
   * @param {{index: string, selection: object, onNear: () => void, label: string}} options `onNear` is called when the
   *   end comes near.
   */
  constructor({ index, selection, onNear, label }) {
    this.index = index;
    this.selection = selection;
    this.onNear = onNear;
    this.items = [];
    this.total = null;
    this.active = 0;
    this.cards = new Map();
    this.element = h("ul", { class: "gallery", "aria-label": label, onkeydown: (event) => this.#key(event),
      onfocusin: (event) => this.#focused(event) });
    this.resized = new ResizeObserver(() => this.layout());
    this.resized.observe(this.element);
    this.scrolled = () => this.render();
    addEventListener("scroll", this.scrolled, { passive: true });
    addEventListener("resize", this.scrolled, { passive: true });
    this.unsubscribe = selection.subscribe(() => this.#mark());
  }

  close() {
    this.resized.disconnect();
    removeEventListener("scroll", this.scrolled);
    removeEventListener("resize", this.scrolled);
    this.unsubscribe();
  }

  /** Show other items, from the first. */
  show(items, total = null) {
    this.items = items;
    this.total = total;
    this.active = 0;
    this.cards.forEach((card) => card.remove());
    this.cards.clear();
    this.layout();
  }

  /** Say how many items there are, once that is known. */
  setTotal(total) {
    this.total = total;
    for (const card of this.cards.values()) card.setAttribute("aria-setsize", total);
  }

  /** Say that items were appended to the array that is shown. */
  grown() {
    this.layout();
  }

  layout() {
    const style = getComputedStyle(this.element);
    const width = this.element.clientWidth;
    if (!width) return;
    const pixels = (name) => parseFloat(style.getPropertyValue(name)) * parseFloat(style.fontSize);
    this.gap = pixels("--gap");
    this.columns = Math.max(2, Math.floor((width + this.gap) / (pixels("--cell") + this.gap)));
    this.cell = (width - this.gap * (this.columns - 1)) / this.columns;
    this.row = this.cell + pixels("--caption") + this.gap;
    this.element.style.height = `${Math.ceil(this.items.length / this.columns) * this.row}px`;
    this.element.style.setProperty("--side", `${this.cell}px`);
    this.render();
  }

  render() {
    if (!this.columns || !this.element.isConnected) return;
    const above = -this.element.getBoundingClientRect().top;
    const from = Math.max(0, Math.floor(above / this.row) - OVERSCAN) * this.columns;
    const to = Math.min(this.items.length, (Math.ceil((above + innerHeight) / this.row) + OVERSCAN) * this.columns);
    const focused = this.element.contains(document.activeElement) ? this.active : -1;
    for (const [at, card] of this.cards) {
      if ((at < from || at >= to) && at !== focused) {
        card.querySelector("img:not(.loaded)")?.removeAttribute("src"); // what was passed by is not waited for
        card.remove();
        this.cards.delete(at);
      }
    }
    let next = this.element.firstChild;
    for (let at = from; at < to; at += 1) {
      let card = this.cards.get(at);
      if (!card) {
        card = this.#card(this.items[at], at);
        this.cards.set(at, card);
        while (next && Number(next.dataset.at) < at) next = next.nextSibling;
        this.element.insertBefore(card, next);
      }
      const x = (at % this.columns) * (this.cell + this.gap);
      card.style.transform = `translate(${x}px, ${Math.floor(at / this.columns) * this.row}px)`;
    }
    const end = Math.ceil(this.items.length / this.columns) * this.row;
    if (end - above - innerHeight < NEAR * this.row) this.onNear();
  }

  #card(item, at) {
    const name = shortName(item.id);
    const text = snippet(item, current.q);
    const part = partOf(item.id);
    const parts = [part?.name, item.passage && `passage ${item.passage.number}`].filter(Boolean).join(", ");
    const others = Object.keys(item.parts ?? {}).filter(partOf).length;
    const frame = h("span", { class: "frame" });
    if (item.image) {
      const size = this.cell * devicePixelRatio > 256 ? 512 : 256;
      const picture = h("img", { src: thumbnailOf(this.index, item.id, size), alt: "", decoding: "async",
        class: part?.page && "page" });
      picture.addEventListener("load", () => picture.classList.add("loaded"));
      picture.addEventListener("error", () => picture.replaceWith(h("span", { class: "gone" }, "Picture not readable")));
      frame.append(picture);
    } else {
      frame.classList.add("written");
      frame.append(h("span", { class: "words" }, item.passage?.heading && h("strong", {}, item.passage.heading),
        (text || name).slice(0, 400)));
    }
    if (parts) frame.append(h("span", { class: "part" }, parts, others ? ` and ${others} more` : ""));
    const score = item.score === undefined ? null : item.score.toFixed(2);
    const link = h("a", { class: "open", href: linkTo({ open: toOpen(item) }), tabindex: at === this.active ? 0 : -1 }, frame,
      h("span", { class: "caption" },
        text && item.image ? h("span", { class: "text" }, text) : h("span", { class: "name" }, oneLine(name)),
        score && h("span", { class: "score" }, h("span", { class: "hidden" }, "relevance "), score)));
    // the address of the card: that of when it is followed
    link.addEventListener("click", () => link.setAttribute("href", linkTo({ open: toOpen(item) })), true);
    const pick = h("button", {
      class: "pick", type: "button", role: "checkbox", tabindex: -1, "aria-checked": "false",
      "aria-label": `Select ${name}`, onclick: (event) => this.#pick(at, event.shiftKey),
    }, icon(ICONS.check));
    const card = h("li", { class: "card", "data-at": at, "aria-posinset": at + 1,
      "aria-setsize": this.total ?? -1 }, link, pick);
    this.#markOne(card, item);
    return card;
  }

  #markOne(card, item) {
    const isSelected = this.selection.has(item.id);
    card.classList.toggle("selected", isSelected);
    card.querySelector(".pick").setAttribute("aria-checked", String(isSelected));
  }

  #mark() {
    for (const [at, card] of this.cards) if (this.items[at]) this.#markOne(card, this.items[at]);
  }

  #pick(at, isRange) {
    const from = isRange && this.picked !== undefined ? this.picked : at;
    const ids = this.items.slice(Math.min(from, at), Math.max(from, at) + 1).map((item) => item.id);
    if (ids.length > 1) this.selection.add(ids);
    else this.selection.toggle(ids[0]);
    this.picked = at;
  }

  #focused(event) {
    const card = event.target.closest(".card");
    if (card) this.#activate(Number(card.dataset.at));
  }

  #activate(at) {
    this.cards.get(this.active)?.querySelector(".open").setAttribute("tabindex", -1);
    this.active = at;
    this.cards.get(at)?.querySelector(".open").setAttribute("tabindex", 0);
  }

  /** Put the focus on an item, scrolling to it. */
  focus(at) {
    if (at < 0 || at >= this.items.length) return;
    this.active = at;
    const top = this.element.getBoundingClientRect().top + Math.floor(at / this.columns) * this.row;
    const head = document.querySelector(".top").offsetHeight + 12;
    if (top < head) scrollBy(0, top - head);
    else if (top + this.row > innerHeight) scrollBy(0, top + this.row - innerHeight);
    this.render();
    this.#activate(at);
    this.cards.get(at)?.querySelector(".open").focus({ preventScroll: true });
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.active;
    const row = this.columns;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row, Home: -at,
      End: this.items.length - 1 - at };
    if (event.key in steps) {
      event.preventDefault();
      if (event.key === "ArrowUp" && at < row) document.getElementById("q")?.focus();
      else this.focus(Math.min(at + steps[event.key], this.items.length - 1));
    } else if (event.key === "x" || event.key === "X") {
      event.preventDefault();
      this.#pick(at, event.shiftKey);
    }
  }
}
