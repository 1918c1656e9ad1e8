package proc

import "errors"

var errNoCgroups = errors.New("there are no control groups")
