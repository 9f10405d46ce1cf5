// Refreshes live pages, and shows the time of the slider on the state page.
// Without scripts, the browser reloads live pages, and the slider has a button.
"use strict";

async function refresh(element) {
  if (document.hidden || element.contains(document.activeElement)) return element;
  const answer = await fetch(location.href, { credentials: "same-origin" });
  if (answer.redirected) return null;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.getElementById(element.id);
  if (fresh === null) return null;
  if (fresh.innerHTML === element.innerHTML) return element;
  const next = document.importNode(fresh, true);
  element.replaceWith(next);
  const state = next.querySelector(".head .badge");
  const told = next.dataset.announce || (state ? state.textContent : "");
  document.getElementById("announcement").textContent = told;
  return next;
}

// Look again every few seconds.
function look(element) {
  setTimeout(async () => {
    // If the service can't be reached, try again next time.
    const next = await refresh(element).catch(() => element);
    if (next && next.dataset.live) look(next);
  }, Number(element.dataset.live) * 1000);
}

// The service says when the stream of a run has grown; where it can't, look every few seconds.
function listen(element) {
  const source = new EventSource(element.dataset.told);
  let current = element;
  source.addEventListener("changed", async () => {
    current = (await refresh(current).catch(() => current)) || current;
    if (!current.dataset.live) source.close();
  });
  source.addEventListener("error", () => {
    if (source.readyState !== EventSource.CLOSED) return; // it connects again by itself
    look(current);
  });
}

// On a phone the navigation scrolls sideways: scroll to the current page.
const pages = document.querySelector(".top nav");
const current = pages && pages.querySelector("[aria-current]");
if (current) pages.scrollLeft = current.offsetLeft - pages.offsetLeft - 24;

for (const element of document.querySelectorAll("[data-live]")) {
  if (element.dataset.told) listen(element);
  else look(element);
}

for (const slider of document.querySelectorAll("input[data-moment]")) {
  const output = document.getElementById(slider.dataset.moment);
  slider.addEventListener("input", () => {
    const at = new Date(Number(slider.value) * 1000);
    output.value = at.toISOString().slice(0, 19).replace("T", " ");
  });
  // Wait: with the arrow keys several changes follow each other.
  let waiting = 0;
  slider.addEventListener("change", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => slider.form.requestSubmit(), 600);
  });
}
