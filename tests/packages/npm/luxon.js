import { DateTime, Duration, Interval } from "luxon";
export default () => {
  const day = DateTime.fromISO("2026-11-29T10:00:00Z", { zone: "utc" });
  return [day.plus({ months: 1 }).toISO(), day.toFormat("yyyy-MM-dd HH:mm"), day.diff(DateTime.fromISO("2026-01-01", { zone: "utc" }), ["months", "days"]).toObject(), Duration.fromObject({ hours: 30 }).shiftTo("days", "hours").toISO(), Interval.fromISO("2026-01-01/2026-02-01", { zone: "utc" }).length("days"), day.weekNumber];
};
