"""`em compile --explain` says in words what a routine of any form does, and when."""

from collections.abc import Callable

import pytest
from tests.cli.em_command import em
from tests.compiler.test_loops import trace as of_shelf
from tests.test_public_form import free_words, rules, template

from em import Memory
from em.traces.trace import Trace


def loop() -> list[Trace]:
    titles = [["Atlas"], ["Codex", "Diary"], ["Edda", "Atlas", "Codex"], ["Diary"]]
    said = ["Atlas", "Codex and Diary", "Edda, Atlas and Codex", "Diary"]
    return [
        of_shelf(f"Lend {words} to me now.", *(("lend", {"title": one}) for one in several))
        for words, several in zip(said, titles, strict=True)
    ]


SAID = {
    rules: [
        'set_mode is made\n  if check_mode: mode is "summer"\n',
        "home is what the request says as `home`",
        "after set_mode:\n  check_mode: mode must be different then",
        "what check_mode, check_pump show is known from traces",
        "after rules:\n  what measure shows is known from traces",
    ],
    template: [
        "copy_id must also be `copy.copy_id`; else the run asks",
        'the request as a text: "Lend {{ copy_id }} to me now."',
    ],
    free_words: [
        "lend is made\n  if the request asks for it, with a word such as copy, lend\n",
        "copy_id is the same as get_copy.copy_id",
        "the request must say weeks, such as 2, 3",
    ],
    loop: [
        "lend is made\n  for each `title` of the input `titles`\n",
        "before check_lend:\n  `at_shelf` reports no error, and",
        "one of `at_shelf.*.title` is `title`; else the run stops",
    ],
}


@pytest.mark.parametrize("form", SAID, ids=lambda form: form.__name__)
def test_a_routine_is_explained(form: Callable[[], list[Trace]]) -> None:
    with Memory("em.db") as memory:
        ids = [memory.add_trace(one) for one in form()]
    ran = em("compile", *ids, "-o", "out", "--explain", EM_DB="em.db")
    assert ran.code == 0, ran.err
    assert [words for words in SAID[form] if words not in ran.out] == []
    # A table without rows explains nothing.
    assert ("comes from" in ran.out) == (form in (template, loop))
