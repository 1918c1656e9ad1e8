//go:build linux

package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// A process gets a wrong clock without a seam in the product. Go reads the time through the vDSO, code that the kernel
// maps into each process. The harness writes a function of its own over clock_gettime there: it does the system call,
// and adds an offset to CLOCK_REALTIME alone. The pages are copied on that write, so only this process sees the change.
// Monotonic time, and the times of files, stay right.

// skewable reports whether clocks can be made wrong on this kind of processor.
const skewable = true

// clockCode is the function. The offset in seconds is in its last 8 bytes.
var clockCode = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228 (clock_gettime)
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi (CLOCK_REALTIME is 0)
	0x75, 0x0a, // jne to ret
	0x48, 0x8b, 0x0d, 0x06, 0x00, 0x00, 0x00, // mov rcx, [rip+6] (the offset)
	0x48, 0x01, 0x0e, // add [rsi], rcx (tv_sec)
	0xc3,       // ret
	0xcc, 0xcc, // padding
	0, 0, 0, 0, 0, 0, 0, 0,
}

// clock changes the time that a process reads.
type clock struct {
	pid    int
	offset int64 // where the offset is in the process's memory
}

// newClock prepares a process that has not run an instruction since its exec.
func newClock(pid int) (*clock, error) {
	begin, image, err := vdso(pid)
	if err != nil {
		return nil, fmt.Errorf("vDSO of process %d: %w", pid, err)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, fmt.Errorf("vDSO of process %d: %w", pid, err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("vDSO of process %d: %w", pid, err)
	}
	for _, symbol := range symbols {
		if symbol.Name != "__vdso_clock_gettime" {
			continue
		}
		if symbol.Size < uint64(len(clockCode)) {
			return nil, fmt.Errorf("clock_gettime of the vDSO has only %d bytes", symbol.Size)
		}
		at := begin + int64(symbol.Value)
		if err := writeMemory(pid, at, clockCode); err != nil {
			return nil, err
		}
		return &clock{pid: pid, offset: at + int64(len(clockCode)) - 8}, nil
	}
	return nil, errors.New("the vDSO has no clock_gettime")
}

// set makes the process's clock wrong by so much, in whole seconds.
func (c *clock) set(by time.Duration) error {
	return writeMemory(c.pid, c.offset, binary.LittleEndian.AppendUint64(nil, uint64(int64(by/time.Second))))
}

// vdso returns the address and the content of a process's vDSO.
func vdso(pid int) (begin int64, image []byte, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, nil, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		var end int64
		if _, err := fmt.Sscanf(line, "%x-%x", &begin, &end); err != nil {
			return 0, nil, err
		}
		memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err != nil {
			return 0, nil, err
		}
		defer func() { _ = memory.Close() }()
		image = make([]byte, end-begin)
		_, err = memory.ReadAt(image, begin)
		return begin, image, err
	}
	return 0, nil, errors.New("it has none")
}

func writeMemory(pid int, at int64, b []byte) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = memory.WriteAt(b, at)
	if err = errors.Join(err, memory.Close()); err != nil {
		return fmt.Errorf("write memory of process %d: %w", pid, err)
	}
	return nil
}
