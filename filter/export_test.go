package filter

import "time"

// PIDs are the worker processes.
func (p *Pool) PIDs() (list []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for process, there := range p.processes {
		if !there {
			continue
		}
		list = append(list, process.cmd.Process.Pid)
	}
	return list
}

// WorkerTime is the CPU time that the workers have used.
func (p *Pool) WorkerTime() (sum time.Duration) {
	for _, pid := range p.PIDs() {
		used, _ := processTime(pid)
		sum += used
	}
	return sum
}

// WorkerVariable makes a process a worker.
const WorkerVariable = workerVariable

// Wait has filters wait for a worker until one is free: on a busy machine that may take longer than laneWait.
func (e *Engine) Wait() { e.laneWait = time.Minute }
