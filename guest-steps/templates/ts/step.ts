// Greets people.

import { step, StepError } from "./lobster.js";

interface Args {
  greeting?: string;
}

interface Person {
  name: string;
}

interface Greeting {
  text: string;
}

export const { describe, run } = step<Args, Person, Greeting>({
  name: "step-name",
  version: "0.1.0",
  summary: "Greets people",
  args: {
    type: "object",
    additionalProperties: false,
    properties: { greeting: { type: "string", default: "Hello", description: "The word before the name." } },
  },
  input: { type: "object", required: ["name"], properties: { name: { type: "string" } } },
  output: { type: "object", properties: { text: { type: "string" } } },
  limits: { fuel: 200_000_000 },

  run(args, input, output) {
    const greeting = args.greeting ?? "Hello";
    for (const person of input.items()) {
      if (!person.name) throw new StepError("bad-input", "a person has no name");
      output.emit({ text: `${greeting} ${person.name}!` });
    }
  },
});
