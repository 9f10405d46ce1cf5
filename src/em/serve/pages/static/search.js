// Searches everything while somebody types into the box in the header: `/` or Ctrl+K leads there,
// the arrow keys walk through the results, Enter opens one, Escape closes them.
// Without scripts, the box leads to a page of results.
"use strict";

class Finder {
  constructor(form) {
    this.form = form;
    this.box = form.querySelector("input");
    this.list = document.createElement("div");
    this.list.id = "found";
    this.list.className = "found";
    this.list.hidden = true;
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "Results");
    form.append(this.list);
    for (const [name, value] of [["role", "combobox"], ["aria-autocomplete", "list"],
      ["aria-controls", "found"], ["aria-haspopup", "listbox"], ["aria-expanded", "false"]])
      this.box.setAttribute(name, value);
    this.box.addEventListener("input", () => this.wait());
    this.box.addEventListener("focus", () => this.wait());
    this.box.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("keydown", (event) => this.shortcut(event));
    document.addEventListener("pointerdown", (event) => form.contains(event.target) || this.close());
    form.addEventListener("focusout", (event) => form.contains(event.relatedTarget) || this.close());
    this.list.addEventListener("pointerdown", (event) => event.preventDefault()); // the box stays in focus
  }

  shortcut(event) {
    const writes = event.target.closest("input, textarea, select, [contenteditable]");
    const asked = event.key === "/" ? !writes && !event.ctrlKey && !event.metaKey && !event.altKey
      : event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey;
    if (!asked) return;
    event.preventDefault();
    this.box.focus();
    this.box.select();
  }

  wait() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.find(), 150);
  }

  async find() {
    const words = this.box.value.trim();
    this.asked?.abort();
    if (!words) return this.close();
    this.asked = new AbortController();
    const from = new URL(this.form.dataset.found, location.href);
    from.searchParams.set("q", words);
    try {
      const answer = await fetch(from, { credentials: "same-origin", signal: this.asked.signal });
      if (answer.redirected || !answer.ok) return this.close(); // Enter leads to the page that says why
      const part = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (words !== this.box.value.trim() || document.activeElement !== this.box) return;
      this.list.replaceChildren(...document.importNode(part.body, true).childNodes);
      this.options = [...this.list.querySelectorAll("[role=option]")];
      this.show(true);
      this.choose(-1);
      const found = this.options.length - 1;
      document.getElementById("announcement").textContent = found === 1 ? "1 result" : `${found} results`;
    } catch {
      // Another search has begun, or the service can't be reached: Enter leads to the page.
    }
  }

  key(event) {
    if (event.key === "Escape") {
      if (this.list.hidden) this.box.blur();
      else event.preventDefault();
      return this.close();
    }
    if (this.list.hidden) return event.key === "ArrowDown" ? this.wait() : undefined;
    const count = this.options.length;
    const place = this.chosen ?? -1;
    const next = { ArrowDown: (place + 1) % count, ArrowUp: (place <= 0 ? count : place) - 1 }[event.key];
    if (next !== undefined) {
      event.preventDefault();
      this.choose(next);
    } else if (event.key === "Enter" && place >= 0) {
      event.preventDefault();
      this.options[place].click();
    }
  }

  choose(place) {
    this.chosen = place;
    for (const [number, option] of this.options.entries()) option.setAttribute("aria-selected", String(number === place));
    if (place < 0) return this.box.removeAttribute("aria-activedescendant");
    this.box.setAttribute("aria-activedescendant", this.options[place].id);
    this.options[place].scrollIntoView({ block: "nearest" });
  }

  show(open) {
    this.list.hidden = !open;
    this.box.setAttribute("aria-expanded", String(open));
  }

  close() {
    clearTimeout(this.waiting);
    this.asked?.abort();
    this.box.removeAttribute("aria-activedescendant");
    this.show(false);
  }
}

for (const form of document.querySelectorAll("form.finder")) new Finder(form);
