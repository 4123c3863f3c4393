import { parse } from "csv-parse/sync";
export default () => parse('name;n\n"a ""q""";1\nü;2\n', { columns: true, delimiter: ";", cast: true });
