import { addMonths, differenceInBusinessDays, eachDayOfInterval, format, formatDistance, parse, parseISO } from "date-fns";
import { de } from "date-fns/locale";
const day = new Date(2026, 10, 29, 10, 0, 0);
export default () => [format(addMonths(day, 3), "yyyy-MM-dd EEEE"), format(day, "PPPP", { locale: de }), differenceInBusinessDays(day, new Date(2026, 0, 1)), formatDistance(day, new Date(2026, 10, 20)), eachDayOfInterval({ start: new Date(2026, 1, 27), end: new Date(2026, 2, 1) }).length, format(parse("29.11.2026", "dd.MM.yyyy", day), "yyyy-MM-dd"), format(parseISO("2026-11-29"), "I R")];
