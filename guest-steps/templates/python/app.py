"""Greets people."""

from lobster_step import Step, StepError, exported


class Greet(Step):
    name = "step-name"
    version = "0.1.0"
    summary = "Greets people"
    args = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"greeting": {"type": "string", "default": "Hello", "description": "The word before the name."}},
    }
    input = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    output = {"type": "object", "properties": {"text": {"type": "string"}}}

    def run(self, args, input, output):
        greeting = args.get("greeting", "Hello")
        for person in input.items():
            if not person.get("name"):
                raise StepError("bad-input", "a person has no name")
            output.emit({"text": f"{greeting} {person['name']}!"})


WitWorld = exported(Greet)
