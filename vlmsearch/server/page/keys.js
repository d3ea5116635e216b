// The keys of the page, in a dialog that the key ? opens.

import { h, icon, ICONS, openDialog } from "./dom.js";

const KEYS = [
  ["Everywhere", [
    [["/"], "go to the query"],
    [["?"], "show these keys"],
    [["Esc"], "close, or clear the selection"],
  ]],
  ["Among the matches", [
    [["↓"], "go from the query to the matches"],
    [["←", "→", "↑", "↓"], "go from match to match"],
    [["Home", "End"], "go to the first, to the last"],
    [["Enter"], "open the match"],
    [["x"], "select it"],
    [["Shift", "x"], "select all since the last that was selected"],
  ]],
  ["In a picture", [
    [["←", "→"], "show the one before, the next"],
    [["z"], "zoom in and out"],
    [["x"], "select it"],
  ]],
  ["With a picture from elsewhere", [
    [["Ctrl", "V"], "search by the picture that was copied; dropping one on the page does the same"],
  ]],
];

/** Show the keys. */
export function open() {
  if (document.querySelector("dialog.keys")) return;
  const dialog = openDialog("Keys", { class: "sheet keys" },
    h("div", { class: "sheet-body" },
      h("div", { class: "sheet-head" }, h("h2", {}, "Keys"), h("button", { class: "quiet", "aria-label": "Close", autofocus: true,
        onclick: () => dialog.close() }, icon(ICONS.close))),
      ...KEYS.map(([title, rows]) => h("section", {}, h("h3", {}, title),
        h("dl", {}, ...rows.map(([names, what]) => h("div", {},
          h("dt", {}, ...names.map((name) => h("kbd", {}, name))), h("dd", {}, what))))))));
}
