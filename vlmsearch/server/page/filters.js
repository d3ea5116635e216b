// Filters on metadata: the keys are those of the documents that were shown, the counts come with the search.

import { dayNumber, dayText, h, icon, ICONS, isDay, number, shown } from "./dom.js";

const MOST_KEYS = 12;
const MOST_VALUES = 40; // a key with more different values is no list to choose from
const MOST_NUMBERS = 12; // a number with more different values is a range
const FIRST_VALUES = 6;
const LONGEST = 60;

const OF_FILES = ["type", "folder", "date"]; // what every file has: shown first
const LISTS = ["type", "folder"]; // shown as lists, however many values they have
// about the inside of a file: nothing to choose by
const PLACES = new Set(["ocr", "messages", "page", "pages", "parts", "seconds", "duration", "unread", "unread_count"]);

const known = new Map(); // by index

const keysOf = (index) => {
  if (!known.has(index)) known.set(index, new Map());
  return known.get(index);
};

/** Learn keys and values from documents that are shown. */
export function learn(index, items) {
  const keys = keysOf(index);
  for (const item of items) {
    for (const [key, value] of Object.entries(item.metadata ?? {}).flatMap(([key, value]) => [value].flat().map((single) => [key, single]))) {
      if (PLACES.has(key)) continue;
      const facts = keys.get(key)
        ?? { first: new Map(), least: Infinity, most: -Infinity, isLong: false, isDay: false, repeats: false };
      if (typeof value === "number") {
        facts.least = Math.min(facts.least, value);
        facts.most = Math.max(facts.most, value);
        facts.isDay ||= isDay(key, value);
      } else if (typeof value === "string" && value.length > LONGEST) facts.isLong = true;
      if (facts.first.size <= MOST_VALUES && !facts.first.has(value)) facts.first.set(value, item.id);
      facts.repeats ||= facts.first.has(value) && facts.first.get(value) !== item.id;
      keys.set(key, facts);
    }
  }
}

/** Whether a key has values to choose from; one that each document has for itself, such as a title, has none. */
function isList(key, facts) {
  if (LISTS.includes(key)) return true;
  return !facts.isDay && !facts.isLong && facts.repeats
    && facts.first.size <= (facts.most > -Infinity ? MOST_NUMBERS : MOST_VALUES);
}

const isRange = (key, facts) => !isList(key, facts) && facts.most > -Infinity;

const place = (key) => (OF_FILES.includes(key) ? OF_FILES.indexOf(key) : OF_FILES.length);

/** The keys to filter by, those of files first. */
const filterKeys = (index) => [...keysOf(index)].filter(([key, facts]) => isList(key, facts) || isRange(key, facts))
  .sort(([one], [other]) => place(one) - place(other)).slice(0, MOST_KEYS);

/** The keys whose values can be counted. */
export const facetKeys = (index) => filterKeys(index).filter(([key, facts]) => isList(key, facts)).map(([key]) => key);

/** Count the values of keys among documents that are all there. */
export function counted(items, keys) {
  const facets = {};
  for (const key of keys) {
    const counts = new Map();
    for (const { metadata } of items) {
      for (const value of [metadata[key] ?? []].flat()) counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    facets[key] = [...counts];
  }
  return facets;
}

/** The keys by which results can be sorted. */
export const sortKeys = (index) =>
  [...keysOf(index)].filter(([key, facts]) => !facts.isLong && !key.includes(":")).map(([key]) => key)
    .sort((one, other) => place(one) - place(other)).slice(0, MOST_KEYS);

/** An order in words: of a day, what is new comes first. */
export function orderName(sort) {
  const [key, isFalling] = [sort.replace(/^-/, ""), sort.startsWith("-")];
  if (key === "date") return isFalling ? "Newest first" : "Oldest first";
  return `${key} ${isFalling ? "↓" : "↑"}`;
}

/** The values that a condition asks for; null where it is of another form. */
export function chosenValues(condition) {
  if (condition === undefined) return [];
  if (condition === null || typeof condition !== "object") return [condition];
  return Array.isArray(condition.$in) && Object.keys(condition).length === 1 ? condition.$in : null;
}

const without = (where, key) => Object.fromEntries(Object.entries(where).filter(([each]) => each !== key));

/** The filter with a key's value switched on or off. */
export function toggled(where, key, value) {
  const chosen = chosenValues(where[key]) ?? [];
  const next = chosen.includes(value) ? chosen.filter((each) => each !== value) : [...chosen, value];
  if (!next.length) return without(where, key);
  return { ...where, [key]: next.length === 1 ? next[0] : { $in: next } };
}

/** A filter in words, one entry for each condition: [text, the filter without it]. */
export function inWords(where) {
  return Object.entries(where).map(([key, condition]) => {
    const values = chosenValues(condition);
    if (values) return [`${key}: ${values.map((value) => shown(value, key)).join(" or ")}`, without(where, key)];
    const { $gte: least, $lte: most, ...rest } = condition;
    const isPlain = !key.startsWith("$") && !Object.keys(rest).length;
    if (isPlain && least !== undefined && most !== undefined) {
      return [`${key}: ${shown(least, key)} to ${shown(most, key)}`, without(where, key)];
    }
    if (isPlain && least !== undefined) return [`${key}: from ${shown(least, key)}`, without(where, key)];
    if (isPlain && most !== undefined) return [`${key}: up to ${shown(most, key)}`, without(where, key)];
    return [`${key}: ${JSON.stringify(condition)}`, without(where, key)];
  });
}

const expanded = new Set();

/** Draw the filters: `found` is what was found, with the counts by key as far as they are there; `change` takes the new filter. */
export function draw(panel, { index, where, found, change }) {
  const focused = panel.contains(document.activeElement) ? document.activeElement.id : "";
  const drawn = { panel, index, where, found, change };
  const groups = filterKeys(index)
    .map(([key, facts]) => (isList(key, facts) ? list(drawn, key) : facts.isDay ? days(drawn, key) : range(drawn, key, facts)))
    .filter(Boolean);
  panel.replaceChildren(
    h("div", { class: "panel-head" }, h("h2", {}, "Filters"),
      Object.keys(where).length
        ? h("button", { class: "link", onclick: () => change({}) }, "Remove all") : null,
      h("button", { class: "quiet fold", "aria-label": "Close the filters",
        onclick: () => document.getElementById("filters-button").click() }, icon(ICONS.close))),
    ...groups,
  );
  panel.hidden = !groups.length;
  if (focused) document.getElementById(focused)?.focus();
}

const inputId = (key, rest) => `f-${encodeURIComponent(key)}-${rest}`;

/** The values of a key with their counts: only those that some document has, and those that are chosen. */
function list(drawn, key) {
  const { panel, index, where, found, change } = drawn;
  const chosen = chosenValues(where[key]) ?? [];
  const isCounted = Boolean(found?.facets?.[key]?.length);
  const counts = new Map(isCounted ? found.facets[key] : counted(found?.items ?? [], [key])[key]);
  const values = [...new Set([...counts.keys(), ...chosen])].filter((value) => typeof value !== "object");
  const isOfAll = isCounted && values.length === 1 && counts.get(values[0]) === found.total;
  if (!values.length || (isOfAll && !chosen.length)) return null; // nothing to choose
  const areNumbers = values.every((value) => typeof value === "number");
  const rank = (value) => (areNumbers ? 0 : -(counts.get(value) ?? 0));
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  values.sort((a, b) => rank(a) - rank(b) || compare(a, b));
  const name = `${index}\n${key}`;
  const first = expanded.has(name) ? values : values.filter((value, at) => at < FIRST_VALUES || chosen.includes(value));
  return h("fieldset", {}, h("legend", {}, key),
    ...first.map((value) => h("label", { class: "choice" },
      h("input", { type: "checkbox", id: inputId(key, String(value)), checked: chosen.includes(value),
        onchange: () => change(toggled(where, key, value)) }),
      h("span", { class: "value" }, shown(value, key)),
      isCounted && counts.get(value) && h("span", { class: "count" }, number(counts.get(value))))),
    first.length < values.length && h("button", { class: "link", onclick: () => {
      expanded.add(name);
      draw(panel, drawn);
    } }, `${values.length - first.length} more`));
}

/** The fields of a range: `read` is the value of a field, `write` the field of a value. */
function ends({ where, change }, key, properties, read, write) {
  const condition = where[key] && typeof where[key] === "object" ? where[key] : {};
  const exact = (chosenValues(where[key]) ?? []).length === 1 ? chosenValues(where[key])[0] : undefined;
  const inputs = {};
  const submit = () => {
    const made = {};
    for (const [end, input] of Object.entries(inputs)) if (input.value !== "") made[end] = read(input.value);
    change(Object.keys(made).length ? { ...where, [key]: made } : without(where, key));
  };
  for (const [end, text] of [["$gte", "from"], ["$lte", "up to"]]) {
    const value = condition[end] ?? exact;
    inputs[end] = h("input", { ...properties(end), id: inputId(key, end), value: value === undefined ? "" : write(value),
      "aria-label": `${key} ${text}`, onchange: submit });
  }
  return [inputs.$gte, inputs.$lte];
}

function range(drawn, key, facts) {
  const hint = (end) => ({ type: "number", step: "any", placeholder: shown(end === "$gte" ? facts.least : facts.most) });
  const [from, to] = ends(drawn, key, hint, Number, (value) => value);
  return h("fieldset", {}, h("legend", {}, key),
    h("div", { class: "range" }, from, h("span", { "aria-hidden": "true" }, "–"), to));
}

function days(drawn, key) {
  const [from, to] = ends(drawn, key, () => ({ type: "date", min: "1000-01-01", max: "2999-12-31" }), dayNumber, dayText);
  return h("fieldset", { class: "days" }, h("legend", {}, key),
    h("div", { class: "day" }, h("span", { "aria-hidden": "true" }, "from"), from),
    h("div", { class: "day" }, h("span", { "aria-hidden": "true" }, "up to"), to));
}
