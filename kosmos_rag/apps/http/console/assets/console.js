// On every page: "/" focuses the question, and a form is submitted once.

const TEXT_FIELDS = "input, textarea, select, [contenteditable]";

addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(TEXT_FIELDS)) return;
  const question = document.getElementById("question");
  if (!question) return;
  event.preventDefault();
  question.focus();
  question.select();
});

addEventListener("submit", (event) => {
  if (event.defaultPrevented || event.target.method !== "post") return;
  for (const button of event.target.querySelectorAll("button")) {
    // After the form has been read: a disabled button is not submitted.
    setTimeout(() => { button.disabled = true; });
  }
});

// A page from the browser's cache gets its buttons back.
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  for (const button of document.querySelectorAll("form[method=post] button")) button.disabled = false;
});
