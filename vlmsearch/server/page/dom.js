// Elements without a framework: text is always text, never HTML.

/** Build an element: h("a", {href: "?", class: "chip", onclick: f}, "text", child). */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** Build an icon of 20 by 20 from the data of a path. */
export function icon(data) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "icon");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", data);
  svg.append(path);
  return svg;
}

export const ICONS = {
  search: "M13 13l4.5 4.5M15 8.5a6.5 6.5 0 1 1-13 0 6.5 6.5 0 0 1 13 0z",
  image: "M3 4h14v12H3zM3 13.5l4-4 3.5 3.5 2-2 4.5 4M13 7.5h.01",
  close: "M5 5l10 10M15 5L5 15",
  check: "M4 10.5l4 4 8-9",
  filter: "M3 5h14M6 10h8M8.5 15h3",
  left: "M12.5 4l-6 6 6 6",
  right: "M7.5 4l6 6-6 6",
  add: "M10 4v12M4 10h12",
  help: "M7.2 7.4a2.8 2.8 0 1 1 4.3 2.4c-.9.6-1.5 1.1-1.5 2.2M10 15h.01",
  zoom: "M13 13l4.5 4.5M15 8.5a6.5 6.5 0 1 1-13 0 6.5 6.5 0 0 1 13 0zM8.5 6v5M6 8.5h5",
};

/** A bar from 0 to 1; with `middle` from -1 to 1 around its middle. The number beside it says the same. */
export function bar(share, { middle = false, line = null } = {}) {
  const held = h("span", { class: middle ? "bar middle" : "bar", "aria-hidden": "true" });
  const filled = h("span", { class: share < 0 ? "fill against" : "fill" });
  const width = Math.min(Math.abs(share), 1) * (middle ? 50 : 100);
  filled.style.width = `${width}%`;
  if (middle) filled.style.left = `${share < 0 ? 50 - width : 50}%`;
  held.append(filled);
  if (line !== null) {
    const at = h("span", { class: "line" });
    at.style.left = `${100 * line}%`;
    held.append(at);
  }
  return held;
}

const PART = /^(.+)#(?:((?:page|passage|message|(?:message=[1-9]\d{0,8}&)?attachment)=[1-9]\d{0,8})|t=(\d{1,9}\.\d{3})|xywh=(\d{1,9},\d{1,9},[1-9]\d{0,8},[1-9]\d{0,8}))$/s;

/** A time in seconds as 0:12, or 1:02:03. */
function clock(seconds) {
  const two = (value) => String(value).padStart(2, "0");
  const [hours, minutes, left] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, two(Math.floor(seconds) % 60)];
  return hours ? `${hours}:${two(minutes)}:${left}` : `${minutes}:${left}`;
}

/** Which part of which file an id names: a page, a moment, a message, an attachment, ...; null for a document of its own. */
export function partOf(id) {
  const [, of, numbers, seconds, region] = PART.exec(id) ?? [];
  if (of === undefined) return null;
  const name = numbers?.replaceAll("=", " ").replace("&", ", ") ?? (seconds ? clock(Number(seconds)) : region);
  const { page, passage } = Object.fromEntries(new URLSearchParams(numbers));
  return { of, page, passage: passage && Number(passage), seconds, name, fragment: id.slice(of.length) };
}

/** What is opened of a match: its document, at the passage that fits. */
export const toOpen = (match) => (match.passage ? `${match.id}#passage=${match.passage.number}` : match.id);

/** Where a passage is. */
export const placeOf = ({ heading, start, end }) =>
  [heading, `characters ${number(start)}–${number(end)}`].filter(Boolean).join(", ");

const NEAR = 100; // characters of a snippet in which words of the query count, long ones for more

/** The text of a match that fits, from a little before the most words of the query on. */
export function snippet(match, query) {
  const text = (match.passage ?? match).text?.trim() ?? "";
  if (text.length <= NEAR) return text;
  const low = text.toLowerCase();
  const words = query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
  const met = words.map((word) => [low.indexOf(word), word.length]).filter(([at]) => at >= 0);
  const near = ([start]) => met.reduce((sum, [at, length]) => sum + (start <= at && at < start + NEAR ? length : 0), 0);
  const [best] = met.sort((one, other) => near(other) - near(one) || other[0] - one[0])[0] ?? [0];
  const begin = text.lastIndexOf(" ", Math.max(best - NEAR / 4, 0)) + 1;
  return begin ? `… ${text.slice(begin)}` : text;
}

/** The id of a document as a person reads it: the end of a path, and the part of that file. */
export function shortName(id) {
  const part = partOf(id);
  if (part) return `${shortName(part.of)}, ${part.name}`;
  const parts = id.split(/[/\\]/).filter(Boolean);
  return parts.length > 1 ? parts.slice(-1)[0] : id;
}

export const number = (value) => value.toLocaleString("en");

export const many = (count, one, more = `${one}s`) => `${number(count)} ${count === 1 ? one : more}`;

const NAMED = 5; // kinds and endings that are named
const DAY = /^([12]\d{3})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$/;

/** Whether a value of metadata is a day, which is kept as a whole number: 20240612. */
export const isDay = (key, value) => key === "date" && typeof value === "number" && DAY.test(value);

/** A day as it is written, 2024-06-12, and as it is kept. */
export const dayText = (value) => String(value).replace(DAY, "$1-$2-$3");
export const dayNumber = (text) => Number(text.replaceAll("-", ""));

/** Which parts of a document's file were not read, as its metadata say; "" for none. */
export const unreadOf = ({ unread, unread_count: count } = {}) => (count > 0 && typeof unread === "string" ? unread : "");

/** What a report, or the facts of an index, say of parts that were not read and of files that were not taken. */
export function notesOf({ partly_read: partly, unread, partly_read_in_all: inAll, left_out: leftOut, others, repeated }) {
  const sum = (counts) => Object.values(counts ?? {}).reduce((total, count) => total + count, 0);
  const listed = (counts, name) => Object.entries(counts).sort((one, other) => other[1] - one[1]).slice(0, NAMED).map(name).join(", ");
  const kind = ([name, count]) => many(count, name, `${name.replace(/([^aeiou])y$/, "$1ie").replace(/x$/, "xe")}s`);
  const ending = ([name, count]) => `${name} ${number(count)}`;
  return [
    partly ? `${many(partly, "document has", "documents have")} parts that were not read: ${listed(unread, kind)}.`
      : inAll && `${many(inAll, "document", "documents")} in the index ${inAll === 1 ? "has" : "have"} parts that were not read.`,
    sum(leftOut) && `${many(sum(leftOut), "file")} left out for want of an option: ${listed(leftOut, ending)}.`,
    sum(others) && `${many(sum(others), "other file")}: ${listed(others, ending)}.`,
    repeated && `${number(repeated)} had the id of an earlier one of the run and replaced it.`,
  ].filter(Boolean);
}

/** A value of metadata as it is shown. */
export function shown(value, key = "") {
  if (isDay(key, value)) return dayText(value);
  return typeof value === "number" && !Number.isInteger(value) ? String(Math.round(value * 1e4) / 1e4) : String(value);
}

const ENDING = 9; // characters at the end of a name that stay together: ".jpeg" and some before it
const SHORT = 2 * ENDING;

/** A name on one line; where it is too long, its middle is left out, so that two names are told apart by their ends. */
export function oneLine(name) {
  const characters = [...name];
  if (characters.length <= SHORT) return h("span", { class: "unbroken" }, name);
  return h("span", { class: "one-line", title: name }, h("span", { class: "hidden" }, name),
    h("span", { class: "start", "aria-hidden": "true" }, characters.slice(0, -ENDING).join("")),
    h("span", { class: "unbroken", "aria-hidden": "true" }, characters.slice(-ENDING).join("")));
}

/** A name that may take several lines, which begin after its spaces, dashes and slashes where they can. */
export function wrapped(name) {
  const characters = [...name];
  const start = characters.slice(0, -ENDING).join("").split(/(?<=[\s\-_./\\,])/);
  return [...start.flatMap((piece) => [piece, h("wbr")]), h("span", { class: "unbroken" }, characters.slice(-ENDING).join(""))];
}

let hide = 0;

/** Say something that happened, in the corner of the page and to a screen reader. */
export function say(text) {
  const said = document.getElementById("said");
  said.textContent = text;
  said.classList.add("shown");
  clearTimeout(hide);
  hide = setTimeout(() => said.classList.remove("shown"), 5000);
}

/** Open a modal dialog that removes itself when it closes; `label` is what a screen reader calls it. */
export function openDialog(label, properties, ...children) {
  const dialog = h("dialog", { "aria-label": label, ...properties }, ...children);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
