package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/windows/svc"
)

// TestService plays the service manager: it starts an agent, has it read its options again, and stops it.
func TestService(t *testing.T) {
	reloaded := make(chan bool)
	s := &agentService{run: func(ctx context.Context, reload <-chan os.Signal) error {
		<-reload
		close(reloaded)
		<-ctx.Done()
		return nil
	}}
	requests, status := make(chan svc.ChangeRequest), make(chan svc.Status, 10)
	go func() {
		requests <- svc.ChangeRequest{Cmd: svc.ParamChange}
		<-reloaded
		requests <- svc.ChangeRequest{Cmd: svc.Stop}
	}()
	if specific, code := s.Execute(nil, requests, status); specific || code != 0 {
		t.Errorf("ended with %v %d", specific, code)
	}
	close(status)
	var states []svc.State
	for st := range status {
		states = append(states, st.State)
	}
	want := []svc.State{svc.StartPending, svc.Running, svc.Running, svc.StopPending, svc.StopPending}
	if !slices.Equal(states, want) {
		t.Errorf("states %v, want %v", states, want)
	}
}

func TestServiceThatFails(t *testing.T) {
	var told error
	s := &agentService{
		run:    func(context.Context, <-chan os.Signal) error { return errors.New("no such file") },
		failed: func(err error) { told = err },
	}
	if specific, code := s.Execute(nil, make(chan svc.ChangeRequest), make(chan svc.Status, 10)); !specific || code != 1 ||
		told == nil {
		t.Errorf("ended with %v %d, told %v", specific, code, told)
	}
}
