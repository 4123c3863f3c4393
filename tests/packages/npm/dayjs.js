import dayjs from "dayjs";
import relative from "dayjs/plugin/relativeTime.js";
import utc from "dayjs/plugin/utc.js";
dayjs.extend(utc);
dayjs.extend(relative);
const day = dayjs.utc("2026-11-29T10:00:00Z");
export default () => [day.add(1, "month").format("YYYY-MM-DD HH:mm dddd"), day.diff(dayjs.utc("2026-01-01"), "day"), day.from(dayjs.utc("2026-11-20")), day.endOf("week").toISOString()];
