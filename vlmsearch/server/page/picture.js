// One document: its picture, its text and metadata, and why it was found.

import { call, fileOf, imageOf, inIndex, thumbnailOf, withImage } from "./api.js";
import { h, icon, ICONS, number, openDialog, partOf, placeOf, say, shortName, shown, toOpen, unreadOf, wrapped } from "./dom.js";
import { drawBoxes, drawText, drawVeil, drawWhy } from "./explained.js";
import { toggled } from "./filters.js";
import { label, remove, selection } from "./selection.js";
import * as state from "./state.js";
import { Zoom } from "./zoom.js";

const UNREAD = new Set(["unread", "unread_count"]); // the metadata that `unreadOf` puts into words
const AHEAD = 8; // items before the end of the list at which more are asked for

/** Shows one of a list's documents at a time, and the next. */
export class Pictures {
  /**
   * @param {{index: object, items: () => object[], total: () => number, query: () => Promise<object|null>,
   *   more: () => void, focus: (at: number) => void}} list `query` is what the documents were found by.
   */
  constructor(list) {
    this.list = list;
    this.opened = null;
  }

  /** Show the document of an id, at the passage where it names one, or none for "". */
  show(address) {
    if ((this.opened?.address ?? "") === address) return;
    const part = partOf(address);
    const id = part?.passage ? part.of : address;
    this.opened?.close();
    this.opened = null;
    if (!address) return;
    const { list } = this;
    const at = () => list.items().findIndex((item) => item.id === id);
    this.opened = openPicture(id, {
      address,
      index: list.index,
      item: list.items()[at()],
      query: list.query,
      step: (by) => {
        const next = list.items()[at() + by];
        if (next && at() >= 0) state.go({ open: toOpen(next) }, { replace: true });
        if (at() + by > list.items().length - AHEAD) list.more();
      },
      position: () => (at() < 0 ? null : [at() + 1, list.total()]),
      leave: () => {
        this.opened = null;
        if (state.current.open) state.closeOpen();
        if (at() >= 0) list.focus(at());
      },
    });
  }
}

/** Open the view of a document. */
function openPicture(id, options) {
  const { index } = options;
  const name = shortName(id);
  const part = partOf(id);
  const stage = h("div", { class: "stage" });
  const body = h("div", { class: "about" });
  const place = h("span", { class: "place" });
  const selected = () => (selection.has(id) ? "Selected" : "Select");
  const select = h("button", { onclick: () => selection.toggle(id) }, selected());
  const unsubscribe = selection.subscribe(() => {
    select.textContent = selected();
  });
  let isLeft = false;
  const loading = new AbortController();
  const steps = h("span", { hidden: true },
    h("button", { class: "quiet", "aria-label": "The one before", onclick: () => options.step(-1) }, icon(ICONS.left)),
    h("button", { class: "quiet", "aria-label": "The next one", onclick: () => options.step(1) }, icon(ICONS.right)));
  const zoom = new Zoom(stage);
  const dialog = openDialog(name, { class: "picture" },
    h("div", { class: "bar-top" }, place, zoom.button, steps, h("button", { class: "quiet", "aria-label": "Close", autofocus: true,
      onclick: () => dialog.close() }, icon(ICONS.close))),
    stage, body);
  dialog.addEventListener("close", () => {
    loading.abort();
    unsubscribe();
    if (!isLeft) options.leave();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (zoom.takes(event)) return;
    if (event.key === "ArrowRight") options.step(1);
    else if (event.key === "ArrowLeft") options.step(-1);
    else if (event.key === "x") selection.toggle(id);
  });
  const asked = (changes) => state.go({ ...state.EMPTY, ...changes });

  const drawPlace = () => {
    const at = options.position();
    steps.hidden = !at;
    place.textContent = at ? `${number(at[0])} of ${number(at[1])}` : "";
  };

  const draw = (item, passage = null) => {
    const text = h("div", { class: "text-of" });
    const why = h("section", { class: "why", "aria-label": "Why" });
    if (item.image) {
      const picture = h("img", { alt: item.text || name });
      picture.addEventListener("error", () => {
        const isOriginal = picture.src.includes("/image?");
        if (isOriginal) picture.src = thumbnailOf(index.name, id, 1024); // a format that this browser does not show
        else stage.replaceChildren(h("p", { class: "gone" }, "The picture cannot be read. Its file may have moved."));
      });
      picture.src = imageOf(index.name, id);
      stage.replaceChildren(h("div", { class: "held" }, picture));
      zoom.show(picture);
    }
    dialog.classList.toggle("no-picture", !item.image);
    if (item.text) drawText(text, item.text, null, passage);
    const by = item.metadata?.described_by;
    const unread = unreadOf(item.metadata);
    body.replaceChildren(
      h("h2", { title: id }, wrapped(name)),
      passage ? h("p", { class: "soft" }, `Passage ${passage.number}: ${placeOf(passage)}`) : "",
      by ? h("p", { class: "soft" }, `Described by ${by.replace(/ [0-9a-f]{8}$/, "")}.`) : "",
      text,
      unread ? h("p", { class: "soft" }, `Not read: ${unread}.`) : "",
      item.parts && Object.keys(item.parts).length ? others(Object.entries(item.parts)) : "",
      h("div", { class: "actions" },
        part?.seconds && item.image && h("button", { class: "primary", onclick: (event) => play(event.target) }, `Play from ${part.name}`),
        part?.page && item.image && h("a", { class: "button", href: fileOf(index.name, id, part.fragment), target: "_blank", rel: "noreferrer" },
          `Open the file at ${part.name}`),
        h("button", { class: part?.seconds ? undefined : "primary", onclick: () => asked({ like: [id] }) }, "More like this"),
        h("button", { id: "less", hidden: true, onclick: () => state.go({ not: [...state.current.not, id], open: "" }) },
          "Less like this"),
        select,
        index.can.write && h("button", { onclick: () => label([id]) }, "Label …"),
        index.can.write && h("button", { onclick: () => remove([id], () => {
          dialog.close();
          dispatchEvent(new Event("documents-changed"));
        }) }, "Remove …")),
      why,
      h("section", {}, h("h3", {}, "Details"), details(item)),
    );
    text.querySelector(".passage")?.scrollIntoView({ block: "start" });
    explain(item, text, why, passage);
  };

  const others = (parts) => h("section", { "aria-label": "Also in this file" }, h("h3", {}, "Also in this file"),
    h("ul", { class: "parts" }, ...parts.map(([id, score]) => h("li", {},
      h("a", { href: state.linkTo({ open: id }) }, partOf(id)?.passage ? ""
        : h("img", { src: thumbnailOf(index.name, id, 256), alt: "", loading: "lazy" }),
        h("span", {}, partOf(id)?.name ?? "the whole file"), h("span", { class: "soft" }, score.toFixed(2)))))));

  const play = (button) => {
    const film = h("video", { controls: true, autoplay: true, src: fileOf(index.name, id, part.fragment) });
    film.addEventListener("error", () => say("This browser does not play films of this kind."));
    zoom.show(null);
    stage.replaceChildren(h("div", { class: "held" }, film));
    button.remove();
  };

  const details = (item) => h("dl", { class: "metadata" },
    ...Object.entries(item.metadata ?? {}).filter(([key]) => key !== "ocr" && !(unreadOf(item.metadata) && UNREAD.has(key)))
      .flatMap(([key, values]) => [h("dt", {}, key), h("dd", {}, ...[values].flat().flatMap((value, at) => [at ? ", " : "",
        typeof value === "string" && value.length > 60 ? value : h("button", { class: "link", title: "Show those alike",
          onclick: () => state.go({ where: toggled({ ...state.current.where, [key]: undefined }, key, value), open: "" }) },
        shown(value, key))]))]),
    h("dt", {}, "id"), h("dd", { class: "id" }, ...wrapped(id), " ", h("button", { class: "link", onclick: async () => {
      await navigator.clipboard?.writeText(id);
      say("The id is copied.");
    } }, "copy")),
    item.image && h("dt", {}, "file"),
    item.image && h("dd", {}, h("a", { href: imageOf(index.name, id), target: "_blank", rel: "noreferrer" }, "Open the picture")));

  const explain = async (item, text, why, passage) => {
    const query = await options.query();
    if (!query || loading.signal.aborted) return;
    body.querySelector("#less").hidden = false;
    why.replaceChildren(h("h3", {}, "Why it was found"), h("p", { class: "soft" }, "Asking …"));
    const ask = (more) => call(inIndex(index.name, "/explain"), withImage({ ...query.request, id: options.address, ...more }, query.image),
      { signal: loading.signal });
    try {
      const found = await ask({});
      const parts = h("button", { onclick: async () => {
        parts.disabled = true;
        parts.textContent = "Looking …";
        try {
          const whole = await ask({ parts: true });
          parts.remove();
          if (item.text) drawText(text, item.text, whole, passage);
          drawVeil(stage, whole, why);
        } catch (error) {
          if (loading.signal.aborted) return;
          parts.disabled = false;
          parts.textContent = "What in it mattered?";
          say(error.message);
        }
      } }, "What in it mattered?");
      if (item.text) drawText(text, item.text, found, passage);
      const frame = () => drawBoxes(stage, item.text ?? "", item.metadata?.ocr, found.marked ?? []);
      frame();
      stage.querySelector(".held img")?.addEventListener("load", frame);
      const title = found.outcome === "shown" ? "Why it was found" : "Why it was not found";
      why.replaceChildren(h("h3", {}, title), ...drawWhy(found, item), h("div", { class: "actions" }, parts));
    } catch (error) {
      if (!loading.signal.aborted) why.replaceChildren(h("h3", {}, "Why it was found"), h("p", { class: "problem" }, error.message));
    }
  };

  const load = async () => {
    const asked = new URLSearchParams([["id", id], ["id", options.address]]);
    try {
      const { documents, passages } = await call(inIndex(index.name, `/documents?${asked}`), undefined,
        { signal: loading.signal });
      if (documents[0]?.id === id) draw({ ...documents[0], ...options.item }, passages[options.address]);
      else body.replaceChildren(h("h2", {}, name), h("p", {}, "This document is not in the index any more."));
    } catch (error) {
      if (!loading.signal.aborted) body.replaceChildren(h("h2", {}, name), h("p", { class: "problem" }, error.message));
    }
  };

  if (options.item && toOpen(options.item) === options.address) draw(options.item, options.item.passage);
  else load();
  queueMicrotask(drawPlace);
  setTimeout(drawPlace, 1000); // the results may come after a link was opened
  return {
    address: options.address,
    close() {
      isLeft = true;
      dialog.close();
    },
  };
}
