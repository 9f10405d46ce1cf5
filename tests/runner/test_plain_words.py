"""What a routine requires is said in plain words."""

import pytest

from em.runner.expressions.words import check_in_words, in_words, request_in_words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("100", "always 100"),
        ('"paid"', 'always "paid"'),
        ("none", "always empty"),
        ("limit", "the input `limit`"),
        ("{{ order.total }}", "`order.total`"),
        ("only(order.items).id", "`id` of the only one of `order.items`"),
        ('pick(items, name=wanted, size="L").sku',
         '`sku` of the one of `items` where name is `wanted` and size is "L"'),
        ('least(every(shop, "items.*"), "price").id',
         "`id` of the one of `shop.items.*` with the smallest price"),
        ('among(every(user, "cards.@"), card)', "one of `user.cards.@`"),
        ("order.total - fee", "`order.total` minus `fee`"),
        ("my_own(x)", "`my_own(x)`"),
        ("not python (", "`not python (`"),
        ('only(select(items, where={"options.size": wanted, "status": "open"})).sku',
         '`sku` of the only one of all of `items` where options.size is `wanted` and status is'
         ' "open"'),
        ("select(items, where=wanted)", "`select(items, where=wanted)`"),
        ("pick()", "`pick()`"),
        ("{{ change }}: {{ note }}", 'the text "{change}: {note}"'),
        ('v{{ line_part(log, "a", "b") }}', 'the text "v…"'),
        ('once(log, "" ~ "v ~ " ~ line_part(log, "a", "b") ~ version)',
         'what stands once in `log`: the text "v ~ …{version}"'),
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
        ('least_of(every(order, "items.*"), "id", ids, "stock") > 0',
         "the smallest `stock` of `order.items.*` where id is `ids` is above 0"),
        ("is_open", "`is_open` holds"),
        ("not python (", "`not python (` holds"),
    ],
)  # fmt: skip
def test_a_guard(guard: str, words: str) -> None:
    assert check_in_words(guard) == words


LONG = "Be careful with money and polite to everybody who writes. " * 20


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("refund {{ order_id }}\n  please", '"refund {{ order_id }} please"'),
        (f"{LONG}Refund {{{{ id }}}} to {{{{ card }}}}, please. {LONG}",
         '"… polite to everybody who writes. Refund {{ id }} to {{ card }}, please.'
         ' Be careful with money and …"'),
        (f"Refund {{{{ id }}}} now. {LONG} To {{{{ card }}}}",
         '"Refund {{ id }} now. Be careful with money and polite … and polite to everybody who'
         ' writes. To {{ card }}"'),
        ("x" * 500, f'"{"x" * 40} …"'),
    ],
)  # fmt: skip
def test_a_request_that_is_long_is_told_by_what_varies(template: str, words: str) -> None:
    assert request_in_words(template) == words
