// Package lobster is the contract between lobster and a step, wrapped for Go. It is part of your
// project: change it if you need to.
//
// Memory is collected between two items, never while the host gives something: Go's collector
// reads the clock, which is not allowed then.
package lobster

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	itemsAtOnce = 64
	bytesAtOnce = 65536
	// Memory is collected once it has grown by this and doubled.
	collectAfter = 32 << 20
)

// Step is what a step says about itself, and what it does. Schemas are JSON Schemas; Input and
// Output are of one item, and empty for bytes.
type Step struct {
	Name, Version, Summary string
	Args, Input, Output    string
	Wants                  []Want
	Limits                 Limits
	Examples               []Example
	Run                    func(call Call, input *Input, output *Output) error
}

// Want is a capability that the step asks for, with the reason that the person reads who decides.
type Want struct {
	// Kind is Read, Write, Env, Net, Clock or Random.
	Kind     Kind
	Value    string
	Reason   string
	Optional bool
}

// Kind is the kind of a capability.
type Kind uint8

const (
	Read Kind = iota
	Write
	Env
	Net
	Clock
	Random
)

// Limits are what the step was made for; 0 is none.
type Limits struct {
	Fuel, Memory, Output, TimeoutMs uint64
}

// Example is shown by `lobster step inspect`. Args are JSON; an empty Input or Output is none.
type Example struct {
	Summary, Args, Input, Output string
}

// Error is how a step says that it failed. Code is for programs: words joined by dashes.
type Error struct {
	Code, Message string
	Retryable     bool
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Fail makes an Error as fmt.Errorf does.
func Fail(code, format string, values ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, values...)}
}

var exported Step

// Export makes a step of the component; call it in an init function, once.
func Export(step Step) {
	debug.SetGCPercent(-1)
	if step.Args == "" {
		step.Args = `{"type": "object"}`
	}
	exported = step
}

// Call is one call of the step.
type Call struct{ args string }

// Args reads the arguments into what `to` points at. What is absent stays as it is.
func (c Call) Args(to any) error {
	if err := json.Unmarshal([]byte(c.args), to); err != nil {
		return Fail("bad-args", "%v", err)
	}
	return nil
}

// Payload is what a stream carries.
type Payload uint8

const (
	// Empty is not an input at all.
	Empty Payload = iota
	Bytes
	JSON
)

// Input is what the step is given.
type Input struct{ handle uint32 }

// Kind says what the input carries.
func (in *Input) Kind() Payload { return Payload(inputPayload(in.handle)) }

// Items are the items, one after the other. Bytes are one text item.
func Items[T any](in *Input) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			collect()
			texts, err := in.next(itemsAtOnce)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			if len(texts) == 0 {
				return
			}
			for _, text := range texts {
				var item T
				if err := json.Unmarshal(text, &item); err != nil {
					yield(item, Fail("bad-input", "%v", err))
					return
				}
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// Read gives up to 64 KiB of bytes, and none at the end; items come as JSON Lines.
func (in *Input) Read() ([]byte, error) {
	collect()
	return in.read(bytesAtOnce)
}

// Output is what the step gives: items or bytes, not both.
type Output struct {
	handle uint32
	items  [][]byte
}

// Emit gives one item.
func (out *Output) Emit(item any) error {
	text, err := json.Marshal(item)
	if err != nil {
		return Fail("bad-output", "%v", err)
	}
	out.items = append(out.items, text)
	if len(out.items) < itemsAtOnce {
		return nil
	}
	return out.Flush()
}

// Flush hands on what is still buffered; done for you at the end.
func (out *Output) Flush() error {
	if len(out.items) == 0 {
		return nil
	}
	err := out.emit(out.items)
	out.items = out.items[:0]
	return err
}

var live uint64

// collect frees memory where the clock may be read.
func collect() {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	if used := sample[0].Value.Uint64(); used > 2*live+collectAfter {
		runtime.GC()
		metrics.Read(sample)
		live = sample[0].Value.Uint64()
	}
}

func runStep(args string, in *Input, out *Output) (failed *Error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			failed = Fail("panic", "%v", panicked)
		}
	}()
	err := exported.Run(Call{args}, in, out)
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		return nil
	}
	if errors.As(err, &failed) {
		return failed
	}
	return Fail("error", "%v", err)
}

// Level is how much a line of the log matters.
type Level uint8

const (
	LevelTrace Level = iota
	LevelDebug
	LevelInfo
	LevelWarn
	LevelError
)

// Log writes a line to the step's log, with fields or nil.
func Log(level Level, message string, fields map[string]any) {
	var text []byte
	if fields != nil {
		text, _ = json.Marshal(fields)
	}
	hostLog(level, message, string(text))
}

// Progress says how far the step is; a total of 0 is unknown.
func Progress(done, total uint64, message string) { hostProgress(done, total, message) }

// State reads what was kept under a key into what `to` points at; false if nothing was.
func State(key string, to any) (bool, error) {
	text, found := stateGet(key)
	if !found {
		return false, nil
	}
	return true, json.Unmarshal(text, to)
}

// SetState keeps a value for the rest of the run.
func SetState(key string, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		stateSet(key, string(text))
	}
	return err
}
