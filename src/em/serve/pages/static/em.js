// Refreshes live pages, and shows the time of the slider on the state page.
// Without scripts, the browser reloads live pages, and the slider has a button.
"use strict";

function follow(element) {
  const seconds = Number(element.dataset.live);
  setTimeout(async () => {
    let next = element;
    try {
      if (!document.hidden && !element.contains(document.activeElement)) {
        const answer = await fetch(location.href, { credentials: "same-origin" });
        if (answer.redirected) return;
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.getElementById(element.id);
        if (fresh === null) return;
        if (fresh.innerHTML !== element.innerHTML) {
          next = document.importNode(fresh, true);
          element.replaceWith(next);
          const state = next.querySelector(".head .badge");
          document.getElementById("announcement").textContent = state ? state.textContent : "";
        }
      }
    } catch {
      // The service can't be reached: try again next time.
    }
    if (next.dataset.live) follow(next);
  }, seconds * 1000);
}

// On a phone the navigation scrolls sideways: scroll to the current page.
const pages = document.querySelector(".top nav");
const current = pages && pages.querySelector("[aria-current]");
if (current) pages.scrollLeft = current.offsetLeft - pages.offsetLeft - 24;

for (const element of document.querySelectorAll("[data-live]")) follow(element);

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
