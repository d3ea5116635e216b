// Pictures that were dropped, pasted or chosen to search by. They stay in this browser: an address names one by its key.

const held = new Map();
const STORE = "query-images";

const asked = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

async function store(mode) {
  const request = indexedDB.open("vlmsearch", 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE);
  return (await asked(request)).transaction(STORE, mode).objectStore(STORE);
}

/** Keep a picture; the key that finds it again, also after the page was loaded anew. */
export async function keep(file) {
  const key = [...crypto.getRandomValues(new Uint8Array(9))].map((byte) => byte.toString(36).padStart(2, "0")).join("");
  held.set(key, file);
  try {
    await asked((await store("readwrite")).put(file, key));
  } catch {
    // a private window keeps nothing: it is there until the page is closed
  }
  return key;
}

/** The picture of a key; undefined in another browser than the one that kept it. */
export async function find(key) {
  if (key && !held.has(key)) {
    try {
      const file = await asked((await store("readonly")).get(key));
      if (file) held.set(key, file);
    } catch {
      // as above
    }
  }
  return held.get(key);
}

/** A small view of the picture of a key, drawn once it is read; none where this browser does not show it. */
export function preview(key) {
  const image = Object.assign(document.createElement("img"), { alt: "" });
  find(key).then((file) => {
    if (!file) return;
    image.src = URL.createObjectURL(file);
    image.onload = () => URL.revokeObjectURL(image.src);
    image.onerror = () => image.remove();
  });
  return image;
}

/** The picture of a key as a data URL. */
export async function asDataUrl(key) {
  const file = await find(key);
  return file && new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

export const isImage = (file) => file.type.startsWith("image/") || /\.(avif|heic|heif|jxl|tiff?)$/i.test(file.name);

let diverted = null;

/** Have files that are dropped or pasted taken by something else, such as a dialog; null for the search again. */
export const divert = (take) => {
  diverted = take;
};

const pictureIn = (data) => [...(data?.files ?? [])].find(isImage);

/** Call `take` with each picture that is dropped on the page or pasted into it. */
export function listen(take, refuse) {
  const isFile = (event) => event.dataTransfer?.types.includes("Files");
  let depth = 0;
  const mark = (change) => {
    depth = Math.max(0, depth + change);
    document.body.classList.toggle("dropping", depth > 0);
  };
  addEventListener("dragenter", (event) => isFile(event) && mark(1));
  addEventListener("dragleave", (event) => isFile(event) && mark(-1));
  addEventListener("dragover", (event) => isFile(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!isFile(event)) return;
    event.preventDefault();
    depth = 0;
    mark(0);
    const file = pictureIn(event.dataTransfer);
    if (diverted) diverted([...event.dataTransfer.files]);
    else if (file) take(file);
    else refuse();
  });
  addEventListener("paste", (event) => {
    const file = pictureIn(event.clipboardData);
    if (!file) return;
    event.preventDefault();
    if (diverted) diverted([file]);
    else take(file);
  });
}
