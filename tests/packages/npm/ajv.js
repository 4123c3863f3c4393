import Ajv from "ajv";
export default () => {
  const validate = new Ajv({ allErrors: true }).compile({ type: "object", required: ["a"], properties: { a: { type: "integer", minimum: 2 }, b: { type: "string", pattern: "^x" } }, additionalProperties: false });
  return [validate({ a: 2, b: "xy" }), validate({ a: 1, b: "y", c: 1 }), validate.errors];
};
