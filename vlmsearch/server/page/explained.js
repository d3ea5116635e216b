// Why a document was found: the relevance, the fields as bars, the words in its text, the parts of its picture.

import { bar, h } from "./dom.js";

const LEVELS = 4;
const VEIL = 0.8; // how dark the parts are that did not matter

const MODALITY = { image: "Picture", text: "Text" };

/** The name of a field as a person reads it: clip/image is "Picture, clip". */
function fieldName(field) {
  if (field === "words") return "Words";
  const [, space, modality] = field.match(/^(.*)\/(image|text)$/) ?? [null, field, ""];
  return modality ? `${MODALITY[modality]}, ${space}` : field;
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;

function fieldFacts(name, field, found) {
  const facts = [name === "words" ? `BM25 ${field.value.toFixed(2)} of at most ${found.max_bm25.toFixed(2)}`
    : `cosine ${field.value.toFixed(3)}`];
  const basis = field.basis;
  if (basis?.median !== null && basis?.median !== undefined && basis.deviation !== null) {
    facts.push(`usually ${basis.median.toFixed(2)} ± ${basis.deviation.toFixed(2)}`);
  }
  if (field.rank) facts.push(`rank ${field.rank}`);
  if (field.weight !== 1) facts.push(`weight ${field.weight}`);
  if (!field.counts) facts.push("not counted");
  return facts.join(" · ").replaceAll(/-(?=\d)/g, "−");
}

const LIKELY = [[0.9, "Very likely"], [0.6, "Likely"], [0.3, "Possible"], [0, "Unlikely"]];
const CLEARLY = 0.5; // what a field adds to the log-odds before it is named
const MOST_WORDS = 3;

/** What each field added, by what it compares: the picture, the meaning of the text, its words. */
function addedBy(found) {
  const sums = { image: 0, text: 0, words: 0 };
  for (const [name, field] of Object.entries(found.fields)) {
    const kind = name === "words" ? name : name.match(/\/(image|text)$/)?.[1];
    if (kind && field.counts) sums[kind] += field.weight * field.evidence;
  }
  sums.words += found.words_alone ?? 0;
  return sums;
}

/** The verdict as one says it: "Very likely: the picture matches, the caption says “heart”". */
export function inWords(found, item) {
  if (!["shown", "threshold"].includes(found.outcome) || found.relevance === null) return found.reason;
  const text = item.metadata?.ocr ? "the text in it" : item.image ? "the caption" : "the text";
  const added = addedBy(found);
  const characters = [...(item.text ?? "")];
  const words = [...new Set(found.marked.map(([start, end]) => characters.slice(start, end).join("").toLowerCase()))];
  const quoted = words.slice(0, MOST_WORDS).map((word) => `“${word}”`).join(", ").replace(/, (?=[^,]*$)/, " and ");
  const says = words.length && (added.words > 0 || added.text > CLEARLY);
  const forIt = [
    added.image > CLEARLY && "the picture matches",
    says && `${text} says ${quoted}`,
    added.text > CLEARLY && !says && `${text} is about it`,
  ].filter(Boolean);
  const against = [
    added.image < -CLEARLY && "the picture looks like something else",
    added.text < -CLEARLY && `${text} is about something else`,
  ].filter(Boolean);
  const level = LIKELY.find(([least]) => found.relevance >= least)[1];
  if (level === "Unlikely") {
    if (!forIt.length) return `${level}: ${against.join(", ") || "no part of it is clearly alike"}.`;
    return `${level}, although ${forIt.join(", ")}${against.length ? `: ${against.join(", ")}` : ""}.`;
  }
  return `${level}: ${[...forIt, ...against].join(", ") || "no part of it is clearly alike, all together are"}.`;
}

/** The verdict in words, and the figures behind it, folded. */
export function drawWhy(found, item) {
  const rows = [["Any document", found.prior, "before anything is known of it"],
    ...Object.entries(found.fields).map(([name, field]) =>
      [fieldName(name), field.counts ? field.weight * field.evidence : 0, fieldFacts(name, field, found)])];
  if (found.words_alone !== null) rows.push(["Words alone", found.words_alone, "met so well that they decide alone"]);
  const most = Math.max(1, ...rows.map(([, adds]) => Math.abs(adds)), Math.abs(found.log_odds));
  const list = h("ul", { class: "fields" }, ...rows.map(([name, adds, facts]) => row(name, adds, facts, most)),
    row("Together", found.log_odds, "", most, "sum"));
  const notes = [
    ...found.without.map(([text, relevance]) => `Left out: ${text}, relevance ${relevance.toFixed(2)}.`),
    found.judged !== null && `The re-ranker gave it ${found.judged.toFixed(2)}.`,
    found.lacking.length && `It has nothing for ${found.lacking.map(fieldName).join(" and ")}.`,
    ...found.notes,
  ].filter(Boolean);
  const words = inWords(found, item);
  return [h("p", { class: "verdict" }, words), h("details", { class: "figures" }, h("summary", {}, "Figures"),
    found.reason !== words && h("p", {}, found.reason),
    found.relevance !== null && h("div", { class: "relevance" }, bar(found.relevance, { line: found.threshold }),
      h("p", { class: "soft" }, `Relevance ${found.relevance.toFixed(2)}; shown from ${found.threshold.toFixed(2)}, the line.`)),
    list,
    h("p", { class: "soft" }, "In log-odds: 0 says nothing, and each +2.3 makes the odds ten times as high."),
    ...notes.map((note) => h("p", { class: "soft" }, note)))];
}

function row(name, adds, facts, most, kind = "") {
  return h("li", { class: kind }, h("span", { class: "name" }, name), h("span", { class: "adds" }, signed(adds)),
    bar(adds / most, { middle: true }), facts && h("span", { class: "soft facts" }, facts));
}

/** The text, with a passage, the words of the query and the parts that mattered. Positions count characters. */
export function drawText(held, text, found = null, passage = null) {
  const characters = [...text];
  const marked = found?.marked ?? [];
  const most = Math.max(0, ...(found?.passages ?? []).map((part) => part.evidence));
  const lit = most > 0 ? found.passages.map(({ start, end, evidence }) => [start, end, Math.round((LEVELS * evidence) / most)]) : [];
  const place = passage ? [passage.start, passage.end] : [];
  const framed = h("span", { class: "passage" });
  const cuts = [...new Set([0, characters.length, ...place, ...marked.flat(), ...lit.flatMap(([start, end]) => [start, end])])]
    .sort((a, b) => a - b);
  const pieces = [];
  for (let at = 0; at + 1 < cuts.length; at += 1) {
    const [start, end] = [cuts[at], cuts[at + 1]];
    const within = ([from, to]) => from <= start && end <= to;
    let piece = characters.slice(start, end).join("");
    if (marked.some(within)) piece = h("mark", {}, piece);
    const level = lit.find(within)?.[2] ?? 0;
    piece = level > 0 ? h("span", { class: `lit${level}` }, piece) : piece;
    if (!passage || !within(place)) pieces.push(piece);
    else if (framed.append(piece), !pieces.includes(framed)) pieces.push(framed);
  }
  held.replaceChildren(h("p", { class: "text" }, ...pieces));
  if (lit.length) held.append(h("p", { class: "soft" }, "The deeper the colour, the more its vectors owe to this part."));
}

/** Frame the lines in the picture that hold marked words, where its text was read in it: `boxes` has a line each. */
export function drawBoxes(stage, text, boxes, marked) {
  const picture = stage.querySelector(".held img");
  if (!picture?.naturalWidth || !boxes) return;
  picture.parentElement.querySelectorAll(".box").forEach((box) => box.remove());
  let start = 0;
  for (const [at, box] of boxes.split(";").entries()) {
    const end = start + [...(text.split("\n")[at] ?? "")].length;
    if (marked.some(([from, to]) => from < end && start < to)) {
      const [left, top, width, height] = box.split(",").map(Number);
      const frame = h("span", { class: "box" });
      const share = (pixels, side) => `${(100 * pixels) / side}%`;
      frame.style.left = share(left, picture.naturalWidth);
      frame.style.top = share(top, picture.naturalHeight);
      frame.style.width = share(width, picture.naturalWidth);
      frame.style.height = share(height, picture.naturalHeight);
      picture.parentElement.append(frame);
    }
    start = end + 1;
  }
}

/** Darken what did not matter in the picture, with a switch for it. */
export function drawVeil(stage, found, why) {
  const held = stage.querySelector(".held");
  if (!held) return;
  const rows = found.regions?.evidence ?? [];
  const most = Math.max(0, ...rows.flat());
  if (!(most > 0)) {
    why.append(h("p", { class: "soft" }, found.notes.at(-1) ?? "No part of its picture mattered by itself."));
    return;
  }
  held.append(veil(rows, most));
  why.append(h("label", { class: "switch" },
    h("input", { type: "checkbox", checked: true, onchange: (event) => held.classList.toggle("bare", !event.target.checked) }),
    "Darken what did not matter in the picture"));
}

function veil(rows, most) {
  const count = rows.length;
  const inner = (at) => Math.min(Math.max(at - 1, 0), count - 1);
  const small = h("canvas", { width: count + 2, height: count + 2 });
  const pen = small.getContext("2d");
  for (let y = 0; y < count + 2; y += 1) {
    for (let x = 0; x < count + 2; x += 1) {
      const share = Math.min(Math.max((rows[inner(y)][inner(x)] ?? 0) / most, 0), 1);
      pen.fillStyle = `rgba(0, 0, 0, ${VEIL * (1 - share)})`;
      pen.fillRect(x, y, 1, 1);
    }
  }
  // the outer cells are centred on the edges of the picture
  const side = 512;
  const step = side / (count + 1);
  const large = h("canvas", { class: "veil", width: side, height: side, "aria-hidden": "true" });
  const brush = large.getContext("2d");
  brush.imageSmoothingQuality = "high";
  brush.drawImage(small, -step / 2, -step / 2, side + step, side + step);
  return large;
}
