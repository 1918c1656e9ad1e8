package resource

import (
	"regexp"
	"strings"
)

// CheckConfig is a check as users define it and as check requests carry it.
type CheckConfig struct {
	Command                string               `json:"command,omitempty" pb:"1"`   // shell command that agents run
	Handlers               []string             `json:"handlers" pb:"3"`            // names of handlers that get the events
	HighFlapThreshold      uint32               `json:"high_flap_threshold" pb:"4"` // percent of changes at which flapping begins
	Interval               uint32               `json:"interval" pb:"5"`            // seconds between two runs; either this or cron
	LowFlapThreshold       uint32               `json:"low_flap_threshold" pb:"6"`  // percent; both thresholds must be set for flapping
	Publish                bool                 `json:"publish" pb:"9"`             // whether it runs by itself; otherwise only when asked
	RuntimeAssets          []string             `json:"runtime_assets" pb:"10"`     // names of assets that the command needs
	Subscriptions          []string             `json:"subscriptions" pb:"11"`      // agents with one of these subscriptions run it
	ExtendedAttributes     []byte               `json:"-" pb:"12"`
	ProxyEntityName        string               `json:"proxy_entity_name" pb:"13"`        // entity of the events, if not the agent's
	CheckHooks             []HookList           `json:"check_hooks" pb:"14"`              // hooks to run after a result, by its status
	Stdin                  bool                 `json:"stdin" pb:"15"`                    // the command reads the event from standard input
	Subdue                 *TimeWindowWhen      `json:"subdue" pb:"16"`                   // does nothing, as in Sensu; see subdues
	Cron                   string               `json:"cron,omitempty" pb:"17"`           // crontab schedule; either this or interval
	TTL                    int64                `json:"ttl" pb:"18"`                      // seconds until a result is missing; 0: never
	Timeout                uint32               `json:"timeout" pb:"19"`                  // seconds until the command is killed; 0: never
	ProxyRequests          *ProxyRequests       `json:"proxy_requests,omitempty" pb:"20"` // run it for each proxy entity that matches
	RoundRobin             bool                 `json:"round_robin" pb:"21"`              // agents run it in turn, not all at once
	OutputMetricFormat     string               `json:"output_metric_format" pb:"22"`     // metric format of the output, as nagios_perfdata
	OutputMetricHandlers   []string             `json:"output_metric_handlers" pb:"23"`   // names of handlers that get the metrics
	EnvVars                []string             `json:"env_vars" pb:"24"`                 // NAME=value, for the command
	Metadata               ObjectMeta           `json:"metadata" pb:"26,always"`
	MaxOutputSize          int64                `json:"max_output_size,omitempty" pb:"27"`    // bytes of output to keep; 0: up to 2 MiB
	DiscardOutput          bool                 `json:"discard_output,omitempty" pb:"28"`     // drop the output once its metrics are read
	Secrets                []Secret             `json:"secrets" pb:"29"`                      // environment variables with secrets
	OutputMetricTags       []MetricTag          `json:"output_metric_tags,omitempty" pb:"30"` // tags that all its metrics get
	Scheduler              string               `json:"-" pb:"31"`
	Pipelines              []ResourceReference  `json:"pipelines" pb:"32"`                          // pipelines that get the events
	OutputMetricThresholds []MetricThreshold    `json:"output_metric_thresholds,omitempty" pb:"33"` // metric limits that raise the status
	Subdues                []TimeWindowRepeated `json:"subdues,omitempty" pb:"34"`                  // times at which it does not run
	// DependsOn is lapwing's own: while a dependency fails, the check's incidents are not handled. See Dependency.
	DependsOn []string `json:"depends_on,omitempty"`
	// TTLStatus is lapwing's own: the status of a missing result. 0 means 1.
	TTLStatus uint32 `json:"ttl_status,omitempty"`
	// TTLWithoutKeepalive is lapwing's own: missing results are reported even while the entity's keepalive fails.
	TTLWithoutKeepalive bool `json:"ttl_without_keepalive,omitempty"`
	// FallbackPipeline names pipelines for the check's events: the next is tried when the one before fails.
	FallbackPipeline *ResourceReference `json:"fallback_pipeline,omitempty"`
	// Calendars is lapwing's own: the check runs only at the times of calendars, or not at them.
	Calendars *CheckCalendars `json:"calendars,omitempty"`
}

// Check is a check inside an event: its configuration at the time, its result, and the state that the fold added.
type Check struct {
	Command                string               `json:"command,omitempty" pb:"1"`
	Handlers               []string             `json:"handlers" pb:"3"`
	HighFlapThreshold      uint32               `json:"high_flap_threshold" pb:"4"`
	Interval               uint32               `json:"interval" pb:"5"`
	LowFlapThreshold       uint32               `json:"low_flap_threshold" pb:"6"`
	Publish                bool                 `json:"publish" pb:"9"`
	RuntimeAssets          []string             `json:"runtime_assets" pb:"10"`
	Subscriptions          []string             `json:"subscriptions" pb:"11"`
	ProxyEntityName        string               `json:"proxy_entity_name" pb:"13"`
	CheckHooks             []HookList           `json:"check_hooks" pb:"14"`
	Stdin                  bool                 `json:"stdin" pb:"15"`
	Subdue                 *TimeWindowWhen      `json:"subdue" pb:"16"`
	Cron                   string               `json:"cron,omitempty" pb:"17"`
	TTL                    int64                `json:"ttl" pb:"18"`
	Timeout                uint32               `json:"timeout" pb:"19"`
	ProxyRequests          *ProxyRequests       `json:"proxy_requests,omitempty" pb:"20"`
	RoundRobin             bool                 `json:"round_robin" pb:"21"`
	Duration               float64              `json:"duration,omitempty" pb:"22"` // seconds
	Executed               int64                `json:"executed" pb:"23"`           // Unix seconds
	History                []CheckHistory       `json:"history" pb:"24"`
	Issued                 int64                `json:"issued" pb:"25"` // Unix seconds
	Output                 string               `json:"output" pb:"26"`
	State                  string               `json:"state,omitempty" pb:"27"`
	Status                 uint32               `json:"status" pb:"28"`
	TotalStateChange       uint32               `json:"total_state_change" pb:"29"` // percent
	LastOK                 int64                `json:"last_ok" pb:"30"`            // Unix seconds
	Occurrences            int64                `json:"occurrences" pb:"31"`
	OccurrencesWatermark   int64                `json:"occurrences_watermark" pb:"32"`
	Silenced               []string             `json:"silenced,omitempty" pb:"33"`
	Hooks                  []Hook               `json:"hooks,omitempty" pb:"34"`
	OutputMetricFormat     string               `json:"output_metric_format" pb:"35"`
	OutputMetricHandlers   []string             `json:"output_metric_handlers" pb:"36"`
	EnvVars                []string             `json:"env_vars" pb:"37"`
	Metadata               ObjectMeta           `json:"metadata" pb:"38,always"`
	MaxOutputSize          int64                `json:"max_output_size,omitempty" pb:"39"`
	DiscardOutput          bool                 `json:"discard_output,omitempty" pb:"40"`
	Secrets                []Secret             `json:"secrets" pb:"41"`
	IsSilenced             bool                 `json:"is_silenced" pb:"42"`
	OutputMetricTags       []MetricTag          `json:"output_metric_tags,omitempty" pb:"43"`
	Scheduler              string               `json:"scheduler" pb:"44"`
	ProcessedBy            string               `json:"processed_by,omitempty" pb:"45"`
	Pipelines              []ResourceReference  `json:"pipelines" pb:"46"`
	OutputMetricThresholds []MetricThreshold    `json:"output_metric_thresholds,omitempty" pb:"47"`
	Subdues                []TimeWindowRepeated `json:"subdues,omitempty" pb:"48"`
	ExtendedAttributes     []byte               `json:"-" pb:"99"`
}

// CheckOf returns the check of an event about a run of config, without a result. It shares config's slices and maps.
func CheckOf(config *CheckConfig) *Check {
	return &Check{
		Command:                config.Command,
		Handlers:               config.Handlers,
		HighFlapThreshold:      config.HighFlapThreshold,
		Interval:               config.Interval,
		LowFlapThreshold:       config.LowFlapThreshold,
		Publish:                config.Publish,
		RuntimeAssets:          config.RuntimeAssets,
		Subscriptions:          config.Subscriptions,
		ProxyEntityName:        config.ProxyEntityName,
		CheckHooks:             config.CheckHooks,
		Stdin:                  config.Stdin,
		Subdue:                 config.Subdue,
		Cron:                   config.Cron,
		TTL:                    config.TTL,
		Timeout:                config.Timeout,
		ProxyRequests:          config.ProxyRequests,
		RoundRobin:             config.RoundRobin,
		OutputMetricFormat:     config.OutputMetricFormat,
		OutputMetricHandlers:   config.OutputMetricHandlers,
		EnvVars:                config.EnvVars,
		MaxOutputSize:          config.MaxOutputSize,
		DiscardOutput:          config.DiscardOutput,
		OutputMetricTags:       config.OutputMetricTags,
		Scheduler:              config.Scheduler,
		Pipelines:              config.Pipelines,
		OutputMetricThresholds: config.OutputMetricThresholds,
		Metadata: ObjectMeta{
			Name:        config.Metadata.Name,
			Namespace:   config.Metadata.Namespace,
			Labels:      config.Metadata.Labels,
			Annotations: config.Metadata.Annotations,
		},
	}
}

// CheckHistory is one past result of a check.
type CheckHistory struct {
	Status   uint32 `json:"status" pb:"1"`
	Executed int64  `json:"executed" pb:"2"` // Unix seconds
	Flapping bool   `json:"-" pb:"3"`
}

// CheckRequest asks an agent to run a check once.
type CheckRequest struct {
	Config     *CheckConfig         `json:"config,omitempty" pb:"1"`
	Assets     []Asset              `json:"assets" pb:"2"`
	Hooks      []HookConfig         `json:"hooks" pb:"3"`
	Issued     int64                `json:"issued" pb:"4"` // Unix seconds
	HookAssets map[string]AssetList `json:"hook_assets" pb:"5"`
	Secrets    []string             `json:"secrets,omitempty" pb:"6"`
	// Pauses is lapwing's own, and only in the schedules of agents: times at which the check does not run, because of its
	// calendars. They are in order and apart.
	Pauses []CheckPause `json:"pauses,omitempty" pb:"100"`
}

// CheckPause is a time in Unix seconds. Begin belongs to it, End does not.
type CheckPause struct {
	Begin int64 `json:"begin" pb:"1"`
	End   int64 `json:"end" pb:"2"`
}

// AssetList lists the assets of one hook.
type AssetList struct {
	Assets []Asset `json:"assets" pb:"1"`
}

// ProxyRequests selects the entities that a check runs for, and says how the requests are spread over the interval.
type ProxyRequests struct {
	EntityAttributes []string `json:"entity_attributes" pb:"1"` // expressions that must all hold, as entity.labels.site == 'north'
	Splay            bool     `json:"splay" pb:"2"`             // whether the runs are spread over the interval
	SplayCoverage    uint32   `json:"splay_coverage" pb:"3"`    // percent of the interval that they are spread over
}

// HookConfig is a command that an agent runs after a check, as users define it.
type HookConfig struct {
	Metadata      ObjectMeta `json:"metadata" pb:"1,always"`
	Command       string     `json:"command,omitempty" pb:"2"` // what the agent runs, in a shell
	Timeout       uint32     `json:"timeout" pb:"3"`           // seconds until the command is killed
	Stdin         bool       `json:"stdin" pb:"4"`             // the command reads the event from standard input
	RuntimeAssets []string   `json:"runtime_assets" pb:"5"`    // names of assets that the command needs
}

// Hook is a hook's result inside an event. In JSON its configuration and its result are one object.
type Hook struct {
	HookConfig `pb:"1,always"`
	Duration   float64 `json:"duration,omitempty" pb:"2"` // seconds
	Executed   int64   `json:"executed" pb:"3"`           // Unix seconds
	Issued     int64   `json:"issued" pb:"4"`             // Unix seconds
	Output     string  `json:"output,omitempty" pb:"5"`
	Status     int32   `json:"status" pb:"6"`
}

// HookList names the hooks for one type of result ("0".."255", ok, warning, critical, unknown, non-zero). Its
// JSON is an object with the type as its only key.
type HookList struct {
	Hooks []string `json:"hooks" pb:"1"` // names of hooks
	Type  string   `json:"type" pb:"2"`  // a status from 0 to 255, or ok, warning, critical, unknown or non-zero
}

// Asset is an archive that checks, hooks and handlers need.
type Asset struct {
	URL      string            `json:"url,omitempty" pb:"2"`    // where the archive is
	Sha512   string            `json:"sha512,omitempty" pb:"3"` // of the archive, in hexadecimal
	Filters  []string          `json:"filters" pb:"5"`          // expressions that must all hold on a host, as entity.system.os == 'linux'
	Builds   []*AssetBuild     `json:"builds" pb:"6"`           // archives for different hosts; the first one whose filters hold is taken
	Metadata ObjectMeta        `json:"metadata" pb:"8,always"`
	Headers  map[string]string `json:"headers" pb:"9"` // headers of the request for the archive
}

// AssetVariable returns the environment variable that holds the directory of an asset.
func AssetVariable(name string) string {
	return strings.ToUpper(notAlphanumeric.ReplaceAllString(name, "_")) + "_PATH"
}

var notAlphanumeric = regexp.MustCompile("[^a-zA-Z0-9]+")

// AssetBuild is one variant of an asset.
type AssetBuild struct {
	URL     string            `json:"url,omitempty" pb:"2"`    // where the archive is
	Sha512  string            `json:"sha512,omitempty" pb:"3"` // of the archive, in hexadecimal
	Filters []string          `json:"filters" pb:"5"`          // expressions that must all hold on a host, as entity.system.os == 'linux'
	Headers map[string]string `json:"headers" pb:"9"`          // headers of the request for the archive
}

// TimeWindowWhen is Sensu's legacy weekly window.
type TimeWindowWhen struct {
	Days TimeWindowDays `json:"days" pb:"1,always"`
}

// TimeWindowDays holds the ranges of each day.
type TimeWindowDays struct {
	All       []TimeWindowTimeRange `json:"all,omitempty" pb:"1"`
	Sunday    []TimeWindowTimeRange `json:"sunday,omitempty" pb:"2"`
	Monday    []TimeWindowTimeRange `json:"monday,omitempty" pb:"3"`
	Tuesday   []TimeWindowTimeRange `json:"tuesday,omitempty" pb:"4"`
	Wednesday []TimeWindowTimeRange `json:"wednesday,omitempty" pb:"5"`
	Thursday  []TimeWindowTimeRange `json:"thursday,omitempty" pb:"6"`
	Friday    []TimeWindowTimeRange `json:"friday,omitempty" pb:"7"`
	Saturday  []TimeWindowTimeRange `json:"saturday,omitempty" pb:"8"`
}

// TimeWindowTimeRange is a range on a 12-hour clock, for example 3:04PM.
type TimeWindowTimeRange struct {
	Begin string `json:"begin" pb:"1"`
	End   string `json:"end" pb:"2"`
}

// TimeWindowRepeated is a period that may recur. Its ends are in RFC 3339.
type TimeWindowRepeated struct {
	Begin  string   `json:"begin" pb:"1"`
	End    string   `json:"end" pb:"2"`
	Repeat []string `json:"repeat" pb:"3"`
}
