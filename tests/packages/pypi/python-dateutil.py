from datetime import datetime

from dateutil import parser, relativedelta, rrule, tz


def use():
    day = parser.parse("Sun, 29 Nov 2026 10:00:00 +0100")
    month = day + relativedelta.relativedelta(months=+1, weekday=relativedelta.MO)
    rule = rrule.rrulestr("FREQ=WEEKLY;COUNT=3;BYDAY=TU", dtstart=datetime(2026, 11, 29))
    return [day.isoformat(), month.isoformat(), [str(one) for one in rule], tz.UTC.tzname(day)]
