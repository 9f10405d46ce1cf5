"""What a routine requires is said in plain words."""

import pytest

from em.runner.expressions.words import check_in_words, in_words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("100", "always 100"),
        ('"paid"', 'always "paid"'),
        ("none", "always empty"),
        ("limit", "the input `limit`"),
        ("{{ order.total }}", "`order.total`"),
        ("only(order.items).id", "`id` of the only one of `order.items`"),
        ("order.total - fee", "`order.total` minus `fee`"),
        ("my_own(x)", "`my_own(x)`"),
        ("not python (", "`not python (`"),
        ('only(items, {"options.size": wanted}, status="open").sku',
         '`sku` of the one of `items` where options.size is `wanted` and status is "open"'),
        ('where(items, status="open")', 'all of `items` where status is "open"'),
        ('smallest(offers, "price", status="open").id',
         '`id` of the one of `offers` with the smallest price where status is "open"'),
        ("only(items, wanted)", "`only(items, wanted)`"),
        ("days(order.placed, now)", "the days from `order.placed` to `now`"),
        ('elapsed(order.placed, now, "hours")', "the hours from `order.placed` to `now`"),
        ('line_place(log, "before", "## 1")', 'before "## 1" in `log`'),
        ('line_place(log, "beside", "## 1")', "`line_place(log, 'beside', '## 1')`"),
        ('part_of(path, "stem")', "the stem of `path`"),
        ("{{ change }}: {{ note }}", 'the text "{change}: {note}"'),
        ('v{{ between(log, "a", "b", "line") }}', 'the text "v…"'),
        ('between(log, "" ~ "v ~ " ~ between(log, "a", "b", "line") ~ version, "z")',
         'the part of `log` between the text "v ~ …{version}" and "z"'),
    ],
)  # fmt: skip
def test_a_value(expression: str, words: str) -> None:
    assert in_words(expression) == words


@pytest.mark.parametrize(
    ("guard", "words"),
    [
        ('order.status == "paid"', '`order.status` is "paid"'),
        ("order.closed_at == none", "`order.closed_at` is empty"),
        ("account.balance >= amount", "`account.balance` is at least `amount`"),
        ('distinct(every(items, "id"))', "no value of `items.id` is there twice"),
        ('where(orders, status="open")', 'one of `orders` where status is "open" is there'),
        ('not where(orders, status="open")', 'none of `orders` where status is "open" is there'),
        ("name not in file_text", "`name` is not in `file_text`"),
        ('order.id in every(user, "orders.*.id")', "`order.id` is one of `user.orders.*.id`"),
        ("order.total | float > 0", "`order.total` is above 0"),
        ("order.by | string | lower == user.id", "`order.by` is `user.id`"),
        ('stands_once(text, old, "lines")', "`old` stands once in `text`"),
        ("stands_in(text, name)", "`name` stands in `text`"),
        ("stands_in(text, name, 2)", "`name` stands in `text` 2 times"),
        ("not stands_in(text, name)", "`name` does not stand in `text`"),
        ("given(email)", "`email` is given"),
        ("is_open", "`is_open` holds"),
        ("not python (", "`not python (` holds"),
    ],
)  # fmt: skip
def test_a_guard(guard: str, words: str) -> None:
    assert check_in_words(guard) == words


@pytest.mark.parametrize(
    ("check", "words"),
    [
        ('"(" not in name', '`name` has no "("'),
        ('"x" in name', '`name` has "x"'),
        ('"x" not in every(rows, "kind")', '`rows.kind` is not "x"'),
    ],
)
def test_what_a_text_has_is_said_of_the_text(check: str, words: str) -> None:
    assert check_in_words(check) == words
