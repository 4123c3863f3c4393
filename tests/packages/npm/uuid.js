import { parse, stringify, v4, v5, validate, version } from "uuid";
export default () => {
  const random = v4();
  return [v5("lobster.example", v5.DNS), validate(random), version(random), random !== v4(), stringify(parse("6ba7b810-9dad-11d1-80b4-00c04fd430c8"))];
};
