package migrate

import (
	"regexp"
	"slices"
	"strings"
)

// shellVariable is a variable in a command.
var shellVariable = regexp.MustCompile(`\$(?:\{([A-Za-z_][A-Za-z0-9_]*)|([A-Za-z_][A-Za-z0-9_]*))`)

// givenVariables are the variables that lapwing's handlers and mutators always have.
var givenVariables = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "PWD", "IFS"}

// pluginVariables are read by well-known Sensu plugins. They are often in the environment of its backend.
var pluginVariables = map[string]string{
	"sensu-slack-handler":      "SLACK_WEBHOOK_URL",
	"sensu-pagerduty-handler":  "PAGERDUTY_TOKEN",
	"sensu-opsgenie-handler":   "OPSGENIE_AUTHTOKEN",
	"sensu-influxdb-handler":   "INFLUXDB_ADDR",
	"sensu-jira-handler":       "JIRA_TOKEN",
	"sensu-servicenow-handler": "SERVICENOW_PASSWORD",
	"sensu-sumologic-handler":  "SUMOLOGIC_URL",
	"sensu-ec2-handler":        "AWS_REGION",
}

// needsEnvironment adds a remark for handlers and mutators whose commands seem to use the environment of Sensu's
// backend. lapwing gives commands only the usual variables, their env_vars, and the variables of --handler-env.
func needsEnvironment(m *migration, o *object, _ *summary) {
	if typ := text(o.body, "type"); typ != "pipe" && typ != "" {
		return
	}
	given := slices.Clone(givenVariables)
	for _, entry := range texts(o.body, "env_vars") {
		name, _, _ := strings.Cut(entry, "=")
		given = append(given, name)
	}
	secrets := map[string]bool{}
	list, _ := o.body["secrets"].([]any)
	for _, s := range list {
		s, _ := s.(map[string]any)
		secrets[text(s, "name")] = true
	}
	command := text(o.body, "command")
	var used []string
	for _, found := range shellVariable.FindAllStringSubmatch(command, -1) {
		used = append(used, found[1]+found[2])
	}
	for word := range strings.FieldsSeq(command) {
		if name, ok := pluginVariables[word[strings.LastIndexByte(word, '/')+1:]]; ok && !strings.Contains(command, " --") {
			used = append(used, name)
		}
	}
	slices.Sort(used)
	for _, name := range slices.Compact(used) {
		if slices.Contains(given, name) || strings.Contains(command, name+"=") {
			continue
		}
		subject := o.label() + " $" + name
		if secrets[name] {
			subject += " (one of its secrets)"
		}
		m.rec.remark(Noted, o.kind.Type, "its command seems to use a variable of the backend's environment, which lapwing does not pass on",
			"Put the variable into env_vars, or name it in --handler-env of the backend.", subject)
	}
}
