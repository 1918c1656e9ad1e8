package wire

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
)

// SocketsFull reports whether TCP has used up the memory that the system gives it: above the second of the limits in
// tcp_mem it drops what arrives. It is false if the system does not say, as in some containers.
func SocketsFull() bool {
	use, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		return false
	}
	limits, err := os.ReadFile("/proc/sys/net/ipv4/tcp_mem")
	return err == nil && socketsFull(use, string(limits))
}

// socketsFull compares the pages in use in the text of sockstat with the limits.
func socketsFull(sockstat []byte, limits string) bool {
	fields := strings.Fields(limits)
	if len(fields) != 3 {
		return false
	}
	pressure, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return false
	}
	for lines := bufio.NewScanner(bytes.NewReader(sockstat)); lines.Scan(); {
		values := strings.Fields(lines.Text())
		if len(values) == 0 || values[0] != "TCP:" {
			continue
		}
		for i := 1; i+1 < len(values); i += 2 {
			if pages, err := strconv.ParseInt(values[i+1], 10, 64); values[i] == "mem" && err == nil {
				return pages > pressure
			}
		}
	}
	return false
}
