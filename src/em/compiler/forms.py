"""Forms: the plain ways in which a value is written into a text, and how an expression says so.

Each form is a function of one value that code can repeat: an amount with two decimals, a date as
people write it, the first word of a name, a slug, the stem of a file.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from em.compiler.places import is_scalar
from em.text.slug import slug
from em.values.times import is_date

DATE_FORMATS = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y%m%d", "%d %B %Y", "%B %d, %Y", "%d %b %Y", "%b %d, %Y",
    "%A", "%a", "%B", "%b", "%Y/%m/%d", "%Y-%m", "%Y/%m", "%Y", "%m", "%d", "%B %Y", "%b %Y",
    "%d.%m.", "%d %B", "%B %d", "%H:%M", "%Y-%m-%d", "%A, %d %B %Y", "%d-%m-%Y", "%y%m%d",
    "%d.%m.%y", "%-d %B %Y", "%B %-d, %Y", "%-d %b %Y", "%b %-d, %Y", "%-d.%-m.%Y", "%-m/%-d/%Y",
    "%-d %B", "%B %-d", "%a %-d %b", "%A %-d %B", "%Y%m%dT%H%M%S",
)  # fmt: skip
GLUES = (", ", ",", "; ", ";", " ", "\n", " / ", "/", "|", " | ", " and ", "+", "\t", " · ", "-")


class Form(NamedTuple):
    """One form: what it makes of a value, and its expression with `{}` for the value."""

    expression: str
    apply: Callable[[Any], str | None]


def _of_number(write: Callable[[Any], str]) -> Callable[[Any], str | None]:
    def apply(value: Any) -> str | None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return write(value) if is_number else None

    return apply


def _of_text(write: Callable[[str], str]) -> Callable[[Any], str | None]:
    def apply(value: Any) -> str | None:
        return write(value) if isinstance(value, str) and value.strip() else None

    return apply


def _word(number: int) -> Callable[[str], str]:
    return lambda text: text.split()[number] if len(text.split()) > 1 else ""


def _of_date(form: str) -> Callable[[Any], str | None]:
    def apply(value: Any) -> str | None:
        return datetime.fromisoformat(value).strftime(form) if is_date(value) else None

    return apply


def _of_path(write: Callable[[PurePosixPath], str]) -> Callable[[Any], str | None]:
    def apply(value: Any) -> str | None:
        if not isinstance(value, str) or " " in value or not ("/" in value or "." in value):
            return None
        return write(PurePosixPath(value))

    return apply


def _of_list(write: Callable[[list[Any]], str]) -> Callable[[Any], str | None]:
    def apply(value: Any) -> str | None:
        return write(value) if isinstance(value, list) and value else None

    return apply


def _joined(glue: str) -> Callable[[list[Any]], str]:
    return lambda items: glue.join(map(str, items)) if all(map(is_scalar, items)) else ""


FORMS: tuple[Form, ...] = (
    Form("{} | string", _of_number(str)),
    Form("'%.2f' | format({})", _of_number(lambda value: f"{value:.2f}")),
    Form("'{{:,.2f}}'.format({})", _of_number(lambda value: f"{value:,.2f}")),
    Form("'{{:,}}'.format({})", _of_number(lambda value: f"{value:,}")),
    Form("'%.1f' | format({})", _of_number(lambda value: f"{value:.1f}")),
    Form("{} | round | int", _of_number(lambda value: str(round(value)))),
    Form("{} | lower", _of_text(str.lower)),
    Form("{} | upper", _of_text(str.upper)),
    Form("{} | title", _of_text(str.title)),
    Form("{} | capitalize", _of_text(str.capitalize)),
    Form("{} | trim", _of_text(str.strip)),
    Form("word({}, 0)", _of_text(_word(0))),
    Form("word({}, -1)", _of_text(_word(-1))),
    Form("slug({})", _of_text(slug)),
    Form('slug({}, "_")', _of_text(lambda text: slug(text, "_"))),
    Form('slug({}, "")', _of_text(lambda text: slug(text, ""))),
    Form("stem({})", _of_path(lambda path: path.stem)),
    Form("file_name({})", _of_path(lambda path: path.name)),
    Form("folder({})", _of_path(lambda path: "" if str(path.parent) == "." else str(path.parent))),
    Form("{} | length", _of_list(lambda items: str(len(items)))),
    *(Form(f"{{}} | join({glue!r})", _of_list(_joined(glue))) for glue in GLUES),
    *(Form(f'date_text({{}}, "{form}")', _of_date(form)) for form in DATE_FORMATS),
)


def forms_of(value: Any) -> Iterator[tuple[int, str]]:
    """Yield every form of a value that differs from it, with the number of the form."""
    seen = {value} if isinstance(value, str) else set()
    for number, form in enumerate(FORMS):
        made = form.apply(value)
        if made and made not in seen:
            seen.add(made)
            yield number, made
