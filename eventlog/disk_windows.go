package eventlog

import "golang.org/x/sys/windows"

// FreeSpace is what this process can still write below dir, in bytes.
func FreeSpace(dir string) (uint64, error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	err = windows.GetDiskFreeSpaceEx(path, &free, nil, nil)
	return free, err
}
