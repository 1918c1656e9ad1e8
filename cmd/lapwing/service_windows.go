package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
	"golang.org/x/sys/windows/svc/mgr"
)

const (
	serviceName = "LapwingAgent"
	// stopWithin is how long an agent may take to end before a service is removed under it.
	stopWithin = 30 * time.Second
	// eventID is of our entries in Windows' log: the message tells the rest.
	eventID = 1
)

// addServiceCommand adds the commands that have Windows run the agent.
func addServiceCommand(agent *cobra.Command, f *agentFlags) {
	service := &cobra.Command{
		Use:   "service",
		Short: "Have Windows run the agent as a service",
		Long: `Have Windows run the agent as a service. Its options are those of the configuration file and of the system's environment.
"sc.exe control LapwingAgent paramchange" has it read them again.`,
	}
	var file logFile
	logFlags := func(cmd *cobra.Command) {
		cmd.Flags().StringVar(&file.path, "log-file", defaultAgentLog, "where the service writes its log")
		cmd.Flags().Int64Var(&file.maxSize, "log-max-size", 10<<20, "bytes of it, then another is begun")
		cmd.Flags().IntVar(&file.keep, "log-retention-files", 5, "how many older ones are kept")
	}
	install := &cobra.Command{
		Use:     "install",
		Short:   "Make the service, to be started with the system",
		Example: `  lapwing agent service install --config-file D:\lapwing\agent.yml` + "\n  sc.exe start LapwingAgent",
		Args:    cobra.NoArgs,
	}
	logFlags(install)
	install.RunE = func(cmd *cobra.Command, _ []string) error {
		args, err := serviceArgs(cmd, &file)
		if err != nil {
			return err
		}
		return installService(args)
	}
	uninstall := &cobra.Command{
		Use: "uninstall", Short: "Stop the service and remove it", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return uninstallService() },
	}
	run := &cobra.Command{Use: "run", Short: "Run as the service; Windows does this", Args: cobra.NoArgs}
	logFlags(run)
	run.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := file.open(); err != nil {
			return err
		}
		defer file.Close()
		f.logTo = &file
		s := &agentService{run: func(ctx context.Context, reload <-chan os.Signal) error { return runAgent(ctx, cmd, f, reload) }}
		if log, err := eventlog.Open(serviceName); err == nil {
			defer log.Close()
			s.failed = func(err error) { _ = log.Error(eventID, err.Error()) }
		}
		return svc.Run(serviceName, s)
	}
	service.AddCommand(install, uninstall, run)
	agent.AddCommand(service)
}

// serviceArgs is the command line of the service. Windows starts it in a directory of its own, so paths become
// absolute.
func serviceArgs(cmd *cobra.Command, file *logFile) ([]string, error) {
	log, err := filepath.Abs(file.path)
	if err != nil {
		return nil, fmt.Errorf("install service: %w", err)
	}
	args := []string{
		"agent", "service", "run", "--log-file", log, "--log-max-size", fmt.Sprint(file.maxSize), "--log-retention-files",
		fmt.Sprint(file.keep),
	}
	if f := cmd.Flags().Lookup("config-file"); f != nil && f.Changed {
		config, err := filepath.Abs(f.Value.String())
		if err != nil {
			return nil, fmt.Errorf("install service: %w", err)
		}
		args = append(args, "--config-file", config)
	}
	return args, nil
}

func installService(args []string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("install service: %w", err)
	}
	m, err := mgr.Connect()
	if err != nil {
		return fmt.Errorf("install service: connect to the service manager: %w", err)
	}
	defer func() { _ = m.Disconnect() }()
	s, err := m.CreateService(serviceName, program, mgr.Config{
		DisplayName: "lapwing agent", Description: "Runs checks on this host and reports their results.",
		StartType: mgr.StartAutomatic, DelayedAutoStart: true,
	}, args...)
	if err != nil {
		return fmt.Errorf("install service %s: %w", serviceName, err)
	}
	defer s.Close()
	again := []mgr.RecoveryAction{
		{Type: mgr.ServiceRestart, Delay: 5 * time.Second}, {Type: mgr.ServiceRestart, Delay: 30 * time.Second}, {Type: mgr.ServiceRestart, Delay: time.Minute},
	}
	err = s.SetRecoveryActions(again, uint32((24 * time.Hour).Seconds()))
	if err == nil {
		err = s.SetRecoveryActionsOnNonCrashFailures(true)
	}
	if err != nil {
		err = fmt.Errorf("install service %s: have it restarted: %w", serviceName, err)
		return errors.Join(err, s.Delete())
	}
	// Without it the agent's own log has everything all the same.
	_ = eventlog.InstallAsEventCreate(serviceName, eventlog.Error|eventlog.Warning|eventlog.Info)
	return nil
}

func uninstallService() error {
	m, err := mgr.Connect()
	if err != nil {
		return fmt.Errorf("uninstall service: connect to the service manager: %w", err)
	}
	defer func() { _ = m.Disconnect() }()
	s, err := m.OpenService(serviceName)
	if err != nil {
		return fmt.Errorf("uninstall service %s: %w", serviceName, err)
	}
	defer s.Close()
	if err := stopService(s); err != nil {
		return fmt.Errorf("uninstall service %s: %w", serviceName, err)
	}
	if err := s.Delete(); err != nil {
		return fmt.Errorf("uninstall service %s: %w", serviceName, err)
	}
	_ = eventlog.Remove(serviceName) // it may never have been there
	return nil
}

// stopService stops a service, if it runs, and waits until it has ended.
func stopService(s *mgr.Service) error {
	status, err := s.Control(svc.Stop)
	if errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
		return nil
	}
	for deadline := time.Now().Add(stopWithin); err == nil && status.State != svc.Stopped; status, err = s.Query() {
		if time.Now().After(deadline) {
			return fmt.Errorf("it has not stopped within %s", stopWithin)
		}
		time.Sleep(200 * time.Millisecond)
	}
	return err
}

// agentService is the agent as Windows' service manager sees it.
type agentService struct {
	run    func(ctx context.Context, reload <-chan os.Signal) error
	failed func(error) // may be nil
}

// Execute runs the agent until the manager wants it to stop. The exit code 1 has it started again.
func (s *agentService) Execute(_ []string, requests <-chan svc.ChangeRequest,
	status chan<- svc.Status) (specific bool, code uint32) {
	const accepts = svc.AcceptStop | svc.AcceptShutdown | svc.AcceptParamChange
	status <- svc.Status{State: svc.StartPending}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	reload, ended := make(chan os.Signal, 1), make(chan error, 1)
	go func() { ended <- s.run(ctx, reload) }()
	status <- svc.Status{State: svc.Running, Accepts: accepts}
	for {
		select {
		case err := <-ended:
			status <- svc.Status{State: svc.StopPending}
			if err == nil {
				return false, 0
			}
			if s.failed != nil {
				s.failed(err)
			}
			return true, 1
		case r := <-requests:
			switch r.Cmd {
			case svc.Interrogate:
				status <- r.CurrentStatus
			case svc.ParamChange:
				select {
				case reload <- syscall.SIGHUP:
				default:
				}
				status <- svc.Status{State: svc.Running, Accepts: accepts}
			case svc.Stop, svc.Shutdown:
				status <- svc.Status{State: svc.StopPending, WaitHint: uint32(stopWithin.Milliseconds())}
				stop()
			}
		}
	}
}
