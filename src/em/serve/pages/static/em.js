// Refreshes live pages. Without scripts, the browser reloads them.
"use strict";

// Fetch the page anew, and put its live part in the place of the old one.
async function refresh(element) {
  const answer = await fetch(location.href, { credentials: "same-origin" });
  if (answer.redirected) return null;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.getElementById(element.id);
  if (fresh === null) return null;
  if (fresh.outerHTML === element.outerHTML) return element;
  const next = document.importNode(fresh, true);
  keepOpen(element, next);
  element.replaceWith(next);
  const state = next.querySelector(".head .badge");
  announce(next.dataset.announce || (state ? state.textContent : ""));
  return next;
}

// What a reader has unfolded stays so.
function keepOpen(before, next) {
  const parts = next.querySelectorAll("details");
  before.querySelectorAll("details").forEach((part, number) => {
    if (parts[number]) parts[number].open = part.open;
  });
}

function announce(words) {
  document.getElementById("announcement").textContent = words;
}

// `data-told` has the address that says when there is more; `data-live` is still worked on.
function isLive(element) {
  return Boolean(element.dataset.told || element.dataset.live);
}

function isRead(element) {
  const at = document.activeElement;
  const writes = element.contains(at) && at.matches("input, textarea, select");
  return !document.hidden && !writes;
}

// The service says when there is more. While nobody looks, or somebody fills in a form, it waits.
function listen(element) {
  const source = new EventSource(element.dataset.told || "/ui/live/pulse");
  let current = element;
  let stale = false;
  let busy = false;
  async function update() {
    if (!stale || busy || !isRead(current)) return;
    busy = true;
    stale = false;
    current = (await refresh(current).catch(() => null)) || current;
    busy = false;
    if (isLive(current)) update();
    else source.close();
  }
  source.addEventListener("changed", () => {
    stale = true;
    update();
  });
  document.addEventListener("visibilitychange", update);
  document.addEventListener("focusout", () => setTimeout(update));
  source.addEventListener("error", () => {
    if (source.readyState !== EventSource.CLOSED) return; // it connects again by itself
    const note = document.createElement("p");
    note.className = "notice";
    note.textContent = "This page no longer updates by itself. Reload it to see what is new.";
    current.prepend(note);
  });
}

// On a phone the navigation scrolls sideways: scroll to the current page.
const pages = document.querySelector(".top nav");
const current = pages && pages.querySelector("[aria-current]");
if (current) pages.scrollLeft = current.offsetLeft - pages.offsetLeft - 24;

[...document.querySelectorAll("[data-told], [data-live]")].forEach(listen);
