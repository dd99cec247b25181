// Shows the answer while it is written, and the source of a citation next to it.

import { fetchPart, request } from "./fetching.js";

const form = document.getElementById("ask");
const reply = document.getElementById("reply");
const reader = document.getElementById("reader");
const [askButton, stopButton] = form.querySelectorAll("button");
let active = null; // the AbortController of the answer that is being written

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  active?.abort();
  const controller = (active = new AbortController());
  const body = new URLSearchParams(new FormData(form));
  setBusy(true);
  closeReader();
  reply.replaceChildren(createElement("article", "answer", [createElement("h2", "question", body.get("question"))]));
  try {
    const headers = { accept: "text/event-stream" };
    const response = await request("/", { method: "POST", body, headers, signal: controller.signal });
    let last = null;
    for await (const [name, data] of readEvents(response.body)) showEvent((last = name), data);
    if (last !== "page" && last !== "error") showNotice("The answer is incomplete. Ask again.");
  } catch (error) {
    if (active === controller) showNotice(error.name === "AbortError" ? "Stopped." : error.message);
  } finally {
    if (active === controller) setBusy(false);
  }
});

stopButton.addEventListener("click", () => active?.abort());

function setBusy(busy) {
  askButton.hidden = busy;
  stopButton.hidden = !busy;
  reply.setAttribute("aria-busy", String(busy));
}

/** Yield name and data of each server-sent event. */
async function* readEvents(stream) {
  const chunks = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await chunks.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = new Map(block.split("\n").map((line) => [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)]));
      if (fields.has("event")) yield [fields.get("event"), JSON.parse(fields.get("data"))];
    }
  }
}

function showEvent(name, data) {
  const answer = reply.querySelector(".answer");
  if (name === "sources") {
    const count = `${data.context.passages.length} passages of evidence`;
    answer.append(createElement("div", "text", []), createElement("p", "facts", count));
  } else if (name === "token") {
    answer.querySelector(".text").append(data.text);
  } else if (name === "page") {
    // The service rendered this page of the answer, and escaped every text in it.
    const page = new DOMParser().parseFromString(data.html, "text/html");
    reply.replaceChildren(document.adoptNode(page.querySelector(".answer")));
  } else if (name === "error") {
    showNotice(data.detail);
  }
}

function showNotice(text) {
  const notice = createElement("p", "notice", text);
  notice.setAttribute("role", "alert");
  reply.querySelector(".answer").append(notice);
}

function createElement(name, className, content) {
  const node = document.createElement(name);
  node.className = className;
  node.append(...(typeof content === "string" ? [content] : content));
  return node;
}

// The source next to the answer.

let openLink = null; // the link whose source is shown

reply.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-source]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  try {
    const source = await fetchPart(link.href, "article.source");
    openReader(source, link);
  } catch {
    location.assign(link.href);
  }
});

function openReader(source, link) {
  openLink?.removeAttribute("aria-current");
  openLink = link;
  link.setAttribute("aria-current", "true");
  const closeButton = createElement("button", "plain", "Close");
  closeButton.type = "button";
  closeButton.addEventListener("click", () => closeReader());
  const pageLink = createElement("a", "plain", "Open as a page");
  pageLink.href = link.href;
  reader.replaceChildren(createElement("div", "bar", [pageLink, closeButton]), source);
  reader.hidden = false;
  document.body.classList.add("reader-open");
  const cited = reader.querySelector("#cited, .cited");
  if (cited) reader.scrollTop = cited.offsetTop - reader.clientHeight / 4;
  closeButton.focus({ preventScroll: true });
}

function closeReader() {
  if (reader.hidden) return;
  reader.hidden = true;
  document.body.classList.remove("reader-open");
  openLink?.removeAttribute("aria-current");
  openLink?.focus({ preventScroll: true });
  openLink = null;
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeReader();
});
