import validator from "validator";
export default () => [validator.isEmail("a@b.example"), validator.isURL("https://example.com/?q=ü"), validator.isIBAN("DE89370400440532013000"), validator.isUUID("x"), validator.escape("<a>"), validator.normalizeEmail("A.B+c@gmail.com"), validator.isISO8601("2026-11-29")];
