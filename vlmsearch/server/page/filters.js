// Filters on metadata: the keys are those of the documents that were shown, the counts come with the search.

import { h, icon, ICONS, number, shown } from "./dom.js";

const MOST_KEYS = 12;
const MOST_VALUES = 40; // a key with more different values is no list to choose from
const FIRST_VALUES = 6;
const LONGEST = 60;

const PLACES = new Set(["ocr", "page", "parts", "seconds"]); // where in a file something is: nothing to choose by

const known = new Map(); // by index

const keysOf = (index) => {
  if (!known.has(index)) known.set(index, new Map());
  return known.get(index);
};

/** Learn keys and values from documents that are shown. */
export function learn(index, items) {
  const keys = keysOf(index);
  for (const item of items) {
    for (const [key, value] of Object.entries(item.metadata ?? {})) {
      if (PLACES.has(key)) continue;
      const facts = keys.get(key) ?? { values: new Set(), least: Infinity, most: -Infinity, isLong: false };
      if (typeof value === "number") {
        facts.least = Math.min(facts.least, value);
        facts.most = Math.max(facts.most, value);
      } else if (typeof value === "string" && value.length > LONGEST) facts.isLong = true;
      if (facts.values.size <= MOST_VALUES) facts.values.add(value);
      keys.set(key, facts);
    }
  }
}

const isList = (facts) => !facts.isLong && facts.values.size <= (facts.most > -Infinity ? 12 : MOST_VALUES);
const isRange = (facts) => !isList(facts) && facts.most > -Infinity;

/** The keys whose values can be counted. */
export const facetKeys = (index) =>
  [...keysOf(index)].filter(([, facts]) => isList(facts)).map(([key]) => key).slice(0, MOST_KEYS);

/** Count the values of keys among documents that are all there. */
export function counted(items, keys) {
  const facets = {};
  for (const key of keys) {
    const counts = new Map();
    for (const { metadata } of items) {
      if (metadata[key] !== undefined) counts.set(metadata[key], (counts.get(metadata[key]) ?? 0) + 1);
    }
    facets[key] = [...counts];
  }
  return facets;
}

/** The keys by which results can be sorted. */
export const sortKeys = (index) =>
  [...keysOf(index)].filter(([key, facts]) => !facts.isLong && !key.includes(":")).map(([key]) => key)
    .slice(0, MOST_KEYS);

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
    if (values) return [`${key}: ${values.map(shown).join(" or ")}`, without(where, key)];
    const { $gte: least, $lte: most, ...rest } = condition;
    const isPlain = !key.startsWith("$") && !Object.keys(rest).length;
    if (isPlain && least !== undefined && most !== undefined) {
      return [`${key}: ${shown(least)} to ${shown(most)}`, without(where, key)];
    }
    if (isPlain && least !== undefined) return [`${key}: from ${shown(least)}`, without(where, key)];
    if (isPlain && most !== undefined) return [`${key}: up to ${shown(most)}`, without(where, key)];
    return [`${key}: ${JSON.stringify(condition)}`, without(where, key)];
  });
}

const expanded = new Set();

/** Draw the filters. `facets` are the counts by key, where there are any; `change` is called with the new filter. */
export function draw(panel, { index, where, facets, change }) {
  const focused = panel.contains(document.activeElement) ? document.activeElement.id : "";
  const groups = [...keysOf(index)].filter(([, facts]) => isList(facts) || isRange(facts)).slice(0, MOST_KEYS)
    .map(([key, facts], at) => (isList(facts)
      ? list(panel, { index, where, facets, change }, key, facts, at)
      : range(where, change, key, facts, at)));
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

function list(panel, drawn, key, facts, at) {
  const { index, where, facets, change } = drawn;
  const chosen = chosenValues(where[key]) ?? [];
  const counts = new Map(facets?.[key]);
  const values = [...new Set([...chosen, ...counts.keys(), ...facts.values])].filter((value) => typeof value !== "object");
  const rank = (value) => (facets?.[key] ? -(counts.get(value) ?? 0) : 0);
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  values.sort((a, b) => (values.every((each) => typeof each === "number") ? 0 : rank(a) - rank(b)) || compare(a, b));
  const name = `${index}\n${key}`;
  const first = expanded.has(name) ? values : values.filter((value, at) => at < FIRST_VALUES || chosen.includes(value));
  return h("fieldset", {}, h("legend", {}, key),
    ...first.map((value, nth) => h("label", { class: counts.size && !counts.get(value) ? "choice none" : "choice" },
      h("input", { type: "checkbox", id: `f${at}-${nth}`, checked: chosen.includes(value),
        onchange: () => change(toggled(where, key, value)) }),
      h("span", { class: "value" }, shown(value)),
      facets?.[key] && h("span", { class: "count" }, number(counts.get(value) ?? 0)))),
    first.length < values.length && h("button", { class: "link", onclick: () => {
      expanded.add(name);
      draw(panel, drawn);
    } }, `${values.length - first.length} more`));
}

function range(where, change, key, facts, at) {
  const condition = where[key] && typeof where[key] === "object" ? where[key] : {};
  const ends = {};
  const field = (end, text, hint) => {
    ends[end] = h("input", { type: "number", step: "any", id: `f${at}${end}`, value: condition[end] ?? "",
      placeholder: shown(hint), "aria-label": `${key} ${text}`, onchange: submit });
    return ends[end];
  };
  const submit = () => {
    const made = {};
    for (const [end, input] of Object.entries(ends)) if (input.value !== "") made[end] = Number(input.value);
    change(Object.keys(made).length ? { ...where, [key]: made } : without(where, key));
  };
  return h("fieldset", {}, h("legend", {}, key),
    h("div", { class: "range" }, field("$gte", "from", facts.least), h("span", { "aria-hidden": "true" }, "–"),
      field("$lte", "up to", facts.most)));
}
