// Package lobsterhttp lets net/http reach the hosts that the step is granted:
//
//	answer, err := lobsterhttp.Client.Get("https://api.example/v1")
//
// It is part of your project: change it if you need to.
package lobsterhttp

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"step-name/lobster"
)

// Client makes requests through the host.
var Client = &http.Client{Transport: Transport{}}

// Transport is the http.RoundTripper of Client. Requests and answers are held whole.
type Transport struct{}

// RoundTrip makes one request. The error of one that is refused or fails is a *lobster.Error.
func (Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	asked := lobster.Request{Method: request.Method, URL: request.URL.String()}
	if request.Body != nil {
		defer request.Body.Close()
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		asked.Body = body
	}
	// In order, so that the record is always the same.
	for _, name := range slices.Sorted(maps.Keys(request.Header)) {
		for _, value := range request.Header[name] {
			asked.Headers = append(asked.Headers, [2]string{strings.ToLower(name), value})
		}
	}
	if deadline, limited := request.Context().Deadline(); limited {
		asked.Timeout = max(time.Until(deadline), time.Millisecond)
	}
	answer, err := lobster.Fetch(asked)
	if err != nil {
		return nil, err
	}
	headers := http.Header{}
	for _, header := range answer.Headers {
		headers.Add(header[0], header[1])
	}
	return &http.Response{
		StatusCode:    answer.Status,
		Status:        http.StatusText(answer.Status),
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        headers,
		Body:          io.NopCloser(bytes.NewReader(answer.Body)),
		ContentLength: int64(len(answer.Body)),
		Request:       request,
	}, nil
}
