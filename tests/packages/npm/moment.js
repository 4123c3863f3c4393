import moment from "moment";
const day = moment.utc("2026-11-29T10:00:00Z");
export default () => [day.clone().add(1, "month").format("YYYY-MM-DD dddd"), day.diff(moment.utc("2026-01-01"), "days"), day.from(moment.utc("2026-11-20")), moment.utc("29.11.2026", "DD.MM.YYYY", true).isValid(), moment.duration(90, "minutes").humanize()];
