"""The analytical questions as code over the generated classes, as a model would write it."""

TYPES = {
    "trips": "Trip",
    "contacts": "Contact",
    "meals": "Meal",
    "transactions": "Transaction",
    "sleep": "Night",
    "workouts": "Workout",
    "books": "Book",
    "medical": "MedicalVisit",
    "meetings": "Meeting",
    "purchases": "Purchase",
}

HELPERS = """
def day(year, month, number):
    return datetime.date(year, month, number)

def between(value, first, last):
    return first <= value <= last

def trend(before, after):
    return "increase" if after > before else "decrease" if after < before else "same"

def in_months(records, first, last, year=2024):
    return [r for r in records if r.date.year == year and first <= r.date.month <= last]

def mean(values):
    return sum(values) / len(values)
"""

_SUMMER = "day(2024, 6, 1), day(2024, 8, 31)"
QUERIES = {
    "trips_count_2024": "len([t for t in state.trips if t.date.year == 2024])",
    "trips_sum_cost_2024": "sum(t.cost_usd for t in state.trips if t.date.year == 2024)",
    "trips_window_jan_jun_2024": "len(in_months(state.trips, 1, 6))",
    "trips_multi_asia_business": (
        'len([t for t in state.trips if t.region == "Asia" and t.purpose == "business"])'
    ),
    "trips_long_count": "len([t for t in state.trips if t.duration_days >= 14])",
    "trips_trend_yoy": (
        "trend(len(in_months(state.trips, 1, 12, 2023)), len(in_months(state.trips, 1, 12)))"
    ),
    "contacts_count_year": (
        "len([c for c in state.contacts if c.last_contact_date >= day(2024, 6, 1)])"
    ),
    "contacts_count_undergrad": (
        'len([c for c in state.contacts if c.met_context == "undergrad"])'
    ),
    "contacts_window_2020": "len([c for c in state.contacts if c.met_date.year == 2020])",
    "contacts_multi_work_friends": (
        'len([c for c in state.contacts if c.relationship == "friend" and c.met_context == "work"])'
    ),
    "contacts_long_known": "len([c for c in state.contacts if c.met_date < day(2020, 6, 1)])",
    "contacts_trend": (
        "trend(len([c for c in state.contacts"
        " if c.met_date.year == min(x.met_date for x in state.contacts).year]),"
        " len([c for c in state.contacts"
        " if c.met_date.year == max(x.met_date for x in state.contacts).year]))"
    ),
    "meals_count_breakfast": (
        'len([m for m in in_months(state.meals, 1, 12) if m.meal_type == "breakfast"])'
    ),
    "meals_sum_total_cost": "sum(m.cost_usd for m in in_months(state.meals, 1, 12))",
    "meals_window_summer": f"len([m for m in state.meals if between(m.date, {_SUMMER})])",
    "meals_multi_dined_dinner": (
        'len([m for m in state.meals if m.meal_type == "dinner" and m.dined_in])'
    ),
    "meals_italian_count": 'len([m for m in state.meals if m.cuisine == "italian"])',
    "meals_trend_h1_h2": (
        "trend(sum(m.cost_usd for m in in_months(state.meals, 1, 6)),"
        " sum(m.cost_usd for m in in_months(state.meals, 7, 12)))"
    ),
    "tx_count_groceries": 'len([t for t in state.transactions if t.category == "groceries"])',
    "tx_sum_total": "sum(t.amount_usd for t in in_months(state.transactions, 1, 12))",
    "tx_window_q4": "len(in_months(state.transactions, 10, 12))",
    "tx_multi_cc_subs": (
        'len([t for t in state.transactions if t.category in ("subscription", "subscriptions")'
        ' and t.payment_method == "credit_card"])'
    ),
    "tx_q4_total": "sum(t.amount_usd for t in in_months(state.transactions, 10, 12))",
    "tx_trend_q1_q4": (
        "trend(sum(t.amount_usd for t in in_months(state.transactions, 1, 3)),"
        " sum(t.amount_usd for t in in_months(state.transactions, 10, 12)))"
    ),
    "sleep_count_early_wake": (
        "len([n for n in state.nights if n.wake_time < datetime.time(7, 0)])"
    ),
    "sleep_avg_duration": "mean([n.duration_hours for n in state.nights])",
    "sleep_window_late_bed": (
        "len([n for n in state.nights"
        " if n.bedtime >= datetime.time(23, 0) or n.bedtime < datetime.time(3, 0)])"
    ),
    "sleep_multi_poor_short": (
        'len([n for n in state.nights if n.quality == "poor" and n.duration_hours < 6.5])'
    ),
    "sleep_count_poor": 'len([n for n in state.nights if n.quality == "poor"])',
    "sleep_trend_q1_q2": (
        "trend(mean([n.duration_hours for n in in_months(state.nights, 1, 3)]),"
        " mean([n.duration_hours for n in in_months(state.nights, 4, 6)]))"
    ),
    "wo_count_cardio": 'len([w for w in state.workouts if w.type == "cardio"])',
    "wo_sum_minutes": "sum(w.duration_min for w in state.workouts)",
    "wo_window_summer": f"len([w for w in state.workouts if between(w.date, {_SUMMER})])",
    "wo_multi_home_strength": (
        'len([w for w in state.workouts if w.location == "home" and w.type == "strength"])'
    ),
    "wo_total_calories": "sum(w.calories_burned for w in state.workouts)",
    "wo_trend_q1_q2": (
        "trend(len(in_months(state.workouts, 1, 3)), len(in_months(state.workouts, 4, 6)))"
    ),
    "books_count_fiction": 'len([b for b in state.books if b.genre == "fiction"])',
    "books_count_five_star": "len([b for b in state.books if b.rating == 5])",
    "books_window_finished_2024": "len([b for b in state.books if b.finished_date.year == 2024])",
    "books_multi_long_5star": "len([b for b in state.books if b.pages >= 500 and b.rating == 5])",
    "books_long_count": "len([b for b in state.books if b.pages >= 500])",
    "books_trend_2024_h1_h2": (
        "trend(len([b for b in state.books"
        " if b.finished_date.year == 2024 and b.finished_date.month <= 6]),"
        " len([b for b in state.books"
        " if b.finished_date.year == 2024 and b.finished_date.month > 6]))"
    ),
    "med_count_dental": 'len([v for v in state.medical_visits if v.type == "dental"])',
    "med_sum_cost": "sum(v.cost_usd for v in state.medical_visits)",
    "med_window_2024": "len(in_months(state.medical_visits, 1, 12))",
    "med_multi_24_with_meds": (
        "len([v for v in in_months(state.medical_visits, 1, 12) if v.medications])"
    ),
    "med_count_clean": (
        "len([v for v in state.medical_visits if not v.conditions and not v.medications])"
    ),
    "med_trend_22_24": (
        "trend(len(in_months(state.medical_visits, 1, 12, 2022)),"
        " len(in_months(state.medical_visits, 1, 12)))"
    ),
    "meet_count_1on1": 'len([m for m in state.meetings if m.type == "1on1"])',
    "meet_sum_minutes": "sum(m.duration_min for m in state.meetings)",
    "meet_window_morning": "len([m for m in state.meetings if m.time < datetime.time(12, 0)])",
    "meet_multi_long_big": (
        "len([m for m in state.meetings if m.duration_min >= 60 and m.n_attendees >= 8])"
    ),
    "meet_big_count": "len([m for m in state.meetings if m.n_attendees >= 8])",
    "meet_trend_h1_h2": (
        "trend(len(in_months(state.meetings, 1, 6)), len(in_months(state.meetings, 7, 12)))"
    ),
    "buy_count_online": "len([p for p in state.purchases if p.online])",
    "buy_sum_total": "sum(p.price_usd for p in state.purchases)",
    "buy_window_h2": "len(in_months(state.purchases, 7, 12))",
    "buy_multi_online_books": (
        'len([p for p in state.purchases if p.online and p.category == "books"])'
    ),
    "buy_top_store": (
        "max(sorted({p.store for p in state.purchases}),"
        " key=lambda store: len([p for p in state.purchases if p.store == store]))"
    ),
    "buy_trend_h1_h2": (
        "trend(len(in_months(state.purchases, 1, 6)), len(in_months(state.purchases, 7, 12)))"
    ),
}


def code_for(question_id: str) -> str:
    return f"{HELPERS}\ndef answer(state):\n    return {QUERIES[question_id]}\n"
