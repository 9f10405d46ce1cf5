"""Everyday automations: recorded once, then run with other inputs in a world that answers anew."""

import json
from collections.abc import Callable
from typing import Any

from bench.single.case import Answers, Case, Each, Flow, Made, fields, make

CASES: list[Case] = []


def everyday(
    ask: str,
    inputs: dict[str, tuple[Any, Any]],
    answers: Answers,
    others: Answers,
    *,
    typed: bool = True,
) -> Callable[[Flow], Flow]:
    """Make a case of a flow: its name is the case's name, its docstring says why.

    `inputs` has the recorded and the other value of each input.
    """

    def add(flow: Flow) -> Flow:
        name, why = flow.__name__, flow.__doc__ or ""
        old, new = ({key: pair[side] for key, pair in inputs.items()} for side in (0, 1))
        worlds = (answers, others)
        CASES.append(make(name, "everyday", flow, ask, (old, new), worlds, why, typed=typed))
        return flow

    return add


def rows(names: str, *values: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return one record for each tuple of values."""
    return [dict(zip(names.split(), row, strict=True)) for row in values]


@everyday(
    "Write the sales report of {store} for {month}.",
    {"store": ("Leeds", "York"), "month": ("2026-05", "2026-06")},
    {"list_sales": [{"sku": "K1", "sum": 40.5}, {"sku": "K7", "sum": 12.25}]},
    {"list_sales": rows("sku sum", ("B2", 7.5), ("B3", 8.5), ("K1", 2.75))},
)
def csv_report(do: Any, i: Any) -> object:
    """The file holds a line for each sale of the new store and month."""
    rows = do.list_sales(store=i.store, month=i.month)
    text = "sku,sum\n" + "".join(f"{row['sku']},{row['sum']}\n" for row in rows)
    do.write_file(path=f"reports/{i.store.lower()}-{i.month}.csv", text=text)
    return f"reports/{i.store.lower()}-{i.month}.csv"


@everyday(
    "Register {name} ({email}) for the course {course}.",
    {"name": ("Ines", "Jon"), "email": ("i@p.example", "j@v.example"), "course": ("Felt", "Clay")},
    {"open_page": {"title": "Sign up", "fields": ["name", "email", "course"]}},
    {"open_page": {"title": "Sign up", "fields": ["name", "email", "course"]}},
)
def web_form(do: Any, i: Any) -> None:
    """Each field of the form gets the new person's value."""
    do.open_page(url="https://craft.example/signup")
    do.type_text(field="name", text=i.name)
    do.type_text(field="email", text=i.email)
    do.choose(field="course", option=i.course)
    do.click(button="Register")


@everyday(
    "Open a ticket: {summary} (reported by {reporter}).",
    {"summary": ("Printer jams", "VPN drops hourly"), "reporter": ("lena", "marc")},
    {"find_user": {"id": 311, "team": "Finance"}, "create_ticket": Made({"key": "IT-540"})},
    {"find_user": {"id": 87, "team": "Sales"}, "create_ticket": Made({"key": "IT-612"})},
)
def open_ticket(do: Any, i: Any) -> object:
    """The comment goes to the ticket that this run created."""
    user = do.find_user(login=i.reporter)
    key = do.create_ticket(title=i.summary, reporter_id=user["id"], queue="helpdesk")["key"]
    do.add_comment(ticket=key, text=f"Reported by {i.reporter} ({user['team']})")
    return {"ticket": key}


@everyday(
    "Move everything from {folder} to the archive of {year}.",
    {"folder": ("/in/scans", "/in/faxes"), "year": ("2026", "2027")},
    {"list_files": ["a1.pdf", "a2.pdf"]},
    {"list_files": ["f7.tif", "f8.tif", "f9.tif"]},
)
def move_files(do: Any, i: Any) -> None:
    """Every file of the new folder is moved, however many there are."""
    for name in do.list_files(folder=i.folder):
        do.move_file(source=f"{i.folder}/{name}", target=f"/archive/{i.year}/{name}")


@everyday(
    "Number the photos of album {album}.",
    {"album": ("Faroe", "Kyoto")},
    {"list_album": {"album": "Faroe", "photos": ["IMG_88.jpg", "IMG_90.jpg", "IMG_97.jpg"]}},
    {"list_album": {"album": "Kyoto", "photos": ["DSC5.jpg", "DSC9.jpg"]}},
    typed=False,
)
def rename_photos(do: Any, i: Any) -> None:
    """The photos are numbered in the order of the album."""
    for number, photo in enumerate(do.list_album(album=i.album)["photos"], 1):
        do.rename(album=i.album, old=photo, new=f"{i.album}_{number:02d}.jpg")


@everyday(
    "Tell the sender of mail {mail_id} that we got it.",
    {"mail_id": ("m-4410", "m-4893")},
    {"get_mail": {"from": {"name": "Tess", "address": "t@oak.example"}, "subject": "Broken tap"}},
    {"get_mail": {"from": {"name": "Udo", "address": "u@elm.example"}, "subject": "Key lost"}},
)
def acknowledge_mail(do: Any, i: Any) -> None:
    """The answer goes to the sender of the other mail, with its subject."""
    mail = do.get_mail(mail_id=i.mail_id)
    sender = mail["from"]
    text = f"Hello {sender['name']}, we got your message and will answer soon."
    do.send_mail(to=sender["address"], subject=f"Re: {mail['subject']}", text=text)
    do.mark_read(mail_id=i.mail_id)


@everyday(
    "Post today's weather in {city} to {channel}.",
    {"city": ("Bergen", "Seville"), "channel": ("#office", "#remote")},
    {"forecast": {"place": "Bergen", "now": {"temp": 9, "sky": "rain"}, "wind": {"ms": 7}}},
    {"forecast": {"place": "Seville", "now": {"temp": 31, "sky": "clear"}, "wind": {"ms": 2}}},
)
def weather_post(do: Any, i: Any) -> None:
    """The post shows what the forecast says now for the other city."""
    sky = do.forecast(city=i.city)
    text = f"{i.city}: {sky['now']['temp']}°C, {sky['now']['sky']}, wind {sky['wind']['ms']} m/s"
    do.post(channel=i.channel, text=text)


@everyday(
    "Plan a call with {name} on {day} from {start} to {end}.",
    {
        "name": ("Gwen Abara", "Piet Maas"),
        "day": ("2026-06-11", "2026-07-02"),
        "start": ("10:00", "15:30"),
        "end": ("10:45", "16:00"),
    },
    {"find_contact": [{"name": "Gwen Abara", "mail": "gwen@abara.example", "phone": "5512"}]},
    {"find_contact": [{"name": "Piet Maas", "mail": "p.maas@dyke.example", "phone": "9034"}]},
)
def calendar_call(do: Any, i: Any) -> None:
    """The event joins day and times, and invites the address that was found."""
    contact = do.find_contact(query=i.name)[0]
    begin, end = f"{i.day}T{i.start}:00", f"{i.day}T{i.end}:00"
    guests = [contact["mail"]]
    do.create_event(title=f"Call with {i.name}", begin=begin, end=end, guests=guests)


@everyday(
    "{company} moved to {city}; note it in the CRM.",
    {"company": ("Tallow & Co", "Brightwell"), "city": ("Ghent", "Turin")},
    {"search_accounts": {"hits": 1, "accounts": [{"uid": "ac_19", "city": "Bruges"}]}},
    {"search_accounts": {"hits": 1, "accounts": [{"uid": "ac_77", "city": "Milan"}]}},
)
def crm_move(do: Any, i: Any) -> None:
    """The note names the old city of the other account."""
    account = do.search_accounts(company=i.company)["accounts"][0]
    do.update_account(uid=account["uid"], city=i.city)
    do.add_note(uid=account["uid"], text=f"Moved from {account['city']} to {i.city}")


@everyday(
    "Invoice the hours of project {project}.",
    {"project": ("Pier", "Dome")},
    {"get_hours": {"hours": 13, "rate": 85}, "get_client": {"client": "Port Authority"}},
    {"get_hours": {"hours": 22, "rate": 70}, "get_client": {"client": "City Museum"}},
)
def invoice_hours(do: Any, i: Any) -> None:
    """The amount is hours times rate of the other project."""
    work = do.get_hours(project=i.project)
    client = do.get_client(project=i.project)["client"]
    amount = work["hours"] * work["rate"]
    text = f"{work['hours']} hours at {work['rate']}"
    do.create_invoice(client=client, amount=amount, text=text)


@everyday(
    "Tell {channel} who is on call for {team}.",
    {"team": ("payments", "search"), "channel": ("#pay", "#find")},
    {"on_call": '{"primary": "yara", "backup": "stig", "until": "2026-05-25"}'},
    {"on_call": '{"primary": "dewi", "backup": "otto", "until": "2026-06-01"}'},
)
def chat_on_call(do: Any, i: Any) -> None:
    """The post names the people of the other team, read from JSON text."""
    duty = fields(do.on_call(team=i.team))
    text = f"@{duty['primary']} is on call until {duty['until']}, backup @{duty['backup']}"
    do.post_message(channel=i.channel, text=text)


@everyday(
    "Back up all databases of {host} for {day}.",
    {"host": ("db-1", "db-4"), "day": ("2026-04-30", "2026-05-31")},
    {"list_databases": {"databases": [{"name": "shop", "mb": 410}, {"name": "wiki", "mb": 22}]}},
    {"list_databases": {"databases": [{"name": "forum", "mb": 95}]}},
)
def backup_databases(do: Any, i: Any) -> None:
    """Each database of the other host is dumped to its own file of the new day."""
    for base in do.list_databases(host=i.host)["databases"]:
        path = f"/backup/{i.day}/{i.host}/{base['name']}.sql.gz"
        do.dump(host=i.host, database=base["name"], path=path)


@everyday(
    "Translate the new labels of {screen} to {language}.",
    {"screen": ("checkout", "profile"), "language": ("de", "fr")},
    {
        "list_labels": [{"key": "pay", "en": "Pay now"}, {"key": "back", "en": "Go back"}],
        "translate": Each(["Jetzt zahlen", "Zurück"]),
    },
    {
        "list_labels": rows("key en", ("save", "Save"), ("name", "Your name"), ("out", "Sign out")),
        "translate": Each(["Enregistrer", "Votre nom", "Se déconnecter"]),
    },
)
def translate_labels(do: Any, i: Any) -> None:
    """Each label is translated by the tool and stored under its own key."""
    for label in do.list_labels(screen=i.screen):
        text = do.translate(text=label["en"], to=i.language)
        do.set_label(screen=i.screen, key=label["key"], language=i.language, text=text)


@everyday(
    "Publish the price list of {category}.",
    {"category": ("teas", "mugs")},
    {"get_products": [{"name": "Assam", "price": 6.5}, {"name": "Sencha", "price": 8.0}]},
    {"get_products": rows("name price", ("Blue mug", 11.0), ("Jug", 14.5), ("Tiny mug", 7.25))},
)
def price_list(do: Any, i: Any) -> None:
    """The table has a row for each product of the other category, with two decimals."""
    rows = [f"| {p['name']} | {p['price']:.2f} |" for p in do.get_products(category=i.category)]
    table = "\n".join(["| product | EUR |", "|---|---|", *rows])
    do.update_page(slug=f"prices-{i.category}", markdown=table)


@everyday(
    "I counted {counted} of {sku}; correct the stock.",
    {"sku": ("HX-20", "HX-55"), "counted": (47, 118)},
    {"get_stock": "sku: HX-20\nshelf: C4\non hand: 52"},
    {"get_stock": "sku: HX-55\nshelf: A1\non hand: 109"},
)
def inventory_adjust(do: Any, i: Any) -> None:
    """The adjustment is counted minus on hand, and the note has the right shelf."""
    stock = fields(do.get_stock(sku=i.sku))
    change = i.counted - int(stock["on hand"])
    do.adjust_stock(sku=i.sku, change=change, note=f"recount shelf {stock['shelf']}")


@everyday(
    "Send issue {issue} of the newsletter to the list {audience}.",
    {"issue": (31, 32), "audience": ("hikers", "climbers")},
    {
        "get_issue": {"title": "Spring trails", "html": "<h1>Snow melts</h1>"},
        "subscribers": ["ada@hill.example", "ben@peak.example"],
    },
    {
        "get_issue": {"title": "New crags", "html": "<h1>Rope tests</h1>"},
        "subscribers": ["cy@rock.example", "di@slab.example", "ed@wall.example"],
    },
)
def newsletter(do: Any, i: Any) -> None:
    """Every reader of the other list gets the other issue once."""
    issue = do.get_issue(number=i.issue)
    for address in do.subscribers(audience=i.audience):
        do.send(to=address, subject=f"#{i.issue}: {issue['title']}", html=issue["html"])


@everyday(
    "Remind the customers of {branch} whose invoices are late.",
    {"branch": ("Kiel", "Essen")},
    {
        "list_invoices": rows(
            "no to late", ("R1", "kay", True), ("R4", "bob", False), ("R9", "cyd", True)
        )
    },
    {"list_invoices": rows("no to late", ("R20", "dia", False), ("R21", "ted", True))},
)
def late_reminders(do: Any, i: Any) -> None:
    """Only the late invoices are reminded, wherever they are in the list."""
    for bill in do.list_invoices(branch=i.branch):
        if bill["late"]:
            do.send_reminder(to=bill["to"], invoice=bill["no"])


@everyday(
    "Set up the account of {name} in {department}, login {login}.",
    {"name": ("Bea Lindt", "Cem Aksoy"), "department": ("Arts", "Law"), "login": ("bl", "ca")},
    {"create_user": Made({"uid": 7001}), "get_department": {"group": "grp-dsn", "floor": 3}},
    {"create_user": Made({"uid": 7044}), "get_department": {"group": "grp-leg", "floor": 5}},
)
def onboarding(do: Any, i: Any) -> object:
    """The new uid is used in the group and the mail goes to the new address."""
    place = do.get_department(name=i.department)
    uid = do.create_user(login=i.login, full_name=i.name)["uid"]
    do.add_member(group=place["group"], uid=uid)
    text = f"Welcome {i.name.split()[0]}! Your desk is on floor {place['floor']}."
    do.send_mail(to=f"{i.login}@firm.example", subject="Welcome", text=text)
    return uid


@everyday(
    "Point {hostname} to server {server}.",
    {"hostname": ("docs.fox.example", "api.fox.example"), "server": ("srv-a", "srv-k")},
    {"describe_server": "name   ip         zone\nsrv-a  10.0.4.7   eu-1"},
    {"describe_server": "name   ip         zone\nsrv-k  10.0.9.31  us-2"},
)
def dns_record(do: Any, i: Any) -> None:
    """The record gets the address from the table of the other server."""
    server = fields(do.describe_server(server=i.server))
    do.set_record(name=i.hostname, type="A", value=server["ip"], ttl=600)


@everyday(
    "File the expenses of trip {trip}.",
    {"trip": ("Oslo-3", "Rome-8")},
    {"list_receipts": [{"what": "train", "eur": 61.5}, {"what": "hotel", "eur": 240.0}]},
    {"list_receipts": rows("what eur", ("flight", 132.25), ("taxi", 18.5), ("museum", 9.0))},
)
def expense_report(do: Any, i: Any) -> None:
    """Total and number of receipts are those of the other trip."""
    receipts = do.list_receipts(trip=i.trip)
    total = sum(receipt["eur"] for receipt in receipts)
    do.submit_expenses(trip=i.trip, total=total, receipts=len(receipts))


@everyday(
    "Hand in my timesheet for week {week}.",
    {"week": ("2026-W20", "2026-W23")},
    {"get_entries": {"entries": [{"task": "API", "h": 19.5}, {"task": "Docs", "h": 12}]}},
    {"get_entries": {"entries": [{"task": "Audit", "h": 30}, {"task": "API", "h": 8.5}]}},
    typed=False,
)
def timesheet(do: Any, i: Any) -> None:
    """The hours are summed and the tasks are joined for the other week."""
    entries = do.get_entries(week=i.week)["entries"]
    tasks = ", ".join(entry["task"] for entry in entries)
    do.submit_timesheet(week=i.week, hours=sum(entry["h"] for entry in entries), tasks=tasks)


@everyday(
    "Release {repo} as {version}.",
    {"repo": ("parser", "lexer"), "version": ("1.8.0", "0.9.3")},
    {"merged_since_release": [{"pr": 41, "title": "Fix tabs"}, {"pr": 44, "title": "Add hints"}]},
    {"merged_since_release": [{"pr": 12, "title": "Faster scan"}]},
)
def release_notes(do: Any, i: Any) -> None:
    """The notes list the merged changes of the other repository."""
    merged = do.merged_since_release(repo=i.repo)
    notes = "\n".join(f"- {change['title']} (#{change['pr']})" for change in merged)
    do.create_tag(repo=i.repo, tag=f"v{i.version}")
    do.publish_release(repo=i.repo, tag=f"v{i.version}", notes=notes)


@everyday(
    "Post the headlines of {feed} to {room}.",
    {"feed": ("https://s.example/rss", "https://b.example/rss"), "room": ("harbour", "apiary")},
    {"fetch_feed": {"items": [["Low tide", "s.example/1"], ["Gulls", "s.example/2"]]}},
    {"fetch_feed": {"items": [["Swarm", "b.example/8"], ["Wax", "b.example/9"], ["Hive", "b.io"]]}},
)
def feed_digest(do: Any, i: Any) -> None:
    """There is one post for each headline that the other feed has now."""
    for title, address in do.fetch_feed(url=i.feed)["items"]:
        do.post_link(room=i.room, text=f"{title} - https://{address}")


@everyday(
    "Book the cheapest flight from {origin} to {destination} on {day}.",
    {"origin": ("HAM", "MUC"), "destination": ("LIS", "OPO"), "day": ("2026-09-01", "2026-10-12")},
    {"search_flights": rows("flight eur", ("TP561", 188), ("LX1051", 121), ("KL1776", 164))},
    {"search_flights": rows("flight eur", ("LH1790", 97), ("IB3179", 143))},
)
def cheapest_flight(do: Any, i: Any) -> None:
    """The flight with the lowest price is booked, wherever it is in the list."""
    offers = do.search_flights(origin=i.origin, destination=i.destination, day=i.day)
    best = min(offers, key=lambda offer: offer["eur"])
    do.book_flight(flight=best["flight"], day=i.day, price=best["eur"])


@everyday(
    "Send the newest log of {service} to {recipient}.",
    {"service": ("mailer", "billing"), "recipient": ("ops@one.example", "audit@one.example")},
    {"list_logs": rows("file day", ("a.log", "05-03"), ("k.log", "05-05"), ("c.log", "05-04"))},
    {"list_logs": rows("file day", ("z.log", "05-19"), ("r.log", "05-11"))},
)
def newest_log(do: Any, i: Any) -> None:
    """The log with the latest change is sent, wherever it is in the list."""
    newest = max(do.list_logs(service=i.service), key=lambda log: log["day"])
    do.mail_file(to=i.recipient, file=newest["file"], subject=f"Log of {i.service}")


@everyday(
    "Print the label for order {order_no}.",
    {"order_no": (50231, 50477)},
    {"get_order": {"buyer": "Rosa Lenz", "to": {"street": "Am Wall 3", "city": "28195 Bremen"}}},
    {"get_order": {"buyer": "Ali Demir", "to": {"street": "Ringweg 40", "city": "50667 Köln"}}},
)
def shipping_label(do: Any, i: Any) -> None:
    """The address block has the parts of the other order."""
    order = do.get_order(order_no=i.order_no)
    text = f"{order['buyer']}\n{order['to']['street']}\n{order['to']['city']}"
    do.print_label(text=text, barcode=f"*{i.order_no}*")


@everyday(
    "Post the result of survey {survey}.",
    {"survey": ("canteen", "parking")},
    {"get_answers": {"question": "How was lunch?", "scores": [5, 5, 2]}},
    {"get_answers": {"question": "Enough space?", "scores": [1, 2, 1, 5, 1]}},
)
def survey_average(do: Any, i: Any) -> None:
    """Mean with one decimal and number of answers are those of the other survey."""
    answers = do.get_answers(survey=i.survey)
    scores = answers["scores"]
    result = f"{sum(scores) / len(scores):.1f} ({len(scores)} answers)"
    do.post_result(survey=i.survey, text=f"{answers['question']} {result}")


@everyday(
    "Enter {points} points for {student} in {exam}.",
    {"student": ("Lia Romero", "Max Hofer"), "exam": ("Algebra I", "Logic"), "points": (78, 91)},
    {"student_number": {"number": "s20331"}, "find_exam": {"sheet": "ex-114", "room": "H1"}},
    {"student_number": {"number": "s19870"}, "find_exam": {"sheet": "ex-203", "room": "H4"}},
)
def enter_grade(do: Any, i: Any) -> None:
    """The points go to the number and sheet that the two look-ups found."""
    number = do.student_number(name=i.student)["number"]
    sheet = do.find_exam(title=i.exam)["sheet"]
    do.enter_points(sheet=sheet, student=number, points=i.points)


@everyday(
    "Make a playlist {playlist} with these songs: {songs}.",
    {
        "playlist": ("Dinner", "Run"),
        "songs": (["Harvest Moon", "At Last"], ["Titanium", "Lose Control", "Stronger"]),
    },
    {
        "search_song": Each([{"id": "sg81"}, {"id": "sg12"}]),
        "create_playlist": Made({"playlist_id": "pl5"}),
    },
    {
        "search_song": Each([{"id": "sg40"}, {"id": "sg7"}, {"id": "sg93"}]),
        "create_playlist": Made({"playlist_id": "pl6"}),
    },
)
def make_playlist(do: Any, i: Any) -> None:
    """Each song of the new list is looked up, and the ids stay in the order asked for."""
    found = [do.search_song(title=song)["id"] for song in i.songs]
    made = do.create_playlist(name=i.playlist)
    do.add_songs(playlist_id=made["playlist_id"], ids=found)


@everyday(
    "Put what {recipe} needs on the shopping list.",
    {"recipe": ("Goulash", "Lentil soup")},
    {"get_recipe": {"needs": [{"what": "beef", "g": 800}, {"what": "onion", "g": 500}]}},
    {"get_recipe": {"needs": rows("what g", ("leek", 150), ("lard", 30), ("salt", 9))}},
    typed=False,
)
def shopping_list(do: Any, i: Any) -> None:
    """Every ingredient of the other recipe is added with its own amount."""
    for need in do.get_recipe(recipe=i.recipe)["needs"]:
        do.add_item(item=need["what"], amount=f"{need['g']} g")


@everyday(
    "Announce event {event_id}.",
    {"event_id": ("ev-3", "ev-9")},
    {"get_event": {"title": "Night Swim", "where": "Lido", "tags": ["water", "summer"]}},
    {"get_event": {"title": "Kite Day", "where": "East Beach", "tags": ["wind", "kids", "free"]}},
)
def social_post(do: Any, i: Any) -> None:
    """The hashtags are made from all tags of the other event."""
    event = do.get_event(event_id=i.event_id)
    tags = " ".join(f"#{tag}" for tag in event["tags"])
    do.publish_post(text=f"{event['title']} at {event['where']} {tags}", network="mastodon")


@everyday(
    "Set the image of {service} to {image}.",
    {"service": ("cart", "login"), "image": ("cart:3.1", "login:7.0")},
    {"read_file": "name: cart\nimage: cart:3.0\nport: 8080\n"},
    {"read_file": "name: login\nimage: login:6.4\nport: 9000\nreplicas: 2\n"},
)
def change_config(do: Any, i: Any) -> None:
    """Only the image line changes; the other lines of the other file stay as they are."""
    old = do.read_file(path=f"deploy/{i.service}.yaml")
    lines = [f"image: {i.image}" if ln.startswith("image:") else ln for ln in old.splitlines()]
    do.write_file(path=f"deploy/{i.service}.yaml", text="\n".join(lines) + "\n")


@everyday(
    "How many signups came from {country} since {since}? Post it.",
    {"country": ("PT", "CZ"), "since": ("2026-01-01", "2026-04-15")},
    {"query": {"columns": ["n"], "rows": [[264]]}},
    {"query": {"columns": ["n"], "rows": [[91]]}},
)
def sql_report(do: Any, i: Any) -> object:
    """Query and post hold the new country and day, and the number of the answer."""
    where = f"country = '{i.country}' AND created >= '{i.since}'"
    number = do.query(sql=f"SELECT count(*) AS n FROM signups WHERE {where}")["rows"][0][0]
    do.post_message(channel="#growth", text=f"{i.country}: {number} signups since {i.since}")
    return number


@everyday(
    "{login} leaves; take away all groups and disable the account.",
    {"login": ("gretab", "samirk")},
    {"list_groups": {"login": "gretab", "groups": ["staff", "vpn", "finance"]}},
    {"list_groups": {"login": "samirk", "groups": ["staff", "lab"]}},
    typed=False,
)
def offboarding(do: Any, i: Any) -> None:
    """All groups of the other person are taken away before the account is disabled."""
    for group in do.list_groups(login=i.login)["groups"]:
        do.remove_from_group(group=group, login=i.login)
    do.disable_account(login=i.login)


@everyday(
    "Tell {customer} where parcel {parcel} is.",
    {"customer": ("Mrs Lowe", "Mr Brandão"), "parcel": ("ZX81", "ZX99")},
    {"track": "parcel: ZX81\nlast seen: Hub Nord\narrives: Tuesday"},
    {"track": "parcel: ZX99\nlast seen: Hub Porto\narrives: Friday"},
)
def parcel_answer(do: Any, i: Any) -> None:
    """The answer holds the place and the day from the lines of the other parcel."""
    seen = fields(do.track(parcel=i.parcel))
    text = f"{i.customer}, your parcel is at {seen['last seen']} and arrives on {seen['arrives']}."
    do.reply(customer=i.customer, text=text)


@everyday(
    "Post the open tasks of {person} for the stand-up.",
    {"person": ("ravi", "sofie")},
    {"list_tasks": [{"key": "AB-1", "name": "Cache"}, {"key": "AB-9", "name": "Docs"}]},
    {"list_tasks": [{"key": "CD-4", "name": "Login"}, {"key": "CD-5", "name": "Tests"}]},
)
def stand_up(do: Any, i: Any) -> None:
    """One text lists all open tasks of the other person."""
    tasks = do.list_tasks(assignee=i.person, state="open")
    lines = [f"* {task['key']} {task['name']}" for task in tasks]
    do.post(channel="#standup", text="\n".join([f"{i.person}:", *lines]))


@everyday(
    "Set the dollar price of {item} from its euro price.",
    {"item": ("lamp", "stool")},
    {"get_price": {"item": "lamp", "eur": 40.0}, "get_rate": {"pair": "EURUSD", "rate": 1.1}},
    {"get_price": {"item": "stool", "eur": 65.0}, "get_rate": {"pair": "EURUSD", "rate": 1.2}},
)
def currency_price(do: Any, i: Any) -> None:
    """The dollar price is the other euro price times the rate of now."""
    eur = do.get_price(item=i.item)["eur"]
    rate = do.get_rate(pair="EURUSD")["rate"]
    do.set_price(item=i.item, currency="USD", price=round(eur * rate, 2))


@everyday(
    "Label all issues about {topic} with {label}.",
    {"topic": ("crash", "typo"), "label": ("p1", "docs")},
    {"search_issues": '[{"n": 5, "title": "crash on start"}, {"n": 8, "title": "crash in menu"}]'},
    {"search_issues": '[{"n": 6, "title": "typo in help"}]'},
)
def label_issues(do: Any, i: Any) -> None:
    """Every issue of the JSON list gets the new label."""
    for issue in json.loads(do.search_issues(q=i.topic)):
        do.add_label(issue=issue["n"], label=i.label)


@everyday(
    "{customer_id} has a new address: {address}. Change it everywhere.",
    {"customer_id": ("cu-12", "cu-80"), "address": ("5 Quay St, Galway", "77 Hill Rd, Cork")},
    {"get_customer": {"id": "cu-12", "billing": {"profile": "bp-9"}, "mail": "k@sea.example"}},
    {"get_customer": {"id": "cu-80", "billing": {"profile": "bp-31"}, "mail": "w@moor.example"}},
)
def address_everywhere(do: Any, i: Any) -> None:
    """CRM, billing and the confirmation all get the new address, each with its own key."""
    customer = do.get_customer(customer_id=i.customer_id)
    do.update_customer(customer_id=i.customer_id, address=i.address)
    do.update_billing(profile=customer["billing"]["profile"], address=i.address)
    do.send_mail(to=customer["mail"], text=f"We now use your new address: {i.address}.")


@everyday(
    "Send the receipt for donation {donation}.",
    {"donation": ("dn-204", "dn-377")},
    {
        "get_donation": {"by": "Ilse Korn", "mail": "ilse@korn.example", "amount": 75.0},
        "make_pdf": Made({"file": "r/9f.pdf"}),
    },
    {
        "get_donation": {"by": "Hugo Paz", "mail": "hugo@paz.example", "amount": 120.0},
        "make_pdf": Made({"file": "r/c2.pdf"}),
    },
)
def donation_receipt(do: Any, i: Any) -> None:
    """The mail attaches the file that this run made, for the other donor and amount."""
    gift = do.get_donation(donation=i.donation)
    text = f"Received from {gift['by']}: EUR {gift['amount']:.2f}"
    pdf = do.make_pdf(title=f"Receipt {i.donation}", text=text)
    do.send_mail(to=gift["mail"], subject="Your receipt", attach=[pdf["file"]])
