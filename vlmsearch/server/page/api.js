// The service: requests, errors, uploads, server-sent events, and the token.

import { h, openDialog } from "./dom.js";

const ROOT = new URL("../api/v1", import.meta.url).pathname;
const SIGNED_IN = "vlmsearch signed in"; // the token itself and its session are nothing that a script can read

/** An error that the service answered, or that it could not be reached. */
export class ServiceError extends Error {
  constructor(status, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

let signingIn = null;

/** Ask for a token until the service takes one; everything that waits goes on together. */
function signIn() {
  signingIn ??= new Promise((resolve) => {
    const problem = h("p", { class: "problem", role: "alert" });
    const token = h("input", {
      id: "token", type: "password", required: true, autocomplete: "current-password", spellcheck: "false",
    });
    const submit = async (event) => {
      event.preventDefault();
      const answer = await fetch(`${ROOT}/session`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ token: token.value.trim() }),
      }).catch(() => null);
      if (answer?.ok) {
        signingIn = null;
        localStorage.setItem(SIGNED_IN, "1");
        dialog.close();
        resolve();
      } else {
        const unknown = "The service does not know this token. It may have been removed or mistyped.";
        problem.textContent = answer?.status === 401 ? unknown : (await failure(answer)).message;
        token.select();
      }
    };
    const dialog = openDialog("Sign in", { class: "sheet signin" },
      h("form", { onsubmit: submit },
        h("h2", {}, "Sign in"),
        h("p", { class: "soft" }, "This service is shown to those who have a token. Whoever runs it makes one with ",
          h("code", {}, "vlmsearch token add NAME"), "."),
        h("label", { for: "token" }, "Token"), token, problem,
        h("div", { class: "actions" }, h("button", { class: "primary" }, "Sign in")),
      ));
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("click", (event) => event.stopImmediatePropagation(), true);
    token.focus();
  });
  return signingIn;
}

export const isSignedIn = () => localStorage.getItem(SIGNED_IN) !== null;

/** End the session, and begin anew. */
export async function signOut() {
  localStorage.removeItem(SIGNED_IN);
  await fetch(`${ROOT}/session`, { method: "DELETE" });
  location.reload();
}

async function failure(answer) {
  if (!answer) return new ServiceError(0, "The service cannot be reached. Is it still running?");
  const told = await answer.json().catch(() => null);
  const message = told?.error?.message ?? `The service answered ${answer.status}.`;
  return new ServiceError(answer.status, message, Number(answer.headers.get("Retry-After")) || 0);
}

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

/** Send a request and return the answer itself; a service that is busy is asked twice more. */
async function send(path, options = {}) {
  for (let tried = 0; ; tried += 1) {
    let answer;
    try {
      answer = await fetch(`${ROOT}/${path}`, options);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw await failure(null);
    }
    if (answer.ok) return answer;
    if (answer.status === 401) {
      await signIn();
      continue;
    }
    const error = await failure(answer);
    if (answer.status !== 429 || tried === 2) throw error;
    await pause(Math.min(error.retryAfter || 1, 5));
    options.signal?.throwIfAborted();
  }
}

/** GET, or POST where there is a body; the JSON that comes back. */
export async function call(path, body, { method, signal } = {}) {
  const options = { method: method ?? (body === undefined ? "GET" : "POST"), signal };
  if (body instanceof FormData) options.body = body;
  else if (body !== undefined) {
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(body);
  }
  const answer = await send(path, options);
  return answer.status === 204 ? null : answer.json();
}

/** The path of something in an index. */
export const inIndex = (index, rest = "") => `indexes/${encodeURIComponent(index)}${rest}`;

/** A search, with its image as a file where it has one. */
export function withImage(request, image) {
  if (!image) return request;
  const form = new FormData();
  form.set("request", JSON.stringify(request));
  form.set("image", image, image.name || "image");
  return form;
}

export const imageOf = (index, id) => `${ROOT}/${inIndex(index, "/image")}?id=${encodeURIComponent(id)}`;

export const thumbnailOf = (index, id, size) =>
  `${ROOT}/${inIndex(index, "/thumbnail")}?id=${encodeURIComponent(id)}&size=${size}`;

/** The PDF or film that a document is a part of, at that part. */
export const fileOf = (index, id, fragment = "") => `${ROOT}/${inIndex(index, "/file")}?id=${encodeURIComponent(id)}${fragment}`;

/** Yield the server-sent events of an answer as [name, data]. */
export async function* events(path, body, { signal } = {}) {
  const answer = await send(path, body === undefined ? { signal } : {
    method: "POST", signal, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value.replaceAll("\r", "");
    for (let end; (end = held.indexOf("\n\n")) >= 0; held = held.slice(end + 2)) {
      let name = "message";
      const data = [];
      for (const line of held.slice(0, end).split("\n")) {
        if (line.startsWith("event:")) name = line.slice(6).trim();
        if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
      }
      if (data.length) yield [name, JSON.parse(data.join("\n"))];
    }
  }
}
