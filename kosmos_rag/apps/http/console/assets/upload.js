// Files go to the service one after another; all are followed together until a worker has ingested them.

import { ask, part } from "./fetching.js";

const form = document.getElementById("upload");
const list = document.getElementById("uploads");
const POLL_MS = 1000;
const AT_ONCE = 100;
const TOLD = {
  scheduled: "waits for another attempt",
  queued: "waits for a worker",
  running: "is being ingested",
  dead: "failed",
  cancelled: "was cancelled",
};
const followed = new Map();
let following = false;

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const given = new FormData(form);
  const button = form.querySelector("button");
  button.disabled = true;
  for (const file of given.getAll("files")) {
    const row = shown(file.name);
    try {
      followed.set(await send(file, given, row), row);
      follow();
    } catch (error) {
      row.tell(error.message, "dead");
    }
  }
  // Collection and readers stay: the next files are not to go to everyone because these did not.
  form.elements.files.value = "";
  button.disabled = false;
});

function shown(name) {
  const item = document.createElement("li");
  const title = document.createElement("span");
  const progress = document.createElement("progress");
  const state = document.createElement("span");
  title.className = "title";
  title.textContent = name;
  progress.setAttribute("aria-label", name);
  progress.max = 1;
  state.className = "place";
  item.append(title, progress, state);
  list.prepend(item);
  return {
    tell(text, kind = "") {
      state.textContent = text;
      item.className = kind;
      if (kind) progress.value = kind === "done" ? 1 : 0;
    },
    sent(share) {
      progress.value = share;
      state.textContent = `${Math.round(100 * share)} % sent`;
    },
    unknown() {
      progress.removeAttribute("value");
    },
  };
}

/** Send a file as the form would, and give the id of its job. `fetch` does not tell how far a body has gone. */
function send(file, given, row) {
  const most = Number(form.dataset.mostMb);
  if (file.size > most * 2 ** 20) throw new Error(`it is larger than the ${most} MB that are taken`);
  const body = new FormData();
  for (const name of ["collection", "readers"]) body.append(name, given.get(name));
  body.append("files", file);
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", form.action);
    request.setRequestHeader("Accept", "application/json");
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => row.sent(event.loaded / (event.total || 1)));
    request.addEventListener("load", () => {
      if (request.status === 202) resolve(request.response.jobs[0].id);
      else reject(new Error(request.response?.detail ?? `the service answered ${request.status}`));
    });
    request.addEventListener("error", () => reject(new Error("the service cannot be reached")));
    request.send(body);
    row.unknown();
  });
}

/** Ask for all jobs at once, again and again: a request for each would use up the visitor's rate. */
async function follow() {
  if (following) return;
  following = true;
  while (followed.size) {
    const ids = [...followed.keys()].slice(0, AT_ONCE);
    try {
      const query = new URLSearchParams(ids.map((id) => ["id", id]));
      const response = await ask(`/jobs/states?${query}`, { headers: { accept: "application/json" } });
      const jobs = new Map((await response.json()).jobs.map((job) => [job.id, job]));
      const ingested = ids.map((id) => tell(id, jobs.get(id))).includes(true);
      if (ingested) document.querySelector("[data-live=documents]").replaceWith(await part(location.href, "[data-live=documents]"));
    } catch (error) {
      for (const id of ids) followed.get(id)?.tell(error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  following = false;
}

/** Show how far a job is, and say whether it has ended well. */
function tell(id, job) {
  const row = followed.get(id);
  const state = job?.state ?? "cancelled";
  if (["done", "dead", "cancelled"].includes(state)) followed.delete(id);
  row.unknown();
  if (state === "done") row.tell(job.outcome ?? "done", "done");
  else row.tell(TOLD[state] + (job?.error ? `: ${job.error}` : ""), state === "dead" ? "dead" : "");
  return state === "done";
}
