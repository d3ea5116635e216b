// Files that are added to the index: chosen, dropped or pasted, with a caption if one is written.

import { call, inIndex } from "./api.js";
import { h, icon, ICONS, many, oneLine, openDialog, say } from "./dom.js";
import { divert, isImage } from "./images.js";

const TOGETHER = 8; // files of one request
const TOGETHER_BYTES = 16 << 20;
const ENDINGS = { jpeg: "jpg", jpe: "jpg", jfif: "jpg", tiff: "tif", heif: "heic", apng: "png" }; // as the server writes types

const NAMES_READERS = /^\s*(?:---|\+\+\+)[^]*?^[ \t?[{'"]*readers['"]*\]?\s*[:=.]/m; // front matter, which is read in folders alone

const isText = (file) => /\.(txt|md)$/i.test(file.name);

/** The day on which a file was changed, as metadata keep days: 20240612. */
function dayOf(file) {
  const day = new Date(file.lastModified);
  return 10_000 * day.getFullYear() + 100 * (day.getMonth() + 1) + day.getDate();
}

function typeOf(file) {
  const ending = /\.([^.]+)$/.exec(file.name)?.[1].toLowerCase() ?? file.type.split("/")[1];
  return ENDINGS[ending] ?? ending;
}

/** Ask for files, and add them to an index. */
export function open(index) {
  if (document.querySelector("dialog.upload")) return;
  const chosen = new Map(); // files by the ids that they will have
  const input = h("input", { type: "file", id: "upload-files", class: "hidden", multiple: true, accept: "image/*,.txt,.md",
    onchange: () => {
      take([...input.files]);
      input.value = "";
    } });
  const list = h("ul", { class: "chosen", "aria-label": "Files" });
  const caption = h("input", { id: "upload-caption", maxlength: 1000, autocomplete: "off" });
  const captioned = h("div", { hidden: true }, h("label", { for: "upload-caption" }, "Caption of the pictures, if you like"), caption);
  const problem = h("p", { class: "problem", role: "alert" });
  const progress = h("progress", { "aria-label": "Progress", hidden: true, value: 0 });
  const submit = h("button", { class: "primary", disabled: true }, "Add");
  let replaced = null; // those of the ids that the index has, once that was asked

  const draw = () => {
    replaced = null;
    problem.textContent = "";
    submit.textContent = chosen.size ? `Add ${many(chosen.size, "file")}` : "Add";
    submit.disabled = !chosen.size;
    captioned.hidden = ![...chosen.values()].some(isImage);
    list.replaceChildren(...[...chosen].map(([id, file]) => {
      const picture = isImage(file) ? h("img", { alt: "" }) : h("span", { class: "no-image", "aria-hidden": "true" });
      if (isImage(file)) {
        picture.src = URL.createObjectURL(file);
        picture.onload = () => URL.revokeObjectURL(picture.src);
        picture.onerror = () => picture.replaceWith(h("span", { class: "no-image", "aria-hidden": "true" }));
      }
      return h("li", {}, picture, oneLine(id), h("button", { type: "button", class: "quiet", "aria-label": `Leave out ${id}`,
        onclick: () => {
          chosen.delete(id);
          draw();
        } }, icon(ICONS.close)));
    }));
  };

  const take = (files) => {
    const refused = files.filter((file) => !isImage(file) && !isText(file));
    for (const file of files) if (!refused.includes(file)) chosen.set(idOf(file, chosen), file);
    draw();
    if (refused.length) {
      problem.textContent = `${refused.map(({ name }) => `“${name}”`).join(", ")}: only pictures, .txt and .md files are added here. `
        + "Whoever runs the service can index other files from its folders.";
    }
  };

  const send = async () => {
    const report = { added: 0, updated: 0, unchanged: 0, rejects: [] };
    progress.hidden = false;
    progress.max = chosen.size;
    for (const some of batches([...chosen])) {
      const made = await call(inIndex(index.name, "/documents"), await formOf(some, caption.value.trim()));
      for (const name of ["added", "updated", "unchanged"]) report[name] += made[name];
      report.rejects.push(...made.rejects);
      progress.value += some.length;
    }
    return report;
  };

  const add = async (event) => {
    event.preventDefault();
    submit.disabled = true;
    problem.textContent = "";
    try {
      if (replaced === null) {
        replaced = await knownIds(index, [...chosen.keys()]);
        if (replaced.length) {
          const them = replaced.length > 3 ? many(replaced.length, "document") : replaced.map((id) => `“${id}”`).join(", ");
          problem.textContent = `The index has ${them} already.`;
          submit.textContent = `Replace ${replaced.length}, add ${chosen.size - replaced.length}`;
          submit.disabled = false;
          return;
        }
      }
      const report = await send();
      dispatchEvent(new Event("documents-changed"));
      const said = [[report.added, "added"], [report.updated, "replaced"], [report.unchanged, "there already"],
        [report.rejects.length, "left out"]].filter(([count]) => count).map(([count, what]) => `${count} ${what}`);
      say(`${said.join(" · ") || "Nothing was added"}.`);
      if (!report.rejects.length) return dialog.close();
      const left = new Map(report.rejects.map(({ id }) => [id, chosen.get(id)]));
      chosen.clear();
      for (const [id, file] of left) if (file) chosen.set(id, file);
      draw();
      problem.textContent = report.rejects.map(({ message }) => message).join("\n");
    } catch (error) {
      problem.textContent = error.message;
      submit.disabled = false;
    } finally {
      progress.hidden = true;
      progress.value = 0;
    }
  };

  const dialog = openDialog("Add files", { class: "sheet upload" }, h("form", { onsubmit: add },
    h("h2", {}, `Add files to ${index.name}`),
    h("div", { class: "drop" }, input, h("label", { class: "button", for: "upload-files" }, "Choose files"),
      h("span", { class: "soft" }, "or drop them here, or paste a picture")),
    list, captioned, problem, progress,
    h("div", { class: "actions" }, submit,
      h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"))));
  dialog.addEventListener("close", () => divert(null));
  divert(take);
  input.focus();
}

/** The id of a file: its name, with a number where another one that was chosen has it. */
function idOf(file, chosen) {
  const isSame = (other) => other.size === file.size && other.lastModified === file.lastModified;
  const dot = file.name.lastIndexOf(".");
  const [stem, ending] = dot > 0 ? [file.name.slice(0, dot), file.name.slice(dot)] : [file.name, ""];
  for (let number = 1; ; number += 1) {
    const id = number === 1 ? file.name : `${stem}-${number}${ending}`;
    if (!chosen.has(id) || isSame(chosen.get(id))) return id;
  }
}

async function knownIds(index, ids) {
  const known = [];
  for (let at = 0; at < ids.length; at += 50) {
    const asked = new URLSearchParams(ids.slice(at, at + 50).map((id) => ["id", id]));
    const { documents } = await call(inIndex(index.name, `/documents?${asked}`));
    known.push(...documents.map(({ id }) => id));
  }
  return known;
}

function* batches(files) {
  let some = [];
  let bytes = 0;
  for (const [id, file] of files) {
    if (some.length && (some.length === TOGETHER || bytes + file.size > TOGETHER_BYTES)) {
      yield some;
      [some, bytes] = [[], 0];
    }
    some.push([id, file]);
    bytes += file.size;
  }
  if (some.length) yield some;
}

/** A form with files: the documents, and the pictures beside them. */
async function formOf(files, caption) {
  const form = new FormData();
  const documents = await Promise.all(files.map(async ([id, file], at) => {
    const metadata = { type: typeOf(file), date: dayOf(file) };
    if (!isImage(file)) return { id, text: await textOf(file), metadata };
    form.set(`file-${at}`, file, "image");
    return { id, image: `part:file-${at}`, metadata, ...(caption && { text: caption }) };
  }));
  form.set("documents", JSON.stringify({ documents }));
  return form;
}

async function textOf(file) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error(`“${file.name}” is not in UTF-8. Save it in that, or index it from a folder: other character sets are read there.`);
  }
  if (/\.md$/i.test(file.name) && NAMES_READERS.test(text))
    throw new Error(`“${file.name}” names its readers: index it from a folder, where they are read, or take them out.`);
  return text;
}
