// Uploads files one after another, and shows the state of their jobs until all have ended.

import { fetchPart, request } from "./fetching.js";

const form = document.getElementById("upload");
const list = document.getElementById("uploads");
const POLL_MS = 1000;
const MAX_POLLED_JOBS = 100;
const STATE_TEXTS = {
  scheduled: "waits for a retry",
  queued: "waits for a worker",
  running: "is being ingested",
  dead: "failed",
  cancelled: "was cancelled",
};
const rows = new Map(); // by the id of an unfinished job
let polling = false;

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = new FormData(form);
  const button = form.querySelector("button");
  button.disabled = true;
  for (const file of fields.getAll("files")) {
    const row = createRow(file.name);
    try {
      rows.set(await uploadFile(file, fields, row), row);
      pollJobs();
    } catch (error) {
      row.showState(error.message, "dead");
    }
  }
  // Collection and readers are kept: otherwise the next files would be readable by everyone.
  form.elements.files.value = "";
  button.disabled = false;
});

function createRow(name) {
  const item = document.createElement("li");
  const title = document.createElement("span");
  const progress = document.createElement("progress");
  const state = document.createElement("span");
  title.className = "title";
  title.textContent = name;
  progress.setAttribute("aria-label", name);
  progress.max = 1;
  state.className = "location";
  item.append(title, progress, state);
  list.prepend(item);
  return {
    showState(text, className = "") {
      state.textContent = text;
      item.className = className;
      if (className) progress.value = className === "done" ? 1 : 0;
    },
    showSentShare(share) {
      progress.value = share;
      state.textContent = `${Math.round(100 * share)} % sent`;
    },
    showIndeterminate() {
      progress.removeAttribute("value");
    },
  };
}

/** Upload a file as the form would, and return the id of its job. `fetch` does not report upload progress. */
function uploadFile(file, fields, row) {
  const maxMb = Number(form.dataset.maxMb);
  if (file.size > maxMb * 2 ** 20) throw new Error(`the file is larger than the limit of ${maxMb} MB`);
  const body = new FormData();
  for (const name of ["collection", "readers"]) body.append(name, fields.get(name));
  body.append("files", file);
  return new Promise((resolve, reject) => {
    const upload = new XMLHttpRequest();
    upload.open("POST", form.action);
    upload.setRequestHeader("Accept", "application/json");
    upload.responseType = "json";
    upload.upload.addEventListener("progress", (event) => row.showSentShare(event.loaded / (event.total || 1)));
    upload.addEventListener("load", () => {
      if (upload.status === 202) resolve(upload.response.jobs[0].id);
      else reject(new Error(upload.response?.detail ?? `the service answered ${upload.status}`));
    });
    upload.addEventListener("error", () => reject(new Error("the service cannot be reached")));
    upload.send(body);
    row.showIndeterminate();
  });
}

/** Poll the states of all jobs in one request: one for each job would exhaust the rate limit. */
async function pollJobs() {
  if (polling) return;
  polling = true;
  while (rows.size) {
    const ids = [...rows.keys()].slice(0, MAX_POLLED_JOBS);
    try {
      const query = new URLSearchParams(ids.map((id) => ["id", id]));
      const response = await request(`/jobs/states?${query}`, { headers: { accept: "application/json" } });
      const jobs = new Map((await response.json()).jobs.map((job) => [job.id, job]));
      const ingested = ids.map((id) => updateRow(id, jobs.get(id))).includes(true);
      if (ingested) document.querySelector("[data-live=documents]").replaceWith(await fetchPart(location.href, "[data-live=documents]"));
    } catch (error) {
      for (const id of ids) rows.get(id)?.showState(error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  polling = false;
}

/** Show the state of a job, and return whether it is done. */
function updateRow(id, job) {
  const row = rows.get(id);
  const state = job?.state ?? "cancelled";
  if (["done", "dead", "cancelled"].includes(state)) rows.delete(id);
  row.showIndeterminate();
  if (state === "done") row.showState(job.outcome ?? "done", "done");
  else row.showState(STATE_TEXTS[state] + (job?.error ? `: ${job.error}` : ""), state === "dead" ? "dead" : "");
  return state === "done";
}
