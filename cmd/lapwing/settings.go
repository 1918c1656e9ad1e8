package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// settings fills flags that the command line leaves alone: from the environment (each of the prefixes, then the flag's name
// in upper case with "_" for "-"), then from a YAML file with the flags' names as keys. The file may be missing unless it
// was asked for by name.
func settings(flags *pflag.FlagSet, prefixes []string, defaultFile string) error {
	if err := fromEnvironment(flags, prefixes); err != nil {
		return err
	}
	file, asked := defaultFile, false
	if f := flags.Lookup("config-file"); f != nil && f.Changed {
		file, asked = f.Value.String(), true
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read configuration file: %w", err)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return fmt.Errorf("read configuration file %s: %w", file, err)
	}
	for key, value := range values {
		f := flags.Lookup(key)
		if f == nil {
			return fmt.Errorf("configuration file %s: unknown key %q", file, key)
		}
		if f.Changed {
			continue
		}
		if err := setFlag(flags, f, value); err != nil {
			return fmt.Errorf("configuration file %s: %s: %w", file, key, err)
		}
	}
	return nil
}

func fromEnvironment(flags *pflag.FlagSet, prefixes []string) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		for _, prefix := range prefixes {
			name := prefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
			text, ok := os.LookupEnv(name)
			if !ok || f.Changed {
				continue
			}
			var err error
			switch f.Value.Type() {
			case "stringSlice", "stringArray": // lists are separated by blanks, as Sensu has it
				err = setFlag(flags, f, toAny(strings.Fields(text)))
			case "stringToString":
				value := map[string]any{}
				if err = json.Unmarshal([]byte(text), &value); err == nil {
					err = setFlag(flags, f, value)
				}
			default:
				err = flags.Set(f.Name, text)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", name, err))
			}
		}
	})
	return errors.Join(errs...)
}

func toAny(words []string) []any {
	list := make([]any, len(words))
	for i, w := range words {
		list[i] = w
	}
	return list
}

// setFlag gives a flag a value of a YAML file.
func setFlag(flags *pflag.FlagSet, f *pflag.Flag, value any) error {
	switch v := value.(type) {
	case nil:
		return nil
	case []any:
		list, ok := f.Value.(pflag.SliceValue)
		if !ok {
			return errors.New("one value is wanted, not a list")
		}
		words := make([]string, len(v))
		for i, e := range v {
			words[i] = fmt.Sprint(e)
		}
		f.Changed = true
		return list.Replace(words)
	case map[string]any:
		if f.Value.Type() != "stringToString" {
			return errors.New("one value is wanted, not a map")
		}
		for key, e := range v {
			if err := flags.Set(f.Name, key+"="+fmt.Sprint(e)); err != nil {
				return err
			}
		}
		return nil
	case float64: // YAML numbers come as these
		return flags.Set(f.Name, strings.TrimSuffix(fmt.Sprintf("%f", v), ".000000"))
	default:
		return flags.Set(f.Name, fmt.Sprint(v))
	}
}
