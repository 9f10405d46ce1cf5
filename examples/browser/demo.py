"""A browser task in headless Chromium: done by an agent once, then by the engine.

It needs `pip install playwright` and a Chromium (`playwright install chromium`, or the system's).
What guards each click is the state of the page: its title, its headings, and what the button says.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from em import Check, Engine

PAGE = """<!doctype html><title>Book a desk</title>
<h1>Book a desk</h1>
<form onsubmit="book(event)">
  <label>Name <input id="name"></label>
  <label>Day <input id="day"></label>
  <button>BUTTON</button>
</form>
<p id="done"></p>
<script>
  function book(event) {
    event.preventDefault();
    const number = Number(localStorage.number || 100) + 1;
    localStorage.number = number;
    document.title = "Booked";
    done.textContent = `Desk ${number} is yours, ${document.getElementById("name").value},`
      + ` on ${day.value}`;
  }
</script>
"""


@dataclass
class Seen:
    """What of a page decides whether an action is safe."""

    title: str
    headings: list[str]
    buttons: list[str]


class Desk:
    """The browser, as the agent uses it."""

    engine = Engine()

    def __init__(self, page: Page) -> None:
        self.page = page

    def look(self) -> Seen:
        """The state of the page."""
        texts = self.page.eval_on_selector_all
        each = "all => all.map(one => one.textContent.trim())"
        return Seen(self.page.title(), texts("h1,h2", each), texts("button", each))

    same = Check(look, lambda now, then: now == then)

    @engine.method()
    def open(self, url: str) -> str:
        """Go to a page."""
        self.page.goto(url)
        return self.page.title()

    @engine.method(pre_check=same)
    def fill(self, field: str, text: str) -> None:
        """Write into a field."""
        self.page.fill(f"#{field}", text)

    @engine.method(pre_check=same)
    def click(self, button: str) -> str:
        """Click on a button; what the page then says."""
        self.page.get_by_role("button", name=button).click()
        return self.page.inner_text("#done")


def main() -> None:
    """Tell the story."""
    installed = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    engine = Desk.engine
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        file = Path(name) / "desk.html"
        browser = playwright.chromium.launch(executable_path=installed, args=["--no-sandbox"])
        desk = Desk(browser.new_page())
        asked = []

        def agent(url: str, who: str, day: str) -> str:
            """Plays the part of the model: it reads the page and decides what to click."""
            progress = engine.progress()
            asked.append(progress)
            if not progress:
                desk.open(url)
            desk.fill("name", who)
            desk.fill("day", day)
            return desk.click(desk.look().buttons[0])

        engine.set_agent(agent).set_context(desk).finalize()

        def book(who: str, day: str) -> None:
            result = engine(file.as_uri(), who, day, params=["who", "day"])
            print(f"{result.how}: {result.value}")
            if result.reason:
                print(f"  {result.reason}")

        file.write_text(PAGE.replace("BUTTON", "Book"))
        book("Ana Lima", "Monday")
        book("Bo Berg", "Tuesday")
        print("The page changes:")
        file.write_text(PAGE.replace("BUTTON", "Reserve now"))
        book("Cy Cole", "Friday")
        book("Di Dorn", "Sunday")
        print(f"the agent was asked {len(asked)} times")
        browser.close()


if __name__ == "__main__":
    main()
