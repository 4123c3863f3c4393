// Greets people.
package main

import "step-name/lobster"

// Args are checked against the schema before the step starts.
type Args struct {
	Greeting string `json:"greeting"`
}

// Person is one item of the input.
type Person struct {
	Name string `json:"name"`
}

// Greeting is one item of the output.
type Greeting struct {
	Text string `json:"text"`
}

func init() {
	lobster.Export(lobster.Step{
		Name:    "step-name",
		Version: "0.1.0",
		Summary: "Greets people",
		Args: `{"type": "object", "additionalProperties": false, "properties":
			{"greeting": {"type": "string", "default": "Hello", "description": "The word before the name."}}}`,
		Input:  `{"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}`,
		Output: `{"type": "object", "properties": {"text": {"type": "string"}}}`,
		Limits: lobster.Limits{Fuel: 20_000_000_000},
		Run:    run,
	})
}

func run(call lobster.Call, input *lobster.Input, output *lobster.Output) error {
	args := Args{Greeting: "Hello"}
	if err := call.Args(&args); err != nil {
		return err
	}
	for person, err := range lobster.Items[Person](input) {
		if err != nil {
			return err
		}
		if person.Name == "" {
			return lobster.Fail("bad-input", "a person has no name")
		}
		if err := output.Emit(Greeting{Text: args.Greeting + " " + person.Name + "!"}); err != nil {
			return err
		}
	}
	return nil
}

// A component has no main; Go wants one.
func main() {}
