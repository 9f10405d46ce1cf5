// All that needs a script: pages that go on by themselves, and the slider that says its moment.
// Without it, the same pages are loaded again by the browser, and the slider has a button.
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
          document.getElementById("said").textContent = state ? state.textContent : "";
        }
      }
    } catch {
      // The service is away for now: the next time may go through.
    }
    if (next.dataset.live) follow(next);
  }, seconds * 1000);
}

// On a phone the pages stand in one line that scrolls: bring the one we are on into it.
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
  // Not at once: who goes by the arrow keys is not there yet.
  let waiting = 0;
  slider.addEventListener("change", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => slider.form.requestSubmit(), 600);
  });
}
