// On every page: "/" goes to the question, and a form that was sent is not sent again by impatience.

const TYPING = "input, textarea, select, [contenteditable]";

addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(TYPING)) return;
  const question = document.getElementById("question");
  if (!question) return;
  event.preventDefault();
  question.focus();
  question.select();
});

addEventListener("submit", (event) => {
  if (event.defaultPrevented || event.target.method !== "post") return;
  for (const button of event.target.querySelectorAll("button")) {
    // After the form has been read: a disabled button is no part of it.
    setTimeout(() => { button.disabled = true; });
  }
});

// Who comes back to a page finds its buttons as they were.
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  for (const button of document.querySelectorAll("form[method=post] button")) button.disabled = false;
});
