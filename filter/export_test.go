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

// WorkerTime returns the CPU time of the workers.
func (p *Pool) WorkerTime() (sum time.Duration) {
	for _, pid := range p.PIDs() {
		used, _ := processTime(pid)
		sum += used
	}
	return sum
}

// WorkerVariable is the environment variable of workers.
const WorkerVariable = workerVariable

// Wait makes filters wait until a worker is free: on a busy machine that may take longer than laneWait.
func (e *Engine) Wait() { e.laneWait = time.Minute }
