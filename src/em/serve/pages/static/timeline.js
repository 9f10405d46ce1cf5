// Draws the rows of a timeline that are in view, filters them, and shows the chosen event beside
// them. Without scripts, the rows are links, a hundred to a page.
"use strict";

const HEIGHT = 30;
const AROUND = 12;
const FEW = 20;
const UNUSED = "not used";

class Timeline {
  constructor(root, rows) {
    this.root = root;
    this.rows = rows;
    this.shown = rows;
    this.folded = new Set();
    this.longest = Number(root.dataset.longest) || 0;
    this.panel = root.querySelector("#panel");
    this.list = root.querySelector(".events");
    this.told = root.querySelector(".shown");
    this.box = document.createElement("div");
    this.box.className = "window";
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "listbox");
    this.box.setAttribute("aria-label", "Events");
    // Two drawings without content are as high as the rows that are not drawn: no style is set.
    this.above = this.space();
    this.below = this.space();
    this.inside = document.createElement("div");
    this.inside.setAttribute("role", "presentation");
    this.box.append(this.above, this.inside, this.below);
    this.list.replaceWith(this.box);
    for (const pager of root.querySelectorAll(".left > .pager")) pager.remove();
    this.filters = root.querySelector(".filters");
    this.filters.hidden = false;
    this.filters.addEventListener("submit", (event) => event.preventDefault());
    this.filters.addEventListener("input", () => this.filter());
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.inside.addEventListener("click", (event) => this.click(event));
    this.panel.addEventListener("input", (event) => this.find(event));
    const asked = new URL(location.href).searchParams.get("n");
    this.chosen = asked === null ? -1 : Number(asked);
    this.filter();
    if (this.chosen >= 0) this.reveal(this.chosen);
  }

  space() {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    made.setAttribute("width", "1");
    made.setAttribute("aria-hidden", "true");
    return made;
  }

  filter() {
    const words = document.getElementById("tl-words").value.toLowerCase();
    const tool = document.getElementById("tl-tool").value;
    const outcome = document.getElementById("tl-outcome").value;
    const fits = ([, , name, text, , failed, , became]) =>
      (!tool || name === tool) &&
      (!outcome ||
        (outcome === "failed" ? failed : outcome === UNUSED ? became === UNUSED : became && became !== UNUSED)) &&
      (!words || `${name} ${text}`.toLowerCase().includes(words));
    const all = !words && !tool && !outcome;
    let under = -1;
    this.shown = this.rows.filter((row) => {
      if (row[6] === 0) under = row[0];
      return all ? row[6] === 0 || !this.folded.has(under) : fits(row);
    });
    const count = this.shown.length;
    this.told.textContent = count === this.rows.length ? `${count} events` : `${count} of ${this.rows.length} events`;
    this.draw(true);
  }

  draw(anew = false) {
    const few = this.shown.length < FEW;
    this.box.classList.toggle("few", few);
    const first = few ? 0 : Math.max(0, Math.floor(this.box.scrollTop / HEIGHT) - AROUND);
    const seen = Math.ceil((this.box.scrollTop + this.box.clientHeight) / HEIGHT);
    const last = few ? this.shown.length : Math.min(this.shown.length, seen + AROUND);
    if (!anew && first === this.first && last === this.last) return;
    this.first = first;
    this.last = last;
    const made = document.createDocumentFragment();
    for (let place = first; place < last; place++) made.append(this.row(place));
    this.inside.replaceChildren(made);
    this.above.setAttribute("height", first * HEIGHT);
    this.below.setAttribute("height", (this.shown.length - last) * HEIGHT);
    const current = document.getElementById(`row-${this.chosen}`);
    if (current) this.box.setAttribute("aria-activedescendant", current.id);
    else this.box.removeAttribute("aria-activedescendant");
  }

  row(place) {
    const [number, kind, name, text, seconds, failed, depth, became] = this.shown[place];
    const row = document.createElement("div");
    row.id = `row-${number}`;
    row.className = `row d${depth} is-${kind}${failed ? " failed" : ""}`;
    row.dataset.number = number;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", String(number === this.chosen));
    row.setAttribute("aria-posinset", String(place + 1));
    row.setAttribute("aria-setsize", String(this.shown.length));
    const add = (className, content) => {
      const part = document.createElement("span");
      part.className = className;
      part.textContent = content;
      row.append(part);
      return part;
    };
    if (kind === "message") add("fold", this.folded.has(number) ? "▸" : "▾");
    add("num", number + 1);
    add("name", name);
    add("text", text);
    if (failed) add("badge bad", "failed");
    if (became) add("tag", became === UNUSED ? became : `→ ${became}`);
    if (seconds !== null && this.longest > 0) {
      const bar = document.createElement("meter");
      bar.max = this.longest;
      bar.value = seconds;
      bar.title = seconds >= 1 ? `${seconds.toFixed(1)} s` : `${(seconds * 1000).toFixed(1)} ms`;
      bar.setAttribute("aria-label", `took ${bar.title}`);
      row.append(bar);
    }
    return row;
  }

  click(event) {
    const row = event.target.closest(".row");
    if (!row) return;
    const number = Number(row.dataset.number);
    if (event.target.classList.contains("fold")) {
      if (!this.folded.delete(number)) this.folded.add(number);
      this.filter();
    } else this.choose(number);
  }

  key(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9 };
    if (!(event.key in steps) || !this.shown.length) return;
    event.preventDefault();
    const now = this.shown.findIndex((row) => row[0] === this.chosen);
    const place = Math.min(this.shown.length - 1, Math.max(0, (now < 0 ? 0 : now) + (now < 0 ? 0 : steps[event.key])));
    this.choose(this.shown[place][0]);
  }

  reveal(number) {
    const place = this.shown.findIndex((row) => row[0] === number);
    if (place < 0) return;
    const top = place * HEIGHT;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + HEIGHT > this.box.scrollTop + this.box.clientHeight)
      this.box.scrollTop = top + HEIGHT - this.box.clientHeight;
    this.draw(true);
  }

  choose(number) {
    this.chosen = number;
    this.reveal(number);
    const page = new URL(this.root.dataset.page, location.href);
    page.searchParams.set("n", number);
    history.replaceState(null, "", page);
    clearTimeout(this.waiting);
    // Wait: with the arrow keys several choices follow each other.
    this.waiting = setTimeout(() => this.load(number), 60);
  }

  async load(number) {
    const from = new URL(this.root.dataset.event, location.href);
    from.searchParams.set("n", number);
    try {
      const answer = await fetch(from, { credentials: "same-origin" });
      if (answer.redirected) location.reload();
      if (!answer.ok) throw new Error(answer.statusText);
      const part = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (number !== this.chosen) return;
      this.panel.replaceChildren(...document.importNode(part.body, true).childNodes);
      for (const input of this.panel.querySelectorAll(".find")) input.hidden = false;
    } catch {
      this.panel.textContent = "This event could not be loaded. Choose it again to try once more.";
    }
  }

  find(event) {
    if (!event.target.classList.contains("find")) return;
    const pre = event.target.nextElementSibling;
    pre.whole ??= pre.textContent;
    const words = event.target.value.toLowerCase();
    const lines = pre.whole.split("\n");
    pre.textContent = words ? lines.filter((line) => line.toLowerCase().includes(words)).join("\n") : pre.whole;
  }
}

for (const root of document.querySelectorAll(".timeline")) {
  fetch(root.dataset.rows, { credentials: "same-origin" })
    .then((answer) => (answer.ok ? answer.json() : Promise.reject(answer.status)))
    .then((found) => new Timeline(root, found.rows))
    .catch(() => undefined); // the links stay as they are
}
