// Parts of a page that are looked at again while somebody looks at them.

import { part } from "./fetching.js";

for (const region of document.querySelectorAll("[data-live]")) again(region, new Date(), null);

function again(region, seen, notice) {
  setTimeout(async () => {
    // Nothing is taken from under a visitor's hands.
    if (document.hidden || region.contains(document.activeElement)) return again(region, seen, notice);
    try {
      const shown = await part(location.href, `[data-live="${region.dataset.live}"]`);
      region.replaceWith(shown);
      notice?.remove();
      again(shown, new Date(), null);
    } catch (error) {
      again(region, seen, stale(region, seen, notice, error.message));
    }
  }, 1000 * region.dataset.every);
}

/** Say above a part that it is no longer as things are: old figures would pass for new ones. */
function stale(region, seen, notice, why) {
  const said = notice ?? document.createElement("p");
  said.className = "notice";
  said.setAttribute("role", "status");
  const text = `As of ${seen.toLocaleTimeString()}: ${why}.`;
  if (said.textContent !== text) said.textContent = text;
  if (!notice) region.before(said);
  return said;
}
