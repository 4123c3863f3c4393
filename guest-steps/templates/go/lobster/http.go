package lobster

import (
	"encoding/binary"
	"runtime"
	"time"
	"unsafe"
)

//go:wasmimport lobster:step/http@0.1.0 fetch
func importFetch(method unsafe.Pointer, methodLen uint32, url unsafe.Pointer, urlLen uint32,
	headers unsafe.Pointer, headerCount uint32, body unsafe.Pointer, bodyLen uint32,
	hasTimeout, timeoutMs uint32, to unsafe.Pointer)

// Request is what Fetch asks. An empty Method is GET.
type Request struct {
	Method, URL string
	// Names and values; a name may come more than once.
	Headers [][2]string
	Body    []byte
	// How long the connection, and then the beginning of the answer, may take; 0 as long as the step.
	Timeout time.Duration
}

// Response is what a host answered, whole. Names of headers are in lower case.
type Response struct {
	Status  int
	Headers [][2]string
	Body    []byte
}

// Fetch makes one HTTP request to a host that the step is granted, and waits for the whole answer,
// of any status. Redirects are not followed. The package lobsterhttp gives the same to net/http,
// for 7 MB more.
//
// A request that is refused or fails is the Error `http`.
func Fetch(request Request) (Response, error) {
	if request.Method == "" {
		request.Method = "GET"
	}
	collect()
	headers, to := newArea(16*len(request.Headers)+8), newArea(24)
	for i, header := range request.Headers {
		for part, value := range header {
			at, length := text(value)
			headers.put(16*i+8*part, address(at))
			headers.put(16*i+8*part+4, length)
		}
	}
	method, methodLen := text(request.Method)
	url, urlLen := text(request.URL)
	importFetch(method, methodLen, url, urlLen, headers.at(), uint32(len(request.Headers)),
		unsafe.Pointer(unsafe.SliceData(request.Body)), uint32(len(request.Body)),
		flag(request.Timeout > 0), uint32(min(request.Timeout.Milliseconds(), 1<<32-1)), to.at())
	runtime.KeepAlive(request)
	if to.bytes()[0] != 0 {
		code, message := taken(to.word(4), to.word(8)), taken(to.word(12), to.word(16))
		failed := Fail("http", "%s %s: %s: %s", request.Method, request.URL, code, message)
		failed.Retryable = to.bytes()[20] != 0
		return Response{}, failed
	}
	list := taken(to.word(8), 16*to.word(12))
	response := Response{
		Status:  int(binary.LittleEndian.Uint16(to.bytes()[4:])),
		Headers: make([][2]string, to.word(12)),
		Body:    taken(to.word(16), to.word(20)),
	}
	for i := range response.Headers {
		for part := range response.Headers[i] {
			at := list[16*i+8*part:]
			value := taken(binary.LittleEndian.Uint32(at), binary.LittleEndian.Uint32(at[4:]))
			response.Headers[i][part] = string(value)
		}
	}
	return response, nil
}
