// Refreshes parts of a page at an interval.

import { fetchPart } from "./fetching.js";

for (const region of document.querySelectorAll("[data-live]")) scheduleRefresh(region, new Date(), null);

function scheduleRefresh(region, refreshedAt, notice) {
  setTimeout(async () => {
    // A part with the focus is not replaced.
    if (document.hidden || region.contains(document.activeElement)) return scheduleRefresh(region, refreshedAt, notice);
    try {
      const fresh = await fetchPart(location.href, `[data-live="${region.dataset.live}"]`);
      region.replaceWith(fresh);
      notice?.remove();
      scheduleRefresh(fresh, new Date(), null);
    } catch (error) {
      scheduleRefresh(region, refreshedAt, showStale(region, refreshedAt, notice, error.message));
    }
  }, 1000 * region.dataset.every);
}

/** Show above a part that it is stale, and return the notice. */
function showStale(region, refreshedAt, notice, reason) {
  const element = notice ?? document.createElement("p");
  element.className = "notice";
  element.setAttribute("role", "status");
  const text = `As of ${refreshedAt.toLocaleTimeString()}: ${reason}.`;
  if (element.textContent !== text) element.textContent = text;
  if (!notice) region.before(element);
  return element;
}
