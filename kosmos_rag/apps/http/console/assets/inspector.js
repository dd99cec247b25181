// Highlights a hit in the rankings of the retrievers, the fused order and the final order.

const trace = document.querySelector(".trace");
let highlighted = null;

function highlight(hit) {
  if (hit === highlighted) return;
  highlighted = hit;
  trace.classList.toggle("highlighting", hit !== null);
  for (const part of trace.querySelectorAll("[data-hit]")) part.classList.toggle("highlighted", part.dataset.hit === hit);
}

for (const kind of ["pointerover", "focusin", "click"]) {
  trace?.addEventListener(kind, (event) => highlight(event.target.closest("[data-hit]")?.dataset.hit ?? null));
}
trace?.addEventListener("pointerleave", () => highlight(null));
