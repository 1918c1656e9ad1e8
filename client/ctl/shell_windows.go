package ctl

const (
	defaultShell  = "powershell"
	defaultEditor = "notepad.exe"
)
