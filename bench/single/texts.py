"""Texts that hold values: 25 kinds in two wordings each, from four sources of the values."""

import datetime
import html
import json
import re
import string
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from bench.single.case import Case, Flow, as_json, as_lines, as_table, key_of, make


class Form(NamedTuple):
    """A text with its tool: `{title:slug}` in the text is the field `title`, shown as a slug."""

    kind: str
    noun: str
    ask: str
    tool: str
    arg: str
    fixed: dict[str, Any]
    fields: dict[str, tuple[Any, Any]]
    text: str


def _date(pattern: str) -> Callable[[str], str]:
    def show(day: str) -> str:
        date = datetime.date.fromisoformat(day)
        return date.strftime(pattern.replace("%-d", str(date.day)))

    return show


SHOWN: dict[str, Callable[[Any], str]] = {
    "slug": lambda v: re.sub(r"[^a-z0-9]+", "-", v.lower()).strip("-"),
    "under": lambda v: v.lower().replace(" ", "_"),
    "first": lambda v: v.split()[0],
    "upper": str.upper,
    "usd": lambda v: f"${v:,.2f}",
    "euro": lambda v: f"{v:.2f}".replace(".", ",") + " €",
    "long": _date("%-d %B %Y"),
    "short": _date("%b %-d, %Y"),
    "weekday": _date("%A"),
    "compact": _date("%Y%m%d"),
    "year": lambda v: v[:4],
    "month": lambda v: v[5:7],
    "comma": ", ".join,
    "and": lambda v: " and ".join([", ".join(v[:-1]), v[-1]]),
    "bullets": lambda v: "\n".join(f"- {item}" for item in v),
    "count": lambda v: str(len(v)),
    "quote": lambda v: quote(v, safe=""),
    "plus": quote_plus,
    "json": lambda v: json.dumps(v, ensure_ascii=False),
    "html": html.escape,
    "sql": lambda v: v.replace("'", "''"),
}


class _Filler(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        show = SHOWN.get(format_spec)
        return show(value) if show else str(super().format_field(value, format_spec))


FORMS = [
    Form(
        *("html", "article", "Publish the teaser", "publish_block", "html", {"site": "garden"}),
        {"title": ("Pruning Roses", "Winter Compost"), "author": ("Mia Holt", "Luis Ferro")},
        '<div class="teaser"><h2>{title}</h2><p>by <b>{author}</b></p></div>',
    ),
    Form(
        *("html", "film", "Add the film to the programme", "add_snippet", "markup", {"page": 7}),
        {"name": ("Salt & Stone", "Bread & Roses"), "minutes": (94, 121)},
        '<li data-min="{minutes}">{name:html} <small>({minutes} min)</small></li>',
    ),
    Form(
        *("url", "search", "Open the search page", "open_and_save", "url", {"tab": "new"}),
        {"term": ("oak table", "linen & wool"), "page_no": (2, 14)},
        "https://shop.example/search?q={term:plus}&page={page_no}&sort=price",
    ),
    Form(
        *("url", "venue", "Save the map link", "save_link", "href", {"list": "venues"}),
        {"street": ("12 Mill Lane", "9 Harbour Road"), "town": ("Whitby", "Bad Ems")},
        "https://maps.example/place/{town:quote}/{street:quote}?zoom=17#pin",
    ),
    Form(
        *("csv", "sale", "Append the sale", "append_line", "line", {"file": "sales.csv"}),
        {"day": ("2026-05-18", "2026-06-02"), "item": ("kettle", "toaster"), "qty": (4, 11)},
        "{day},{item},{qty},EUR",
    ),
    Form(
        *("csv", "guest", "Add the guest", "add_row", "row", {"sheet": "gala", "header": False}),
        {"guest": ("Dube, Thandi", "Berg, Ola"), "seat": ("C12", "A4")},
        '"{guest}";{seat};confirmed',
    ),
    Form(
        *("json", "device", "Publish the reading", "mqtt_send", "payload", {"topic": "lab/air"}),
        {"sensor": ("co2-north", "co2-roof"), "ppm": (618, 1204)},
        '{{"sensor": {sensor:json}, "ppm": {ppm}, "ok": true}}',
    ),
    Form(
        *(
            "json",
            "webhook",
            "Call the webhook",
            "http_post",
            "body",
            {"url": "https://hk.example"},
        ),
        {"event": ("badge printed", 'sign "Exit" moved'), "desk": ("D3", "D17")},
        '{{"data":{{"desk":{desk:json},"event":{event:json}}},"v":2}}',
    ),
    Form(
        *("shell", "video", "Convert the video", "run", "command", {"cwd": "/srv/media"}),
        {"clip": ("intro.mov", "outro.mov"), "width": (1280, 640)},
        "ffmpeg -i raw/{clip} -vf scale={width}:-1 out/{width}/{clip}",
    ),
    Form(
        *("shell", "branch", "Push the branch", "exec", "cmd", {"timeout": 30}),
        {"branch": ("fix/login-loop", "feat/dark-mode"), "remote": ("upstream", "fork")},
        "git push {remote} {branch} && git log -1 --oneline {branch}",
    ),
    Form(
        *("sql", "customer", "Move the customer", "execute", "sql", {"db": "crm"}),
        {"city": ("Porto", "L'Aquila"), "number": (4417, 982)},
        "UPDATE customers SET city = '{city:sql}' WHERE number = {number};",
    ),
    Form(
        *("sql", "grade", "Store the grade", "run_sql", "statement", {"schema": "school"}),
        {"pupil": ("Noor Aziz", "Tim Roth"), "mark": (87, 64), "course": ("Optics", "Waves")},
        "INSERT INTO grades (pupil, course, mark) VALUES ('{pupil}', '{course}', {mark})",
    ),
    Form(
        *("email", "order", "Mail the buyer", "send_mail", "body", {"subject": "Your order"}),
        {"buyer": ("Jana Novak", "Sam Okoro"), "parcel": ("PX-7781", "PX-9024")},
        "Dear {buyer},\n\nyour parcel {parcel} left our store today.\n\nKind regards\nHelle",
    ),
    Form(
        *("email", "visit", "Invite the visitor", "mail", "text", {"sender": "desk@lab.example"}),
        {"visitor": ("Dr. Weiss", "Prof. Adeyemi"), "gate": ("North", "River"), "hour": (9, 14)},
        "Hello {visitor},\nplease come to the {gate} gate at {hour}:00.\nWe look forward to it!",
    ),
    Form(
        *("markdown", "release", "Add the table row", "append_text", "markdown", {"doc": "rel"}),
        {"version": ("4.2.0", "5.0.1"), "lead": ("Petra", "Yusuf"), "fixes": (17, 3)},
        "| {version} | {lead} | {fixes} |",
    ),
    Form(
        *("markdown", "book", "Note the book", "add_note", "content", {"folder": "reading"}),
        {"book": ("Stoner", "Middlemarch"), "writer": ("John Williams", "George Eliot")},
        "## {book}\n\n*{writer}*\n\n> read [{book}](books/{book}.md)",
    ),
    Form(
        *("path", "report", "File the report", "save_file", "path", {"content": "see mail"}),
        {"client": ("Acme Tools", "Blue Fjord"), "day": ("2026-03-17", "2025-11-28")},
        "/reports/{day:year}/{day:month}/{client:under}/summary.pdf",
    ),
    Form(
        *("path", "scan", "Store the scan", "upload", "key", {"bucket": "scans"}),
        {"patient": ("P-5512", "P-0931"), "part": ("knee", "shoulder"), "series": (3, 12)},
        "s3://scans/{patient}/{part}/series_{series:03d}.dcm",
    ),
    Form(
        *("slug", "post", "Reserve the address", "reserve_slug", "slug", {"blog": "main"}),
        {"headline": ("Spring Sale Starts!", "Why We Moved"), "week": (14, 37)},
        "w{week}-{headline:slug}",
    ),
    Form(
        *("slug", "team", "Create the channel", "create_channel", "name", {"private": False}),
        {"team": ("Field Research", "Data Platform Core"), "site": ("Oslo", "Lima")},
        "team-{team:slug}-{site:slug}",
    ),
    Form(
        *("ics", "meeting", "Add the meeting", "put_event", "ics", {"calendar": "work"}),
        {"summary": ("Budget review", "Offsite prep"), "day": ("2026-09-04", "2026-10-21")},
        "BEGIN:VEVENT\nDTSTART;VALUE=DATE:{day:compact}\nSUMMARY:{summary}\nEND:VEVENT",
    ),
    Form(
        *("ics", "shift", "Add the shift", "import_entry", "entry", {"overwrite": True}),
        {"nurse": ("Ida Lund", "Ravi Sen"), "ward": ("4B", "ICU"), "starts": ("0600", "2200")},
        "BEGIN:VEVENT\nDTSTART:20260701T{starts}00\nSUMMARY:{nurse} ({ward})\nLOCATION:{ward}\n"
        "END:VEVENT",
    ),
    Form(
        *("log", "job", "Write the log line", "log", "line", {"stream": "batch"}),
        {"job": ("nightly-sync", "reindex"), "took": (48, 613), "host": ("db-3", "web-11")},
        "[INFO] job={job} host={host} took={took}s done",
    ),
    Form(
        *("log", "door", "Note the access", "append_log", "entry", {"level": "audit"}),
        {"badge": ("B-2210", "B-8804"), "door": ("Archive", "Server room")},
        'access granted badge="{badge}" door="{door}" by=reception',
    ),
    Form(
        *("greeting", "member", "Greet the member", "post_message", "text", {"to": "#welcome"}),
        {"full_name": ("Carla Mendes", "Henrik Sand"), "club": ("Chess", "Rowing")},
        "Hi {full_name:first}, welcome to the {club} club!",
    ),
    Form(
        *("greeting", "client", "Send the birthday note", "send_sms", "message", {"unicode": True}),
        {"person": ("Amara Diallo", "Felix Brandt"), "branch": ("Lyon", "Graz")},
        "Happy birthday, {person:first}! Your team in {branch} 🎂",
    ),
    Form(
        *("money", "bill", "Remind the tenant", "notify", "text", {"channel": "sms"}),
        {"tenant": ("Ruth Klein", "Omar Haddad"), "due": (12.5, 340.0)},
        "{tenant}: please pay {due:usd} this week.",
    ),
    Form(
        *("money", "quote", "Post the offer", "post_offer", "offer", {"board": "sales"}),
        {"firm": ("Nordlicht", "Casa Verde"), "net": (99.9, 450.25), "vat": (18.98, 85.55)},
        "Offer for {firm}: {net:euro} + {vat:euro} VAT",
    ),
    Form(
        *("date", "lease", "Confirm the lease", "send_letter", "text", {"lang": "en"}),
        {"flat": ("Elm 4", "Quay 27"), "from_day": ("2026-03-04", "2027-11-23")},
        "Your lease for {flat} starts on {from_day:long}.",
    ),
    Form(
        *("date", "concert", "Announce the concert", "publish", "caption", {"feed": "events"}),
        {"band": ("The Lanterns", "Kite Club"), "night": ("2026-08-07", "2026-12-12")},
        "{band} live on {night:weekday}, {night:short}",
    ),
    Form(
        *("list", "recipe", "Post the ingredients", "post_card", "body", {"size": "A6"}),
        {
            "dish": ("Shakshuka", "Pad Thai"),
            "needs": (["eggs", "tomatoes", "cumin"], ["noodles", "tofu", "lime", "peanuts"]),
        },
        "{dish}: {needs:comma}.",
    ),
    Form(
        *("list", "trip", "Write the packing list", "write_note", "note", {"pinned": True}),
        {
            "goal": ("Hardanger", "Lake Garda"),
            "crew": (["Eva", "Nils", "Tom"], ["Gina", "Paul", "Lea", "Max"]),
        },
        "Trip to {goal} with {crew:and}",
    ),
    Form(
        *("count", "queue", "Report the queue", "send_report", "text", {"to": "lead"}),
        {
            "queue": ("billing", "returns"),
            "tickets": (["Q-81", "Q-95", "Q-77"], ["Q-60", "Q-61", "Q-64", "Q-70", "Q-72"]),
        },
        "There are {tickets:count} tickets in {queue}.",
    ),
    Form(
        *("count", "harvest", "Post the harvest", "post_update", "status", {"visibility": "all"}),
        {
            "field": ("Lower Field", "Orchard"),
            "crates": (["pears", "plums", "figs", "kale"], ["apples", "quinces"]),
        },
        "{field}: {crates:count} crates in\n{crates:bullets}",
    ),
    Form(
        *("plural", "basket", "Confirm the basket", "show_banner", "text", {"style": "info"}),
        {"pieces": (3, 1), "shop": ("Rue Cler", "Altstadt")},
        "{pieces} item(s) ready for pick-up at {shop}",
    ),
    Form(
        *("plural", "server", "Post the alert", "alert", "message", {"severity": 2}),
        {"cluster": ("amber", "cobalt"), "failed": (7, 1), "total": (40, 12)},
        "Cluster {cluster} - failed nodes: {failed}/{total}",
    ),
    Form(
        *("twice", "plant", "Print the sign", "print_label", "label", {"copies": 1}),
        {"plant": ("Sage", "Lemon balm"), "bed": ("E5", "K2")},
        "{plant} | bed {bed} | do not pick the {plant}!",
    ),
    Form(
        *("twice", "domain", "Write the zone", "write_zone", "zone", {"ttl": 300}),
        {"host": ("kiln.example", "loom.example"), "ip": ("10.4.0.9", "10.8.3.21")},
        "{host}. IN A {ip}\nwww.{host}. IN A {ip}\nmail.{host}. IN CNAME {host}.",
    ),
    Form(
        *("punctuation", "cat", "Post the notice", "pin_notice", "text", {"wall": "hall"}),
        {"cat": ("Minka", "Sir Purr"), "chip": ("98-44", "71-03")},
        'Lost:"{cat}"({chip}),call us!{cat}?',
    ),
    Form(
        *("punctuation", "song", "Set the title", "set_title", "title", {"screen": "stage"}),
        {"song": ("Blue Door", "Go, Slow"), "artist": ("Vela", "M.I.R.A.")},
        "«{song}»/{artist}…[{artist};{song}]",
    ),
    Form(
        *("contained", "pupil", "Write to the parents", "write_letter", "letter", {"copy": 2}),
        {"child": ("Ann", "Bo"), "mother": ("Anna", "Ella"), "family": ("Annable", "Boone")},
        "Dear {mother} {family}, {child} {family} was late. Please talk to {child}.",
    ),
    Form(
        *("contained", "part", "Tag the part", "tag_part", "tag", {"printer": "P1"}),
        {"box": (12, 48), "lot": (1204, 977), "serial": ("SN12041", "SN553")},
        "box {box} / lot {lot} / {serial}",
    ),
    Form(
        *("xml", "product", "Send the product", "push_xml", "xml", {"feed": "partner"}),
        {"ean": ("4006381333931", "9780201379624"), "label": ("Pencil HB", "Ruler 30")},
        '<product ean="{ean}"><name>{label}</name></product>',
    ),
    Form(
        *("xml", "stop", "Publish the stop", "publish_stop", "document", {"net": "tram"}),
        {"stop": ("Zoo", "Town Hall"), "line": (6, 13), "lat": (59.913, 59.921)},
        "<stop><line>{line}</line><name>{stop}</name><lat>{lat}</lat></stop>",
    ),
    Form(
        *("config", "service", "Write the config", "write_config", "yaml", {"env": "test"}),
        {"image": ("web:1.4.2", "web:2.0.0"), "replicas": (3, 5)},
        "service:\n  image: {image}\n  replicas: {replicas}\n  restart: always\n",
    ),
    Form(
        *("config", "printer", "Write the settings", "put_settings", "ini", {"reload": True}),
        {"location": ("Floor 2 East", "Basement"), "queue_name": ("hp-east", "kyo-base")},
        "[{queue_name}]\nlocation={location}\nuri=ipp://{queue_name}.local/print\n",
    ),
    Form(
        *("query", "thread", "Save the filter", "save_filter", "query", {"star": True}),
        {"from_person": ("olga@mill.example", "kai@dock.example"), "topic": ("rent", "permit")},
        'from:{from_person} subject:"{topic}" -in:spam',
    ),
    Form(
        *("query", "paper", "Save the search", "save_search", "expression", {"alert": "weekly"}),
        {"topic": ("sleep apnea", "gut flora"), "since": (2019, 2023)},
        '("{topic}"[Title]) AND {since}:3000[Date]',
    ),
    Form(
        *("upper", "bay", "Print the pallet tag", "print_tag", "tag", {"format": "zpl"}),
        {"depot": ("Leipzig", "Gdansk"), "bay": ("n14", "s3")},
        "*** {depot:upper} / {bay:upper} ***",
    ),
    Form(
        *("upper", "match", "Set the score line", "set_ticker", "ticker", {"speed": 3}),
        {"home": ("Rovers", "Athletic"), "away": ("United", "Wanderers"), "goals": (2, 5)},
        "{home:upper} v {away:upper} - {goals} goals",
    ),
]

SOURCES = ("inputs", "request", "record", "mixed")


def cases() -> Iterator[Case]:
    """Return one case for each form and source."""
    for number, form in enumerate(FORMS):
        for source in SOURCES:
            yield _case(form, source, number)


def _case(form: Form, source: str, number: int) -> Case:
    values = tuple({name: pair[side] for name, pair in form.fields.items()} for side in (0, 1))
    names = list(form.fields)
    asked = {"inputs": names, "request": names, "record": [], "mixed": names[:1]}[source]
    looked_up = [name for name in names if name not in asked]
    key = f"{form.noun}_id"
    given, answers = [], []
    for side, ident in enumerate((f"x{number:02d}Tq", f"y{number:02d}Vz")):
        inputs = {name: values[side][name] for name in asked}
        record = {name: values[side][name] for name in looked_up}
        given.append(inputs | ({key: ident} if looked_up else {}))
        answers.append({f"get_{form.noun}": _shaped(ident, record, number, side)})
    words = ", ".join(f"{name.replace('_', ' ')} {_words(given[0][name])}" for name in given[0])
    ask = f"{form.ask}: {words}.".replace("{", "{{").replace("}", "}}")
    held = {key_of(given[side]): values[side] for side in (0, 1)}
    flow = _flow(form, held, source, key if looked_up else "")
    name = f"{form.kind} {form.noun} {source}"
    why = f"The {form.kind} text must hold the values of the new {form.noun}, from the {source}."
    inputs_of, answers_of = (given[0], given[1]), (answers[0], answers[1])
    typed = source != "request"
    return make(name, "texts", flow, ask, inputs_of, answers_of, why, typed=typed)


def _flow(form: Form, held: dict[str, dict[str, Any]], source: str, key: str) -> Flow:
    """Return the flow; `held` has the values by the inputs of the recording and of the run.

    A request has no typed inputs, so its values are arguments beside the text too.
    """

    def flow(do: Any, given: Any) -> None:
        if key:
            getattr(do, f"get_{form.noun}")(**{key: getattr(given, key)})
        values = held[key_of(vars(given))]
        args = values if source == "request" else {}
        text = _Filler().format(form.text, **values)
        getattr(do, form.tool)(**{**form.fixed, **args, form.arg: text})

    return flow


def _words(value: object) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _shaped(ident: str, record: dict[str, Any], number: int, side: int) -> object:
    """Show a record in one of six shapes, with an etag that matters to nobody."""
    full = {"ref": ident, **record, "etag": ("5e1f0a", "c07d93")[side]}
    shapes: list[Callable[[dict[str, Any]], object]] = [
        lambda r: r,
        lambda r: {"data": {"attributes": r}, "took_ms": 12 + side},
        lambda r: [r],
        as_json,
        as_lines,
        as_table,
    ]
    plain = not any(isinstance(value, list) for value in record.values())
    return shapes[number % (6 if plain else 4)](full)
