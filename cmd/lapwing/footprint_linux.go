package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseProgram has the system forget the pages of the program's file that are in this process's memory, and bring back those
// that are needed. At the start the packages of all that lapwing can be are initialised, which an agent never needs again: with
// them more of the file is resident than everything else. What cannot be released stays.
func releaseProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range cleanMappings(text, program) {
		// Else a page that is needed may bring 2 MiB with it. Not all systems have that, or this.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_NOHUGEPAGE)
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED)
	}
}

// mapping is a range of addresses.
type mapping struct{ begin, end uintptr }

// cleanMappings finds the parts of a file that a process has mapped, cannot write to and has not changed, in what
// /proc/PID/smaps says. Not all that cannot be written to is as it is in the file: a dynamic linker, or a debugger, was there.
func cleanMappings(smaps []byte, file string) (found []mapping) {
	var m mapping
	ours, told, clean := false, 0, true
	finish := func() {
		if ours && clean && told == 2 {
			found = append(found, m)
		}
		ours, told, clean = false, 0, true
	}
	for line := range strings.Lines(string(smaps)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		switch fields[0] {
		case "Anonymous:", "Swap:": // copies of pages, which are not in the file
			told++
			clean = clean && len(fields) > 1 && fields[1] == "0"
			continue
		}
		var next mapping
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &next.begin, &next.end); err != nil {
			continue
		}
		finish()
		m = next
		ours = len(fields) == 6 && fields[5] == file && (fields[1] == "r-xp" || fields[1] == "r--p")
	}
	finish()
	return found
}
