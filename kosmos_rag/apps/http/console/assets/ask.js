// Shows the answer while it is written, previews of its passages, and the source of a citation next to it.

import { fetchPart, request } from "./fetching.js";

const form = document.getElementById("ask");
const reply = document.getElementById("reply");
const reader = document.getElementById("reader");
const preview = document.getElementById("preview");
const question = document.getElementById("question");
const stopButton = form?.querySelector(".stop");
const askButton = form?.querySelector(".primary");
let active = null; // the AbortController of the answer that is being written

// Each form that posts a question: the main one, examples, and follow-ups.
document.addEventListener("submit", (event) => {
  const asking = event.target;
  if (new URL(asking.action).pathname !== "/" || asking.method !== "post") return;
  event.preventDefault();
  const body = new URLSearchParams(new FormData(asking, event.submitter));
  if (body.get("question")?.trim()) ask(body, asking.classList.contains("follow-up") ? asking : null);
});

// Enter asks, Shift and Enter begin a new line.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || !event.target.matches?.("form.ask textarea")) return;
  event.preventDefault();
  event.target.form.requestSubmit(event.target.form.querySelector("button"));
});

/** Ask a question, and show its answer instead of the last one, or after it for a follow-up. */
async function ask(body, followUp) {
  active?.abort();
  const controller = (active = new AbortController());
  closeReader();
  hidePreview();
  const article = createElement("article", "answer", [
    createElement("h2", "question", body.get("question")),
    createElement("p", "progress", ""),
  ]);
  if (followUp) {
    reply.append(article); // after the questions that were stopped, too
    followUp.hidden = true;
  } else {
    reply.replaceChildren(article);
  }
  const view = { article, followUp };
  article.querySelector(".progress").setAttribute("role", "status");
  question.value = "";
  question.placeholder = "Ask another question";
  setBusy(true);
  showProgress(view, "Searching …");
  try {
    const headers = { accept: "text/event-stream" };
    const response = await request("/", { method: "POST", body, headers, signal: controller.signal });
    let last = null;
    for await (const [name, data] of readEvents(response.body)) showEvent(view, (last = name), data);
    if (last !== "page" && last !== "error") showNotice(view, "The answer is incomplete. Ask again.");
  } catch (error) {
    if (error.name === "AbortError") showProgress(view, "Stopped.");
    else showNotice(view, error.message);
  } finally {
    if (followUp) followUp.hidden = false; // where the answer is not complete
    if (active === controller) setBusy(false);
  }
}

stopButton?.addEventListener("click", () => active?.abort());

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

/** Show a part of an answer. The service rendered it, and escaped every text in it. */
function showEvent(view, name, data) {
  if (name === "sources") {
    replaceArticle(view, data.html);
    showProgress(view, data.passages === 1 ? "Reading 1 passage …" : `Reading ${data.passages} passages …`);
  } else if (name === "text") {
    showProgress(view, "Writing …");
    updateText(view.article.querySelector(".text"), parse(data.html));
  } else if (name === "page") {
    replaceArticle(view, data.html);
    view.followUp?.remove(); // the new answer has a form of its own
  } else if (name === "error") {
    showNotice(view, data.detail);
  }
}

function parse(html) {
  return document.adoptNode(new DOMParser().parseFromString(html, "text/html").body);
}

function replaceArticle(view, html) {
  const article = parse(html).querySelector(".answer");
  view.article.replaceWith(article);
  view.article = article;
  showControls(article);
}

/** Replace the blocks that have changed: what the reader selects in the others stays selected. */
function updateText(shown, fresh) {
  const blocks = [...fresh.childNodes];
  blocks.forEach((block, index) => {
    const old = shown.childNodes[index];
    if (!old) shown.append(block);
    else if (!old.isEqualNode(block)) old.replaceWith(block);
  });
  while (shown.childNodes.length > blocks.length) shown.lastChild.remove();
}

function showProgress(view, text) {
  const progress = view.article.querySelector(".progress");
  if (progress && progress.textContent !== text) progress.textContent = text;
}

function showNotice(view, text) {
  const notice = createElement("p", "notice", text);
  notice.setAttribute("role", "alert");
  view.article.querySelector(".progress")?.replaceChildren();
  view.article.append(notice);
}

function createElement(name, className, content) {
  const node = document.createElement(name);
  node.className = className;
  node.append(...(typeof content === "string" ? [content] : content));
  return node;
}

// What an answer offers to pages with scripts only: copying, editing, rating.

function showControls(root) {
  for (const control of root.querySelectorAll("[data-copy], [data-edit], .rate")) control.hidden = false;
}

if (reply) showControls(reply);

reply?.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.copy !== undefined) {
    await copyText(button.dataset.copy);
    button.textContent = "Copied";
  } else if (button?.dataset.edit !== undefined) {
    question.value = button.dataset.edit;
    question.focus();
  }
});

/** Copy a text. The clipboard interface is there with HTTPS and on this machine only. */
async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = createElement("textarea", "hidden", text);
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

reply?.addEventListener("submit", async (event) => {
  const rating = event.target.closest(".rate");
  if (!rating) return;
  event.preventDefault();
  const body = new URLSearchParams(new FormData(rating, event.submitter));
  const thanks = rating.querySelector(".thanks");
  try {
    await request("/feedback", { method: "POST", body, headers: { accept: "application/json" } });
    const reason = rating.querySelector(".reason");
    const asks = body.get("rating") === "down" && reason.hidden;
    for (const part of rating.querySelectorAll(":scope > button, :scope > span:not(.thanks)")) part.hidden = true;
    reason.hidden = !asks;
    if (asks) reason.querySelector("select").focus();
    thanks.textContent = asks ? "" : "Thank you.";
  } catch (error) {
    thanks.textContent = error.message;
  }
});

// The passage of a marker while the pointer or the focus is on it.

for (const kind of ["pointerover", "focusin"]) {
  reply?.addEventListener(kind, (event) => {
    const marker = event.target.closest?.(".text a.marker");
    if (marker && event.pointerType !== "touch") showPreview(marker);
    else hidePreview();
  });
}
reply?.addEventListener("pointerleave", () => hidePreview());
addEventListener("scroll", () => hidePreview(), { passive: true });

function showPreview(marker) {
  const passages = [...marker.closest(".answer").querySelectorAll("[data-passage]")];
  const passage = passages.find((item) => item.dataset.passage === marker.textContent);
  if (!passage || marker === openLink) return; // its source is shown already
  marker.removeAttribute("title");
  marker.setAttribute("aria-describedby", "preview");
  preview.replaceChildren(
    createElement("strong", "", passage.querySelector(".title").textContent),
    createElement("span", "location", passage.querySelector(".location").textContent),
    createElement("p", "", passage.querySelector("blockquote").textContent),
  );
  preview.hidden = false;
  const at = marker.getBoundingClientRect();
  const below = at.bottom + preview.offsetHeight + 12 < innerHeight;
  const edge = reader.hidden ? innerWidth : reader.getBoundingClientRect().left; // the source stays visible
  preview.style.left = `${Math.max(8, Math.min(at.left, edge - preview.offsetWidth - 8))}px`;
  preview.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - preview.offsetHeight - 6)}px`;
}

function hidePreview() {
  if (preview) preview.hidden = true;
}

// The source next to the answer.

let openLink = null; // the link whose source is shown

for (const part of [reply, reader]) {
  part?.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-source]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    hidePreview();
    // A link within the source is to another page of it: the citation stays the same.
    showSource(link.href, part === reader ? openLink : link);
  });
}

async function showSource(href, link) {
  try {
    openReader(await fetchPart(href, "article.source"), href, link);
  } catch {
    location.assign(href);
  }
}

/** The citation before or after one in its answer, each source place once. */
function neighbour(link, step) {
  const links = [...(link.closest(".answer")?.querySelectorAll(".text a[data-source]") ?? [])];
  const distinct = links.filter((one, index) => links.findIndex((other) => other.href === one.href) === index);
  const index = distinct.findIndex((one) => one.href === link.href);
  return index < 0 ? undefined : distinct[index + step];
}

function createButton(text, act) {
  const button = createElement("button", "plain", text);
  button.type = "button";
  button.addEventListener("click", act);
  return button;
}

function openReader(source, href, link) {
  openLink?.removeAttribute("aria-current");
  openLink = link;
  link.setAttribute("aria-current", "true");
  const closeButton = createButton("Close", () => closeReader());
  const pageLink = createElement("a", "plain", "Open as a page");
  pageLink.href = href;
  const steps = [["Previous citation", neighbour(link, -1)], ["Next citation", neighbour(link, 1)]]
    .filter(([, target]) => target)
    .map(([text, target]) => createButton(text, () => showSource(target.href, target)));
  reader.replaceChildren(createElement("div", "bar", [...steps, pageLink, closeButton]), source);
  reader.hidden = false;
  document.body.classList.add("reader-open");
  const cited = reader.querySelector("#cited, mark");
  if (cited) reader.scrollTop += cited.getBoundingClientRect().top - reader.getBoundingClientRect().top - reader.clientHeight / 4;
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
  if (event.key !== "Escape") return;
  if (preview && !preview.hidden) hidePreview();
  else closeReader();
});
