package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lapwing-monitoring/lapwing/internal/optionerr"
)

// logLevels are the words for --log-level.
var logLevels = []string{"trace", "debug", "info", "warn", "error", "fatal", "panic"}

// options are settings of a program as flags.
type options interface {
	register(*pflag.FlagSet)
	// check finds the values that cannot work, all of them. The flags are those that register made.
	check() error
}

// readArgs reads settings from a command line, and then as settings does. Its error has all that is wrong, also if
// several values of the command line cannot be read. Flags that o does not register are left to others.
func readArgs(args []string, o options, p program) (*pflag.FlagSet, []notice, error) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	o.register(flags)
	var bad optionerr.List
	flags.VisitAll(func(f *pflag.Flag) { f.Value = forgiving(f, &bad) })
	err := flags.Parse(args)
	if err != nil {
		err = fmt.Errorf("read the command line: %w", err)
	}
	notices, settingsErr := settings(flags, p)
	return flags, notices, withSources(errors.Join(err, bad.Err(), settingsErr, o.check()), flags)
}

// explainFlags makes the error of a command line tell all that is wrong with it. Without it only the first value is
// named that cannot be read.
func explainFlags(fresh func() options, p func() program) func(*cobra.Command, error) error {
	return func(cmd *cobra.Command, first error) error {
		unknown := unknownFlags(cmd.Flags(), os.Args[1:])
		_, _, err := readArgs(os.Args[1:], fresh(), p())
		if err := errors.Join(unknown, err); err != nil {
			return err
		}
		return first
	}
}

// unknownFlags is an error that names all flags of a command line that there are not, each with the nearest that there
// is. Package pflag stops at the first. The command line is read as pflag does, but for negative numbers behind unknown
// flags.
func unknownFlags(flags *pflag.FlagSet, args []string) error {
	var known []string
	flags.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	var errs []error
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		var takesNext bool
		if long, ok := strings.CutPrefix(args[i], "--"); ok {
			name, _, given := strings.Cut(long, "=")
			f := flags.Lookup(name)
			unknown := f == nil && name != "help"
			if unknown {
				errs = append(errs, fmt.Errorf("unknown flag: --%s%s", name, nearestFlag(name, known)))
			}
			takesNext = !given && (f != nil && f.NoOptDefVal == "" || unknown && beginsNegative(args[i+1:]))
		} else if letters, ok := strings.CutPrefix(args[i], "-"); ok {
			var err error
			takesNext, err = shorthands(flags, letters)
			errs = append(errs, err)
		}
		if takesNext {
			i++
		}
	}
	return errors.Join(errs...)
}

var negative = regexp.MustCompile(`^-\.?[0-9]`)

// beginsNegative reports whether the first of some words is a negative number or time. Behind an unknown flag that is
// its value.
func beginsNegative(args []string) bool { return len(args) > 0 && negative.MatchString(args[0]) }

func nearestFlag(name string, known []string) string {
	if near := optionerr.Nearest(name, known); near != "" {
		return fmt.Sprintf(" (the nearest known flag is --%s)", near)
	}
	return ""
}

// shorthands reports whether the last of some flags of one letter takes the next word, and names the first that is
// unknown.
func shorthands(flags *pflag.FlagSet, letters string) (takesNext bool, err error) {
	for i := range len(letters) {
		f := flags.ShorthandLookup(letters[i : i+1])
		switch {
		case f == nil && letters[i] == 'h':
		case f == nil:
			return false, fmt.Errorf("unknown shorthand flag: %q in -%s", letters[i:i+1], letters)
		case f.NoOptDefVal == "": // the rest of the letters is its value
			return i == len(letters)-1, nil
		}
	}
	return false, nil
}

// sourceKey is the annotation of a flag that says where its value was set; there is none for the command line.
const sourceKey = "lapwing-source"

func setSource(f *pflag.Flag, source string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[sourceKey] = []string{source}
}

// withSources has the errors of options say where the value was set.
func withSources(err error, flags *pflag.FlagSet) error {
	for _, bad := range optionerr.All(err) {
		if f := flags.Lookup(bad.Flag); f != nil && len(f.Annotations[sourceKey]) > 0 {
			bad.From = f.Annotations[sourceKey][0]
		}
	}
	return err
}

// forgivingValue notes values that cannot be read instead of failing, so that the others are read too.
type forgivingValue struct {
	pflag.Value
	flag *pflag.Flag
	bad  *optionerr.List
}

func (v *forgivingValue) Set(text string) error {
	if err := v.Value.Set(text); err != nil {
		v.bad.Add(v.flag.Name, "%w", plain(v.flag, text, err))
		_ = v.Value.Set(v.flag.DefValue) // a failure may leave 0, or a bound
	}
	return nil
}

// forgivingList is a forgivingValue of a list.
type forgivingList struct {
	*forgivingValue
	pflag.SliceValue
}

func forgiving(f *pflag.Flag, bad *optionerr.List) pflag.Value {
	v := &forgivingValue{f.Value, f, bad}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return forgivingList{v, list}
	}
	return v
}

// aSize is a size in bytes with a unit of 1024, as other programs take it.
var aSize = regexp.MustCompile(`^(\d{1,6})([KMG])i?B?$`)

var aDuration = regexp.MustCompile(`^[-+]?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h|d|w))+$`)

// plain says in plain words why a flag cannot have a value. Go's own words are for programmers.
func plain(f *pflag.Flag, text string, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		err = invalid.Unwrap()
	}
	var want string
	switch kind := f.Value.Type(); kind {
	case "int", "int64":
		want = "a whole number"
	case "uint32", "uint64":
		want = "a whole number that is not negative"
	case "float64":
		want = "a number"
	case "bool":
		want = "true or false"
	case "duration":
		want = "a time such as 500ms, 15s, 5m, 12h or 7d"
		if aDuration.MatchString(text) {
			return fmt.Errorf("%s is too long: the longest time is 100 years, 876000h", text)
		}
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			return fmt.Errorf("%s has no unit: it must be %s", text, want)
		}
	case "stringToString":
		want = "pairs such as name=value"
	default:
		return err
	}
	if errors.Is(err, strconv.ErrRange) {
		if strings.HasPrefix(text, "-") {
			return fmt.Errorf("%s is too small", text)
		}
		return fmt.Errorf("%s is too large", text)
	}
	if m := aSize.FindStringSubmatch(text); m != nil && strings.HasPrefix(want, "a whole number") {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		return fmt.Errorf("%q is not %s; as bytes it is %d", text, want, n<<(10*(1+strings.Index("KMG", m[2]))))
	}
	return fmt.Errorf("%q is not %s", text, want)
}

// refuseZero refuses 0 for numbers and times, where it would count as if the flag were not given. The help of a flag in
// zeros says what 0 does.
func refuseZero(bad *optionerr.List, flags *pflag.FlagSet, zeros []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Changed || slices.Contains(zeros, f.Name) {
			return
		}
		switch f.Value.Type() {
		case "int", "int64", "uint32", "uint64", "float64", "duration":
			if text := f.Value.String(); text == "0" || text == "0s" || text == "-0" {
				bad.Add(f.Name, "0 has no meaning here; leave it out for the default, %s", f.DefValue)
			}
		}
	})
}

// refuseEmpty refuses the empty value for words and lists that have a default, where it would count as if the flag were
// not given.
func refuseEmpty(bad *optionerr.List, flags *pflag.FlagSet, mayBeEmpty ...string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Changed || slices.Contains(mayBeEmpty, f.Name) {
			return
		}
		text := f.Value.String()
		switch f.Value.Type() {
		case "string":
			if f.DefValue != "" && text == "" {
				bad.Add(f.Name, "it is empty; leave it out for the default, %s", f.DefValue)
			}
		case "stringSlice":
			if f.DefValue != "[]" && text == "[]" {
				bad.Add(f.Name, "it is empty; leave it out for the default, %s", strings.Trim(f.DefValue, "[]"))
			}
		}
	})
}

// logRefused says what was wrong with settings that were read again: a line for each, and one for all.
func logRefused(log *slog.Logger, err error) {
	all := optionerr.All(err)
	for _, bad := range all {
		log.Error("setting is refused, and the old value stays in use", "flag", "--"+bad.Flag,
			"from", cmp.Or(bad.From, "command line"), "err", bad.Err)
	}
	args := []any{"refused", len(all)}
	if err := optionerr.Others(err); err != nil {
		args = append(args, "err", err)
	}
	log.Error("settings were not reloaded: all old values stay in use", args...)
}
