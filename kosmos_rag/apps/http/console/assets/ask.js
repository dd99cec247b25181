// A question is answered in place, as the answer comes; a citation opens its source beside it.

import { ask, part } from "./fetching.js";

const form = document.getElementById("ask");
const reply = document.getElementById("reply");
const reader = document.getElementById("reader");
const [go, stop] = form.querySelectorAll("button");
let asking = null;

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  asking?.abort();
  const mine = (asking = new AbortController());
  const body = new URLSearchParams(new FormData(form));
  waiting(true);
  close();
  reply.replaceChildren(element("article", "answer", [element("h2", "question", body.get("question"))]));
  try {
    const headers = { accept: "text/event-stream" };
    const response = await ask("/", { method: "POST", body, headers, signal: mine.signal });
    let last = null;
    for await (const [name, data] of events(response.body)) show((last = name), data);
    if (last !== "page" && last !== "error") tell("The answer broke off. Ask again.");
  } catch (error) {
    if (asking === mine) tell(error.name === "AbortError" ? "Stopped." : error.message);
  } finally {
    if (asking === mine) waiting(false);
  }
});

stop.addEventListener("click", () => asking?.abort());

function waiting(does) {
  go.hidden = does;
  stop.hidden = !does;
  reply.setAttribute("aria-busy", String(does));
}

/** Read server-sent events: name and data of each. */
async function* events(stream) {
  const pieces = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await pieces.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = new Map(block.split("\n").map((line) => [line.slice(0, line.indexOf(": ")), line.slice(line.indexOf(": ") + 2)]));
      if (fields.has("event")) yield [fields.get("event"), JSON.parse(fields.get("data"))];
    }
  }
}

function show(name, data) {
  const answer = reply.querySelector(".answer");
  if (name === "sources") {
    answer.append(element("div", "text", []), element("p", "facts", `${data.context.passages.length} passages of evidence`));
  } else if (name === "token") {
    answer.querySelector(".text").append(data.text);
  } else if (name === "page") {
    // The service's own page of the answer, in which every text is escaped.
    const page = new DOMParser().parseFromString(data.html, "text/html");
    reply.replaceChildren(document.adoptNode(page.querySelector(".answer")));
  } else if (name === "error") {
    tell(data.detail);
  }
}

function tell(text) {
  const notice = element("p", "notice", text);
  notice.setAttribute("role", "alert");
  reply.querySelector(".answer").append(notice);
}

function element(name, kind, content) {
  const made = document.createElement(name);
  made.className = kind;
  made.append(...(typeof content === "string" ? [content] : content));
  return made;
}

// Sources beside the answer.

let opened = null;

reply.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-source]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  try {
    const source = await part(link.href, "article.source");
    open(source, link);
  } catch {
    location.assign(link.href);
  }
});

function open(source, link) {
  opened?.removeAttribute("aria-current");
  opened = link;
  link.setAttribute("aria-current", "true");
  const done = element("button", "plain", "Close");
  done.type = "button";
  done.addEventListener("click", () => close());
  const whole = element("a", "plain", "Open as a page");
  whole.href = link.href;
  reader.replaceChildren(element("div", "bar", [whole, done]), source);
  reader.hidden = false;
  document.body.classList.add("reads");
  const cited = reader.querySelector("#cited, .cited");
  if (cited) reader.scrollTop = cited.offsetTop - reader.clientHeight / 4;
  done.focus({ preventScroll: true });
}

function close() {
  if (reader.hidden) return;
  reader.hidden = true;
  document.body.classList.remove("reads");
  opened?.removeAttribute("aria-current");
  opened?.focus({ preventScroll: true });
  opened = null;
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape") close();
});
