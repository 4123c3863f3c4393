package lobster

// The contract of wit/step.wit by WebAssembly's canonical ABI. contract.bin is the section of a
// program that names the contract; build.sh appends it.

import (
	"encoding/binary"
	"runtime"
	"unsafe"
)

//go:wasmimport lobster:step/host@0.1.0 log
func importLog(level uint32, message unsafe.Pointer, messageLen uint32, fields unsafe.Pointer, fieldsLen uint32)

//go:wasmimport lobster:step/host@0.1.0 progress
func importProgress(done uint64, hasTotal uint32, total uint64, hasMessage uint32, message unsafe.Pointer, length uint32)

//go:wasmimport lobster:step/host@0.1.0 state-get
func importStateGet(key unsafe.Pointer, length uint32, to unsafe.Pointer)

//go:wasmimport lobster:step/host@0.1.0 state-set
func importStateSet(key unsafe.Pointer, keyLen uint32, value unsafe.Pointer, valueLen uint32)

//go:wasmimport lobster:step/io@0.1.0 [method]input.payload
func inputPayload(handle uint32) uint32

//go:wasmimport lobster:step/io@0.1.0 [method]input.read
func importRead(handle, most uint32, to unsafe.Pointer)

//go:wasmimport lobster:step/io@0.1.0 [method]input.next
func importNext(handle, most uint32, to unsafe.Pointer)

//go:wasmimport lobster:step/io@0.1.0 [method]output.write
func importWrite(handle uint32, data unsafe.Pointer, length uint32, to unsafe.Pointer)

//go:wasmimport lobster:step/io@0.1.0 [method]output.emit
func importEmit(handle uint32, items unsafe.Pointer, count uint32, to unsafe.Pointer)

//go:wasmimport lobster:step/io@0.1.0 [resource-drop]input
func dropInput(handle uint32)

//go:wasmimport lobster:step/io@0.1.0 [resource-drop]output
func dropOutput(handle uint32)

// What the host wrote into our memory and has not been taken yet. Words, so that all is aligned.
var given = map[uint32][]uint64{}

// What stands between Go and WASI asks for memory while Go's runtime starts, before there is any
// that Go could give: 64 KiB for its state and as much for its stack.
var (
	early     [160 << 10]byte
	earlyUsed uintptr
	started   bool
)

func init() { started = true }

//go:wasmexport cabi_realloc
func realloc(old unsafe.Pointer, oldLen, align, length uint32) unsafe.Pointer {
	if length == 0 {
		return unsafe.Pointer(uintptr(align))
	}
	if !started {
		base := uintptr(unsafe.Pointer(&early))
		at := (base + earlyUsed + uintptr(align) - 1) &^ (uintptr(align) - 1)
		earlyUsed = at + uintptr(length) - base
		// Out of bounds: a trap, for nothing can be told yet.
		_ = early[earlyUsed-1]
		return unsafe.Pointer(&early[at-base])
	}
	words := make([]uint64, (length+7)/8)
	to := unsafe.Pointer(&words[0])
	if oldLen > 0 {
		copy(unsafe.Slice((*byte)(to), length), unsafe.Slice((*byte)(old), oldLen))
		delete(given, address(old))
	}
	given[address(to)] = words
	return to
}

func address(of unsafe.Pointer) uint32 { return uint32(uintptr(of)) }

// area is where the host or we put a record of words.
type area []uint64

func newArea(bytes int) area { return make(area, (bytes+7)/8) }

func (a area) at() unsafe.Pointer { return unsafe.Pointer(&a[0]) }

func (a area) bytes() []byte { return unsafe.Slice((*byte)(a.at()), len(a)*8) }

func (a area) word(offset int) uint32 { return binary.LittleEndian.Uint32(a.bytes()[offset:]) }

func (a area) put(offset int, word uint32) { binary.LittleEndian.PutUint32(a.bytes()[offset:], word) }

// taken gives the bytes that the host put at an address and forgets them.
func taken(at, length uint32) []byte {
	if length == 0 {
		return nil
	}
	words := given[at]
	delete(given, at)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), length)
}

// streamError reads `result<_, stream-error>`.
func (a area) streamError() error {
	if a.bytes()[0] == 0 {
		return nil
	}
	return &Error{Code: string(taken(a.word(4), a.word(8))), Message: string(taken(a.word(12), a.word(16)))}
}

func text(of string) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.StringData(of)), uint32(len(of))
}

func (in *Input) read(most uint32) ([]byte, error) {
	to := newArea(20)
	importRead(in.handle, most, to.at())
	if err := to.streamError(); err != nil {
		return nil, err
	}
	return taken(to.word(4), to.word(8)), nil
}

func (in *Input) next(most uint32) ([][]byte, error) {
	to := newArea(20)
	importNext(in.handle, most, to.at())
	if err := to.streamError(); err != nil {
		return nil, err
	}
	list := taken(to.word(4), to.word(8)*8)
	items := make([][]byte, to.word(8))
	for i := range items {
		items[i] = taken(binary.LittleEndian.Uint32(list[8*i:]), binary.LittleEndian.Uint32(list[8*i+4:]))
	}
	return items, nil
}

// Write gives bytes.
func (out *Output) Write(data []byte) (int, error) {
	to := newArea(20)
	importWrite(out.handle, unsafe.Pointer(unsafe.SliceData(data)), uint32(len(data)), to.at())
	runtime.KeepAlive(data)
	if err := to.streamError(); err != nil {
		return 0, err
	}
	return len(data), nil
}

func (out *Output) emit(items [][]byte) error {
	list, to := newArea(8*len(items)), newArea(20)
	for i, item := range items {
		list.put(8*i, address(unsafe.Pointer(unsafe.SliceData(item))))
		list.put(8*i+4, uint32(len(item)))
	}
	importEmit(out.handle, list.at(), uint32(len(items)), to.at())
	runtime.KeepAlive(items)
	return to.streamError()
}

func hostLog(level Level, message, fields string) {
	at, length := text(message)
	more, moreLen := text(fields)
	importLog(uint32(level), at, length, more, moreLen)
	runtime.KeepAlive(message)
	runtime.KeepAlive(fields)
}

func hostProgress(done, total uint64, message string) {
	at, length := text(message)
	importProgress(done, flag(total > 0), total, flag(message != ""), at, length)
	runtime.KeepAlive(message)
}

func flag(is bool) uint32 {
	if is {
		return 1
	}
	return 0
}

func stateGet(key string) ([]byte, bool) {
	to := newArea(12)
	at, length := text(key)
	importStateGet(at, length, to.at())
	runtime.KeepAlive(key)
	if to.bytes()[0] == 0 {
		return nil, false
	}
	return taken(to.word(4), to.word(8)), true
}

func stateSet(key, value string) {
	at, length := text(key)
	more, moreLen := text(value)
	importStateSet(at, length, more, moreLen)
	runtime.KeepAlive(key)
	runtime.KeepAlive(value)
}

// kept holds what the host reads after a function of ours has returned.
var kept []any

func (a area) putText(offset int, value string) {
	kept = append(kept, value)
	at, length := text(value)
	a.put(offset, address(at))
	a.put(offset+4, length)
}

func (a area) putOptional(offset int, value string) {
	if value != "" {
		a.put(offset, 1)
		a.putText(offset+4, value)
	}
}

//go:wasmexport describe
func describe() unsafe.Pointer {
	to := newArea(136)
	kept = []any{to}
	for i, value := range []string{exported.Name, exported.Version, exported.Summary, exported.Args} {
		to.putText(8*i, value)
	}
	to.putOptional(32, exported.Input)
	to.putOptional(44, exported.Output)
	wants := newArea(24*len(exported.Wants) + 8)
	kept = append(kept, wants)
	for i, want := range exported.Wants {
		wants.put(24*i, uint32(want.Kind))
		if want.Kind < Clock {
			wants.putText(24*i+4, want.Value)
		}
		wants.putText(24*i+12, want.Reason)
		wants.put(24*i+20, flag(want.Optional))
	}
	to.put(56, address(wants.at()))
	to.put(60, uint32(len(exported.Wants)))
	limits := exported.Limits
	for i, limit := range []uint64{limits.Fuel, limits.Memory, limits.Output, limits.TimeoutMs} {
		to.put(64+16*i, flag(limit > 0))
		binary.LittleEndian.PutUint64(to.bytes()[72+16*i:], limit)
	}
	examples := newArea(40*len(exported.Examples) + 8)
	kept = append(kept, examples)
	for i, example := range exported.Examples {
		examples.putText(40*i, example.Summary)
		examples.putText(40*i+8, example.Args)
		examples.putOptional(40*i+16, example.Input)
		examples.putOptional(40*i+28, example.Output)
	}
	to.put(128, address(examples.at()))
	to.put(132, uint32(len(exported.Examples)))
	return to.at()
}

//go:wasmexport run
func run(args unsafe.Pointer, length, input, output uint32) unsafe.Pointer {
	in, out := &Input{handle: input}, &Output{handle: output}
	failed := runStep(string(taken(address(args), length)), in, out)
	dropInput(input)
	dropOutput(output)
	to := newArea(24)
	kept = []any{to}
	if failed != nil {
		to.put(0, 1)
		to.putText(4, failed.Code)
		to.putText(12, failed.Message)
		to.put(20, flag(failed.Retryable))
	}
	return to.at()
}
