// Files go to the service one after another; each is followed until a worker has ingested it.

import { ask, part } from "./fetching.js";

const form = document.getElementById("upload");
const list = document.getElementById("uploads");
const POLL_MS = 1000;
const TOLD = {
  scheduled: "waits for another attempt",
  queued: "waits for a worker",
  running: "is being ingested",
  dead: "failed",
  cancelled: "was cancelled",
};

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const given = new FormData(form);
  const button = form.querySelector("button");
  button.disabled = true;
  for (const file of given.getAll("files")) {
    const row = shown(file.name);
    try {
      follow(await send(file, given, row), row);
    } catch (error) {
      row.tell(error.message, "dead");
    }
  }
  form.reset();
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

/** Send a file, and give the id of its job. `fetch` does not tell how far a body has gone. */
function send(file, given, row) {
  const query = new URLSearchParams({ source: file.name, collection: given.get("collection").trim() });
  for (const reader of given.get("readers").split(",")) if (reader.trim()) query.append("reader", reader.trim());
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", `/documents?${query}`);
    request.setRequestHeader("Accept", "application/json");
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => row.sent(event.loaded / (event.total || 1)));
    request.addEventListener("load", () => {
      if (request.status === 202) resolve(request.response.id);
      else reject(new Error(request.response?.detail ?? `the service answered ${request.status}`));
    });
    request.addEventListener("error", () => reject(new Error("the service cannot be reached")));
    request.send(file);
  });
}

async function follow(job, row) {
  row.unknown();
  for (;;) {
    try {
      const now = await (await ask(`/jobs/${job}`, { headers: { accept: "application/json" } })).json();
      if (now.state === "done") {
        row.tell(now.outcome ?? "done", "done");
        document.querySelector("[data-live=documents]").replaceWith(await part(location.href, "[data-live=documents]"));
        return;
      }
      row.tell(TOLD[now.state] + (now.error ? `: ${now.error}` : ""), now.state === "dead" ? "dead" : "");
      if (now.state === "dead" || now.state === "cancelled") return;
    } catch (error) {
      row.tell(error.message);
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}
