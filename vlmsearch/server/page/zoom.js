// A picture at its full size: with a button, the key z, or a click; it is moved by dragging, scrolling and the arrow keys.

import { h, icon, ICONS } from "./dom.js";

const LEAST = 2; // how much larger than it fits a picture is shown at least
const STILL = 4; // pixels that a pointer moves before it drags

export class Zoom {
  constructor(stage) {
    this.stage = stage;
    this.picture = null;
    this.button = h("button", { class: "quiet", "aria-label": "Zoom", "aria-pressed": "false", title: "Zoom (z)",
      onclick: () => this.toggle() }, icon(ICONS.zoom));
    this.button.hidden = true;
    stage.addEventListener("pointerdown", (event) => this.#press(event));
    stage.addEventListener("pointermove", (event) => this.#drag(event));
    stage.addEventListener("pointerup", (event) => this.#release(event));
  }

  /** Say which picture is on the stage; null for none. */
  show(picture) {
    this.#leave();
    this.picture = picture;
    this.button.hidden = !picture;
    picture?.setAttribute("draggable", "false");
  }

  get isIn() {
    return this.stage.classList.contains("zoomed");
  }

  /** Whether a key that was pressed is one of this view's. */
  takes(event) {
    if (event.key === "z" || event.key === "Z") {
      this.toggle();
      return true;
    }
    return this.isIn && event.target === this.stage && event.key.startsWith("Arrow"); // the stage scrolls
  }

  /** Zoom in on a point of the window, or out again. */
  toggle({ clientX, clientY } = {}) {
    if (!this.picture?.naturalWidth) return;
    if (this.isIn) return this.#leave();
    const { stage, picture } = this;
    const before = picture.getBoundingClientRect();
    const share = (at, start, size) => (at === undefined ? 0.5 : (at - start) / size);
    const [x, y] = [share(clientX, before.left, before.width), share(clientY, before.top, before.height)];
    stage.classList.add("zoomed");
    picture.style.width = `${Math.max(picture.naturalWidth / devicePixelRatio, LEAST * before.width)}px`;
    stage.tabIndex = 0;
    stage.setAttribute("role", "group");
    stage.setAttribute("aria-label", "The picture, zoomed in: the arrow keys move it");
    this.button.setAttribute("aria-pressed", "true");
    const after = picture.getBoundingClientRect();
    const view = stage.getBoundingClientRect();
    stage.scrollBy(after.left + x * after.width - view.left - view.width / 2, after.top + y * after.height - view.top - view.height / 2);
  }

  #leave() {
    this.stage.classList.remove("zoomed");
    for (const name of ["tabindex", "role", "aria-label"]) this.stage.removeAttribute(name);
    if (this.picture) this.picture.style.width = "";
    this.button.setAttribute("aria-pressed", "false");
  }

  #press(event) {
    const isPicture = this.picture && this.stage.querySelector(".held")?.contains(event.target);
    if (!isPicture || event.button || event.target.closest("a, button, label")) return;
    this.from = { x: event.clientX, y: event.clientY, hasMoved: false };
  }

  #drag(event) {
    if (!this.from || event.pointerType === "touch") return; // fingers scroll by themselves
    const [x, y] = [event.clientX - this.from.x, event.clientY - this.from.y];
    if (!this.from.hasMoved && Math.hypot(x, y) < STILL) return;
    if (this.isIn) {
      this.stage.scrollBy(-x, -y);
      this.stage.setPointerCapture(event.pointerId);
      this.from = { x: event.clientX, y: event.clientY, hasMoved: true };
    } else this.from.hasMoved = true;
  }

  #release(event) {
    const { from } = this;
    this.from = null;
    if (from && !from.hasMoved) this.toggle(event);
  }
}
