from datetime import datetime

import pytz


def use():
    zurich = pytz.timezone("Europe/Zurich")
    local = zurich.localize(datetime(2026, 7, 1, 12))
    return [local.isoformat(), local.astimezone(pytz.timezone("America/New_York")).isoformat(), len(pytz.all_timezones) > 500]
