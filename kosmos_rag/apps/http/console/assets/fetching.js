// Requests of the other scripts.

/** Fetch a path and return the response. Throws an Error with the service's message. */
export async function request(path, options = {}) {
  const response = await fetch(path, { credentials: "same-origin", ...options }).catch((error) => {
    throw error.name === "AbortError" ? error : new Error("the service cannot be reached");
  });
  if (response.redirected && new URL(response.url).pathname === "/sign-in") location.assign("/sign-in");
  if (!response.ok) throw new Error(await errorMessage(response));
  return response;
}

async function errorMessage(response) {
  try {
    const problem = await response.json();
    return problem.detail || problem.title;
  } catch {
    return `the service answered ${response.status}`;
  }
}

/** Fetch a page and return one element of it. Its scripts do not run. */
export async function fetchPart(path, selector) {
  const response = await request(path, { headers: { accept: "text/html" } });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return document.adoptNode(page.querySelector(selector));
}
