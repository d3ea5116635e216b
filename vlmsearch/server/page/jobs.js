// Long work on the server: start it, watch it, stop it.

import { call, events, inIndex } from "./api.js";
import { h, number, say } from "./dom.js";

/** Start a job of an index. */
export const start = (index, request) => call(inIndex(index, "/jobs"), request);

export const isOver = (job) => ["done", "failed", "cancelled"].includes(job.state);

/** Follow a job to its end: `advance(done, total)` on the way; the job as it is then. */
export async function follow(id, advance, signal) {
  for (;;) {
    for await (const [name, data] of events(`jobs/${encodeURIComponent(id)}/events`, undefined, { signal })) {
      if (name === "progress") advance(data.done, data.total);
    }
    const job = await call(`jobs/${encodeURIComponent(id)}`, undefined, { signal });
    if (isOver(job)) return job;
    await new Promise((resolve) => setTimeout(resolve, 1000)); // the connection was cut: follow it again
  }
}

/** A progress bar with its numbers and a button that stops the job; `over` is called with the job when it ends. */
export function watch(job, over, signal) {
  const progress = h("progress", { "aria-label": "Progress", max: 1 });
  const said = h("span", { class: "soft numbers" }, "waiting");
  const stop = h("button", { onclick: async () => {
    stop.disabled = true;
    try {
      await call(`jobs/${encodeURIComponent(job.id)}/cancel`, undefined, { method: "POST" });
    } catch (error) {
      say(error.message);
    }
  } }, "Stop");
  const advance = (done, total) => {
    if (total) {
      progress.max = total;
      progress.value = done;
    }
    said.textContent = total ? `${number(done)} of ${number(total)}` : `${number(done)} so far`;
  };
  if (job.done) advance(job.done, job.total);
  follow(job.id, advance, signal).then(over, (error) => {
    if (!signal.aborted) over({ ...job, state: "failed", error: { message: error.message } });
  });
  return h("div", { class: "watched" }, progress, said, stop);
}
