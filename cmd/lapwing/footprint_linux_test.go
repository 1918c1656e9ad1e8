package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestCleanMappings(t *testing.T) {
	const smaps = `00400000-01a19000 r-xp 00000000 fe:00 10674428                           /usr/bin/lapwing
Size:              22628 kB
Rss:               12892 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me sd
01a19000-031fc000 r--p 01619000 fe:00 10674428                           /usr/bin/lapwing
Anonymous:             0 kB
Swap:                  0 kB
031fc000-031fe000 r--p 02dfc000 fe:00 10674428                           /usr/bin/lapwing
Anonymous:             8 kB
Swap:                  0 kB
031fe000-03200000 r--p 02dfe000 fe:00 10674428                           /usr/bin/lapwing
Anonymous:             0 kB
Swap:                  8 kB
03200000-03430000 rw-p 02e00000 fe:00 10674428                           /usr/bin/lapwing
Anonymous:             0 kB
Swap:                  0 kB
03430000-05474000 rw-p 00000000 00:00 0
Anonymous:             0 kB
Swap:                  0 kB
7ffd8a5f1000-7ffd8a5f3000 r-xp 00000000 fe:00 77                         /usr/bin/lapwing (deleted)
Anonymous:             0 kB
Swap:                  0 kB
7ffd8a5f5000-7ffd8a5f7000 r-xp 00000000 fe:00 77                         /usr/bin/lapwing
Rss:                   4 kB
`
	got := cleanMappings([]byte(smaps), "/usr/bin/lapwing")
	want := []mapping{{0x400000, 0x1a19000}, {0x1a19000, 0x31fc000}}
	if !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// TestReleaseProgram releases the pages of this test and goes on.
func TestReleaseProgram(t *testing.T) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	if found := cleanMappings(text, program); len(found) == 0 {
		t.Fatalf("found %x in\n%s", found, text)
	}
	resident := func() (kib int) {
		text, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), "RssFile:")
		if _, err := fmt.Sscan(after, &kib); err != nil {
			t.Skip("this kernel does not tell RssFile")
		}
		return kib
	}
	before := resident()
	releaseProgram()
	if after := resident(); after > before/2 {
		t.Errorf("%d KiB of files were resident, and still %d are", before, after)
	}
}
