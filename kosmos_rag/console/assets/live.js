// Parts of a page that are looked at again while somebody looks at them.

import { part } from "./fetching.js";

for (const region of document.querySelectorAll("[data-live]")) again(region);

function again(region) {
  setTimeout(async () => {
    let shown = region;
    // Nothing is taken from under a visitor's hands.
    if (!document.hidden && !region.contains(document.activeElement)) {
      try {
        shown = await part(location.href, `[data-live="${region.dataset.live}"]`);
        region.replaceWith(shown);
      } catch {
        shown = region; // the service may be away for a moment
      }
    }
    again(shown);
  }, 1000 * region.dataset.every);
}
