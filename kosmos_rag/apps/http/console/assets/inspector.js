// A hit that is pointed at is followed through the legs, the fused order and the final one.

const trace = document.querySelector(".trace");
let followed = null;

function follow(hit) {
  if (hit === followed) return;
  followed = hit;
  trace.classList.toggle("follows", hit !== null);
  for (const part of trace.querySelectorAll("[data-hit]")) part.classList.toggle("lit", part.dataset.hit === hit);
}

for (const kind of ["pointerover", "focusin", "click"]) {
  trace?.addEventListener(kind, (event) => follow(event.target.closest("[data-hit]")?.dataset.hit ?? null));
}
trace?.addEventListener("pointerleave", () => follow(null));
