//go:build race

package filter

// memoryFactor is how much more memory a program takes with the race detector.
const memoryFactor = 16
