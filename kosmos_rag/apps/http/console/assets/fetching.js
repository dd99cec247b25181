// What the other scripts ask the service with.

/** Ask, and give the response, or throw an Error with what the service says was wrong. */
export async function ask(path, options = {}) {
  const response = await fetch(path, { credentials: "same-origin", ...options }).catch((error) => {
    throw error.name === "AbortError" ? error : new Error("the service cannot be reached");
  });
  if (response.redirected && new URL(response.url).pathname === "/sign-in") location.assign("/sign-in");
  if (!response.ok) throw new Error(await reason(response));
  return response;
}

async function reason(response) {
  try {
    const problem = await response.json();
    return problem.detail || problem.title;
  } catch {
    return `the service answered ${response.status}`;
  }
}

/** Ask for a page, and give one part of it. Scripts in it do not run. */
export async function part(path, selector) {
  const response = await ask(path, { headers: { accept: "text/html" } });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return document.adoptNode(page.querySelector(selector));
}
