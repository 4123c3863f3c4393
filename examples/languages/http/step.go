// Reads a URL, and posts to it.
package main

import (
	"io"
	"net/http"
	"strings"

	"step-name/lobster"
	"step-name/lobster/lobsterhttp"
)

type Args struct {
	URL string `json:"url"`
}

type Told struct {
	Status int    `json:"status"`
	Type   string `json:"type,omitempty"`
	Text   string `json:"text,omitempty"`
}

func init() {
	lobster.Export(lobster.Step{
		Name:    "fetch",
		Version: "0.1.0",
		Summary: "Reads a URL, and posts to it",
		Args:    `{"type": "object", "required": ["url"], "properties": {"url": {"type": "string"}}}`,
		Output:  `{}`,
		Wants:   []lobster.Want{{Kind: lobster.Net, Reason: "to read the URL"}},
		Run:     run,
	})
}

func run(call lobster.Call, _ *lobster.Input, output *lobster.Output) error {
	var args Args
	if err := call.Args(&args); err != nil {
		return err
	}
	request, err := http.NewRequest("GET", args.URL, nil)
	if err != nil {
		return err
	}
	request.Header.Set("x-from", "go")
	answer, err := lobsterhttp.Client.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if err := output.Emit(Told{answer.StatusCode, answer.Header.Get("content-type"), string(text)}); err != nil {
		return err
	}
	posted, err := lobsterhttp.Client.Post(args.URL, "text/plain", strings.NewReader(strings.Repeat("ü", 5000)))
	if err != nil {
		return err
	}
	return output.Emit(Told{Status: posted.StatusCode})
}

func main() {}
